"""Where a project stands: sources with position and lag, views with frontier and errors, targets with the epoch they hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.model.relation import Kind, find_relation
from runnel.pipeline import proofs
from runnel.pipeline.deliver import note_name
from runnel.pipeline.epoch import error_note
from runnel.pipeline.rebuilds import outcome
from runnel.pipeline.runner import LEASE, RUN_NOTE
from runnel.project.freshness import has_changes
from runnel.project.places import in_words, summed
from runnel.redaction import plainly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel import config
    from runnel.connectors.base import Source
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.proofs import Proof
    from runnel.pipeline.runtime import Runtime

LAST_EPOCHS = 50
"""Epochs whose records are looked at."""


@dataclass(frozen=True)
class SourceStatus:
    """One source: how far it is captured, what waits, and the `end` of what was written to it so far, which `wait` takes."""

    name: str
    position: Mapping[str, Any]
    lag: Mapping[str, Any]
    error: str | None
    end: Mapping[str, Any]


@dataclass(frozen=True)
class TableStatus:
    """One table: its stored signed rows and files, its key and its foreign keys."""

    name: str
    rows: int
    files: int
    bytes: int
    key: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class ViewStatus:
    """One view; `proof` is the last comparison with its text, `proved` says it in words, or the alarm of one that differs.

    `behind` counts the epochs since its frontier, 0 when nothing it reads changed in them; `rows` are stored rows before folding.
    """

    name: str
    strategy: str
    refresh: str
    frontier: int
    behind: int
    rows: int
    files: int
    last: str
    error: str | None
    proof: dict[str, Any] | None = None
    proved: str = "never proved"


@dataclass(frozen=True)
class TargetStatus:
    """One table of a target: the epoch it holds, None before the first; `behind` counts the epochs since, 0 when it lacks nothing."""

    target: str
    view: str
    table: str
    epoch: int | None
    behind: int
    error: str | None

    def __str__(self) -> str:
        at = "never delivered" if self.epoch is None else f"at epoch {self.epoch} ({self.behind} behind)"
        error = f" ERROR {self.error}" if self.error else ""
        return f"target {self.target}: {self.view} as {self.table}, {at}{error}"


@dataclass(frozen=True)
class RebuildStatus:
    """One `[rebuild.NAME]`: when it was last done (None: never), how many rows it read and how many of them differed.

    `error` is why the last try failed; it is tried again after a pause.
    """

    name: str
    tables: tuple[str, ...]
    where: str | None
    every: float
    last: str | None
    rows_read: int
    rows_changed: int
    epoch: int
    error: str | None

    def __str__(self) -> str:
        part = f" where {self.where}" if self.where else ""
        found = f"{self.rows_read} rows read, {self.rows_changed} differed, at epoch {self.epoch}"
        done = "never done" if self.last is None else f"last at {self.last}: {found}"
        error = f" ERROR {self.error}" if self.error else ""
        return f"rebuild {self.name}: {', '.join(self.tables)}{part} every {self.every:g} s, {done}{error}"


@dataclass(frozen=True)
class Status:
    """A whole project; `to_dict()` is what `--json` prints."""

    project: str
    epoch: int
    runner: str | None
    sources: tuple[SourceStatus, ...]
    tables: tuple[TableStatus, ...]
    views: tuple[ViewStatus, ...]
    targets: tuple[TargetStatus, ...] = ()
    error: str | None = None
    """Why the runner takes no epochs, such as a catalog or Spark that cannot be reached."""
    driver_rows: int = 0
    """Rows of change up to which the driver does the work itself where it can."""
    work: Mapping[str, Any] = field(default_factory=dict)
    """Where the work of the last epochs ran: how many epochs, work by kind and place, Spark's jobs and tasks."""
    rebuilds: tuple[RebuildStatus, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give plain data."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"project {self.project}, epoch {self.epoch}, runner {self.runner or 'none'}"]
        lines += [f"ERROR {self.error}"] if self.error else []
        lines += [f"source {s.name}: {dict(s.lag)}" + (f" ERROR {s.error}" if s.error else "") for s in self.sources]
        for t in self.tables:
            lines.append(f"table {t.name}: {t.rows} rows in {t.files} files")
            lines += [f"  {reference}" for reference in t.references]
        lines += [
            f"view {v.name}: {v.strategy}, refresh {v.refresh}, at epoch {v.frontier} ({v.behind} behind), last {v.last}, {v.proved}"
            + (f" ERROR {v.error}" if v.error else "")
            for v in self.views
        ]
        return "\n".join([*lines, *map(str, (*self.targets, *self.rebuilds)), *self._places()])

    def _places(self) -> list[str]:
        if not self.work.get("epochs"):
            return []
        said = in_words(self.work["work"], self.work["jobs"], self.work["tasks"])
        return [
            f"last {self.work['epochs']} epochs: {said}; the driver takes changes of up to {self.driver_rows:,} rows"
        ]


def status(
    runtime: Runtime,
    project: str,
    sources: Mapping[str, Source],
    targets: Sequence[config.Target] = (),
    rebuilds: Sequence[config.Rebuild] = (),
) -> Status:
    """Collect a project's status from the catalog; nothing is computed."""
    head = runtime.lake.snapshot()
    records = runtime.lake.epochs(LAST_EPOCHS)
    last = _last_strategies(records)
    proved = proofs.known(runtime.lake, head)
    shown = [r for r in head.relations.values() if r.kind is Kind.TABLE]
    return Status(
        project,
        head.epoch,
        runtime.lake.holder(LEASE),
        tuple(_source(head, name, source) for name, source in sources.items()),
        tuple(TableStatus(r.name, *_size(head, r.name), r.key, tuple(map(str, r.references))) for r in shown),
        tuple(
            _view(runtime, head, view, last.get(view.name, ""), proved.get(view.name)) for view in head.views.values()
        ),
        tuple(found for target in targets for found in _target(runtime, head, target)),
        runtime.lake.noted(RUN_NOTE).get("error"),
        runtime.engine.light,
        summed(records),
        tuple(_rebuild(runtime, wanted) for wanted in rebuilds),
    )


def _rebuild(runtime: Runtime, wanted: config.Rebuild) -> RebuildStatus:
    """Say what came of a scheduled rebuild."""
    found = outcome(runtime.lake, wanted.name)
    did = (found.at, found.rows_read, found.rows_changed, found.epoch, plainly(found.error))
    return RebuildStatus(wanted.name, wanted.tables, wanted.where, wanted.every, *did)


def _target(runtime: Runtime, head: Snapshot, target: config.Target) -> list[TargetStatus]:
    """Say where a target stood when somebody last delivered to it; it is not asked itself."""
    noted = runtime.lake.noted(note_name(target.name))
    epochs, errors = noted.get("epochs", {}), plainly(noted.get("errors", {}))
    return [
        TargetStatus(target.name, view, table, epochs.get(view), _lacks(head, view, epochs.get(view)), errors.get(view))
        for view, table in target.views.items()
    ]


def _lacks(head: Snapshot, view: str, epoch: int | None) -> int:
    try:
        relation = find_relation(head.shown.values(), view)
        return 0 if epoch is not None and not head.changes(relation, epoch) else head.epoch - (epoch or 0)
    except RunnelError:  # the view is gone, or changes that are no longer kept were there
        return head.epoch - (epoch or 0)


def _source(head: Snapshot, name: str, source: Source) -> SourceStatus:
    position = head.positions.get(name, {})
    error = plainly(head.positions.get(error_note(name), {}).get("error"))
    try:
        lag, end = source.lag(position or source.initial_offset()), source.end_offset()
    except RunnelError as unreachable:
        lag, end, error = {}, {}, str(unreachable)
    return SourceStatus(name, position, lag, error, end)


def _view(runtime: Runtime, head: Snapshot, view: ViewEntry, last: str, proof: Proof | None) -> ViewStatus:
    rows, files, _ = _size(head, view.name)
    strategy = runtime.program(view).strategy.value
    refresh = view.properties.get("refresh", "immediate")
    behind = head.epoch - view.frontier if has_changes(head, view) else 0
    proved = (proof.to_dict(), str(proof)) if proof is not None else (None, "never proved")
    error = plainly(view.error)
    return ViewStatus(view.name, strategy, refresh, view.frontier, behind, rows, files, last, error, *proved)


def _size(head: Snapshot, name: str) -> tuple[int, int, int]:
    files = head.files(name)
    return sum(f.rows for f in files), len(files), sum(f.bytes for f in files)


def _last_strategies(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Say for each view what its last epoch did: strategy, rows and milliseconds."""
    last: dict[str, str] = {}
    for record in records:
        for view in record.get("defined", ()):
            last.pop(view, None)  # what a view of that name did before is another view's doing
        for view, did in record.get("views", {}).items():
            if did["strategy"] != "skipped" or view not in last:
                last[view] = f"{did['strategy']}, {did['rows']} rows, {did.get('ms', 0):.0f} ms"
    return last
