"""The settings of a `mariadb` or `mysql` source or target, checked."""

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
    choices={
        "zero_dates": ("error", "null"),
        "tls": ("off", "on", "verify"),
        "start": ("snapshot", "latest"),
        "before": ("row", "trusted"),
        "row_image": ("full", "minimal"),
    },
    numbers=("port", "server_id"),
    others=("password", "tables", "timeout"),
)
TARGET_KINDS = Kinds(
    strings=("host", "user", "database", "ca"),
    choices={"tls": ("off", "on", "verify")},
    numbers=("port",),
    others=("password", "timeout"),
)
SOURCE_NEEDS = "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'user'@'host'"
TARGET_NEEDS = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, CREATE TEMPORARY TABLES on the database"


@dataclass(frozen=True)
class Settings:
    """Where the server or its archived logs are, and which tables of which database are followed.

    `logs` is a pattern of files, which are then read without a server. `server_id` is random where it is not set. `before` says
    whether old rows are compared with the copy, or `trusted` to be there as the log has them; `row_image` whether the log may leave
    out columns, which are then completed from the state. A target has
    those of a connection only; `needs` are the privileges that messages name.
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
    before: str = "row"
    row_image: str = "full"
    timeout: float = 30.0
    section: str = "sources"
    needs: str = SOURCE_NEEDS

    @property
    def label(self) -> str:
        """How messages name the source or target."""
        return f"{self.section}.{self.name}"


def read_settings(source: config.Source, folder: Path) -> Settings:
    """Check what `[sources.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(source, KINDS)
    made: dict[str, Any] = check.plain() | check.durations(("timeout",))
    made |= {"tables": check.names("tables")} | _password(check)
    offline = bool(check.values.get("logs"))
    check.required({"database": 'database = "shop"'})
    if not offline:
        check.required({"user": 'user = "runnel"'})
    for key in (
        ("host", "port", "user", "password", "server_id", "tls", "start", "before", "row_image") if offline else ()
    ):
        if key in check.values:
            check.problem("VALUE", f"{key!r} is of a server, and 'logs' are read without one", key, "leave one out")
    if made.get("before") == "trusted" and made.get("start") == "latest":
        what = "'before' cannot be 'trusted' with start = 'latest': rows from before the start are in no copy"
        check.problem("VALUE", what, "before", "leave one out")
    if made.get("row_image") == "minimal":
        _check_minimal(check, source.type, made)
    if made.get("server_id", 1) >= 1 << 32:
        check.problem("VALUE", "'server_id' must be less than 4294967296", "server_id")
    check.done()
    return Settings(source.name, source.type, folder=folder, **made)


def _check_minimal(check: Check, family: str, made: dict[str, Any]) -> None:
    """Refuse row images without all columns where they do not say what became of a row."""
    if family == "mariadb":
        what = "'row_image' cannot be 'minimal': MariaDB logs a REPLACE as an update without the columns that it sets to their defaults"
        check.problem("VALUE", what, "row_image", "set binlog_row_image = FULL on the server")
    if made.get("before") == "trusted":
        what = "'before' cannot be 'trusted' with row_image = 'minimal': old rows are not in the log"
        check.problem("VALUE", what, "before", "leave one out")


def read_target_settings(target: config.Target, folder: Path) -> Settings:
    """Check what `[targets.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(target, TARGET_KINDS)
    made: dict[str, Any] = check.plain() | check.durations(("timeout",)) | _password(check)
    check.required({"database": 'database = "front"', "user": 'user = "runnel"'})
    check.done()
    return Settings(target.name, target.type, folder=folder, section="targets", needs=TARGET_NEEDS, **made)


def _password(check: Check) -> dict[str, Any]:
    return {"password": Secret(check.text("password"))} if "password" in check.values else {}
