"""A draft of one table's change: inserts, updates, deletes and signed rows checked against the state and against each other.

The outcome is one netted bag of signed rows. Every operation sees the ones before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.errors import Terminal
from runnel.lake.compaction import fold
from runnel.lake.lookup import hashable
from runnel.model import arrow, types
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.entries import DataFile
    from runnel.lake.lake import Lake
    from runnel.model.relation import Relation

_MOST, _MOST_OF_ALL = 2**53, 2**62


class Draft:
    """Collects one table's signed rows on top of its files at one epoch."""

    def __init__(self, lake: Lake, relation: Relation, files: Sequence[DataFile]) -> None:
        """Start from the table as these files hold it."""
        self.relation = relation
        self._lake, self._files = lake, files
        self._parts: list[pa.Table] = []
        self._ahead: tuple[pa.Table, pa.Table] | None = None

    def look_ahead(self, keys: pa.Table) -> None:
        """Read the stored rows of all keys that operations will ask for: once, not anew for each of them."""
        keys = plain_keys(self.relation, keys)
        self._ahead = keys, self._lake.lookup(self.relation, self._files, keys).cast(self._schema())

    def signed(self) -> pa.Table:
        """Give the net change: rows with `_weight`, equal rows added up, zeros gone."""
        if not self._parts:
            return self._schema().empty_table()
        return fold(self.relation, pa.concat_tables(self._parts)) if len(self._parts) > 1 else self._parts[0]

    def insert(self, rows: pa.Table) -> None:
        """Add rows; with a key, none of their keys may be there."""
        if not rows.num_rows:
            return
        rows = self._whole(plain_keys(self.relation, rows))
        if self.relation.key:
            keys = self._unique_keys(rows)
            present = self._current(keys)
            if present.num_rows:
                raise self._key_error("RUNNEL-KEY-DUPLICATE", "is there already", present, "update the row instead")
        self._put(rows, 1)

    def update(self, rows: pa.Table, was: pa.Table | None = None) -> None:
        """Change the named columns of rows found by key, or by the keys that they had (`was`)."""
        if not rows.num_rows:
            return
        self._need_key("update")
        rows = plain_keys(self.relation, rows)
        keys = self._unique_keys(rows if was is None else plain_keys(self.relation, was))
        old = self._current(keys)
        places = self._places(old, keys)
        if None in places:
            raise self._missing(keys, places.index(None))
        whole = old.take(pa.array(places, pa.int64()))
        arrays = [
            rows.column(c.name) if c.name in rows.column_names else whole.column(c.name) for c in self.relation.columns
        ]
        self._put(whole, -1)
        if was is not None and (taken := self._current(self._unique_keys(rows))).num_rows:
            raise self._key_error("RUNNEL-KEY-DUPLICATE", "is there already", taken, "delete its row first")
        self._put(pa.Table.from_arrays(arrays, schema=self._bare()), 1)

    def upsert(self, rows: pa.Table) -> None:
        """Put whole rows in place of those with the same key, if any."""
        if not rows.num_rows:
            return
        self._need_key("upsert")
        rows = self._whole(plain_keys(self.relation, rows))
        self._put(self._current(self._unique_keys(rows)), -1)
        self._put(rows, 1)

    def delete(self, rows: pa.Table, *, lenient: bool = False) -> None:
        """Remove rows: by key, or whole rows where the table has none. What is not there is an error unless `lenient`."""
        if not rows.num_rows:
            return
        if not self.relation.key:
            whole = self._whole(rows)
            self.apply(whole.append_column(WEIGHT, pa.repeat(pa.scalar(-1, pa.int64()), whole.num_rows)))
            return
        keys = self._unique_keys(plain_keys(self.relation, rows))
        old = self._current(keys)
        if not lenient and old.num_rows < keys.num_rows:
            raise self._missing(keys, self._places(old, keys).index(None))
        self._put(old, -1)

    def clear(self) -> None:
        """Remove all rows: those that are stored, and those of this draft."""
        stored = fold(self.relation, self._lake.read(self.relation, self._files).cast(self._schema()))
        self._parts = []
        self._put(stored, -1)

    def apply(self, signed: pa.Table, *, trusted: bool = False) -> None:
        """Add signed rows; afterwards no row may occur less than zero times, nor a key more than once.

        That is looked up in the state, unless the caller vouches for it (`trusted`), as a store's own log does.
        """
        if not signed.num_rows:
            return
        if WEIGHT not in signed.column_names:
            raise Terminal(
                "RUNNEL-WEIGHT-MISSING",
                f"{self.relation.name}: signed rows need a {WEIGHT!r} column",
                hint="add it: +n or -n",
            )
        rows = self._whole(signed.drop_columns([WEIGHT])).append_column(WEIGHT, signed.column(WEIGHT))
        rows = plain_keys(self.relation, rows.cast(self._schema()))
        check_weights(self.relation, rows.column(WEIGHT))
        rows = fold(self.relation, rows)
        check_keys(self.relation, rows)
        if not trusted:
            self._check(rows)
        self._parts.append(rows)

    def _check(self, change: pa.Table) -> None:
        """Compare with what is stored: by key where there is one, by whole row otherwise (only if something is taken away)."""
        by = self.relation.key or tuple(c.name for c in self.relation.columns)
        if not self.relation.key and not pc.any(pc.less(change.column(WEIGHT), 0)).as_py():
            return
        touched = (
            change.select(list(by))
            if self.relation.key
            else change.filter(pc.less(change.column(WEIGHT), 0)).select(list(by))
        )
        after = fold(self.relation, pa.concat_tables([self._current(touched), change]))
        weights = after.column(WEIGHT)
        if pc.any(pc.less(weights, 0)).as_py():
            row = after.filter(pc.less(weights, 0)).slice(0, 1).drop_columns([WEIGHT]).to_pylist()[0]
            raise Terminal(
                "RUNNEL-ROW-MISSING",
                f"{self.relation.name}: a row is deleted that is not there: {_short(row)}",
                hint="the old row must be given exactly as it is stored",
            )
        if self.relation.key:
            groups, (count,) = arrow.grouped(after, by, (WEIGHT, "sum"))
            twice = groups.filter(pc.greater(count, 1))
            if twice.num_rows:
                raise self._key_error(
                    "RUNNEL-KEY-DUPLICATE", "would be there twice", twice, "delete the old row in the same step"
                )

    def _current(self, keys: pa.Table) -> pa.Table:
        """Give the signed rows, netted, that have one of these keys now (state and this draft together)."""
        relation = self.relation
        if not relation.key:
            relation = type(relation)(relation.name, relation.kind, relation.columns, tuple(keys.column_names))
        found = [self._stored(relation, keys)]
        found += [with_keys(part, keys) for part in self._parts]
        return fold(self.relation, pa.concat_tables(found)) if len(found) > 1 else found[0]

    def _stored(self, relation: Relation, keys: pa.Table) -> pa.Table:
        if self._ahead is not None and with_keys(keys, self._ahead[0]).num_rows == keys.num_rows:
            return with_keys(self._ahead[1], keys)
        return self._lake.lookup(relation, self._files, keys).cast(self._schema())

    def _places(self, old: pa.Table, keys: pa.Table) -> list[int | None]:
        where = {key: at for at, key in enumerate(_tuples(old.select(list(self.relation.key))))}
        return [where.get(key) for key in _tuples(keys)]

    def _unique_keys(self, rows: pa.Table) -> pa.Table:
        check_keys(self.relation, rows)
        keys = rows.select(list(self.relation.key))
        groups, (count,) = arrow.grouped(keys, self.relation.key, (self.relation.key[0], "count"))
        if groups.num_rows < keys.num_rows:
            twice = groups.filter(pc.greater(count, 1))
            raise self._key_error("RUNNEL-KEY-DUPLICATE", "is given twice", twice, "give each key once per call")
        return keys

    def _whole(self, rows: pa.Table) -> pa.Table:
        arrays = [
            rows.column(c.name)
            if c.name in rows.column_names
            else pa.chunked_array([pa.nulls(rows.num_rows, types.to_arrow(c.type))])
            for c in self.relation.columns
        ]
        return pa.Table.from_arrays(arrays, schema=self._bare())

    def _put(self, rows: pa.Table, sign: int) -> None:
        if rows.num_rows == 0:
            return
        if WEIGHT in rows.column_names:
            weights = pc.multiply(rows.column(WEIGHT), sign)
            rows = rows.drop_columns([WEIGHT])
        else:
            weights = pa.chunked_array([pa.repeat(pa.scalar(sign, pa.int64()), rows.num_rows)])
        self._parts.append(rows.append_column(WEIGHT, weights).cast(self._schema()))

    def _need_key(self, what: str) -> None:
        if not self.relation.key:
            raise Terminal(
                "RUNNEL-KEY-NONE",
                f"{self.relation.name} has no key, so {what} cannot find its rows",
                hint="give the table a key, or use tx.apply with signed rows",
            )

    def _missing(self, keys: pa.Table, at: int | None) -> Terminal:
        return self._key_error("RUNNEL-KEY-MISSING", "is not there", keys.slice(at or 0, 1), "insert it first")

    def _key_error(self, code: str, what: str, rows: pa.Table, hint: str) -> Terminal:
        key = rows.select(list(self.relation.key)).slice(0, 1).to_pylist()[0]
        return Terminal(code, f"{self.relation.name}: the key {_short(key)} {what}", hint=hint)

    def _bare(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in self.relation.columns])

    def _schema(self) -> pa.Schema:
        return self._bare().append(pa.field(WEIGHT, pa.int64()))


def check_keys(relation: Relation, rows: pa.Table) -> None:
    """Refuse rows without a value for a column of the key."""
    for name in relation.key:
        if name not in rows.column_names or rows.column(name).null_count:
            raise Terminal(
                "RUNNEL-KEY-NULL",
                f"{relation.name}: a row has no value for the key column {name!r}",
                hint="give one",
            )


def check_weights(relation: Relation, weights: pa.ChunkedArray) -> None:
    """Refuse rows without a weight, and weights whose sums could leave the range of whole numbers."""
    if weights.null_count:
        raise Terminal("RUNNEL-WEIGHT-NULL", f"{relation.name}: a signed row has no {WEIGHT}", hint="give +n or -n")
    ends = pc.min_max(weights).as_py()
    total = pc.sum(pc.abs(weights.cast(pa.float64(), safe=False))).as_py()
    if len(weights) and (ends["min"] < -_MOST or ends["max"] > _MOST or total > _MOST_OF_ALL):
        raise Terminal(
            "RUNNEL-WEIGHT-TYPE",
            f"{relation.name}: a {WEIGHT} is beyond 2**53, or all of them together are beyond 2**62",
            hint="give as many rows as there are",
        )


def plain_keys(relation: Relation, rows: pa.Table) -> pa.Table:
    """Give rows whose keys are equal in every bit where SQL finds them equal: one NaN, and 0.0 for -0.0."""
    for at, name in enumerate(rows.column_names):
        if name in relation.key and pa.types.is_floating(rows.schema.field(at).type):
            rows = rows.set_column(at, rows.schema.field(at), arrow.plain_floats(rows.column(at)))
    return rows


def with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Give the rows whose key is among these; NULL equals NULL."""
    names = keys.column_names
    plain = [f.name for f in keys.schema if not pa.types.is_nested(f.type) and not pa.types.is_floating(f.type)]
    for name in plain:
        rows = rows.filter(pc.is_in(rows.column(name), value_set=keys.column(name)))
    if plain == names and len(names) == 1:
        return rows
    wanted = set(_tuples(keys))
    return rows.filter(pa.array([key in wanted for key in _tuples(rows.select(names))], pa.bool_()))


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[hashable(v) for v in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _short(row: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in row.items())
    return text if len(text) <= 120 else text[:117] + "..."
