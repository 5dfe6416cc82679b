"""C.f: the tables of a full-log capture, delivered to PostgreSQL, hold the rows that Cassandra has."""

from __future__ import annotations

import json
import random
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import set_json_loads

import runnel
from runnel.engine.duckdb import DuckDbEngine
from tests.connectors.cassandra.techniques.test_apply import TABLES, statements
from tests.servers.postgres import postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.connectors.cassandra.conftest import Shop
    from tests.servers.postgres import PostgresServer

pytestmark = [pytest.mark.cassandra, pytest.mark.postgres]
__all__ = ["postgres_server"]
KEYS = {"rows": ("p", "q", "c", "d"), "kinds": ("id",), "hits": ("k",)}


@pytest.mark.parametrize("seed", [1, 2])
def test_c_f_captured_tables_are_the_same_in_postgres(
    shop: Shop, postgres_server: PostgresServer, seed: int, say: Callable[[str], None]
) -> None:
    say(f"seed {seed}")
    url = postgres_server.database()
    shop.configure(tables=list(TABLES))
    views = ", ".join(f'"shop.{name}" = "{name}"' for name in TABLES)
    with (shop.folder / "runnel.toml").open("a") as settings:
        settings.write(f'[targets.front]\ntype = "postgres"\nurl = "{url}"\nviews = {{ {views} }}\n')
    for name, columns in TABLES.items():
        shop.cql(f"CREATE TABLE KS.{name} ({columns}) WITH cdc = true")
    work = list(statements(random.Random(seed)))
    with runnel.open(shop.folder, engine=DuckDbEngine()) as project:
        for start in range(0, len(work), 40):
            shop.cql(*work[start : start + 40])
            shop.wait_for_log()
            project.run(once=True)
            for name, key in KEYS.items():
                there, here = delivered(url, name, key), held(shop, name, key)
                assert there.keys() == here.keys(), (name, start)
                differing = [(at, c, there[at][c], v) for at in here for c, v in here[at].items() if there[at][c] != v]
                assert differing == [], (name, start)
        assert {found.behind for found in project.status().targets} == {0}


def delivered(url: str, table: str, key: tuple[str, ...]) -> dict[Any, dict[str, Any]]:
    """Give the rows of a table in PostgreSQL by key."""
    with psycopg.connect(url) as connection:
        set_json_loads(lambda text: json.loads(text, parse_float=Decimal), connection)
        connection.execute("SET TIME ZONE 'UTC'")
        cursor = connection.execute(f'SELECT * FROM "{table}"'.encode())
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, map(plain, row), strict=True)) for row in cursor]
    for row in rows:
        if row.get("f") is not None:  # PostgreSQL gives the shortest number that is this one of 32 bits
            row["f"] = struct.unpack("f", struct.pack("f", row["f"]))[0]
    return {tuple(row[part] for part in key): row for row in rows}


def held(shop: Shop, table: str, key: tuple[str, ...]) -> dict[Any, dict[str, Any]]:
    """Give the rows of a table in Cassandra by key; a partition of nothing but static columns is no row."""
    rows = [
        {name: plain(value) for name, value in row._asdict().items()} for row in shop.cql(f"SELECT * FROM KS.{table}")
    ]
    return {tuple(row[part] for part in key): row for row in rows if row[key[-1]] is not None}


def plain(value: Any) -> Any:
    """Give one form for what both drivers have their own of."""
    kind = type(value).__name__
    if kind == "Duration":
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if kind == "Time":
        return value.nanosecond_time
    if kind == "Date":
        return value.date()
    if kind in ("SortedSet", "set"):
        return sorted(value)
    if kind == "OrderedMapSerializedKey":
        return dict(value.items())
    if kind == "UUID":
        return str(value)
    return value.replace(tzinfo=None) if kind == "datetime" else value
