"""The settings of a `postgres` target, checked; every problem is told at once with its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from runnel.config import Secret, parse_duration
from runnel.errors import Problems, RunnelError, UsageError, nearest
from runnel.redaction import normal

if TYPE_CHECKING:
    from runnel import config

KEYS = ("url", "password", "timeout")


@dataclass(frozen=True)
class Settings:
    """Where the database is; `timeout` bounds connecting and waiting for locks, in seconds."""

    label: str
    url: Secret
    password: Secret | None = None
    timeout: float = 30.0


def read_settings(target: config.Target) -> Settings:
    """Check what `[targets.NAME]` says; raise `Problems` with everything that is wrong."""
    problems: list[RunnelError] = []

    def problem(code: str, message: str, key: str, hint: str | None = None) -> None:
        said = f"{target.label}: {message}"
        problems.append(UsageError(f"RUNNEL-CONFIG-{code}", said, place=target.at(key), hint=hint))

    made: dict[str, Any] = {}
    for key, value in target.settings.items():
        if key not in KEYS:
            problem("UNKNOWN", f"unknown key {key!r}", key, nearest(key, KEYS) or f"known are {', '.join(KEYS)}")
        elif key == "timeout":
            try:
                made[key] = parse_duration(value, place=target.at(key))
            except UsageError as error:
                problems.append(error)
        elif not isinstance(value, str | Secret):
            problem("TYPE", f"{key!r} must be a string", key)
        else:
            made[key] = value if isinstance(value, Secret) else Secret(value)
    url = made.get("url", Secret("")).reveal()
    if not url:
        problem("MISSING", "'url' is missing", "url", 'for example: url = "${FRONT_URL}"')
    elif not _readable(url):
        problem("VALUE", "'url' is no URL of PostgreSQL", "url", "write postgresql://user@host/database")
    if problems:
        raise Problems(problems)
    return Settings(target.label, **made)


def _readable(url: str) -> bool:
    """Say whether the driver can read a URL; what it says of one it cannot read may have the password in it."""
    try:
        return url.startswith(("postgresql://", "postgres://")) and bool(conninfo_to_dict(normal(url)))
    except psycopg.ProgrammingError:
        return False
