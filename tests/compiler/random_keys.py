"""Makes tables refer to each other by foreign keys, and batches keep them: what refers to a key goes or changes with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.model.relation import Column, ForeignKey, Relation

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from tests.compiler.random_rows import Bag, Batch, Row


@dataclass(frozen=True)
class Mark:
    """A column is part `part` of a table's key, which has `parts`, or refers to it."""

    table: str
    part: int
    parts: int


def linked(rng: random.Random, tables: Sequence[Relation]) -> tuple[Relation, ...]:
    """Let some of the tables refer to others or to themselves, by keys of one or two columns."""
    made = list(tables)
    for number in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(made))
        parent = made[at]
        if not parent.key:
            parent = made[at] = replace(parent, key=rng.choice((("id",), ("id",), ("id", "k"))))
        others = [i for i in range(len(made)) if i != at]
        child = rng.choice(others) if others and rng.random() < 0.85 else at
        names = [f"fk{number + 1}{part}" for part in "ab"[: len(parent.key)]]
        added = tuple(Column(n, parent.column(p).type) for n, p in zip(names, parent.key, strict=True))
        table = made[child]
        key = ForeignKey(tuple(names), parent.name)
        made[child] = replace(table, columns=(*table.columns, *added), references=(*table.references, key))
    return tuple(made)


def marks(tables: Sequence[Relation]) -> dict[tuple[str, str], tuple[Mark | None, Mark | None]]:
    """Give for the columns of keys and foreign keys what they are the key of, and what they refer to."""
    keys = {(t.name, c): Mark(t.name, i, len(t.key)) for t in tables for i, c in enumerate(t.key)}
    refer = {
        (t.name, c): Mark(k.table, i, len(k.columns))
        for t in tables
        for k in t.references
        for i, c in enumerate(k.columns)
    }
    return {at: (keys.get(at), refer.get(at)) for at in {*keys, *refer}}


def mend(bags: Mapping[str, Bag], batch: Batch) -> None:
    """Delete or change what refers to keys that are gone, until nothing does."""
    again = True
    while again:
        again = False
        for name, bag in bags.items():
            for row in [bag.values[text] for text in sorted(bag.rows)]:
                if _dangles(bag, row) and bag.rows[repr(row)]:
                    batch.setdefault(name, []).extend(bag.mended(row))
                    again = True


def _dangles(bag: Bag, row: Row) -> bool:
    return any(_missing(key, row, bag.table, parent.keys()) for key, parent in bag.parents)


def _missing(key: ForeignKey, row: Row, table: Relation, there: set[Row]) -> bool:
    names = [c.name for c in table.columns]
    value = tuple(row[names.index(c)] for c in key.columns)
    return None not in value and value not in there


def keeps_keys(tables: Sequence[Relation], batches: Iterable[Batch]) -> bool:
    """Say whether every foreign key holds after each batch."""
    rows: dict[str, Counter[str]] = {t.name: Counter() for t in tables}
    values: dict[str, Row] = {}
    by_name = {t.name: t for t in tables}
    for batch in batches:
        for name, changed in batch.items():
            for row, weight in changed:
                rows[name][repr(row)] += weight
                values[repr(row)] = row
        present = {name: [values[text] for text, n in counted.items() if n] for name, counted in rows.items()}
        for table in tables:
            for key in table.references:
                parent = by_name.get(key.table)
                there = _keys_of(parent, present[parent.name]) if parent is not None else set()
                if any(_missing(key, row, table, there) for row in present[table.name]):
                    return False
    return True


def _keys_of(table: Relation, rows: Iterable[Row]) -> set[Row]:
    at = [i for part in table.key for i, c in enumerate(table.columns) if c.name == part]
    return {tuple(row[i] for i in at) for row in rows}
