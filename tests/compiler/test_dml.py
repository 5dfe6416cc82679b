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
