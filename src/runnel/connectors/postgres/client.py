"""A connection to PostgreSQL, whose errors are runnel's. Neither the URL nor a password is ever in one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from runnel.errors import RunnelError, Terminal, Transient, Unreachable, UsageError
from runnel.redaction import normal, scrub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.postgres.settings import Settings, SourceSettings

    AnySettings = Settings | SourceSettings

_BUSY = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable, errors.QueryCanceled)
_LOGIN = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
_LOGIN_WORDS = ("authentication failed", "no password supplied", 'role "', "pg_hba.conf", "does not exist")
_TLS_WORDS = ("SSL", "certificate", "no encryption")
_REPLICATION_WORDS = ("WAL sender", "walsender", "replication role")


def connect(settings: AnySettings, **further: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect; raise `RUNNEL-POSTGRES-DOWN` or `RUNNEL-POSTGRES-LOGIN` where that is not possible.

    `further` are words of the driver that a source needs, with its own way of setting the session.
    """
    known: dict[str, Any] = {"password": settings.password.reveal()} if settings.password else {}
    with told(settings):
        connection = psycopg.connect(
            normal(settings.url.reveal()),
            autocommit=True,
            connect_timeout=max(2, int(settings.timeout)),
            tcp_user_timeout=int(settings.timeout * 1000),
            fallback_application_name="runnel",
            client_encoding="utf8",
            **known,
            **further,
        )
        if not further:
            connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{int(settings.timeout * 1000)}ms"])
        return connection


@contextmanager
def told(settings: AnySettings) -> Iterator[None]:
    """Turn the driver's errors into runnel's."""
    try:
        yield
    except psycopg.Error as error:
        scrub(error)
        raise as_runnel_error(settings.label, error, settings.GUIDE) from error


def as_runnel_error(label: str, error: psycopg.Error, guide: str = "docs/targets.md") -> RunnelError:
    """Say in runnel's words what the server or the driver said."""
    said = _said(error)
    if any(word in said for word in _REPLICATION_WORDS) and "too many" not in said:
        hint = f"ALTER ROLE ... REPLICATION; {guide} lists what else must be granted"
        return UsageError("RUNNEL-POSTGRES-REPLICATION", f"{label}: the user may not read the log: {said}", hint=hint)
    if error.sqlstate is None and any(word in said for word in _TLS_WORDS):
        hint = (
            'set tls (or sslmode in the url) to what the server wants: "verify", "on" or "off"; ca names its authority'
        )
        return UsageError("RUNNEL-POSTGRES-TLS", f"{label}: no encrypted connection as it is set: {said}", hint=hint)
    if isinstance(error, errors.InsufficientPrivilege):
        hint = f"{guide} lists what must be granted"
        return UsageError("RUNNEL-POSTGRES-PERMISSION", f"{label}: {said}", hint=hint)
    if isinstance(error, errors.ObjectInUse):
        hint = "stop the other one, or choose another name: slot = ...; it is tried again"
        return Transient("RUNNEL-POSTGRES-SLOT-BUSY", f"{label}: another process reads the slot: {said}", hint=hint)
    if isinstance(error, errors.ConfigurationLimitExceeded):
        hint = "raise max_replication_slots and max_wal_senders, and restart the server; a snapshot needs one more for a while"
        return UsageError("RUNNEL-POSTGRES-SLOTS", f"{label}: no room for another slot: {said}", hint=hint)
    if isinstance(error, _BUSY):
        return Transient("RUNNEL-POSTGRES-BUSY", f"{label}: {said}", hint="somebody else works on these rows")
    if isinstance(error, _LOGIN) or (error.sqlstate is None and any(word in said for word in _LOGIN_WORDS)):
        hint = "check user, password and database of its url"
        return UsageError("RUNNEL-POSTGRES-LOGIN", f"{label}: the server lets nobody in: {said}", hint=hint)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        hint = "is the server started, and are host and port those of its url?"
        return Unreachable("RUNNEL-POSTGRES-DOWN", f"{label}: the server does not answer: {said}", hint=hint)
    return Terminal("RUNNEL-POSTGRES-REFUSED", f"{label}: the server refused: {said}")


def _said(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error)
    return " ".join(text.split())[:300] or type(error).__name__
