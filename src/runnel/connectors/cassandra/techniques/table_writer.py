"""For applications: writes to a table and keeps what the audit or trigger technique needs in step, in the same write.

It works on the application's own session of `cassandra-driver`, with the driver's values:

    writer = TableWriter(session, "shop", "orders", technique="audit")
    writer.set({"id": 7}, {"amount": 3})
    writer.delete_columns({"id": 7}, ["amount"])
    writer.delete({"id": 7})

Everybody who writes to the table has to write through it, or a trigger has to do the same in the server.
"""

from __future__ import annotations

import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from cassandra.query import BatchStatement, BatchType

from runnel.connectors.cassandra.schema.twins import twin_of
from runnel.connectors.cassandra.techniques.journal import JOURNAL, SHARDS
from runnel.connectors.cassandra.values.types import quoted
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Statement = tuple[str, Sequence[Any]]


class TableWriter:
    """Writes to one table. `technique` is `audit` (with `mode` time or value, as it was prepared) or `trigger`."""

    def __init__(self, session: Any, keyspace: str, table: str, *, technique: str, mode: str = "time") -> None:
        """Look at the table's definition."""
        if technique not in ("audit", "trigger") or mode not in ("time", "value"):
            raise UsageError(
                "RUNNEL-CASSANDRA-WRITER",
                f"there is no writer for {technique!r} in {mode!r} mode",
                hint="technique is 'audit' or 'trigger', mode 'time' or 'value'",
            )
        self._session = session
        self._audit, self._mode = technique == "audit", mode
        self._types = {quoted(name) for name in session.cluster.metadata.keyspaces[keyspace].user_types}
        self._meta = session.cluster.metadata.keyspaces[keyspace].tables[table]
        self._name = f"{quoted(keyspace)}.{quoted(table)}"
        self._journal = f"{quoted(keyspace)}.{quoted(table + JOURNAL)}"
        self._partition = [column.name for column in self._meta.partition_key]
        self._clustering = [column.name for column in self._meta.clustering_key]
        self._prepared: dict[str, Any] = {}
        self._last = 0

    def set(self, key: Mapping[str, Any], values: Mapping[str, Any], ttl: int | None = None) -> None:
        """Set columns of one row; a static column is set with the partition key alone.

        Without `ttl` the values last as long as the table says (`default_time_to_live`); with 0 they stay.
        """
        now = self._now()
        row = self._row(key)
        written = dict(values)
        if self._audit:
            known = self._twins(key, list(values))
            new = {name: value for name, value in values.items() if known.get(name) is None}
            written |= {twin_of(n): now if self._mode == "time" else value for n, value in new.items()}
        columns = ", ".join(f"{quoted(name)} = ?" for name in written)
        lasting = "" if ttl is None else "TTL ? AND "
        cql = f"UPDATE {self._name} USING {lasting}TIMESTAMP ? SET {columns} WHERE {row}"
        statement = (cql, [*([] if ttl is None else [ttl]), now, *written.values(), *key.values()])
        lasts = self._meta.options.get("default_time_to_live") if ttl is None else ttl
        pages = [] if self._audit else [self._page("set", key, now, name, lasts or None) for name in values]
        self._write(statement, pages, now)

    def delete_columns(self, key: Mapping[str, Any], names: Iterable[str]) -> None:
        """Delete columns of one row."""
        now, listed = self._now(), list(names)
        gone = [*listed, *(twin_of(name) for name in listed)] if self._audit else listed
        columns = ", ".join(map(quoted, gone))
        cql = f"DELETE {columns} FROM {self._name} USING TIMESTAMP ? WHERE {self._row(key)}"
        pages = [] if self._audit else [self._page("cell-delete", key, now, name) for name in listed]
        self._write((cql, [now, *key.values()]), pages, now)

    def delete(self, key: Mapping[str, Any]) -> None:
        """Delete a row, or all rows of a partition where `key` is the partition key alone; twins go along."""
        now = self._now()
        cql = f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {self._row(key)}"
        whole = len(key) == len(self._partition)
        pages = [] if self._audit else [self._page("partition-delete" if whole else "row-delete", key, now)]
        self._write((cql, [now, *key.values()]), pages, now)

    def _now(self) -> int:
        """Give a write time that no write of this writer had before."""
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return self._last

    def _row(self, key: Mapping[str, Any]) -> str:
        if not set(self._partition) <= set(key) <= {*self._partition, *self._clustering}:
            raise UsageError(
                "RUNNEL-CASSANDRA-WRITER",
                f"{self._name}: {sorted(key)} names no row",
                hint=f"give {', '.join([*self._partition, *self._clustering])}",
            )
        return " AND ".join(f"{quoted(name)} = ?" for name in key)

    def _twins(self, key: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
        columns = ", ".join(quoted(twin_of(name)) for name in names)
        cql = f"SELECT {columns} FROM {self._name} WHERE {self._row(key)} LIMIT 1"
        for row in self._session.execute(self._prepare(cql).bind(list(key.values()))):
            values = row.values() if isinstance(row, dict) else row
            return dict(zip(names, values, strict=True))
        return {}

    def _page(
        self, kind: str, key: Mapping[str, Any], now: int, name: str | None = None, ttl: int | None = None
    ) -> dict[str, Any]:
        return {"kind": kind, "time": now, "name": name, "ttl": ttl, "key": key}

    def _write(self, statement: Statement, pages: list[dict[str, Any]], now: int) -> None:
        """Write the change, and the journal's pages of it in the same batch."""
        cql, values = statement
        bound = self._prepare(cql).bind(list(values))
        if not pages:
            self._session.execute(bound)
            return
        batch = BatchStatement(BatchType.LOGGED)
        batch.add(bound)
        encoded = dict(zip((c.name for c in self._prepare(cql).column_metadata), bound.values, strict=True))
        names = "shard, at, kind, key, cluster, name, value, time, ttl"
        insert = self._prepare(f"INSERT INTO {self._journal} ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
        for page in pages:
            batch.add(insert, self._columns(page, encoded))
        self._session.execute(batch)

    def _columns(self, page: Mapping[str, Any], encoded: Mapping[str, bytes]) -> list[Any]:
        parts = [encoded[name] for name in self._partition]
        key = parts[0] if len(parts) == 1 else b"".join(len(p).to_bytes(2, "big") + p + b"\x00" for p in parts)
        cluster: list[bytes] | None = [encoded[name] for name in self._clustering if name in page["key"]]
        kind, name = page["kind"], page["name"]
        if self._clustering and not cluster:
            cluster = None  # the static row, or the whole partition
        value = encoded[name] if kind == "set" else None
        if name is not None and kind == "set" and self._multicell(name):
            kind, value = "touched", None
        shard = zlib.crc32(key) % SHARDS
        return [shard, uuid.uuid1(), kind, key, cluster, name, value, page["time"], page["ttl"]]

    def _multicell(self, name: str) -> bool:
        """Say whether a column is kept as one cell per element; then its value is read when the journal is."""
        type_ = self._meta.columns[name].cql_type
        return type_.startswith(("list<", "set<", "map<")) or type_ in self._types

    def _prepare(self, cql: str) -> Any:
        if cql not in self._prepared:
            self._prepared[cql] = self._session.prepare(cql)
        return self._prepared[cql]
