"""The generated star: what changes are made of, and that signed rows lead from one state to the next."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from runnel.bench.star import FACTS, Sizes, Star

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Bags = dict[str, Counter[tuple[object, ...]]]


def bags(tables: Mapping[str, Iterable[pa.Table]]) -> Bags:
    return {name: Counter(row for part in parts for row in rows_of(part)) for name, parts in tables.items()}


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def added(before: Bags, signed: Mapping[str, pa.Table]) -> Bags:
    """Add signed rows to bags; a row that goes must be there."""
    for name, table in signed.items():
        for *row, weight in rows_of(table):
            before[name][tuple(row)] += weight  # type: ignore[operator]
        assert min(before[name].values()) >= 0
        before[name] = +before[name]
    return before


def test_changes_are_half_inserts_three_tenths_updates_and_the_rest_deletes() -> None:
    star = Star(1_000)
    signed = star.change(100)
    assert pc.sum(pc.less(signed.column("_weight"), 0)).as_py() == 30 + 20
    assert pc.sum(pc.greater(signed.column("_weight"), 0)).as_py() == 30 + 50
    assert len(star) == 1_000 + 50 - 20


def test_events_follow_from_the_seed_and_hold_exact_decimals() -> None:
    first, second, other = (pa.concat_tables(Star(500, seed=seed).chunks()) for seed in (5, 5, 6))
    assert first.equals(second)
    assert not first.equals(other)
    assert first.schema.field("cost").type == pa.decimal128(12, 2)
    assert 0 <= pc.min(first.column("cost")).as_py() < pc.max(first.column("cost")).as_py() < 1_000


def test_signed_rows_lead_from_one_state_to_the_next() -> None:
    star = Star(400)
    state = bags(star.tables())
    for count in (1, 10, 300, 300):
        state = added(state, {FACTS: star.change(count), **star.change_dimensions(4)})
    for kind in ("insert", "update", "delete"):
        state = added(state, {FACTS: getattr(star, kind)(150)})
    assert state == bags(star.tables())
    assert sum(state[FACTS].values()) == len(star)
    assert max(state[FACTS].values()) == 1


@pytest.mark.parametrize("base", [1_000, 1_000_000, 100_000_000])
def test_every_group_has_events_enough_to_lose_some(base: int) -> None:
    sizes = Sizes.around(base)
    assert base >= 40 * max(sizes.products, sizes.shops)
    assert base >= 100 * sizes.customers
