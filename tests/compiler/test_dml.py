"""INSERT, UPDATE and DELETE become the signed rows by which a table changes."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_dml
from runnel.errors import Terminal
from tests.compiler.conftest import by_name, table
from tests.compiler.harness import Maintained, signed

if TYPE_CHECKING:
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.model.relation import Column, Relation

    Shop = dict[str, Relation]


def run(engine: DuckDbEngine, shop: Shop, state: Maintained, sql: str) -> list[tuple[object, ...]]:
    """Run statements on the state; give the signed rows of the last one."""
    rows: list[tuple[object, ...]] = []
    for dml in compile_dml(sql, shop, engine.analyse):
        columns = signed(shop[dml.table].columns)
        result = engine.rows(dml.sql, state._inputs(dml.reads), columns)
        rows = [tuple(row.values()) for row in result.to_pylist()]
        state.apply({dml.table: [(row[:-1], int(str(row[-1]))) for row in rows]})
    return rows


def test_statements_change_the_table_one_after_another(engine: DuckDbEngine, shop: Shop) -> None:
    state = Maintained(engine, list(shop.values()))
    run(engine, shop, state, "INSERT INTO customers VALUES (1, 'north'), (1, 'north'), (2, upper('south'))")
    assert run(
        engine, shop, state, "INSERT INTO Customers (region) SELECT region FROM customers c WHERE c.cid = 2"
    ) == [(None, "SOUTH", 1)]
    changed = run(engine, shop, state, "UPDATE customers SET cid = cid + 1 WHERE region = 'north'")
    assert sorted(changed, key=str) == [(1, "north", -1), (1, "north", -1), (2, "north", 1), (2, "north", 1)]
    removed = run(engine, shop, state, "DELETE FROM customers c WHERE c.cid IN (SELECT max(cid) FROM customers)")
    assert sorted(removed, key=str) == [(2, "SOUTH", -1), (2, "north", -1), (2, "north", -1)]
    assert state.rows("customers").to_pylist() == [{"cid": None, "region": "SOUTH"}]


def test_plain_values_need_no_engine(shop: Shop) -> None:
    def engine_is_not_needed(*_: object) -> tuple[()]:
        raise AssertionError

    (dml,) = compile_dml(
        "INSERT INTO shop.orders (id, amount, rate, note) VALUES (1, 2.505, -1e3, 'it''s'), (2, NULL, 4, NULL)",
        shop,
        engine_is_not_needed,
    )
    assert dml.literal_rows == (
        {"id": 1, "cid": None, "amount": Decimal("2.51"), "rate": -1000.0, "note": "it's"},
        {"id": 2, "cid": None, "amount": None, "rate": 4.0, "note": None},
    )
    assert dml.reads == frozenset()


@pytest.mark.parametrize(
    ("value", "type_", "plain"),
    [
        ("-0.0", "DOUBLE", "0.0"),  # an exact number has no -0
        ("-0", "FLOAT", "0.0"),
        ("-0e0", "DOUBLE", "-0.0"),
        ("DATE '20240101'", "DATE", None),  # Python reads it, Spark does not
        ("'2024-W01-1'", "DATE", None),
        ("DATE '2024-02-29'", "DATE", "datetime.date(2024, 2, 29)"),
        ("16777217.00000001", "FLOAT", None),  # rounded twice it would be another number
        ("1.00500000000000000000001e0", "DECIMAL(12,2)", None),
        ("1.005", "DECIMAL(12,2)", "Decimal('1.01')"),
        ("1234567890123456789012345678901234567890", "DOUBLE", None),  # more digits than an exact number may have
    ],
)
def test_plain_values_are_what_spark_reads(value: str, type_: str, plain: str | None) -> None:
    shop = by_name([table("t", f"x {type_}")])
    (dml,) = compile_dml(f"INSERT INTO t VALUES ({value})", shop, lambda *_: ())
    assert (None if dml.literal_rows is None else repr(dml.literal_rows[0]["x"])) == plain


@pytest.mark.parametrize(
    ("sql", "code", "hint"),
    [
        ("INSERT INTO ordes VALUES (1)", "TABLE", "did you mean 'orders'?"),
        ("INSERT INTO customers VALUES (1)", "COLUMNS", "name the columns"),
        ("INSERT INTO customers SELECT cid FROM customers", "COLUMNS", "name the columns"),
        ("INSERT INTO customers (cid, regoin) VALUES (1, 'x')", "COLUMN", "did you mean 'region'?"),
        ("UPDATE customers SET regoin = 'x'", "COLUMN", "did you mean 'region'?"),
        ("DELETE FROM customers WHERE regoin = 'x'", "COLUMN", "did you mean 'region'?"),
        ("INSERT INTO customers VALUES (99999999999, 'x')", "VALUE", "wider column"),
        ("UPDATE customers SET cid = rand()", "REFUSED", "use a column"),
        ("DELETE customers WHERE", "SYNTAX", ""),
        ("SELECT 1", "SYNTAX", "INSERT INTO"),
        ("INSERT INTO customers (cid, CID) VALUES (1, 2)", "COLUMNS", "give it once"),
        ("INSERT INTO customers BY NAME SELECT 1 AS cdi", "COLUMN", "did you mean 'cid'?"),
        ("UPDATE customers SET cid = 1, Cid = 2", "COLUMNS", "give it once"),
        ("UPDATE customers SET orders.cid = 1", "COLUMN", "set whole columns"),
        ("UPDATE customers SET cid = max(cid)", "SYNTAX", "use a subquery"),
        ("UPDATE customers SET cid = explode(array(1, 2))", "SYNTAX", "use a subquery"),
        ("UPDATE customers SET cid = row_number() OVER (ORDER BY cid)", "SYNTAX", "use a subquery"),
    ],
)
def test_a_wrong_statement_is_refused(engine: DuckDbEngine, shop: Shop, sql: str, code: str, hint: str) -> None:
    with pytest.raises(Terminal) as caught:
        compile_dml(sql, shop, engine.analyse)
    assert caught.value.code == f"RUNNEL-SQL-{code}", caught.value
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "1e999999999", "1e39"])
def test_a_number_that_a_column_may_not_hold_is_left_to_the_engine(text: str) -> None:
    plain = compile_dml("INSERT INTO n VALUES (1.5)", by_name([table("n", "x FLOAT")]), lambda _sql, _tables: ())
    assert plain[0].literal_rows == ({"x": 1.5},)
    with pytest.raises(AssertionError, match="asked"):
        compile_dml(f"INSERT INTO n VALUES ({text})", by_name([table("n", "x FLOAT")]), _asked)


def _asked(_sql: str, _tables: object) -> tuple[Column, ...]:
    msg = "asked"
    raise AssertionError(msg)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM customers LIMIT 1",
        "DELETE FROM customers WHERE cid = 1 ORDER BY region LIMIT 1",
        "DELETE FROM customers USING orders WHERE orders.cid = customers.cid",
        "DELETE customers FROM customers JOIN orders ON customers.cid = orders.cid",
        "DELETE FROM customers VERSION AS OF 1",
        "DELETE FROM customers RETURNING cid",
        "WITH q AS (SELECT 1 AS cid) DELETE FROM customers WHERE cid IN (SELECT cid FROM q)",
        "UPDATE customers SET cid = 1 LIMIT 1",
        "UPDATE customers, orders SET region = note",
        "UPDATE customers JOIN orders ON customers.cid = orders.cid SET region = 'x'",
        "INSERT INTO customers REPLACE WHERE cid = 1 SELECT 1, 'x'",
        "INSERT INTO customers PARTITION (cid = 1) SELECT 'x', 'y'",
        "INSERT OR REPLACE INTO customers VALUES (1, 'x')",
        "INSERT OVERWRITE customers VALUES (1, 'x')",
        "INSERT INTO customers VALUES (1, 'x') RETURNING cid",
        "INSERT INTO customers SELECT 1, 'x' ON DUPLICATE KEY UPDATE cid = 1",
        "INSERT INTO customers DEFAULT VALUES",
    ],
)
def test_a_part_of_a_statement_that_is_not_followed_is_refused_not_passed_over(
    engine: DuckDbEngine, shop: Shop, sql: str
) -> None:
    with pytest.raises(Terminal, match="not followed") as caught:
        compile_dml(sql, shop, engine.analyse)
    assert caught.value.code == "RUNNEL-SQL-SYNTAX"


def test_an_insert_by_name_goes_by_the_names_of_its_query(engine: DuckDbEngine, shop: Shop) -> None:
    state = Maintained(engine, list(shop.values()))
    inserted = "INSERT INTO customers BY NAME SELECT 'north' AS Region, 1 AS cid"
    assert run(engine, shop, state, inserted) == [(1, "north", 1)]
    assert run(engine, shop, state, "INSERT INTO customers BY NAME SELECT 'south' AS region") == [(None, "south", 1)]


def test_an_insert_takes_a_table_and_a_with_that_stands_before_it(engine: DuckDbEngine, shop: Shop) -> None:
    state = Maintained(engine, list(shop.values()))
    inserted = "WITH q AS (SELECT 1 AS a, 'x' AS b) INSERT INTO customers SELECT a, b FROM q"
    assert run(engine, shop, state, inserted) == [(1, "x", 1)]
    assert run(engine, shop, state, "INSERT INTO customers TABLE customers") == [(1, "x", 1)]
    assert run(engine, shop, state, "UPDATE customers AS c SET c.cid = c.cid + 1")[-2:] == [(2, "x", 1)] * 2
