"""TPC-DS: its tables, made small and dense enough for its filters to find something, and batches of changes by seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.tpc.changing import ChangingTable, dataset
from tests.tpc.tpcds_queries import connect, wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import pyarrow as pa

    from tests.tpc.changing import Dataset, Values

SALES = {
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
}
RETURNS = {
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
}
FACTS = {**SALES, **RETURNS, "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk")}
DIMENSIONS = {
    "call_center": "cc_call_center_sk",
    "catalog_page": "cp_catalog_page_sk",
    "customer": "c_customer_sk",
    "customer_address": "ca_address_sk",
    "customer_demographics": "cd_demo_sk",
    "date_dim": "d_date_sk",
    "household_demographics": "hd_demo_sk",
    "income_band": "ib_income_band_sk",
    "item": "i_item_sk",
    "promotion": "p_promo_sk",
    "reason": "r_reason_sk",
    "ship_mode": "sm_ship_mode_sk",
    "store": "s_store_sk",
    "time_dim": "t_time_sk",
    "warehouse": "w_warehouse_sk",
    "web_page": "wp_web_page_sk",
    "web_site": "web_site_sk",
}
KEYS = {**FACTS, **{name: (key,) for name, key in DIMENSIONS.items()}}
CLONED = {"store": 4, "call_center": 3, "web_site": 3, "warehouse": 3, "web_page": 4, "reason": 6, "promotion": 6}
"""Tables that have hardly a row at this scale, and how many they get."""
REFERENCES = {
    "customer_sk": 80,
    "addr_sk": 60,
    "cdemo_sk": 700,
    "hdemo_sk": 720,
    "catalog_page_sk": 500,
    "store_sk": CLONED["store"],
    "call_center_sk": CLONED["call_center"],
    "web_site_sk": CLONED["web_site"],
    "warehouse_sk": CLONED["warehouse"],
    "web_page_sk": CLONED["web_page"],
    "reason_sk": CLONED["reason"],
    "promo_sk": CLONED["promotion"],
}
"""How a column that refers to a table ends, and how many rows of that table there are."""
BUYER = ("customer_sk", "addr_sk", "cdemo_sk", "hdemo_sk")
KEPT = {
    "customer": "c_customer_sk <= 80",
    "customer_address": "ca_address_sk <= 60",
    "customer_demographics": "cd_demo_sk <= 700",
    "household_demographics": "hd_demo_sk <= 720",
    "catalog_page": "cp_catalog_page_sk <= 500",
    "store_sales": "ss_ticket_number % 3 = 0",
    "store_returns": "sr_ticket_number % 3 = 0",
    "catalog_sales": "cs_order_number % 3 = 0",
    "catalog_returns": "cr_order_number % 3 = 0",
    "web_sales": "ws_order_number % 2 = 0",
    "web_returns": "wr_order_number % 2 = 0",
    "inventory": "inv_item_sk % 5 = 0 AND inv_date_sk % 2 = 0",
    "date_dim": "d_date BETWEEN DATE '1997-12-01' AND DATE '2004-02-01'",
    "time_dim": "t_time_sk % 60 = 0",
}
UNTOUCHED = ("date_dim", "time_dim", "income_band", *FACTS)
"""Tables that keep their own values to begin with."""


def make(*, batches: int, seed: int = 1, scale: float = 0.01) -> Dataset:
    """Generate the tables and, from a seed, the batches."""
    connection = connect()
    connection.execute(f"CALL dsdgen(sf={scale})")
    data = {name: _dense(connection, name) for name in KEYS}
    rng = random.Random(seed)
    return dataset(data, KEYS, batches, lambda tables, _: _change(tables, rng))


def _dense(connection: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    """Read a table with fewer rows, fewer things to refer to, and values that queries ask for."""
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    columns = [f"{_replaced(name, column, kind)} AS {column}" for column, kind, *_ in described]
    copies = f"CROSS JOIN range(1, {CLONED[name] + 1}) AS copies(copy)" if name in CLONED else ""
    one = f"WHERE {KEYS[name][0]} = 1" if name in CLONED else f"WHERE {KEPT.get(name, 'true')}"
    sql = f"SELECT {', '.join(columns)} FROM {name} {copies} {one} ORDER BY {', '.join(KEYS[name])}"
    return connection.execute(sql).to_arrow_table()


def _replaced(table: str, column: str, kind: str) -> str:
    own = KEYS[table]
    if column == "inv_date_sk":
        return f"{column} - 364"  # at this scale the stock begins years after the sales
    if column in own:
        return "copy" if table in CLONED else column
    if column.endswith("_time_sk"):
        return f"{column} - {column} % 60"
    if column.endswith("_id") and table in CLONED and kind == "VARCHAR":
        return f"concat(left({column}, 15), chr(64 + copy::INT))"
    for ending, count in REFERENCES.items():
        if column.endswith(ending):  # an order has one buyer, and so has what comes back of it
            by = own[-1] if ending in BUYER else ", ".join(own)
            return f"CASE WHEN {column} IS NOT NULL THEN 1 + CAST(hash({by}, '{ending}') % {count} AS BIGINT) END"
    if column.endswith("_date_sk") and table in ("catalog_sales", "catalog_returns"):
        return f"{column} + CASE WHEN {own[1]} % 4 = 0 THEN 364 ELSE 0 END"
    if column == "inv_quantity_on_hand":
        return f"{column} * CASE WHEN hash({', '.join(own)}) % 5 = 0 THEN 10 ELSE 1 END"
    mixed = f"hash({'copy' if table in CLONED else own[0]}, '{column}')"
    values = wanted().get(column, ())
    if table in UNTOUCHED or not values:
        return column
    texts = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return (
        f"CASE WHEN {mixed} % 10 < 6 THEN CAST([{texts}][1 + ({mixed} // 10 % {len(values)})::INT] AS {kind}) "
        f"ELSE {column} END"
    )


def _change(tables: Mapping[str, ChangingTable], rng: random.Random) -> None:
    for name in SALES:
        _change_sales(tables, name, rng)
    for returns, sales in zip(RETURNS, SALES, strict=True):
        _change_returns(tables[returns], tables[sales], rng)
    _change_stock(tables["inventory"], rng)
    for name, key in DIMENSIONS.items():
        _change_dimension(tables[name], key, rng)


def _change_sales(tables: Mapping[str, ChangingTable], name: str, rng: random.Random) -> None:
    """Add orders of some items, some of them by who returned that item elsewhere, delete rows and change others."""
    table = tables[name]
    item, number = SALES[name]
    prefix = item.split("_", maxsplit=1)[0]
    buyer = f"{prefix}_customer_sk" if prefix == "ss" else f"{prefix}_bill_customer_sk"
    following = 1 + max(int(str(key[1])) for key in table.rows)
    for order in range(following, following + 6):
        first = table.pick(rng)
        for _ in range(rng.randrange(1, 5)):
            back = tables["store_returns"].pick(rng)
            known = {item: back["sr_item_sk"], buyer: back["sr_customer_sk"]} if rng.random() < 0.5 else {}
            row = {**_mixed(first, table.pick(rng), rng), item: tables["item"].pick(rng)["i_item_sk"], **known}
            table.put({**row, number: order})
    _change_and_delete(table, rng, 8)


def _change_returns(returns: ChangingTable, sales: ChangingTable, rng: random.Random) -> None:
    """Let some sold things come back, with the number, the item and the buyer of the sale."""
    theirs = {name.split("_", maxsplit=1)[1]: name for name in sales.pick(rng)}
    for _ in range(8):
        sale = sales.pick(rng)
        known = {name: sale[theirs[name.split("_", maxsplit=1)[1]]] for name in returns.relation.key}
        buyer = sale[theirs.get("customer_sk", theirs.get("bill_customer_sk", ""))]
        row = _mixed(returns.pick(rng), returns.pick(rng), rng)
        buyers = {name: buyer for name in row if name.endswith("customer_sk")}
        returns.put({**row, **buyers, **known})
    _change_and_delete(returns, rng, 4)


def _change_stock(stock: ChangingTable, rng: random.Random) -> None:
    for _ in range(12):
        stock.change(stock.pick(rng), inv_quantity_on_hand=rng.choice((None, 0, 150, 300, 600, 900)))
        stock.put({**stock.pick(rng), "inv_warehouse_sk": rng.randrange(1, CLONED["warehouse"] + 1)})
        stock.delete(stock.pick(rng))


def _change_and_delete(table: ChangingTable, rng: random.Random, count: int) -> None:
    for _ in range(count):
        row = table.pick(rng)
        table.put({**_mixed(row, table.pick(rng), rng), **{name: row[name] for name in table.relation.key}})
        table.delete(table.pick(rng))


def _change_calendar(days: ChangingTable, rng: random.Random) -> None:
    """Change what days are called; weeks and months stay, because queries count on one row where they ask for them."""
    for _ in range(3):
        other = days.pick(rng)
        days.change(days.pick(rng), **{name: other[name] for name in ("d_day_name", "d_dow", "d_dom", "d_holiday")})
    days.delete(days.pick(rng))


def _change_dimension(table: ChangingTable, key: str, rng: random.Random) -> None:
    """Change some rows to what queries ask for, or to what other rows have; add one, and delete one now and then."""
    if key == "d_date_sk":
        _change_calendar(table, rng)
        return
    for _ in range(3):
        row = table.pick(rng)
        changed = _mixed(row, table.pick(rng), rng, share=0.15)
        table.put({**changed, **_asked_for(table, row, rng), key: row[key]})
    if rng.random() < 0.4:
        number = 1 + max(int(str(k[0])) for k in table.rows)
        table.put({**table.pick(rng), key: number})
    if rng.random() < 0.3 and len(table.rows) > 3:
        table.delete(table.pick(rng))


def _asked_for(table: ChangingTable, row: Values, rng: random.Random) -> Values:
    found: Values = {}
    for column, values in wanted().items():
        if column in row and column not in table.relation.key and rng.random() < 0.2:
            found[column] = _like(row[column], rng.choice(values))
    return found


def _like(present: object, text: str) -> object:
    """Read a query's literal as what the column holds; leave it alone where its kind does not show."""
    if isinstance(present, str):
        return text
    return int(text) if isinstance(present, int) and text.lstrip("-").isdigit() else present


def _mixed(row: Values, other: Values, rng: random.Random, share: float = 0.5) -> Values:
    """Give a row that has part of its values from another."""
    return {name: other[name] if rng.random() < share else value for name, value in row.items()}
