"""From changes of the log to change sets: gathered by table and form, and turned into Arrow column by column.

Where the log has whole old rows, changes are signed and trusted. Else they are keyed: an update names the columns that it has, because
large values that stayed as they were are not in the log, and their rows have them in the state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from runnel.connectors.base import DELETE, OP, UPDATE, UPSERT, ChangeSet
from runnel.connectors.postgres.columns import Reading, array_of
from runnel.connectors.postgres.log.messages import UNCHANGED, Delete, Insert, Update
from runnel.connectors.postgres.log.problems import lsn_text, refused
from runnel.errors import Place
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from runnel.connectors.postgres.definitions import Definition
    from runnel.connectors.postgres.log.messages import Tuple
    from runnel.connectors.postgres.log.transactions import Change

BATCH = 50_000
"""Rows that are turned into Arrow together."""


@dataclass
class _Run:
    """Rows of one table with the same columns: signed ones with weights, or keyed ones with what is done."""

    columns: tuple[int, ...]
    signed: bool
    lsn: int
    rows: list[Sequence[Any]] = field(default_factory=list)
    does: list[Any] = field(default_factory=list)


@dataclass
class Gathered:
    """Changes by table; `definitions` are those that hold for them."""

    definitions: Mapping[str, Definition]
    unrepresentable: Literal["error", "null"]
    _runs: dict[str, _Run] = field(default_factory=dict)

    def add(self, change: Change) -> Iterator[ChangeSet]:
        """Add a change; give what is complete of its table."""
        definition = self.definitions[change.relation.name]
        if change.truncated:
            self._runs.pop(definition.name, None)  # what the transaction did before, or those before it, is gone too
            yield ChangeSet(definition.name, place=f"the log at {lsn_text(change.lsn)}", whole=True)
            return
        add = self._signed if definition.whole else self._keyed
        yield from add(definition, change)

    def rest(self) -> Iterator[ChangeSet]:
        """Give what was gathered and not given yet."""
        for name in list(self._runs):
            yield self._taken(name)

    def _signed(self, definition: Definition, change: Change) -> Iterator[ChangeSet]:
        match change.row:
            case Insert(_, new):
                rows = [(new, 1)]
            case Update(_, new, old, True) if old is not None:
                whole = tuple(o if n is UNCHANGED else n for o, n in zip(old, new, strict=True))
                rows = [(old, -1), (whole, 1)]
            case Delete(_, old, True):
                rows = [(old, -1)]
            case _:
                raise _no_old_row(definition, change)
        run = yield from self._run(definition, change, _all(definition), signed=True)
        for row, weight in rows:
            run.rows.append(row)
            run.does.append(weight)

    def _keyed(self, definition: Definition, change: Change) -> Iterator[ChangeSet]:
        match change.row:
            case Insert(_, new):
                yield from self._put(definition, change, _all(definition), new, UPSERT)
            case Delete(_, old):
                yield from self._put(definition, change, _all(definition), _key_only(definition, old), DELETE)
            case Update(_, new, old):
                yield from self._updated(definition, change, new, old)

    def _updated(self, definition: Definition, change: Change, new: Tuple, old: Tuple | None) -> Iterator[ChangeSet]:
        if old is not None and isinstance(change.row, Update) and change.row.whole:
            new = tuple(o if n is UNCHANGED else n for o, n in zip(old, new, strict=True))
        columns = tuple(at for at, value in enumerate(new) if value is not UNCHANGED)
        key = [at for at, column in enumerate(definition.columns) if column.name in definition.key]
        moved = old is not None and any(old[at] != new[at] for at in key)
        if len(columns) == len(new):
            if moved and old is not None:
                yield from self._put(definition, change, columns, _key_only(definition, old), DELETE)
            yield from self._put(definition, change, columns, new, UPSERT)
            return
        yield from self._put(definition, change, columns, [new[at] for at in columns], UPDATE, alone=moved)
        if moved and old is not None:
            run = self._runs.pop(definition.name)
            was = self._table(definition, tuple(key), [[old[at] for at in key]], run.lsn)
            yield ChangeSet(definition.name, keyed=self._keyed_table(definition, run), place=_place(run), was=was)

    def _put(
        self,
        definition: Definition,
        change: Change,
        columns: tuple[int, ...],
        row: Sequence[Any],
        operation: str,
        *,
        alone: bool = False,
    ) -> Iterator[ChangeSet]:
        if alone and definition.name in self._runs:
            yield self._taken(definition.name)
        run = yield from self._run(definition, change, columns, signed=False)
        run.rows.append(row)
        run.does.append(operation)

    def _run(
        self, definition: Definition, change: Change, columns: tuple[int, ...], *, signed: bool
    ) -> Generator[ChangeSet, None, _Run]:
        """Give the run that a change goes on with; the one before it is complete where this is another."""
        run = self._runs.get(definition.name)
        if run is not None and (run.columns != columns or run.signed != signed or len(run.rows) >= BATCH):
            yield self._taken(definition.name)
            run = None
        if run is None:
            run = self._runs[definition.name] = _Run(columns, signed, change.lsn)
        return run

    def _taken(self, name: str) -> ChangeSet:
        run, definition = self._runs.pop(name), self.definitions[name]
        if not run.signed:
            return ChangeSet(name, keyed=self._keyed_table(definition, run), place=_place(run))
        table = self._table(definition, run.columns, run.rows, run.lsn)
        signed = table.append_column(WEIGHT, pa.array(run.does, pa.int64()))
        return ChangeSet(name, signed=signed, place=_place(run), trusted=True)

    def _keyed_table(self, definition: Definition, run: _Run) -> pa.Table:
        table = self._table(definition, run.columns, run.rows, run.lsn)
        return table.append_column(OP, pa.array(run.does, pa.string()))

    def _table(
        self, definition: Definition, columns: tuple[int, ...], rows: Sequence[Sequence[Any]], lsn: int
    ) -> pa.Table:
        texts = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
        reading = Reading(definition.name, self.unrepresentable, Place(lsn_text(lsn)))
        return as_table(definition, columns, texts, reading)


def as_table(definition: Definition, columns: Sequence[int], texts: Sequence[pa.Array], reading: Reading) -> pa.Table:
    """Turn texts of some columns of a table into Arrow."""
    chosen = [definition.columns[at] for at in columns]
    arrays = [array_of(column, one, reading) for column, one in zip(chosen, texts, strict=True)]
    return pa.table(arrays, names=[column.name for column in chosen])


def _all(definition: Definition) -> tuple[int, ...]:
    return tuple(range(len(definition.columns)))


def _key_only(definition: Definition, old: Tuple) -> Tuple:
    columns = zip(definition.columns, old, strict=True)
    return tuple(value if column.name in definition.key else None for column, value in columns)


def _place(run: _Run) -> str:
    return f"the log at {lsn_text(run.lsn)}"


def _no_old_row(definition: Definition, change: Change) -> Exception:
    return refused(
        "RUNNEL-POSTGRES-IDENTITY",
        change.lsn,
        f"an old row of table {definition.name} is not logged whole",
        "ALTER TABLE ... REPLICA IDENTITY FULL, also of its partitions, then `runnel rebuild SOURCE`",
    )
