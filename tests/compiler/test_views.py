"""Views of every supported shape follow their tables; what is not supported is recomputed, and says so."""

from __future__ import annotations

import statistics
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from runnel.compiler import bind, compile_view, program_from_json, program_to_json
from runnel.errors import Terminal
from runnel.lake.duckdb_views import view_sql
from runnel.model.program import Strategy
from runnel.model.relation import Column
from runnel.model.types import STRING
from tests.compiler.harness import Maintained

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.model.relation import Relation
    from tests.compiler.harness import Batch, Row

    Shop = dict[str, Relation]

LINEAR = [
    "SELECT * FROM orders",
    "SELECT o.id, o.cid, c.region FROM orders o JOIN customers c USING (cid)",
    "SELECT cid, id, region FROM orders JOIN customers USING (cid) WHERE orders.cid = customers.cid",
    "SELECT cid, id, region FROM orders NATURAL JOIN customers",
    "SELECT * EXCEPT (note, rate) FROM orders",
    "SELECT shop.orders.id, orders.cid AS c FROM shop.orders, customers WHERE orders.cid = customers.cid",
    "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.cid = b.cid AND a.id < b.id",
    "SELECT o.id, i.qty, c.region FROM customers c, items i, orders o WHERE i.oid = o.id AND c.cid <=> o.cid",
    "SELECT (o.id) AS n, c.region FROM (orders o JOIN customers c ON o.cid = c.cid)",
    "SELECT id, amount AS a, a * 2 AS b FROM orders",
    "SELECT info.colour, i.info.size AS s FROM items i WHERE info.size > 1",
    "SELECT id AS n FROM orders UNION ALL SELECT cid FROM customers UNION ALL SELECT qty * 0.5 FROM items",
    "SELECT n, count(*) AS c FROM (SELECT id AS n FROM orders UNION ALL SELECT cid FROM customers) u GROUP BY n",
    "SELECT u.n, o.amount FROM (SELECT cid AS n FROM customers UNION ALL SELECT oid FROM items) u JOIN orders o ON o.id = u.n",
    "SELECT DISTINCT region FROM customers",
    "SELECT region FROM customers UNION SELECT note FROM orders",
    "SELECT cid FROM orders GROUP BY cid",
    "SELECT cid % 2 AS odd, count(*) AS n FROM orders GROUP BY cid % 2",
    "SELECT cid AS c, sum(amount) AS s FROM orders GROUP BY c",
    "SELECT cid AS c, note, count(note) AS n FROM orders GROUP BY ALL",
    "SELECT sum(amount) AS s, cid FROM orders GROUP BY 2",
    "SELECT sum(amount) AS s FROM orders GROUP BY cid",
    "SELECT cid AS a, cid AS b, count(*) AS n FROM orders GROUP BY cid",
    "SELECT count(*) AS n, count(cid, note) AS m, sum(rate) AS r, avg(rate) AS v FROM orders",
    "SELECT sum(amount) FILTER (WHERE note = 'x') AS x, sum(CASE WHEN cid > 1 THEN amount END) AS y FROM orders",
    "SELECT cid, avg(amount) AS a, stddev(amount) AS d, var_pop(cid) AS v, mean(id) AS m, std(id) AS t FROM orders GROUP BY cid",
    "SELECT cid, sum(amount) / count(*) AS mean FROM orders GROUP BY cid",
    "SELECT cid, sum(amount) AS s FROM orders GROUP BY cid HAVING count(*) > 1 AND s > 2",
    "SELECT c.region, t.s FROM customers c JOIN (SELECT cid, sum(amount) AS s FROM orders GROUP BY cid) t ON c.cid = t.cid",
    "SELECT o.id, t.n FROM orders o CROSS JOIN (SELECT count(*) AS n FROM orders) t",
    "SELECT n, count(*) AS k FROM (SELECT cid, count(*) AS n FROM orders GROUP BY cid) GROUP BY n",
    "WITH a AS (SELECT cid, count(*) AS n FROM orders GROUP BY cid), b (x, y) AS (SELECT * FROM a) "
    "SELECT p.x, q.y FROM b p JOIN b q ON p.x = q.x",
    "SELECT id FROM orders ORDER BY id",
    "SELECT id FROM orders WHERE false",
    "SELECT count(NULL) AS n, count(1) AS m FROM orders",
    "SELECT cid, stddev(CAST(amount AS DOUBLE)) AS s, var_samp(cid / 3) AS v FROM orders GROUP BY cid",
    "SELECT cid, sum(CAST(amount AS DECIMAL(38,2))) AS s, sum(amount * price * qty) AS p FROM orders, items GROUP BY cid",
]

FULL = {
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM orders": "RUNNEL-FULL-WINDOW-ALL",
    "SELECT id FROM orders ORDER BY id LIMIT 1 + 1": "RUNNEL-FULL-LIMIT",
    "SELECT id FROM orders o WHERE (cid, id) NOT IN (SELECT cid, 1 FROM customers)": "RUNNEL-FULL-SUBQUERY",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n": "RUNNEL-FULL-RECURSIVE",
}

START: Batch = {
    "shop.orders": [
        ((1, 1, Decimal("2.50"), 0.1, "x"), 1),
        ((2, 1, None, float("nan"), None), 1),
        ((3, None, Decimal("-1.00"), None, "y"), 1),
    ],
    "customers": [((1, "north"), 2), ((2, "south"), 1), ((None, None), 1)],
    "items": [((1, 1, 2, Decimal("1.125"), {"colour": "red", "size": 2}), 1)],
    "parcels": [((1, 1), 1), ((2, 1), 2), ((3, 3), 1), ((4, None), 1)],
}
BATCHES: list[Batch] = [
    {
        "shop.orders": [((2, 1, None, float("nan"), None), -1), ((2, 2, Decimal("7.00"), 0.2, "x"), 1)],
        "customers": [((2, "south"), 1)],
    },
    {"customers": [((1, "north"), -2), ((None, None), -1)], "items": [((2, 3, 5, None, None), 3)]},
    {"shop.orders": [(row, -1) for row in ((1, 1, Decimal("2.50"), 0.1, "x"), (2, 2, Decimal("7.00"), 0.2, "x"))]},
    {"shop.orders": [((3, None, Decimal("-1.00"), None, "y"), -1)], "customers": [((2, "south"), -2)]},
]


def follow(engine: DuckDbEngine, shop: Shop, sql: str) -> Strategy:
    state = Maintained(engine, list(shop.values()))
    state.apply(START)
    program = state.define("v", sql)
    state.check("start")
    for number, batch in enumerate(BATCHES, 1):
        state.apply(batch)
        state.check(f"batch {number}")
    return program.strategy


@pytest.mark.parametrize("sql", LINEAR)
def test_a_linear_view_follows_its_tables(engine: DuckDbEngine, shop: Shop, sql: str) -> None:
    assert follow(engine, shop, sql) is Strategy.LINEAR


@pytest.mark.parametrize("sql", FULL)
def test_what_is_not_linear_is_recomputed_and_says_why(engine: DuckDbEngine, shop: Shop, sql: str) -> None:
    assert follow(engine, shop, sql) is Strategy.FULL
    program = compile_view("v", sql, shop, engine.analyse)
    assert not program.incremental
    assert program.operators[0].code == FULL[sql]
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, shop, engine.analyse, mode="incremental")
    assert caught.value.code == "RUNNEL-VIEW-NOT-INCREMENTAL"
    assert FULL[sql] in caught.value.message


NESTED = (
    "SELECT id FROM orders o WHERE (SELECT max(cid) FROM customers c WHERE c.cid = o.cid) IN (SELECT cid FROM customers)",
    "SELECT id FROM orders o WHERE (SELECT max(cid) FROM customers c WHERE c.cid = o.cid) NOT IN (SELECT cid FROM orders)",
    "SELECT id, NOT (cid IN (SELECT cid FROM customers) AND id > 1) AS x FROM orders",
)


@pytest.mark.parametrize("sql", NESTED)
def test_subqueries_may_stand_in_each_other_and_under_any_condition(engine: DuckDbEngine, shop: Shop, sql: str) -> None:
    assert follow(engine, shop, sql) is Strategy.KEYS


def test_mode_full_recomputes_even_a_linear_view(engine: DuckDbEngine, shop: Shop) -> None:
    program = compile_view("v", "SELECT id FROM orders", shop, engine.analyse, mode="full")
    assert program.strategy is Strategy.FULL
    assert program.steps[-1].terms == ()


def test_a_view_over_a_view_follows_it(engine: DuckDbEngine, shop: Shop) -> None:
    state = Maintained(engine, list(shop.values()))
    state.define("totals", "SELECT cid, sum(amount) AS s, count(*) AS n FROM orders GROUP BY cid")
    state.define("named", "SELECT region, s FROM totals JOIN customers USING (cid) WHERE n > 0")
    state.define("count", "SELECT count(*) AS n, sum(s) AS s FROM named")
    for number, batch in enumerate([START, *BATCHES], 1):
        state.apply(batch)
        state.check(f"batch {number}")


def test_a_global_aggregate_has_one_row_over_nothing(engine: DuckDbEngine, shop: Shop) -> None:
    state = Maintained(engine, list(shop.values()))
    state.define("v", "SELECT count(*) AS n, sum(amount) AS s, avg(amount) AS a FROM orders")
    assert state.rows("v").to_pylist() == [{"n": 0, "s": None, "a": None}]
    state.apply(START)
    assert state.rows("v").to_pylist() == [{"n": 3, "s": Decimal("1.50"), "a": Decimal("0.750000")}]


def test_a_star_over_using_shows_the_joined_column_first_and_once(engine: DuckDbEngine, shop: Shop) -> None:
    """Spark's order; DuckDB leaves the column where it stood, so only the names are looked at."""
    context = "SELECT * FROM (SELECT id, cid FROM orders) o JOIN customers c USING (cid)"
    program = compile_view("v", context, shop, engine.analyse)
    assert [c.name for c in program.columns] == ["cid", "id", "region"]


def test_terms_telescope_and_start_from_the_change(engine: DuckDbEngine, shop: Shop) -> None:
    sql = "SELECT o.id, i.qty FROM orders o JOIN customers c ON o.cid = c.cid JOIN items i ON i.oid = o.id"
    step = compile_view("v", sql, shop, engine.analyse).steps[-1]
    roles = [dict(sorted(term.reads)) for term in step.terms]
    assert roles == [
        {"customers": "old", "items": "old", "shop.orders": "delta"},
        {"customers": "delta", "items": "old", "shop.orders": "new"},
        {"customers": "new", "items": "delta", "shop.orders": "new"},
    ]
    for term in step.terms:
        first = term.sql.split("FROM ")[1].split()[0]
        assert first.startswith("`") and first.endswith("__delta`"), term.sql
    assert step.delta_sql(frozenset({"other"})) is None
    assert step.delta_reads(frozenset({"items"})) == step.terms[2].reads


def test_equal_stages_of_a_view_are_kept_once(engine: DuckDbEngine, shop: Shop) -> None:
    sql = "WITH a AS (SELECT cid, count(*) AS n FROM orders GROUP BY cid) SELECT p.n FROM a p JOIN a q ON p.n = q.n"
    assert len(compile_view("v", sql, shop, engine.analyse).stages) == 1


def test_doubles_neither_drift_nor_stay_poisoned(engine: DuckDbEngine, shop: Shop) -> None:
    state = Maintained(engine, list(shop.values()))
    state.define("v", "SELECT sum(rate) AS s FROM orders WHERE note = 'a'")
    extreme = [1e26, 1e17, 0.1, 1e-9, float("nan"), float("inf"), 123456.789]
    for i, value in enumerate(extreme):
        state.apply({"shop.orders": [((i, 1, None, value, "a"), 1)]})
    state.apply({"shop.orders": [((99, 1, None, 1e-9, "a"), 1)]})
    for i, value in enumerate(extreme):
        state.apply({"shop.orders": [((i, 1, None, value, "a"), -1)]})
    assert state.rows("v").to_pylist() == [{"s": 1e-9}]


@pytest.mark.parametrize("base", [0.0, 0.1, 1 / 3, 100.1, 1.7e9, 1.7e12, 3e-6])
def test_the_spread_of_doubles_is_right_to_nine_digits_wherever_they_lie(
    engine: DuckDbEngine, shop: Shop, base: float
) -> None:
    state = Maintained(engine, list(shop.values()))
    state.define("v", "SELECT note, var_samp(rate) AS v, stddev_pop(rate) AS s FROM orders GROUP BY note")
    values = [base + i * (1e-6 if base == 3e-6 else 0.37) for i in range(40)]
    rows: list[tuple[Row, int]] = [((i, 1, None, x, "spread"), 1) for i, x in enumerate(values)]
    rows += [((100 + i, 1, None, base, "same"), 1) for i in range(9)]
    state.apply(
        {"shop.orders": [*rows, ((999, 1, None, 1e300, "spread"), 2), ((998, 1, None, float("inf"), "same"), 1)]}
    )
    state.apply({"shop.orders": [((999, 1, None, 1e300, "spread"), -2), ((998, 1, None, float("inf"), "same"), -1)]})
    found = {row["note"]: (row["v"], row["s"]) for row in state.rows("v").to_pylist()}
    exact = [Fraction(x) for x in values]
    assert found["same"] == (0.0, 0.0)
    assert found["spread"][0] == pytest.approx(float(statistics.variance(exact)), rel=1e-9)
    assert found["spread"][1] == pytest.approx(float(statistics.pvariance(exact)) ** 0.5, rel=1e-9)


def test_both_dialects_of_a_final_row_agree(engine: DuckDbEngine, shop: Shop) -> None:
    """The lake's own views run the DuckDB form; the engine transpiles the Spark form."""
    state = Maintained(engine, list(shop.values()))
    sql = "SELECT note, sum(amount) AS s, avg(amount) AS a, avg(cid) AS b, stddev(amount) AS d, var_pop(rate) AS e, sum(rate) AS r, count(cid) AS n FROM orders GROUP BY note"
    relation = state.define("v", sql).relation
    rows: list[tuple[Row, int]] = [
        ((i, i % 4, Decimal(7 * i - 30).scaleb(-2), i / 3, "ab"[i % 2]), 1) for i in range(20)
    ]
    state.apply({"shop.orders": rows})
    assert relation.final is not None
    connection = engine._connection.cursor()
    connection.register("stored", state.stored["v"])
    source = '{DUCKLAKE_CATALOG}.state."v"'
    assert source in view_sql(relation)
    found = connection.execute(f"{view_sql(relation).replace(source, 'stored')} ORDER BY 1").fetchall()
    mine = sorted(tuple(row.values()) for row in state.rows("v").to_pylist())
    assert found == mine
    kinds = [str(kind) for _, kind, *_ in connection.description or []]
    assert kinds == ["VARCHAR", "DECIMAL(22,2)", "DECIMAL(16,6)", *["DOUBLE"] * 4, "BIGINT"]


def test_a_program_survives_json(engine: DuckDbEngine, shop: Shop) -> None:
    program = compile_view("v", "SELECT cid, avg(amount) + 1 AS a FROM orders GROUP BY cid", shop, engine.analyse)
    assert program_from_json(program_to_json(program)) == program


def test_binding_changes_nothing_but_table_names(shop: Shop) -> None:
    sql = "/* all */ SELECT shop.orders.id -- orders\nFROM shop.orders WHERE note = 'FROM orders' AND cid IN (SELECT cid FROM Customers c)"
    bound, read = bind(sql, shop)
    assert bound == (
        "/* all */ SELECT orders.id -- orders\nFROM `shop.orders__rows` AS orders "
        "WHERE note = 'FROM orders' AND cid IN (SELECT cid FROM `customers__rows` c)"
    )
    assert read == {"shop.orders", "customers"}


def test_a_cte_hides_a_table_of_its_name_but_not_inside_itself(shop: Shop) -> None:
    bound, read = bind("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", shop)
    assert bound == "WITH orders AS (SELECT * FROM `shop.orders__rows` AS orders) SELECT * FROM orders"
    assert read == {"shop.orders"}


@pytest.mark.parametrize(
    "sql",
    [
        "to_char(amount, '999')",
        "to_date(note, 'yyyy-MM-dd')",
        "regexp_extract(note, 'a(b)', 1)",
        "nvl(note, 'it\\'s')",
        "transform(array(cid, 2), x -> x + 1)[0]",
        "date_add(DATE'2024-01-01', cid)",
        "dateadd(DAY, cid, DATE'2024-01-01')",
        "exists(array(cid), x -> x > 1)",
        "named_struct('a', cid).a",
        "CASE note WHEN 'a' THEN 1 ELSE 2 END",
    ],
)
def test_functions_reach_the_program_as_they_were_written(shop: Shop, sql: str) -> None:
    """Sqlglot would write some of them as functions that mean nearly the same."""

    def analyse(_: str, tables: object) -> tuple[Column, ...]:
        return (Column("x", STRING),)

    program = compile_view("v", f"SELECT {sql} AS x FROM orders", shop, analyse)

    def plain(text: str) -> str:
        return (
            text.lower()
            .replace("`", "")
            .replace(" ", "")
            .replace("~1.", "")
            .replace("cast('2024-01-01'asdate)", "date'2024-01-01'")
        )

    assert plain(sql).replace("dateadd", "date_add") in plain(program.steps[-1].initial)
