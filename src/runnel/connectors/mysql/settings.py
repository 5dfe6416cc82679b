"""The settings of a `mariadb` or `mysql` source, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.config import Secret
from runnel.connectors.settings import Check, Kinds

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config
    from runnel.connectors.mysql.log.times import Zero

KINDS = Kinds(
    strings=("host", "user", "database", "logs", "ca"),
    choices={"zero_dates": ("error", "null"), "tls": ("off", "on", "verify"), "start": ("snapshot", "latest")},
    numbers=("port", "server_id"),
    others=("password", "tables", "timeout"),
)


@dataclass(frozen=True)
class Settings:
    """Where the server or its archived logs are, and which tables of which database are followed.

    `logs` is a pattern of files, which are then read without a server. `server_id` is random where it is not set.
    """

    name: str
    family: str
    database: str
    folder: Path
    host: str = "127.0.0.1"
    port: int = 3306
    user: str = ""
    password: Secret | None = None
    tables: tuple[str, ...] = ()
    logs: str = ""
    server_id: int = 0
    zero_dates: Zero = "error"
    tls: str = "off"
    ca: str = ""
    start: str = "snapshot"
    timeout: float = 30.0

    @property
    def label(self) -> str:
        """How messages name the source."""
        return f"sources.{self.name}"


def read_settings(source: config.Source, folder: Path) -> Settings:
    """Check what `[sources.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(source, KINDS)
    made: dict[str, Any] = check.plain() | check.durations(("timeout",))
    made["tables"] = check.names("tables")
    if "password" in check.values:
        made["password"] = Secret(check.text("password"))
    offline = bool(check.values.get("logs"))
    check.required({"database": 'database = "shop"'})
    if not offline:
        check.required({"user": 'user = "runnel"'})
    for key in ("host", "port", "user", "password", "server_id", "tls", "start") if offline else ():
        if key in check.values:
            check.problem("VALUE", f"{key!r} is of a server, and 'logs' are read without one", key, "leave one out")
    if made.get("server_id", 1) >= 1 << 32:
        check.problem("VALUE", "'server_id' must be less than 4294967296", "server_id")
    check.done()
    return Settings(source.name, source.type, folder=folder, **made)
