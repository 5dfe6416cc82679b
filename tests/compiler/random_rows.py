"""Makes random tables and batches of signed rows over them that are valid bags: only rows that are there are deleted."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

from runnel.model import types
from runnel.model.relation import Column, Kind, Relation
from tests.compiler.random_keys import mend

if TYPE_CHECKING:
    import random

    from runnel.model.relation import ForeignKey

Row = tuple[object, ...]
Batch = dict[str, list[tuple[Row, int]]]
NAN = float("nan")
TYPES = {
    "int": ("int", "bigint", "smallint"),
    "dec": ("decimal(12,2)", "decimal(9,3)"),
    "dbl": ("double",),
    "str": ("string",),
    "date": ("date",),
    "ts": ("timestamp",),
    "bool": ("boolean",),
    "arr": ("array<int>",),
    "rec": ("struct<f:int,g:string>",),
    "map": ("map<string,int>",),
    "wide": ("tinyint", "decimal(38,0)", "decimal(38,10)", "float"),
}
COMMON = ("int", "dec", "dbl", "str", "date", "ts", "bool")
DOUBLES = (0.0, 0.25, -1.5, 2.75, 49.5, 0.1, 0.7, 12.3, 1e12 + 0.5, 3e-7, 4e-20)
STRINGS = ("a", "b", "ab", "", "it's", "Zürich", "{terms}", "😀", " ", "\\n", "#stage")
EDGES = {
    "tinyint": (-128, 127, 0),
    "decimal(38,0)": (Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)),
    "decimal(38,10)": (Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001")),
    "float": (0.5, -1.25, 3.0e38),
    "date": (datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1582, 10, 15)),
    "double": (NAN, float("inf"), float("-inf"), -0.0, 5e-324, 1.7e308, 1e300, 1e30),
    "string": ("\x00", "a\x00b", "Ünï 名前", "x" * 300, "\u2028", "--", "/*", "`"),
}
"""Values at the edges of their types; numbers among them are compared and grouped by, not calculated with."""


NAMES = {"arr": "l"}
"""First letters of columns; `a1` is what a table is called in a query, and Spark would take it for a struct."""


def random_table(rng: random.Random, name: str) -> Relation:
    """Make a table with `id`, `k` and two to five columns of any types; half of the tables have a key."""
    columns = [Column("id", types.BIGINT), Column("k", types.parse("int"))]
    families = rng.choices(COMMON, k=rng.randint(2, 4)) + [
        f for f in ("arr", "rec", "map", "wide") if rng.random() < 0.12
    ]
    columns += [Column(f"{NAMES.get(f, f[0])}{i}", types.parse(rng.choice(TYPES[f]))) for i, f in enumerate(families)]
    return Relation(name, Kind.TABLE, tuple(columns), ("id",) if rng.random() < 0.5 else ())


def family(column: Column) -> str:
    """Give the family of a table's column."""
    text = str(column.type)
    return next(family for family, names in TYPES.items() if text in names)


class Bag:
    """The rows of a table while batches are made."""

    def __init__(self, rng: random.Random, table: Relation, *, specials: bool) -> None:
        """Begin empty."""
        self.rng, self.table, self.specials = rng, table, specials
        self.parents: list[tuple[ForeignKey, Bag]] = []
        self.rows: Counter[str] = Counter()
        self.values: dict[str, Row] = {}

    def change(self, size: int) -> list[tuple[Row, int]]:
        """Insert, delete and update rows."""
        signed: list[tuple[Row, int]] = []
        for _ in range(size):
            present = sorted(self.rows)
            kind = self.rng.random()
            if present and kind < 0.3:
                row = self.rng.choice(present)
                self._add(signed, self.values[row], -self.rng.randint(1, self.rows[row]))
            elif present and kind < 0.6:
                old = self.values[self.rng.choice(present)]
                self._add(signed, old, -1)
                self._add(signed, self._updated(old), 1)
            else:
                fresh = self._row()
                self._add(signed, fresh, 1 if self.table.key else self.rng.choice((1, 1, 1, 2, 3)))
                if self.rng.random() < 0.1:
                    self._add(signed, fresh, -1)
        return signed

    def empty(self) -> list[tuple[Row, int]]:
        """Delete everything."""
        signed: list[tuple[Row, int]] = []
        for row in sorted(self.rows):
            self._add(signed, self.values[row], -self.rows[row])
        return signed

    def undo(self, batch: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        """Take back what a batch did, which must be the last."""
        signed: list[tuple[Row, int]] = []
        for row, weight in reversed(batch):
            self._add(signed, row, -weight)
        return signed

    def _add(self, signed: list[tuple[Row, int]], row: Row, weight: int) -> None:
        signed.append((row, weight))
        name = repr(row)
        self.values[name] = row
        self.rows[name] += weight
        if not self.rows[name]:
            del self.rows[name]

    def keys(self) -> set[Row]:
        """Give the keys that are there."""
        at = [i for part in self.table.key for i, c in enumerate(self.table.columns) if c.name == part]
        return {tuple(self.values[name][i] for i in at) for name in self.rows}

    def mended(self, row: Row) -> list[tuple[Row, int]]:
        """Delete a row that refers to nothing, or let it refer to something else."""
        signed: list[tuple[Row, int]] = []
        count = self.rows[repr(row)]
        self._add(signed, row, -count)
        if self.rng.random() < 0.5:
            values = list(row)
            self._refer(values)
            self._add(signed, tuple(values), count)
        return signed

    def _refer(self, values: list[object]) -> None:
        """Fill in foreign keys: with keys that are there, with NULL, or with a NULL in one part."""
        names = [c.name for c in self.table.columns]
        for key, parent in self.parents:
            there = sorted(parent.keys(), key=repr)
            chosen: Row = (None,) * len(key.columns)
            if there and self.rng.random() < 0.85:
                chosen = self.rng.choice(there)
            elif len(key.columns) > 1 and self.rng.random() < 0.5:
                chosen = (self.rng.randint(0, 5), None)
            for name, value in zip(key.columns, chosen, strict=True):
                values[names.index(name)] = value

    def _updated(self, old: Row) -> Row:
        """Change some columns; the key too, now and then."""
        fresh = self._row()
        keep_key = self.table.key and self.rng.random() < 0.8
        return tuple(
            o if (i == 0 and keep_key) or (i and self.rng.random() < 0.5) else f
            for i, (o, f) in enumerate(zip(old, fresh, strict=True))
        )

    def _row(self) -> Row:
        values = [self._value(c) for c in self.table.columns]
        if self.table.key:
            taken = {self.values[name][0] for name in self.rows}
            values[0] = self.rng.choice([i for i in range(600) if i not in taken])
        for at, column in enumerate(self.table.columns):
            if values[at] is None and column.name in self.table.key:
                values[at] = self._some(family(column), column)
        self._refer(values)
        return tuple(values)

    def _value(self, column: Column) -> object:
        if self.rng.random() < 0.15:
            return None
        edges = EDGES.get(str(column.type), ())
        if (
            edges
            and column.name not in self.table.key
            and (family(column) == "wide" or (self.specials and self.rng.random() < 0.2))
        ):
            return self.rng.choice(edges)
        return self._some(family(column), column)

    def _some(self, kind: str, column: Column) -> object:
        rng = self.rng
        match kind:
            case "int":
                return rng.randint(-2, 6)
            case "dec":
                scale = column.type.scale if isinstance(column.type, types.Decimal) else 0
                return Decimal(rng.randint(-500, 2000)).scaleb(-scale)
            case "dbl":
                return rng.choice(DOUBLES)
            case "str":
                return rng.choice(STRINGS)
            case "date":
                return datetime.date(2024, 1, rng.randint(1, 4))
            case "ts":
                return datetime.datetime(2024, 2, rng.randint(1, 3), rng.randint(0, 23), tzinfo=datetime.UTC)
            case "arr":
                return [rng.choice((None, 0, 1, 2, 3)) for _ in range(rng.randint(0, 3))]
            case "rec":
                return {"f": rng.choice((None, 1, 2)), "g": rng.choice((None, *STRINGS))}
            case "map":
                return [(name, rng.choice((None, 1, 2))) for name in ("a", "b") if rng.random() < 0.6]
            case "wide":
                return rng.choice(EDGES[str(column.type)])
            case _:
                return rng.random() < 0.5


def random_batches(rng: random.Random, bags: dict[str, Bag], *, many: bool) -> list[Batch]:
    """Make two to six batches, or twice as many: small changes, tables emptied, and now and then a batch taken back."""
    batches: list[Batch] = []
    for _ in range(rng.randint(4, 8) if many else rng.randint(2, 4)):
        batch: Batch = {}
        for name, bag in bags.items():
            if rng.random() < 0.75:
                batch[name] = bag.empty() if rng.random() < 0.08 else bag.change(rng.choice((0, 1, 3, 6)))
        mend(bags, batch)
        batches.append(batch)
        if rng.random() < 0.12:
            batches.append({name: bags[name].undo(rows) for name, rows in batch.items()})
    return batches
