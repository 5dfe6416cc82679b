"""The facts the lake deals in: files, views, and everything one publish makes visible together. Plain data."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.model.relation import Relation


@dataclass(frozen=True)
class ColumnStats:
    """What a file's column holds, as Python values of the column's type; None = not known.

    `nan` says whether a column of floats holds NaN; its minimum and maximum are then left out.
    """

    minimum: Any | None
    maximum: Any | None
    nulls: int
    nan: bool | None = None


@dataclass(frozen=True)
class NewFile:
    """A Parquet file of a relation that is written and not yet published."""

    relation: str
    path: str
    rows: int
    bytes: int
    stats: Mapping[str, ColumnStats]
    digest: str | None = None


@dataclass(frozen=True)
class DataFile:
    """A published Parquet file, visible from epoch `begin` until before `end`.

    A *change* file holds what its relation changed by in epoch `begin`; the others were made by compaction. `digest` is that of its
    bytes, None where an earlier version wrote it; `entry` is the hash of all that the catalog says of it.
    """

    id: int
    relation: str
    path: str
    rows: int
    bytes: int
    begin: int
    end: int | None
    change: bool
    stats: Mapping[str, ColumnStats]
    digest: str | None = None
    entry: int = 0


def only_adds(file: NewFile | DataFile) -> bool:
    """Say whether no row of a file takes another one away, as far as its statistics tell."""
    weights = file.stats.get(WEIGHT)
    return weights is not None and weights.minimum is not None and weights.minimum > 0


@dataclass(frozen=True)
class ViewEntry:
    """The definition of a view, or of a stage below views, and how far it has come; `program` is text the lake does not read.

    `stages` are all stages below a view. `seen` has the columns of each table as the view's text meant them when it was
    compiled: a column that the table got later is not there for it. Empty for a stage, which has no text.
    `events` are the relations whose changes an event view gathers, from epoch `since` on. `functions` are the users' functions
    it calls, each with the fingerprint of the body it was computed with. `settings` are those of the engine that decide what its
    text means, as far as they were not the usual ones.
    """

    name: str
    sql: str
    properties: Mapping[str, str]
    program: str
    inputs: tuple[str, ...]
    stages: tuple[str, ...]
    frontier: int
    error: str | None = None
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    since: int = 0
    functions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Commit:
    """Everything that becomes visible together, computed on the state as of `base`.

    What is dropped is dropped before anything is created. In `frontiers`, None stands for the epoch this commit gets; in
    `errors`, None clears. With a `moment` its rows name their own epoch and time: it becomes the epoch right after `base`, at
    that time, or a conflict. `id` is the publish's own: by it the catalog is asked whether it was made; `epoch` is set when it was.
    """

    base: int
    create: list[Relation] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    add: list[NewFile] = field(default_factory=list)
    define: list[ViewEntry] = field(default_factory=list)
    undefine: list[str] = field(default_factory=list)
    frontiers: dict[str, int | None] = field(default_factory=dict)
    errors: dict[str, str | None] = field(default_factory=dict)
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    kind: str = "epoch"
    moment: str | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int | None = None
