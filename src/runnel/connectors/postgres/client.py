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

    from runnel.connectors.postgres.settings import Settings

_BUSY = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable, errors.QueryCanceled)
_LOGIN = (errors.InvalidPassword, errors.InvalidAuthorizationSpecification)
_LOGIN_WORDS = ("authentication failed", "no password supplied", 'role "', "pg_hba.conf", "does not exist")


def connect(settings: Settings) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect; raise `RUNNEL-POSTGRES-DOWN` or `RUNNEL-POSTGRES-LOGIN` where that is not possible."""
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
        )
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{int(settings.timeout * 1000)}ms"])
        return connection


@contextmanager
def told(settings: Settings) -> Iterator[None]:
    """Turn the driver's errors into runnel's."""
    try:
        yield
    except psycopg.Error as error:
        scrub(error)
        raise as_runnel_error(settings.label, error) from error


def as_runnel_error(label: str, error: psycopg.Error) -> RunnelError:
    """Say in runnel's words what the server or the driver said."""
    said = _said(error)
    if isinstance(error, errors.InsufficientPrivilege):
        hint = "docs/targets.md lists what must be granted"
        return UsageError("RUNNEL-POSTGRES-PERMISSION", f"{label}: {said}", hint=hint)
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
