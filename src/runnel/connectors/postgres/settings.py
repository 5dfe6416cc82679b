"""The settings of a `postgres` source or target, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runnel.config import Secret
from runnel.connectors.settings import Check, Kinds
from runnel.redaction import normal

if TYPE_CHECKING:
    from runnel import config

KINDS = Kinds(others=("url", "password", "timeout"))
SOURCE_KINDS = Kinds(
    strings=("host", "user", "database", "schema", "publication", "slot", "ca"),
    choices={"tls": ("off", "on", "verify"), "unrepresentable": ("error", "null")},
    numbers=("port",),
    others=("url", "password", "tables", "timeout"),
)
LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL."""
_SSL_MODES = {"off": "disable", "on": "require", "verify": "verify-full"}


@dataclass(frozen=True)
class Settings:
    """Where the database is; `timeout` bounds connecting and waiting for locks, in seconds."""

    GUIDE: ClassVar[str] = "docs/targets.md"
    label: str
    url: Secret
    password: Secret | None = None
    timeout: float = 30.0


@dataclass(frozen=True)
class SourceSettings:
    """Which tables of which schema are followed, and what the publication and the slot for them are called.

    `managed` says that the publication is runnel's own: nobody named one. `url` may be a URL or the driver's own form.
    """

    GUIDE: ClassVar[str] = "docs/stores/postgres.md"
    label: str
    url: Secret
    publication: str
    slot: str
    managed: bool = True
    password: Secret | None = None
    schema: str = "public"
    tables: tuple[str, ...] = ()
    tls: str = ""
    ca: str = ""
    unrepresentable: Literal["error", "null"] = "error"
    timeout: float = 30.0

    @property
    def name(self) -> str:
        """What the source is called in the project."""
        return self.label.partition(".")[2]

    @property
    def security(self) -> dict[str, str]:
        """What the driver is told about encryption."""
        known = {"sslmode": _SSL_MODES[self.tls]} if self.tls else {}
        return known | ({"sslrootcert": self.ca or "system"} if self.tls == "verify" else {})


def read_settings(target: config.Target) -> Settings:
    """Check what `[targets.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(target, KINDS)
    made: dict[str, Any] = {key: Secret(check.text(key)) for key in ("url", "password") if key in check.values}
    made |= check.durations(("timeout",))
    check.required({"url": 'url = "${FRONT_URL}"'})
    _check_url(check, made)
    check.done()
    return Settings(target.label, **made)


def read_source_settings(source: config.Source) -> SourceSettings:
    """Check what `[sources.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(source, SOURCE_KINDS)
    made: dict[str, Any] = {key: Secret(check.text(key)) for key in ("url", "password") if key in check.values}
    made |= check.durations(("timeout",))
    made["tables"] = check.names("tables")
    if "url" in check.values:
        for key in ("host", "port", "user", "database"):
            if key in check.values:
                check.problem("VALUE", f"{key!r} is in the url already", key, "leave one out")
    else:
        check.required({"database": 'database = "shop"', "user": 'user = "runnel"'})
    _check_url(check, made)
    plain = check.plain()
    if "slot" in plain and not re.fullmatch(r"[a-z0-9_]{1,63}", str(plain["slot"])):
        check.problem("VALUE", "'slot' may have small letters, digits and underscores only", "slot")
    check.done()
    address = {"host": "host", "port": "port", "user": "user", "database": "dbname"}
    given = {name: plain.pop(key) for key, name in address.items() if key in plain}
    made.setdefault("url", Secret(make_conninfo("", **({"host": "127.0.0.1"} | given))))
    own = own_name(source.project, source.name)
    named: dict[str, Any] = {"publication": own, "slot": own, "managed": "publication" not in plain}
    return SourceSettings(source.label, **(named | made | plain))


def own_name(project: str, source: str) -> str:
    """Give the name of the slot and the publication of a source; two projects have different ones.

    >>> own_name("shop", "orders"), own_name("Shöp", "x" * 70)
    ('runnel_shop_orders', 'runnel_sh_p_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_3deea7a6')
    """
    plain = "_".join(["runnel", *filter(None, (project, source))]).lower()
    made = re.sub(r"[^a-z0-9_]", "_", plain)
    if made == plain and len(made) <= LONGEST_NAME:
        return made
    mark = md5(plain.encode(), usedforsecurity=False).hexdigest()[:8]
    return f"{made[: LONGEST_NAME - 9]}_{mark}"


def _check_url(check: Check, made: dict[str, Any]) -> None:
    if made.get("url") and made["url"].reveal() and not _readable(made["url"].reveal()):
        check.problem("VALUE", "'url' is no URL of PostgreSQL", "url", "write postgresql://user@host/database")


def _readable(url: str) -> bool:
    """Say whether the driver can read a URL; what it says of one it cannot read may have the password in it."""
    try:
        return url.startswith(("postgresql://", "postgres://")) and bool(conninfo_to_dict(normal(url)))
    except psycopg.ProgrammingError:
        return False
