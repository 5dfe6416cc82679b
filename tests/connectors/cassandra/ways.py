"""The ways in which changes are written, so that one scenario serves all techniques."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cassandra.cluster import Cluster

from runnel.connectors.cassandra.techniques.table_writer import TableWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.connectors.cassandra.conftest import Shop

LOGS = ("log", "log-partial")
TABLE = "CREATE TABLE KS.t (k text PRIMARY KEY, a int, b int, c int, d int, e int) WITH cdc = true"


class Plain:
    """Writes CQL to the table and nothing else: what a trigger sees."""

    def __init__(self, session: Any, keyspace: str) -> None:
        self._session, self._table = session, f"{keyspace}.t"

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self._session.execute(f"UPDATE {self._table} SET {name} = {value} WHERE k = 'x'")

    def delete(self, *names: str) -> None:
        self._session.execute(f"DELETE {', '.join(names)} FROM {self._table} WHERE k = 'x'")


class Wrapped:
    """Writes through the application's wrapper."""

    def __init__(self, session: Any, keyspace: str, technique: str, mode: str) -> None:
        self._writer = TableWriter(session, keyspace, "t", technique=technique, mode=mode)

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self._writer.set({"k": "x"}, {name: value})

    def delete(self, *names: str) -> None:
        self._writer.delete_columns({"k": "x"}, names)


@contextmanager
def session_of(shop: Shop) -> Iterator[Any]:
    with Cluster([shop.node.host], shop.node.port, protocol_version=5) as cluster:
        session = cluster.connect()
        session.default_timeout = 60
        yield session


WAYS = {
    "audit by time, wrapper": ("audit", {"audit": "time"}, True),
    "audit by value, wrapper": ("audit", {"audit": "value"}, True),
    "audit by time, trigger": ("audit", {"audit": "time", "writer": "trigger"}, False),
    "audit by value, trigger": ("audit", {"audit": "value", "writer": "trigger"}, False),
    "scan": ("scan", {}, False),
    "snapshot": ("snapshot", {}, False),
    "log-partial": ("log-partial", {}, False),
    "log": ("log", {}, False),
    "tracking, trigger": ("trigger", {}, False),
    "tracking, wrapper": ("trigger", {"writer": "application"}, True),
}
"""Name -> technique, settings, and whether the application's wrapper writes."""


@contextmanager
def written(shop: Shop, way: str) -> Iterator[tuple[str, Plain | Wrapped]]:
    """Make the table and what the way needs; give its technique and whoever writes."""
    technique, settings, wrapped = WAYS[way]
    shop.configure(tables=["t"], **settings)
    shop.cql(TABLE)
    if technique in ("audit", "trigger"):
        shop.run("prepare", "shop", "--technique", technique)
    with session_of(shop) as session:
        if technique in LOGS:
            shop.capture(technique)
        if wrapped:
            yield technique, Wrapped(session, shop.keyspace, technique, settings.get("audit", "time"))
        else:
            yield technique, Plain(session, shop.keyspace)
