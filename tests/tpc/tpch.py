"""TPC-H: its tables at a tiny scale, batches of changes that reach every query's filters, and its queries."""

from __future__ import annotations

import random
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from runnel.bench.tpch_data import KEYS, generate, queries, without_order
from tests.tpc.changing import ChangingTable, dataset

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.tpc.changing import Dataset, Values

ORDERED = ("Q2", "Q3", "Q10", "Q18", "Q21")
"""Queries that are also kept with their ORDER BY and LIMIT."""

# Values the queries ask for: at a tiny scale most random rows would pass by them.
PARTS: dict[str, tuple[object, ...]] = {
    "p_name": ("forest green azure lace", "forest rose puff navy", "green ivory snow wheat", "almond linen peru tan"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#34", "Brand#45", "Brand#13"),
    "p_type": ("ECONOMY ANODIZED STEEL", "LARGE PLATED BRASS", "PROMO BRUSHED TIN", "MEDIUM POLISHED NICKEL"),
    "p_size": (1, 3, 5, 9, 14, 15, 49),
    "p_container": ("SM CASE", "SM PKG", "MED BOX", "MED BAG", "LG BOX", "LG PACK", "JUMBO JAR"),
}
LIKED = (
    {"p_brand": "Brand#12", "p_container": "SM CASE", "p_size": 5},
    {"p_brand": "Brand#23", "p_container": "MED BOX", "p_size": 9},
    {"p_brand": "Brand#34", "p_container": "LG BOX", "p_size": 14},
)
"""Values that queries ask for together."""
LINES: dict[str, tuple[object, ...]] = {
    "l_shipmode": ("AIR", "AIR REG", "MAIL", "SHIP", "RAIL"),
    "l_shipinstruct": ("DELIVER IN PERSON", "DELIVER IN PERSON", "NONE"),
    "l_returnflag": ("R", "A", "N"),
    "l_quantity": tuple(Decimal(n) for n in (1, 2, 8, 15, 25, 50)),
    "l_discount": tuple(Decimal(n) / 100 for n in (0, 5, 6, 7, 10)),
}
SEGMENTS = ("BUILDING", "BUILDING", "AUTOMOBILE", "MACHINERY")
DAYS = tuple(date(*d) for d in ((1993, 8, 1), (1993, 11, 1), (1994, 5, 1), (1995, 2, 20), (1995, 8, 20), (1996, 1, 20)))
COMMENTS = ("special packages; requests sleep", "carefully final pinto beans", "ironic deposits")
COMPLAINTS = ("the Customer had Complaints", "quick deposits haggle")


def views() -> dict[str, str]:
    """Give every view to keep: each query without its order, some with it, and with a limit that is felt at this scale."""
    texts = queries()
    found = {name: without_order(sql) for name, sql in texts.items()}
    found |= {f"{name} ordered": texts[name] for name in ORDERED}
    return found | {f"{name} top 3": re.sub(r"LIMIT \d+$", "LIMIT 3", texts[name]) for name in ORDERED}


def make(folder: Path, *, batches: int, seed: int = 1, scale: float = 0.01, orders: int = 5000) -> Dataset:
    """Generate the tables into a folder and the batches from a seed; only so many orders stay.

    Below the scale 0.01 there are so few suppliers that the key of `partsupp` repeats.
    """
    data = {name: pq.read_table(file) for name, file in generate(folder, scale).items()}
    data["orders"] = data["orders"].slice(0, orders)
    last = data["orders"].column("o_orderkey")[-1]
    kept = pc.sum(pc.less_equal(data["lineitem"].column("l_orderkey"), last)).as_py()
    data["lineitem"] = data["lineitem"].slice(0, kept)  # both are ordered by the order's number
    rng = random.Random(seed)
    return dataset(data, KEYS, batches, lambda tables, _: _change(tables, rng))


def _change(tables: Mapping[str, ChangingTable], rng: random.Random) -> None:
    for _ in range(12):
        _new_order(tables, rng)
    _delete_orders(tables, rng, 8)
    _change_customers(tables, rng)
    _change_suppliers(tables, rng)
    _change_parts(tables, rng)
    _change_nations(tables["nation"], rng)
    for _ in range(10):
        line = tables["lineitem"].pick(rng)
        tables["lineitem"].change(line, **_some(LINES, rng))


def _new_order(tables: Mapping[str, ChangingTable], rng: random.Random) -> None:
    orders, lines = tables["orders"], tables["lineitem"]
    number = _following(orders)
    day = rng.choice(DAYS) + timedelta(days=rng.randrange(25))
    order = orders.pick(rng)
    orders.put(
        {
            **order,
            "o_orderkey": number,
            "o_custkey": tables["customer"].pick(rng)["c_custkey"],
            "o_orderstatus": rng.choice("FFO"),
            "o_orderdate": day,
            "o_totalprice": Decimal(rng.randrange(100_000, 60_000_000)) / 100,
            "o_comment": rng.choice(COMMENTS),
        }
    )
    large = {"l_quantity": Decimal(50)} if rng.random() < 0.3 else {}
    for place in range(1, (7 if large else rng.choice((1, 2, 4))) + 1):
        lines.put({**_new_line(tables, rng, number, place, day), **large})


def _new_line(tables: Mapping[str, ChangingTable], rng: random.Random, order: int, place: int, day: date) -> Values:
    offer = tables["partsupp"].pick(rng)
    shipped = day + timedelta(days=rng.randrange(1, 90))
    return {
        **tables["lineitem"].pick(rng),
        **_some(LINES, rng),
        "l_orderkey": order,
        "l_partkey": offer["ps_partkey"],
        "l_suppkey": offer["ps_suppkey"],
        "l_linenumber": place,
        "l_shipdate": shipped,
        "l_commitdate": shipped + timedelta(days=rng.randrange(-20, 40)),
        "l_receiptdate": shipped + timedelta(days=rng.randrange(1, 30)),
    }


def _delete_orders(tables: Mapping[str, ChangingTable], rng: random.Random, count: int) -> None:
    gone = [tables["orders"].pick(rng) for _ in range(count)]
    numbers = {order["o_orderkey"] for order in gone}
    for line in tables["lineitem"].where(lambda values: values["l_orderkey"] in numbers):
        tables["lineitem"].delete(line)
    for order in {order["o_orderkey"]: order for order in gone}.values():
        tables["orders"].delete(order)


def _change_customers(tables: Mapping[str, ChangingTable], rng: random.Random) -> None:
    customers = tables["customer"]
    for _ in range(6):
        nation = rng.randrange(25)
        customers.change(
            customers.pick(rng),
            c_nationkey=nation,
            c_phone=f"{nation + 10}-100-200-3000",
            c_acctbal=Decimal(rng.randrange(-90_000, 990_000)) / 100,
            c_mktsegment=rng.choice(SEGMENTS),
        )
    number = _following(customers)
    customers.put({**customers.pick(rng), "c_custkey": number, "c_name": f"Customer#{number:09}"})
    buyers = {order["o_custkey"] for order in tables["orders"].rows.values()}
    idle = customers.where(lambda values: values["c_custkey"] not in buyers)
    customers.delete(rng.choice(idle))


def _change_suppliers(tables: Mapping[str, ChangingTable], rng: random.Random) -> None:
    suppliers, nations = tables["supplier"], tables["nation"]
    wanted = nations.where(lambda n: n["n_name"] in ("SAUDI ARABIA", "GERMANY", "CANADA", "FRANCE", "BRAZIL", "CHINA"))
    for _ in range(4):
        suppliers.change(
            suppliers.pick(rng),
            s_nationkey=rng.choice(wanted)["n_nationkey"],
            s_acctbal=Decimal(rng.randrange(-90_000, 990_000)) / 100,
            s_comment=rng.choice(COMPLAINTS),
        )


def _change_parts(tables: Mapping[str, ChangingTable], rng: random.Random) -> None:
    parts, offers = tables["part"], tables["partsupp"]
    for _ in range(10):
        liked = rng.choice(LIKED) if rng.random() < 0.6 else {}
        parts.change(parts.pick(rng), **{**_some(PARTS, rng), **liked})
    number = _following(parts)
    parts.put({**parts.pick(rng), **_some(PARTS, rng), "p_partkey": number})
    for _ in range(2):
        offers.put({**offers.pick(rng), "ps_partkey": number, "ps_suppkey": tables["supplier"].pick(rng)["s_suppkey"]})
    for _ in range(8):
        offer = offers.pick(rng)
        offers.change(
            offer, ps_supplycost=Decimal(rng.randrange(100, 100_000)) / 100, ps_availqty=rng.randrange(1, 9999)
        )


def _change_nations(nations: ChangingTable, rng: random.Random) -> None:
    """Let two nations swap their names and one move to another region."""
    one, other = nations.pick(rng), nations.pick(rng)
    nations.change(one, n_name=other["n_name"])
    nations.change(other, n_name=one["n_name"])
    nations.change(nations.pick(rng), n_regionkey=rng.randrange(5))


def _following(table: ChangingTable) -> int:
    """Give a number that no row has as its key."""
    return 1 + max(int(str(key[0])) for key in table.rows)


def _some(values: Mapping[str, tuple[object, ...]], rng: random.Random) -> Values:
    """Choose a value for most of these columns."""
    return {name: rng.choice(choices) for name, choices in values.items() if rng.random() < 0.8}
