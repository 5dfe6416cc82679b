"""What is looked up by which keys; and that leaving the other rows out changes no result."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from runnel.engine.base import Rows
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.reduction import plan
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from runnel.engine.base import Input

COLUMNS = (
    Column("k", types.BIGINT),
    Column("j", types.BIGINT),
    Column("v", types.BIGINT),
    Column("_weight", types.BIGINT),
)
LARGE = frozenset({"a", "b", "c"})

REDUCIBLE: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "SELECT b.v, d._weight FROM d JOIN b ON d.k = b.k": [("b", ("k",))],
    "SELECT b.v FROM d JOIN b ON d.k = b.k AND b.j <=> d.j": [("b", ("k", "j"))],
    "SELECT b.v, c.v FROM d JOIN b ON d.k = b.k JOIN c ON b.j = c.j": [("b", ("k",)), ("c", ("j",))],
    "SELECT b.v FROM d JOIN b ON (d.k = b.k AND b.v = 1) OR (b.v = 2 AND b.k = d.k)": [("b", ("k",))],
    "SELECT b.v FROM d CROSS JOIN b WHERE b.k = d.j": [("b", ("k",))],
    "SELECT d.k, b.v FROM d LEFT JOIN b ON d.k <=> b.k": [("b", ("k",))],
    "SELECT d.k FROM d LEFT ANTI JOIN b ON d.k = b.k": [("b", ("k",))],
    "SELECT o.v FROM b AS o LEFT SEMI JOIN (SELECT DISTINCT k FROM d) AS n ON o.k <=> n.k": [("b", ("k",))],
    "SELECT x.v FROM d JOIN (SELECT k AS p, v FROM a UNION ALL SELECT j, v FROM b) AS x ON d.k = x.p": [
        ("a", ("k",)),
        ("b", ("j",)),
    ],
    "SELECT x.n FROM d JOIN (SELECT k, sum(v) AS n FROM b GROUP BY k) AS x ON d.k = x.k": [("b", ("k",))],
    "WITH n AS (SELECT DISTINCT k FROM d), r AS (SELECT b.* FROM b LEFT SEMI JOIN n ON b.k = n.k) "
    "SELECT k, count(*) AS c FROM r GROUP BY k": [("b", ("k",))],
    "SELECT s.v FROM (SELECT v, k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM b) AS s LEFT SEMI JOIN d ON s.k = d.k": [
        ("b", ("k",))
    ],
    "SELECT one.v, two.v FROM d JOIN b AS one ON d.k = one.k JOIN b AS two ON d.j = two.k": [
        ("b", ("k",)),
        ("b", ("k",)),
    ],
}
NOT = [
    "SELECT v FROM b",
    "SELECT b.v FROM b LEFT JOIN d ON b.k = d.k",
    "SELECT b.v FROM b LEFT ANTI JOIN d ON b.k = d.k",
    "SELECT b.v FROM d RIGHT JOIN b ON b.k = d.k",
    "SELECT b.v FROM d FULL JOIN b ON b.k = d.k",
    "SELECT b.v FROM d JOIN b ON d.k < b.k",
    "SELECT b.v FROM d JOIN b ON d.k = b.k OR d.j = b.j",
    "SELECT x.n FROM d JOIN (SELECT j AS k, sum(v) AS n FROM b GROUP BY j, v) AS x ON d.k = x.n",
    "SELECT x.k FROM d JOIN (SELECT k FROM b ORDER BY v LIMIT 3) AS x ON d.k = x.k",
    "SELECT x.k FROM d JOIN (SELECT k FROM b UNION ALL SELECT k FROM a LIMIT 3) AS x ON d.k = x.k",
    "SELECT x.w FROM d JOIN b AS x(w, k, v, n) ON d.k = x.k",
    "SELECT x.r FROM d JOIN (SELECT k, rank() OVER (ORDER BY v) AS r FROM b) AS x ON d.k = x.k",
    "SELECT c.v FROM d LEFT JOIN a ON d.k = a.k JOIN c ON c.k <=> a.j",
    "WITH r AS (SELECT k, v FROM b) SELECT one.v FROM d JOIN r AS one ON d.k = one.k CROSS JOIN (SELECT max(v) AS m FROM r) AS m",
]


@pytest.mark.parametrize("sql", REDUCIBLE)
def test_an_input_tied_to_a_small_one_is_looked_up(sql: str) -> None:
    reduced = plan(sql, (), LARGE)
    assert reduced is not None
    assert sorted((step.source, step.columns) for step in reduced.lookups) == sorted(REDUCIBLE[sql])


@pytest.mark.parametrize("sql", NOT)
def test_an_input_whose_every_row_may_matter_is_not(sql: str) -> None:
    assert plan(sql, (), LARGE) is None


def test_derived_inputs_are_looked_up_below_their_own_text() -> None:
    derived = (("t", "SELECT k, sum(v) AS n FROM b GROUP BY k"),)
    reduced = plan("SELECT t.n FROM d JOIN t ON d.k = t.k", derived, LARGE)
    assert reduced is not None
    assert [(step.source, step.columns) for step in reduced.lookups] == [("b", ("k",))]


@pytest.mark.parametrize("sql", REDUCIBLE)
@pytest.mark.parametrize("seed", range(4))
def test_the_reduced_query_gives_the_same_rows(sql: str, seed: int) -> None:
    engine, rng = DuckDbEngine(threads=1), random.Random(seed)
    inputs: dict[str, Input] = {name: Rows(_random(rng, 40), COLUMNS) for name in LARGE}
    inputs["d"] = Rows(_random(rng, 4), COLUMNS)
    reduced = plan(sql, (), LARGE)
    assert reduced is not None
    small: dict[str, Input] = {"d": inputs["d"]}
    for step in reduced.lookups:
        keys = {tuple(row.values()) for row in engine.rows(step.keys, small).to_pylist()}
        source = inputs[step.source]
        assert isinstance(source, Rows)
        kept = [tuple(row[c] for c in step.columns) in keys for row in source.table.to_pylist()]
        small[step.name] = Rows(source.table.filter(pa.array(kept)), COLUMNS)
    assert _bag(engine.rows(reduced.sql, small)) == _bag(engine.rows(sql, inputs))


def _random(rng: random.Random, count: int) -> pa.Table:
    values = [None, 1, 2, 3, 4, 5, 6, 7, 8]
    columns = {c.name: pa.array([rng.choice(values) for _ in range(count)], pa.int64()) for c in COLUMNS[:3]}
    return pa.table(columns | {"_weight": pa.array([1] * count, pa.int64())})


def _bag(table: pa.Table) -> list[str]:
    return sorted(str(tuple(row.values())) for row in table.to_pylist())


def test_a_struct_whose_field_is_read_is_read() -> None:
    reduced = plan("SELECT s.field, b.t.inner.deep FROM d JOIN b ON d.k = b.k", (), LARGE)
    assert reduced is not None
    assert reduced.keeps("s")
    assert reduced.keeps("t")


def test_only_columns_the_query_names_are_read() -> None:
    reduced = plan("SELECT b.v FROM d JOIN b ON d.k = b.k", (), LARGE)
    assert reduced is not None
    assert reduced.keeps("V")
    assert not reduced.keeps("j")
    star = plan("SELECT * FROM b LEFT SEMI JOIN d ON b.k = d.k", (), LARGE)
    assert star is not None
    assert star.keeps("j")
    assert not re.search(r"@\d+`\.", star.sql)
