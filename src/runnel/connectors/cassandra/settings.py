"""The settings of a `cassandra` source or target, checked; every problem is told at once with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.config import Secret, parse_duration, reveal
from runnel.connectors.cassandra.delta_forms import STANDARD, Separators
from runnel.errors import Problems, RunnelError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel import config

TECHNIQUES = ("log", "log-partial", "snapshot", "scan", "audit", "trigger")
LEVELS = ("ONE", "TWO", "THREE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "ALL")
_STRINGS = ("keyspace", "user", "schema")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "capture": TECHNIQUES,
    "consistency": LEVELS,
    "start": ("snapshot", "latest"),
    "audit": ("time", "value"),
    "writer": ("application", "trigger"),
}
NUMBERS = ("port", "parallel", "page")
LISTS = ("hosts", "tables", "logs", "cdc_raw")
FLAGS = ("merge_equal", "compare_times", "times", "release")
KEYS = (
    *("hosts", "port", "keyspace", "tables", "capture", "consistency", "start", "user", "password", "datacenter"),
    *("cdc_raw", "logs", "schema", "audit", "writer", "overlap", "timeout", "recheck", "parallel", "page"),
    *("separators", "merge_equal", "compare_times", "times", "release"),
)
TARGET_KEYS = ("hosts", "port", "keyspace", "consistency", "user", "password", "datacenter", "timeout")
TARGET_LEVEL = "LOCAL_QUORUM"


@dataclass(frozen=True)
class Settings:
    """Where the cluster is, what is captured there, and how.

    `tables` is None for all tables of the keyspace. `cdc_raw` are the nodes' folders of log segments, as they are reached from
    here; `logs` are patterns of log files to be read instead of a live server, `schema` the CQL file that describes them.
    `release` lets segments be deleted once they are analysed.
    """

    name: str
    keyspace: str
    hosts: tuple[str, ...] = ()
    port: int = 9042
    tables: tuple[str, ...] | None = None
    capture: str = "log"
    consistency: str = "ALL"
    start: str = "snapshot"
    user: str | None = None
    password: Secret | None = None
    datacenter: str | None = None
    cdc_raw: tuple[Path, ...] = ()
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
    section: str = "sources"

    @property
    def label(self) -> str:
        """The section's name, as errors show it."""
        return f"{self.section}.{self.name}"


def read_settings(source: config.Source, folder: Path) -> Settings:
    """Check what `[sources.NAME]` says; raise `Problems` with everything that is wrong."""
    check = _Check(source, KEYS)
    values: dict[str, Any] = reveal(dict(source.settings))
    check.known(values)
    offline = "logs" in values
    check.required(values, ("keyspace",) if offline else ("hosts", "keyspace"))
    made: dict[str, Any] = {key: values[key] for key in (*_STRINGS, *_CHOICES, *NUMBERS, *FLAGS) if key in values}
    made |= {key: tuple(check.names(values, key)) for key in ("hosts", "tables", "logs") if key in values}
    made["cdc_raw"] = tuple(folder / path for path in check.names(values, "cdc_raw")) if "cdc_raw" in values else ()
    if "logs" in made:
        made["logs"] = tuple(str(folder / pattern) for pattern in made["logs"])
    made |= {key: check.duration(values, key) for key in ("overlap", "timeout", "recheck") if key in values}
    if "schema" in values:
        made["schema"] = folder / str(values["schema"])
    made |= check.who(values)
    made["separators"] = check.separators(values.get("separators", {}))
    if check.problems:
        raise Problems(check.problems)
    return Settings(name=source.name, **made)


def read_target_settings(target: config.Target) -> Settings:
    """Check what `[targets.NAME]` says; raise `Problems` with everything that is wrong."""
    check = _Check(target, TARGET_KEYS)
    values: dict[str, Any] = reveal(dict(target.settings))
    check.known(values)
    check.required(values, ("hosts", "keyspace"))
    made: dict[str, Any] = {"consistency": TARGET_LEVEL}
    made |= {key: values[key] for key in ("keyspace", "user", "port", "consistency") if key in values}
    made |= {"hosts": tuple(check.names(values, "hosts"))} if "hosts" in values else {}
    made |= {"timeout": check.duration(values, "timeout")} if "timeout" in values else {}
    made |= check.who(values)
    if check.problems:
        raise Problems(check.problems)
    return Settings(name=target.name, section="targets", **made)


class _Check:
    """Asks for settings one by one and remembers what is wrong."""

    def __init__(self, source: config.Source | config.Target, known: tuple[str, ...]) -> None:
        self.source, self.keys = source, known
        self.problems: list[RunnelError] = []

    def problem(self, code: str, message: str, key: str, hint: str | None = None) -> None:
        message = f"{self.source.label}: {message}"
        self.problems.append(UsageError(f"RUNNEL-CONFIG-{code}", message, place=self.source.at(key), hint=hint))

    def known(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            if key not in self.keys:
                hint = nearest(key, self.keys) or f"known are {', '.join(self.keys)}"
                self.problem("UNKNOWN", f"unknown key {key!r}", key, hint)
            elif key in (*_STRINGS, *_CHOICES) and not isinstance(value, str):
                self.problem("TYPE", f"{key!r} must be a string, not {value!r}", key)
            elif key in FLAGS and not isinstance(value, bool):
                self.problem("TYPE", f"{key!r} must be true or false, not {value!r}", key)
            elif key in NUMBERS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                self.problem("TYPE", f"{key!r} must be a whole number of 1 or more, not {value!r}", key)
            elif key in _CHOICES and value not in _CHOICES[key]:
                hint = nearest(value, _CHOICES[key]) or f"one of {', '.join(_CHOICES[key])}"
                self.problem("VALUE", f"{key!r} cannot be {value!r}", key, hint)

    def who(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Give which nodes are asked, and the password of the user."""
        made: dict[str, Any] = {}
        if "datacenter" in values:
            made["datacenter"] = self.text(values, "datacenter")
        if "password" in values:
            made["password"] = Secret(self.text(values, "password"))
            if "user" not in values:
                self.problem("MISSING", "there is a password without a 'user'", "password")
        return made

    def required(self, values: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        for key in keys:
            if not values.get(key):
                example = 'hosts = ["127.0.0.1"]' if key == "hosts" else 'keyspace = "shop"'
                self.problem("MISSING", f"{key!r} is missing", key, f"for example: {example}")

    def names(self, values: Mapping[str, Any], key: str) -> list[str]:
        """Give one string or a list of them as a list."""
        value = values[key]
        listed = [value] if isinstance(value, str) else value
        if isinstance(listed, list) and listed and all(isinstance(name, str) and name for name in listed):
            return listed
        self.problem("TYPE", f"{key!r} must be a list of names", key)
        return []

    def text(self, values: Mapping[str, Any], key: str) -> str:
        if not isinstance(values[key], str):
            self.problem("TYPE", f"{key!r} must be a string", key)
        return str(values[key])

    def duration(self, values: Mapping[str, Any], key: str) -> float:
        try:
            return parse_duration(values[key], place=self.source.at(key))
        except UsageError as error:
            self.problems.append(error)
            return 0.0

    def separators(self, value: Any) -> Separators:
        kinds = ("level", "value", "time")
        if not isinstance(value, dict) or not all(k in kinds and isinstance(v, str) for k, v in value.items()):
            hint = "write separators = { level = '/', value = ':', time = '-' }"
            self.problem("TYPE", "'separators' must map level, value and time to strings", "separators", hint)
            return STANDARD
        try:
            return Separators(**value)
        except UsageError as error:
            place = self.source.at("separators")
            self.problems.append(UsageError(error.code, error.message, place=place, hint=error.hint))
            return STANDARD
