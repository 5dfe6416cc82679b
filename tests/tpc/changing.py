"""Tables that change by seed: rows are cloned, changed and deleted, and each batch is handed out as netted signed rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.compiler.harness import Batch, Row

Values = dict[str, object]


@dataclass(frozen=True)
class Dataset:
    """Tables, the signed rows they begin with, and the batches that follow."""

    tables: tuple[Relation, ...]
    start: Mapping[str, pa.Table]
    batches: tuple[Batch, ...]


@dataclass
class ChangingTable:
    """A keyed table in memory. `take` gives what changed since it was last called, added up."""

    relation: Relation
    rows: dict[Row, Values]
    _before: dict[Row, Values | None] = field(default_factory=dict)
    _pool: list[Row] = field(default_factory=list)

    def key(self, values: Values) -> Row:
        """Give a row's key."""
        return tuple(values[name] for name in self.relation.key)

    def pick(self, rng: random.Random) -> Values:
        """Give one of the rows there are."""
        while True:
            if not self._pool:
                self._pool = list(self.rows)
            found = self.rows.get(rng.choice(self._pool))
            if found is not None:
                return found

    def put(self, values: Values) -> None:
        """Insert a row, or replace the one with its key."""
        key = self.key(values)
        self._before.setdefault(key, self.rows.get(key))
        self.rows[key] = values

    def change(self, values: Values, **changes: object) -> None:
        """Give a row other values; its key stays."""
        self.put({**values, **changes})

    def delete(self, values: Values) -> None:
        """Take a row away."""
        key = self.key(values)
        self._before.setdefault(key, self.rows[key])
        del self.rows[key]

    def where(self, wanted: Callable[[Values], bool]) -> list[Values]:
        """Give all rows of a kind."""
        return [values for values in self.rows.values() if wanted(values)]

    def take(self) -> list[tuple[Row, int]]:
        """Give the signed rows since the last call."""
        signed: list[tuple[Row, int]] = []
        for key, before in self._before.items():
            after = self.rows.get(key)
            if before != after:
                signed += [(tuple(before.values()), -1)] if before is not None else []
                signed += [(tuple(after.values()), 1)] if after is not None else []
        self._before, self._pool = {}, []
        return signed


def relation_of(name: str, data: pa.Table, key: Iterable[str]) -> Relation:
    """Describe a table by its Arrow data."""
    columns = tuple(Column(f.name, types.from_arrow(f.type)) for f in data.schema)
    return Relation(name, Kind.TABLE, columns, tuple(key))


def signed_rows(relation: Relation, data: pa.Table) -> pa.Table:
    """Give a table's rows as they are stored: in the relation's types, each with the weight 1."""
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in relation.columns])
    weight = pa.array([1] * data.num_rows, pa.int64())
    return data.cast(schema).append_column(WEIGHT, weight)


def dataset(
    data: Mapping[str, pa.Table],
    keys: Mapping[str, Sequence[str]],
    count: int,
    change: Callable[[Mapping[str, ChangingTable], int], None],
) -> Dataset:
    """Describe the tables and make `count` batches; `change` changes them once, given the number of the batch."""
    relations = tuple(relation_of(name, table, keys[name]) for name, table in data.items())
    start = {r.name: signed_rows(r, data[r.name]) for r in relations}
    changing = {r.name: _changing(r, start[r.name]) for r in relations}
    batches: list[Batch] = []
    for number in range(1, count + 1):
        change(changing, number)
        taken = {name: table.take() for name, table in changing.items()}
        batches.append({name: rows for name, rows in taken.items() if rows})
    return Dataset(relations, start, tuple(batches))


def merged(data: Dataset, single: int) -> Dataset:
    """Leave the first batches single and make one of all that follow."""
    together: Batch = {}
    for batch in data.batches[single:]:
        for name, rows in batch.items():
            together[name] = [*together.get(name, []), *rows]
    return Dataset(data.tables, data.start, (*data.batches[:single], together))


def _changing(relation: Relation, signed: pa.Table) -> ChangingTable:
    table = ChangingTable(relation, {})
    for values in signed.drop_columns([WEIGHT]).to_pylist():
        table.rows[table.key(values)] = values
    assert len(table.rows) == signed.num_rows, f"{relation.name}: the key {relation.key} is not unique"
    return table
