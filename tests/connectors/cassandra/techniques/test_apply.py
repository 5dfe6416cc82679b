"""C.f: the deltas of a full log, applied to an empty keyspace, give the same cells."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.settings import Settings
from runnel.connectors.cassandra.techniques.apply import apply_deltas
from runnel.connectors.cassandra.techniques.snapshot_differential import read_cells
from runnel.connectors.deltas.forms import from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

TABLES = {
    "rows": "p int, q text, c int, d text, s text static, v int, w text, PRIMARY KEY ((p, q), c, d)",
    "kinds": "id int PRIMARY KEY, b blob, o boolean, d date, n decimal, f float, g double, i inet, t time, s timestamp, "
    "u uuid, y varint, l list<int>, m map<text, int>, e set<text>, z frozen<list<int>>, x duration",
    "hits": "k int PRIMARY KEY, n counter",
}
KINDS = {
    "b": ["0x00ff", "0x"],
    "o": ["true", "false"],
    "d": ["'2026-01-02'", "'1969-12-31'"],
    "n": ["1.50", "-0.001"],
    "f": ["0.1", "-3.5e20"],
    "g": ["0.1", "1e300"],
    "i": ["'127.0.0.1'", "'::1'"],
    "t": ["'01:02:03.000000004'"],
    "s": ["'2026-01-02T03:04:05.678Z'"],
    "u": ["d2177dd0-eaa2-11de-a572-001b779c76e3"],
    "y": ["123456789012345678901234567890"],
    "l": ["[1, 2]", "[3]"],
    "m": ["{'a': 1}", "{'b': 2, 'c': 3}"],
    "e": ["{'x', 'y'}"],
    "z": ["[1, 2]"],
    "x": ["1mo2d3ns"],
}


def statements(chance: random.Random) -> Iterator[str]:
    """Give random writes of every kind over few keys, so that they meet."""
    for _ in range(120):
        p, c, d = chance.randrange(2), chance.randrange(3), chance.choice("xy")
        at = f"p = {p} AND q = 'q' AND c = {c} AND d = '{d}'"
        name, id_ = chance.choice(list(KINDS)), chance.randrange(3)
        yield chance.choice(
            [
                f"INSERT INTO KS.rows (p, q, c, d, v) VALUES ({p}, 'q', {c}, '{d}', {chance.randrange(9)})",
                f"UPDATE KS.rows SET w = 'w{chance.randrange(9)}' WHERE {at}",
                f"UPDATE KS.rows SET s = 's{chance.randrange(9)}' WHERE p = {p} AND q = 'q'",
                f"DELETE v FROM KS.rows WHERE {at}",
                f"DELETE FROM KS.rows WHERE {at}",
                f"DELETE FROM KS.rows WHERE p = {p} AND q = 'q' AND c >= {c}",
                f"DELETE FROM KS.rows WHERE p = {p} AND q = 'q' AND c = {c}",
                f"DELETE FROM KS.rows WHERE p = {p} AND q = 'q'",
                f"UPDATE KS.kinds SET {name} = {chance.choice(KINDS[name])} WHERE id = {id_}",
                f"UPDATE KS.kinds SET {name} = {chance.choice(KINDS[name])} WHERE id = {id_}",
                f"INSERT INTO KS.kinds (id) VALUES ({id_})",
                f"UPDATE KS.kinds SET l = l + [{c}], m['k{c}'] = {c}, e = e - {{'x'}} WHERE id = {id_}",
                f"DELETE {name} FROM KS.kinds WHERE id = {id_}",
                f"UPDATE KS.hits SET n = n + {c} WHERE k = {id_}",
            ]
        )


@pytest.mark.parametrize("seed", [1, 2])
def test_c_f_applied_deltas_give_the_same_cells(shop: Shop, seed: int, say: Callable[[str], None]) -> None:
    say(f"seed {seed}")
    shop.configure(tables=list(TABLES))
    copy = shop.node.keyspace()
    for name, columns in TABLES.items():
        shop.cql(f"CREATE TABLE KS.{name} ({columns}) WITH cdc = true")
        shop.node.cql(f"CREATE TABLE {copy}.{name} ({columns})")
    deltas = shop.capture("log")
    shop.cql(*statements(random.Random(seed)))
    deltas += shop.capture("log")
    with Client(Settings("copy", copy, (shop.node.host,), shop.node.port)) as client:
        assert apply_deltas(client, deltas) == len(deltas)
        assert len(deltas) > 50
        copied = cells(client)
    with Client(Settings("own", shop.keyspace, (shop.node.host,), shop.node.port, tuple(TABLES))) as client:
        assert cells(client) == copied


ORDERS = ["c ASC, d ASC", "c DESC, d DESC", "c ASC, d DESC", "c DESC, d ASC"]
RANGES = [
    "c >= 1 AND c < 2",
    "c > 2",
    "c = 0 AND d >= 1",
    "c = 3 AND d > 0 AND d < 2",
    "(c, d) > (2, 1)",
    "(c, d) >= (1, 1) AND (c, d) < (3, 1)",
]


@pytest.mark.parametrize("order", ORDERS)
def test_c_f_ranges_take_the_same_rows_whatever_the_order_of_the_table(shop: Shop, order: str) -> None:
    shop.configure(tables=[f"t{n}" for n in range(len(RANGES))])
    copy = shop.node.keyspace()
    for n, condition in enumerate(RANGES):
        columns = f"(k int, c int, d int, v int, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY ({order})"
        shop.cql(f"CREATE TABLE KS.t{n} {columns} AND cdc = true")
        shop.node.cql(f"CREATE TABLE {copy}.t{n} {columns}")
        shop.cql(*(f"UPDATE KS.t{n} SET v = 1 WHERE k = 1 AND c = {c} AND d = {d}" for c in range(4) for d in range(3)))
        shop.cql(f"DELETE FROM KS.t{n} WHERE k = 1 AND {condition}")
    shop.wait_for_log()
    deltas = [
        from_json(line)
        for line in shop.run(*["capture", "shop", "--since", "0", "--format", "json"], *PARTIAL).split("\n")
        if line
    ]
    with Client(Settings("copy", copy, (shop.node.host,), shop.node.port)) as client:
        assert apply_deltas(client, deltas) == len(deltas)
    for n in range(len(RANGES)):
        left = [f"SELECT c, d FROM {keyspace}.t{n}" for keyspace in (shop.keyspace, copy)]
        own, copied = (sorted(map(tuple, shop.node.cql(cql))) for cql in left)
        assert copied == own, RANGES[n]
        assert 0 < len(own) < 12


PARTIAL = ("--technique", "log-partial")


def cells(client: Client) -> list[tuple[object, ...]]:
    found = read_cells(client, [client.tables()[name] for name in TABLES])
    return sorted((d.table, d.key, str(d.cluster), str(d.column), d.value) for d in found)
