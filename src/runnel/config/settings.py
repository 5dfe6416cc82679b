"""What a project's settings are: frozen, complete, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel.config.secret import Secret
    from runnel.errors import Place, RunnelError

SOURCE_TYPES = ("cassandra", "hbase", "mariadb", "mysql", "postgres", "delta", "files", "managed")
TARGET_TYPES = ("postgres", "mariadb", "mysql", "cassandra", "hbase", "delta", "files")


@dataclass(frozen=True)
class Project:
    """`[project]`."""

    name: str


@dataclass(frozen=True)
class State:
    """`[state]`: where the lake is. Relative paths are already those of the project's folder."""

    catalog: str | Secret
    data: str
    keep: int = 100


@dataclass(frozen=True)
class Spark:
    """`[spark]`: the session; `remote` (Spark Connect) goes before `master`."""

    master: str = "local[*]"
    remote: str | Secret | None = None
    conf: Mapping[str, str | Secret] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """`[run]`: how long (seconds, or one transaction) and how many changes are gathered into an epoch.

    Changes of up to `driver_rows` rows are read and worked out in the driver, where no Spark job is needed for that; 0 = never, None =
    as many as suits where Spark runs.
    `prove` says how often views are compared with their texts in the background (seconds, or as idle time allows), and
    `on_difference` what becomes of one that is wrong.
    """

    epoch: float | Literal["transaction"] = 0.1
    max_rows: int = 1_000_000
    driver_rows: int | None = None
    prove: float | Literal["auto", "off"] = "auto"
    on_difference: Literal["rebuild", "stop", "report"] = "rebuild"


@dataclass(frozen=True)
class Source:
    """`[sources.NAME]`: `settings` holds every key but `type`; what they mean is its connector's matter.

    `project` is the project's name, after which a store may name what it keeps for the source.
    """

    name: str
    type: str
    settings: Mapping[str, Any]
    place: Place
    places: Mapping[str, Place] = field(default_factory=dict)
    project: str = ""

    @property
    def label(self) -> str:
        """The section's name, as errors show it."""
        return f"sources.{self.name}"

    def at(self, key: str) -> Place:
        """Say where a setting stands, or where the section begins."""
        return self.places.get(key, self.place)


@dataclass(frozen=True)
class Target:
    """`[targets.NAME]`: `views` maps each view or table to its table there, `keys` names the columns it is unique by."""

    name: str
    type: str
    views: Mapping[str, str]
    settings: Mapping[str, Any]
    place: Place
    places: Mapping[str, Place] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The section's name, as errors show it."""
        return f"targets.{self.name}"

    def at(self, key: str) -> Place:
        """Say where a setting stands, or where the section begins."""
        return self.places.get(key, self.place)


@dataclass(frozen=True)
class Rebuild:
    """`[rebuild.NAME]`: tables (or the part `where` names) that are re-read from their source every so many seconds."""

    name: str
    tables: tuple[str, ...]
    every: float
    place: Place
    where: str | None = None


@dataclass(frozen=True)
class SqlFile:
    """A file of statements; `path` is relative to the project's folder, as errors show it."""

    path: str
    text: str


@dataclass(frozen=True)
class Config:
    """A whole project as its folder describes it. `warnings` are worth showing and stop nothing."""

    folder: Path
    project: Project
    state: State
    spark: Spark = Spark()
    run: Run = Run()
    sources: tuple[Source, ...] = ()
    targets: tuple[Target, ...] = ()
    rebuilds: tuple[Rebuild, ...] = ()
    sql_files: tuple[SqlFile, ...] = ()
    warnings: tuple[RunnelError, ...] = ()

    @property
    def outside(self) -> frozenset[str]:
        """The names of the sources that other stores write."""
        return frozenset(source.name for source in self.sources if source.type != "managed")
