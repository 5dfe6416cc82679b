"""The settings of a `cassandra` source or target, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.config import Secret
from runnel.connectors.cassandra.values.held import POLICIES
from runnel.connectors.deltas.forms import STANDARD, Separators
from runnel.connectors.served.client import check_url
from runnel.connectors.settings import Check, Kinds
from runnel.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from runnel import config

TECHNIQUES = ("log", "log-partial", "snapshot", "scan", "audit", "trigger")
LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "ALL")
_WHERE = ("hosts", "password", "datacenter", "timeout")
_TLS = ("ca", "cert", "key")
_EXAMPLES = {"hosts": 'hosts = ["127.0.0.1"]', "keyspace": 'keyspace = "shop"'}
_DURATIONS = ("overlap", "timeout", "recheck")
KINDS = Kinds(
    strings=("keyspace", "user", "schema"),
    choices={
        "capture": TECHNIQUES,
        "consistency": LEVELS,
        "audit": ("time", "value"),
        "writer": ("application", "trigger"),
        "unrepresentable": POLICIES,
    },
    numbers=("port", "parallel", "page"),
    flags=("merge_equal", "compare_times", "times", "release", "tls"),
    others=(
        *_WHERE,
        *_TLS,
        "log_token",
        "log_ca",
        "tables",
        "logs",
        "cdc_raw",
        "overlap",
        "recheck",
        "separators",
        "start",
    ),
)
TARGET_KINDS = Kinds(("keyspace", "user"), {"consistency": LEVELS}, ("port",), flags=("tls",), others=(*_WHERE, *_TLS))
LISTS = ("hosts", "tables", "logs", "cdc_raw")
TARGET_LEVEL = "LOCAL_QUORUM"


@dataclass(frozen=True)
class Settings:
    """Where the cluster is, what is captured there, and how.

    `tables` is None for all tables of the keyspace. `cdc_raw` are the nodes' folders of log segments, as they are reached from
    here; `log_urls` are those that `runnel serve-log` serves elsewhere, to whoever has `log_token`, with a certificate that `log_ca` vouches
    for; they are copied below `copies`. `logs` are patterns of log files to be read instead of a live server, `schema` the CQL file that describes them.
    `release` lets segments be deleted once they are analysed. `unrepresentable` says what becomes of values that the state cannot
    hold (see `values.held`). With `tls` the connection is encrypted and the server's certificate checked, by `ca` or by what this
    machine trusts; `cert` and `key` are shown to servers that ask who connects.
    """

    name: str
    keyspace: str
    hosts: tuple[str, ...] = ()
    port: int = 9042
    tables: tuple[str, ...] | None = None
    capture: str = "log"
    consistency: str = "ALL"
    start: str | dict[str, Any] = "snapshot"
    user: str | None = None
    password: Secret | None = None
    datacenter: str | None = None
    cdc_raw: tuple[Path, ...] = ()
    log_urls: tuple[str, ...] = ()
    log_token: Secret | None = None
    log_ca: Path | None = None
    copies: Path | None = None
    logs: tuple[str, ...] = ()
    schema: Path | None = None
    audit: str = "time"
    writer: str | None = None
    overlap: float = 0.0
    timeout: float = 30.0
    parallel: int = 4
    page: int = 1000
    recheck: float = 60.0
    separators: Separators = field(default=STANDARD)
    merge_equal: bool = False
    compare_times: bool = False
    times: bool = True
    release: bool = True
    unrepresentable: str = "error"
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    section: str = "sources"

    @property
    def label(self) -> str:
        """The section's name, as errors show it."""
        return f"{self.section}.{self.name}"


def read_settings(source: config.Source, folder: Path) -> Settings:
    """Check what `[sources.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(source, KINDS)
    offline = "logs" in check.values
    check.required({key: text for key, text in _EXAMPLES.items() if not (offline and key == "hosts")})
    made: dict[str, Any] = check.plain()
    made |= {key: check.names(key) for key in ("hosts", "tables") if key in check.values}
    made |= _folders(check, folder) | {"copies": folder / ".runnel" / "cassandra" / source.name / "served"}
    made["logs"] = tuple(str(folder / pattern) for pattern in check.names("logs"))
    made |= check.durations(_DURATIONS)
    if "schema" in made:
        made["schema"] = folder / str(made["schema"])
    made |= _login(check) | _tls(check, folder)
    made["separators"] = _separators(check)
    made["start"] = _start(check)
    check.done()
    return Settings(name=source.name, **made)


def read_target_settings(target: config.Target, folder: Path) -> Settings:
    """Check what `[targets.NAME]` says; raise `Problems` with everything that is wrong."""
    check = Check(target, TARGET_KINDS)
    check.required(_EXAMPLES)
    made: dict[str, Any] = {"consistency": TARGET_LEVEL} | check.plain()
    made |= {"hosts": check.names("hosts")} | check.durations(("timeout",)) | _login(check) | _tls(check, folder)
    check.done()
    return Settings(name=target.name, section="targets", **made)


def _login(check: Check) -> dict[str, Any]:
    """Give which nodes are asked, and the password of the user."""
    made: dict[str, Any] = {}
    if "datacenter" in check.values:
        made["datacenter"] = check.text("datacenter")
    if "password" in check.values:
        made["password"] = Secret(check.text("password"))
        if "user" not in check.values:
            check.problem("MISSING", "there is a password without a 'user'", "password")
    return made


def _tls(check: Check, folder: Path) -> dict[str, Any]:
    """Give the files of an encrypted connection: whom to trust, and who we are."""
    made = {name: folder / check.text(name) for name in _TLS if name in check.values}
    if made and not check.values.get("tls"):
        check.problem(
            "VALUE", f"{next(iter(made))!r} is of no use without tls = true", next(iter(made)), "set tls = true"
        )
    if ("cert" in made) != ("key" in made):
        check.problem("MISSING", "'cert' and 'key' belong together", "cert" if "cert" in made else "key")
    for name, path in made.items():
        if not path.is_file():
            check.problem("VALUE", f"{name!r}: there is no file {path}", name)
    return made


def _folders(check: Check, folder: Path) -> dict[str, Any]:
    """Give the nodes' log folders: those that are seen from here, and those that are served."""
    named = check.names("cdc_raw")
    urls = tuple(name for name in named if "://" in name)
    made: dict[str, Any] = {"cdc_raw": tuple(folder / name for name in named if name not in urls), "log_urls": urls}
    for url in urls:
        try:
            check_url(url)
        except UsageError as error:
            check.problem("VALUE", error.message, "cdc_raw", error.hint)
    if "log_token" in check.values:
        made["log_token"] = Secret(check.text("log_token"))
    elif urls:
        check.problem("MISSING", "'log_token' is missing, without which no log is served", "cdc_raw")
    if "log_ca" in check.values:
        made["log_ca"] = folder / check.text("log_ca")
        if not made["log_ca"].is_file():
            check.problem("VALUE", f"'log_ca': there is no file {made['log_ca']}", "log_ca")
    return made


def _start(check: Check) -> str | dict[str, Any]:
    """Give where to begin: `snapshot`, `latest`, or a position as a capture prints it, in JSON or as a table."""
    value = check.values.get("start", "snapshot")
    if value in ("snapshot", "latest"):
        return str(value)
    try:
        found = json.loads(value) if isinstance(value, str) else dict(value)
        by_time = set(found) == {"time"} and isinstance(found["time"], int)
        hosts = found.get("hosts", {host: at for host, at in found.items() if host != "time"})
        if not by_time and (not hosts or any(not _is_position(at) for at in hosts.values())):
            raise ValueError("no position")
    except (ValueError, TypeError, AttributeError):
        hint = "'snapshot', 'latest', or a position: start = { \"/var/lib/cassandra/cdc_raw\" = [1794886093016, 4711] }"
        check.problem("VALUE", f"'start' cannot be {value!r}", "start", hint)
        return "snapshot"
    return found if by_time else {"hosts": hosts, "time": int(found.get("time", 0))}


def _is_position(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) and part >= 0 for part in value)


def _separators(check: Check) -> Separators:
    value, kinds = check.values.get("separators", {}), ("level", "value", "time")
    if not isinstance(value, dict) or not all(k in kinds and isinstance(v, str) for k, v in value.items()):
        hint = "write separators = { level = '/', value = ':', time = '-' }"
        check.problem("TYPE", "'separators' must map level, value and time to strings", "separators", hint)
        return STANDARD
    try:
        return Separators(**value)
    except UsageError as error:
        place = check.section.at("separators")
        check.problems.append(UsageError(error.code, error.message, place=place, hint=error.hint))
        return STANDARD
