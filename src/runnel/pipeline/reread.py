"""Makes tables of a source equal to their store again, whatever went wrong before, while the log goes on.

1. read: all rows of the tables, as of one place of the log;
2. compare: with the state at a pinned epoch, so that only rows that differ are left;
3. hand over: on the newest epoch, the difference is brought to where the log is by then, and published in one step. Who loses that
   race looks again at the keys that differed or changed since, not at the whole table.

So nothing is applied twice or lost, a second run finds no difference, and the log waits for the third step only.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connectors.guarded import translate_errors
from runnel.engine.base import Rows
from runnel.engine.inputs import signed
from runnel.errors import RunnelError, Transient, Unreachable, UsageError
from runnel.lake.compaction import fold
from runnel.model import arrow
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.pipeline.change_sets import add_changes, located
from runnel.pipeline.draft import Draft, plain_keys, with_keys
from runnel.pipeline.epoch import error_note
from runnel.pipeline.rows_in import to_table
from runnel.pipeline.runner import LEASE
from runnel.pipeline.signed_rows import negated
from runnel.pipeline.source_tables import check_source_tables
from runnel.pipeline.step import Change, Overtaken, take
from runnel.pipeline.transaction import find_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.base import ChangeSet, Handover, Offset, Reread, RereadableSource
    from runnel.engine.base import Engine
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken

TRIES, PAUSE_SECONDS = 5, 0.5
PATIENCE_SECONDS = 10.0
"""How long a runner gets to reach the place of the rows: then all tables are of one moment after the rebuild, too."""
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Part:
    """What is to be read again of a source: some of its tables, or all of them (None); `where` names the rows to be written."""

    source: str
    tables: frozenset[str] | None = None
    where: str | None = None


@dataclass(frozen=True)
class RebuiltTable:
    """A table that was read again: how many rows its store has, and how many keys had other rows in the state."""

    name: str
    rows_read: int
    rows_changed: int


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did: as of which place of the log, and the newest epoch after it; `published` says that the epoch is its own.

    `ahead` says that the log had not come to the place yet: then whole tables are taken from it, whatever part was named.
    """

    tables: tuple[RebuiltTable, ...]
    place: str
    epoch: int
    published: bool
    ahead: bool

    @property
    def rows_read(self) -> int:
        """How many rows the store gave."""
        return sum(table.rows_read for table in self.tables)

    @property
    def rows_changed(self) -> int:
        """How many keys (of tables without a key: rows) differed, and were written."""
        return sum(table.rows_changed for table in self.tables)


def rebuild(runtime: Runtime, source: RereadableSource, part: Part) -> tuple[Rebuilt, Taken]:
    """Read tables again and make the state equal to them; where somebody else did just that meanwhile, once more."""
    for number in range(TRIES):
        try:
            with translate_errors(f"sources.{part.source}"):
                return _rebuild(runtime, source, part)
        except Transient as error:
            if isinstance(error, Unreachable) or number + 1 == TRIES:
                raise
            log.info("the rebuild begins again: %s", error)
            time.sleep(PAUSE_SECONDS * (number + 1))
    raise AssertionError


def _rebuild(runtime: Runtime, source: RereadableSource, part: Part) -> tuple[Rebuilt, Taken]:
    for error in check_source_tables(runtime, {part.source: source}).values():
        raise error
    head = runtime.lake.snapshot()
    start = head.positions.get(part.source)
    if not start:
        raise UsageError(
            "RUNNEL-REBUILD-START",
            f"nothing of source {part.source} was captured yet, so there is nothing to rebuild",
            hint="`runnel run` begins with all of its rows",
        )
    for table in part.tables or ():
        check_where(runtime.engine, find_table(head, f"{part.source}.{table}"), part.where)
    reading = source.reread(start, part.tables)
    try:
        work = _Work(runtime, reading, part)
        work.read(head)
        work.wait_for_runner()
        with runtime.lake.pinned(runtime.lake.head()):
            work.compare(runtime.lake.snapshot())
            taken = take(runtime, work.build)
        return work.outcome(taken), taken
    finally:
        reading.close()


def check_where(engine: Engine, relation: Relation, where: str | None) -> None:
    """Refuse a condition that is none over the columns of a table."""
    if where is None:
        return
    short = _short(relation)
    try:
        engine.analyse(f"SELECT 1 AS one FROM {quote(short)} WHERE ({where}\n)", {short: relation.columns})
    except Transient:
        raise
    except RunnelError as error:
        raise UsageError(
            "RUNNEL-REBUILD-WHERE",
            f"{where!r} is no condition over the columns of {relation.name}: {error.message}",
            hint=error.hint or f"its columns are {', '.join(column.name for column in relation.columns)}",
        ) from error


def _short(relation: Relation) -> str:
    return relation.name.rpartition(".")[2]


@dataclass
class _Table:
    """A table that is read again: its rows in the store, and the keys that may differ from the state, known as of an epoch."""

    name: str
    relation: Relation
    number: int
    rows: pa.Table
    since: int = 0
    suspects: pa.Table | None = None
    changed: int = 0


@dataclass
class _Work:
    """A rebuild under way."""

    runtime: Runtime
    reading: Reread
    part: Part
    tables: list[_Table] = field(default_factory=list)
    ahead: bool = False

    def read(self, head: Snapshot) -> None:
        """Read all rows of the tables in the store."""
        drafts: dict[str, Draft] = {}
        for table in sorted(self.reading.tables):
            name = f"{self.part.source}.{table}"
            if self.part.tables is None and name not in head.relations:
                continue  # it is in neither
            drafts[table] = Draft(self.runtime.lake, find_table(head, name), [])
        for changes in _joined(self.reading.rows()):
            with located(changes):
                add_changes(drafts[changes.table], changes)
        for table, draft in drafts.items():
            relation = draft.relation
            self.tables.append(_Table(table, relation, head.definitions.ids[relation.name], draft.signed()))

    def wait_for_runner(self) -> None:
        """Wait until the log has come to the place of the rows, where somebody follows it."""
        lake, until = self.runtime.lake, time.monotonic() + PATIENCE_SECONDS
        before: Offset | None = None
        while time.monotonic() < until and lake.holder(LEASE) is not None:
            positions = lake.snapshot().positions
            have = positions.get(self.part.source)
            if have != before:
                handed = self.reading.handover(have) if have else None
                if handed is None or not handed.ahead:
                    return
                before = have
            if positions.get(error_note(self.part.source), {}).get("error"):
                return  # it may be just what this mends
            time.sleep(0.1)

    def compare(self, head: Snapshot) -> None:
        """Find the keys that differ, with the whole of the tables."""
        handed = self._handover(head)
        for table in self.tables:
            self._difference(head, table, _of(handed, table))

    def build(self, head: Snapshot) -> Change:
        """Give what makes the tables of an epoch equal to their store."""
        handed = self._handover(head)
        self.ahead = handed.ahead
        change = Change(transactions=0)
        for table in self.tables:
            found = self._difference(head, table, _of(handed, table))
            if self.part.where is not None and not handed.ahead:
                found = self._named(table, found)
            table.changed = _count(table.relation, found)
            if found.num_rows:
                change.signed[table.relation.name] = found
        if handed.position != head.positions[self.part.source]:
            change.positions[self.part.source] = handed.position
        change.record["rebuilt"] = {table.relation.name: table.changed for table in self.tables}
        return change

    def _handover(self, head: Snapshot) -> Handover:
        have = head.positions.get(self.part.source)
        handed = self.reading.handover(have) if have else None
        same = all(
            head.relations.get(table.relation.name) == table.relation
            and head.definitions.ids[table.relation.name] == table.number
            for table in self.tables
        )
        if handed is None or not same:
            raise Overtaken(
                "RUNNEL-REBUILD-OVERTAKEN",
                f"tables of source {self.part.source} were redefined, or read again by somebody else, during a rebuild",
                hint="it is tried again",
            )
        return handed

    def _difference(self, head: Snapshot, table: _Table, changes: list[ChangeSet]) -> pa.Table:
        """Give the signed rows that make a table of an epoch equal to its store; of the whole table only the first time."""
        relation, lake = table.relation, self.runtime.lake
        keys = self._suspects(head, table, changes)
        draft = Draft(lake, relation, [])
        draft.apply(table.rows if keys is None else with_keys(table.rows, keys), trusted=True)
        for one in changes:
            with located(one):
                add_changes(draft, one)
        wanted, files = draft.signed(), head.files(relation)
        there = lake.read(relation, files) if keys is None else lake.lookup(relation, files, keys)
        there = there.select(wanted.column_names).cast(wanted.schema)
        found = fold(relation, pa.concat_tables([wanted, negated(there)]))
        if relation.key:
            table.since, table.suspects = head.epoch, _keys(relation, found)
        return found

    def _suspects(self, head: Snapshot, table: _Table, changes: list[ChangeSet]) -> pa.Table | None:
        """Give the keys that may differ: those that did, and whatever changed since in the state or the store; None where any may."""
        if table.suspects is None or any(one.whole for one in changes):
            return None
        relation, parts = table.relation, [table.suspects]
        if files := head.changes(relation, table.since):
            parts.append(self.runtime.lake.read(relation, files).select(relation.key))
        for rows in (rows for one in changes for rows in (one.signed, one.keyed, one.was)):
            if rows is not None:
                parts.append(plain_keys(relation, to_table(relation, rows.select(relation.key))).select(relation.key))
        return pa.concat_tables([part.cast(table.suspects.schema) for part in parts])

    def _named(self, table: _Table, found: pa.Table) -> pa.Table:
        """Give that part of a difference of which either side is what `where` names."""
        if not found.num_rows:
            return found
        relation = table.relation
        columns, short = signed(relation.columns), _short(relation)
        given = {short: Rows(found, columns)}
        if not relation.key:
            listed = ", ".join(quote(column.name) for column in columns)
            sql = f"SELECT {listed} FROM {quote(short)} WHERE ({self.part.where}\n)"
            return self.runtime.engine.rows(sql, given, columns).select(found.column_names).cast(found.schema)
        listed = ", ".join(map(quote, relation.key))
        sql = f"SELECT DISTINCT {listed} FROM {quote(short)} WHERE ({self.part.where}\n)"
        by_name = {column.name: column for column in relation.columns}
        chosen = self.runtime.engine.rows(sql, given, [by_name[name] for name in relation.key])
        return with_keys(found, chosen)

    def outcome(self, taken: Taken) -> Rebuilt:
        """Say what was done."""
        tables = tuple(RebuiltTable(table.relation.name, table.rows.num_rows, table.changed) for table in self.tables)
        return Rebuilt(tables, self.reading.place, taken.epoch, taken.published, self.ahead)


def _of(handed: Handover, table: _Table) -> list[ChangeSet]:
    return [one for one in handed.changes if one.table == table.name]


def _keys(relation: Relation, rows: pa.Table) -> pa.Table:
    """Give the keys of rows, each once."""
    plain = rows.select(list(relation.key))
    return arrow.grouped(plain, relation.key, (relation.key[0], "count"))[0] if plain.num_rows else plain


def _count(relation: Relation, found: pa.Table) -> int:
    """Give how many rows a difference is about: keys, or without a key all rows that come or go."""
    if relation.key:
        return int(_keys(relation, found).num_rows)
    return int(pc.sum(pc.abs(found[WEIGHT])).as_py() or 0)


def _joined(found: Iterable[ChangeSet]) -> Iterator[ChangeSet]:
    """Join upserts that come in pieces: a draft compares each piece with all before it."""
    pieces: list[ChangeSet] = []
    for one in found:
        fits = one.keyed is not None and one.was is None and not one.whole
        if pieces and not (fits and one.table == pieces[0].table and _schema(one) == _schema(pieces[0])):
            yield _as_one(pieces)
            pieces = []
        if fits:
            pieces.append(one)
        else:
            yield one
    if pieces:
        yield _as_one(pieces)


def _schema(changes: ChangeSet) -> pa.Schema | None:
    return None if changes.keyed is None else changes.keyed.schema


def _as_one(pieces: list[ChangeSet]) -> ChangeSet:
    return replace(pieces[0], keyed=pa.concat_tables([one.keyed for one in pieces if one.keyed is not None]))
