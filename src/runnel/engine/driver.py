"""The driver's lane: a query whose inputs are small, or can be made small by look-ups, needs no Spark job.

`small` brings what a query needs of its inputs into memory: changes are there already, small relations are read whole, of
large ones only the rows are read that can meet the change (`reduction`). Where that is not possible, or would read too much,
it says so and Spark reads the files. `rows` then runs the query here, if Spark and DuckDB mean the same by it (`common`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.engine.base import Bound, Derived, Files, Rows, TooLarge
from runnel.engine.common import common, shadowed, shape
from runnel.engine.counts import DRIVER, Counted
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.reduction import plan
from runnel.errors import Terminal
from runnel.lake import lookup
from runnel.model import arrow, types
from runnel.model.relation import WEIGHT
from runnel.model.tokens import quoted_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.engine.base import Input
    from runnel.engine.reduction import Lookup, Reduced
    from runnel.model.relation import Column

CHANGES = 2_000_000
CHANGES_ON_CLUSTER = 100_000
"""Rows of change up to which the driver may do the work."""
WHOLE = 50_000
"""Rows of a relation up to which it is read whole, and kept."""
SCANNED = 12_000_000
"""Rows of row groups that one query's look-ups may go through."""
HELD = 1 << 29
"""Bytes that the inputs of one query may take in the driver's memory."""
HELD_BY_LOOKUP = 1 << 28
"""Bytes that the rows found by one query's look-ups may take."""
FEW = 20_000
"""Rows up to which one thread is faster: handing work to others costs more than the work."""


@dataclass
class Small:
    """A query over rows in memory that gives what the query it was made from gives over its inputs."""

    sql: str
    inputs: dict[str, Input]

    @property
    def rows(self) -> int:
        """How many rows it reads."""
        return _rows(self.inputs)

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(one.table.nbytes for one in self.inputs.values() if isinstance(one, Rows))


class Driver:
    """Runs small queries in this process.

    `changes` bounds what is small; 0 sends every query to Spark. Relations of up to `whole` rows are read whole. Results beyond
    `bound` are not held here, however small the change they come from.
    """

    def __init__(
        self,
        changes: int = CHANGES,
        whole: int = WHOLE,
        threads: int | None = None,
        bound: Bound | None = None,
    ) -> None:
        """Keep the bounds; DuckDB is started on first use."""
        self.changes, self.whole = changes, whole
        self.bound = bound or Bound()
        self.counted = Counted()
        self._threads = threads
        self._wide: set[str] = set()
        self._engines: dict[bool, DuckDbEngine] = {}
        self._lock = threading.Lock()

    def _engine(self, inputs: Mapping[str, Input]) -> DuckDbEngine:
        """Give the engine for these inputs: few rows are one thread's work."""
        few = _rows(inputs) <= FEW
        with self._lock:
            if few not in self._engines:
                threads = 1 if few else self._threads
                self._engines[few] = DuckDbEngine(memory_limit="2GB", threads=threads)
            return self._engines[few]

    def close(self) -> None:
        """Let go of what was started."""
        with self._lock:
            for engine in self._engines.values():
                engine.close()
            self._engines = {}

    def small(self, sql: str, inputs: Mapping[str, Input], *, closed: bool = False) -> Small | None:
        """Give the query over rows in memory; None where it has to read more than belongs there.

        A user's own text, which reads the role `rows`, is Spark's alone unless it is `closed`: it may leave open which of two
        equal rows comes first, and then the view must have what `verify` will have. Nor may one of its names mean two things.
        """
        if any(name.endswith("__rows") for name in inputs) and (not closed or shadowed(sql)):
            return None
        files = {name: one for name, one in inputs.items() if isinstance(one, Files) and one.rows}
        changed = [one.table.num_rows for one in inputs.values() if isinstance(one, Rows)]
        changed += [one.rows for one in files.values() if one.change]
        if not self.changes or sum(changed) > self.changes:
            return None
        large = frozenset(name for name, one in files.items() if one.rows > self.whole and not one.change)
        if any(one.relation is None for one in files.values()):
            return None
        derived = tuple((name, one.sql) for name, one in inputs.items() if isinstance(one, Derived))
        reduced = plan(sql, derived, large)
        if reduced is None:
            return None
        try:
            return self._gathered(reduced, inputs, large)
        except lookup.TooMuch:
            return None

    def _gathered(self, reduced: Reduced, inputs: Mapping[str, Input], large: frozenset[str]) -> Small:
        held: dict[str, Input] = {}
        for name, one in inputs.items():
            if isinstance(one, Rows):
                held[name] = one
            elif isinstance(one, Files) and name not in large:
                held[name] = self._whole(one)
        reading = lookup.Reading(most=SCANNED, most_found=HELD_BY_LOOKUP)
        found = Small(reduced.sql, held)
        for step in reduced.lookups:
            source = inputs[step.source]
            assert isinstance(source, Files), step.source
            held[step.name] = self._looked_up(step, source, reduced, held, reading)
            if found.bytes > HELD:
                raise lookup.TooMuch
        self.counted.read(reading.bytes)
        return found

    def _whole(self, source: Files) -> Rows:
        assert source.relation is not None or not source.parts, source.paths
        tables = [lookup.whole(source.relation, part) for part in source.parts if source.relation is not None]
        schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in source.columns])
        bare = [table.cast(schema) for table in tables]
        return Rows(pa.concat_tables(bare) if bare else schema.empty_table(), source.columns)

    def _looked_up(
        self, step: Lookup, source: Files, reduced: Reduced, held: Mapping[str, Input], reading: lookup.Reading
    ) -> Rows:
        relation = source.relation
        assert relation is not None, step.source
        columns = tuple(
            c for c in source.columns if reduced.keeps(c.name) or c.name == WEIGHT or c.name in step.columns
        )
        keys = self._keys(step, source, held)
        wanted = [column.name for column in columns]
        try:
            table = lookup.find(relation, source.parts, keys, wanted, exact=False, reading=reading)
        except Terminal as error:
            if error.code != "RUNNEL-KEY-TYPE":
                raise
            raise lookup.TooMuch from None
        schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns])
        return Rows(table.select(wanted).cast(schema), columns)

    def _keys(self, step: Lookup, source: Files, held: Mapping[str, Input]) -> pa.Table:
        """Find the keys to look up."""
        keys = _plain_keys(step, held)
        if keys is None:
            keys = self._asked(step, held)
        kinds = {column.name.lower(): types.to_arrow(column.type) for column in source.columns}
        names = {column.name.lower(): column.name for column in source.columns}
        if any(not _same_kind(keys.schema.field(at).type, kinds[name.lower()]) for at, name in enumerate(step.columns)):
            raise lookup.TooMuch
        return keys.rename_columns([names[name.lower()] for name in step.columns])

    def _asked(self, step: Lookup, held: Mapping[str, Input]) -> pa.Table:
        """Ask for the keys, which a query over small inputs gives."""
        asked = quoted_names(step.keys)
        named = {name: one for name, one in held.items() if name in asked}
        text = _common(step.keys, named)
        if text is None:
            raise lookup.TooMuch
        try:
            return self._engine(named).rows_within(self.bound, text, named)
        except (Terminal, TooLarge):
            raise lookup.TooMuch from None

    def rows(self, query: Small, columns: Sequence[Column] | None) -> pa.Table | None:
        """Run a small query here; None where only Spark may, or where it fails and Spark has to say why.

        Raises `TooLarge` where the result does not belong into the driver.
        """
        text = _common(query.sql, query.inputs)
        if columns is None or text is None:
            return None
        if query.sql not in self._wide:
            try:
                table = self._engine(query.inputs).rows_within(self.bound, text, query.inputs, columns)
            except Terminal as error:
                if "Overflow" not in str(error):
                    return None
                self._wide.add(query.sql)
        if query.sql in self._wide:
            wide = {n: _widened(one) for n, one in query.inputs.items()}
            if _common(query.sql, wide) is None:  # DuckDB rounds where decimals of all digits and other scales meet
                return None
            try:
                table = self._engine(wide).rows_within(self.bound, text, wide, columns)
            except Terminal:
                return None
        self.counted.work("step", DRIVER)
        return table


def _plain_keys(step: Lookup, held: Mapping[str, Input]) -> pa.Table | None:
    """Take the keys from a column of an input that is at hand, where that is all there is to do."""
    if step.plain is None:
        return None
    source = held[step.plain[0]]
    assert isinstance(source, Rows), step.plain
    named = {name.lower(): name for name in source.table.column_names}
    columns = [named[name.lower()] for name in step.plain[1]]
    if len(set(columns)) < len(columns) or any(pa.types.is_nested(source.table[name].type) for name in columns):
        return None
    return arrow.grouped(source.table, columns)[0]


def _rows(inputs: Mapping[str, Input]) -> int:
    return sum(one.table.num_rows for one in inputs.values() if isinstance(one, Rows))


def _common(sql: str, inputs: Mapping[str, Input]) -> str | None:
    """Give a query as DuckDB has to be asked to answer like Spark."""
    return common(sql, tuple((name, shape(one.columns)) for name, one in inputs.items() if isinstance(one, Rows)))


def _widened(source: Input) -> Input:
    """Give decimals all the digits there are: DuckDB makes products as wide as their factors, Spark one digit wider."""
    if not isinstance(source, Rows):
        return source
    columns = tuple(
        replace(c, type=types.decimal(38, c.type.scale)) if isinstance(c.type, types.Decimal) else c
        for c in source.columns
    )
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns])
    return Rows(source.table.select([c.name for c in columns]).cast(schema), columns)


def _same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one == other or (pa.types.is_integer(one) and pa.types.is_integer(other)) or pa.types.is_null(one))
