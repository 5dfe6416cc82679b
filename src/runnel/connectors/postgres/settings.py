"""The settings of a `postgres` target, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from runnel.config import Secret
from runnel.connectors.settings import Check, Kinds
from runnel.redaction import normal

if TYPE_CHECKING:
    from runnel import config

KINDS = Kinds(others=("url", "password", "timeout"))


@dataclass(frozen=True)
class Settings:
    """Where the database is; `timeout` bounds connecting and waiting for locks, in seconds."""

    label: str
    url: Secret
    password: Secret | None = None
    timeout: float = 30.0


def read_settings(target: config.Target) -> Settings:
    """Check what `[targets.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(target, KINDS)
    made: dict[str, Any] = {key: Secret(check.text(key)) for key in ("url", "password") if key in check.values}
    made |= check.durations(("timeout",))
    check.required({"url": 'url = "${FRONT_URL}"'})
    if made.get("url") and made["url"].reveal() and not _readable(made["url"].reveal()):
        check.problem("VALUE", "'url' is no URL of PostgreSQL", "url", "write postgresql://user@host/database")
    check.done()
    return Settings(target.label, **made)


def _readable(url: str) -> bool:
    """Say whether the driver can read a URL; what it says of one it cannot read may have the password in it."""
    try:
        return url.startswith(("postgresql://", "postgres://")) and bool(conninfo_to_dict(normal(url)))
    except psycopg.ProgrammingError:
        return False
