"""What a reader of a source's changes knows, held against what the server gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import runnel
from runnel.connectors.cassandra.snapshot import read_arrow
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from runnel.connectors import ChangeSet
    from runnel.connectors.cassandra.source import CassandraSource
    from runnel.project import Project
    from tests.connectors.cassandra.conftest import Shop


def opened(shop: Shop) -> Project:
    return runnel.open(shop.folder, engine=DuckDbEngine())


def caught_up(shop: Shop) -> None:
    """Run until everything that was written so far is taken in."""
    shop.wait_for_log()
    with opened(shop) as project:
        project.run(once=True)


def rows_of(shop: Shop, name: str) -> list[dict[str, Any]]:
    with opened(shop) as project:
        return sorted(project.table(name).to_pylist(), key=str)


def told_by_server(shop: Shop, table: str) -> list[dict[str, Any]]:
    return sorted((dict(row._asdict()) for row in shop.cql(f"SELECT * FROM KS.{table}")), key=str)


class Followed:
    """What a reader of the source's changes knows."""

    def __init__(self, source: CassandraSource) -> None:
        self.source = source
        self.position: dict[str, Any] = source.initial_offset()
        self.tables: dict[str, dict[str, str]] = {info.name: {} for info in source.tables()}

    def take(self, shop: Shop) -> None:
        shop.wait_for_log()
        end = self.source.latest_offset(self.position, 1_000_000)
        first = [self._plain(changes) for changes in self.source.read(self.position, end)]
        again = [self._plain(changes) for changes in self.source.read(self.position, end)]
        assert sorted(map(str, first)) == sorted(map(str, again)) or not self.position
        for name, rows in again:
            for key, row in rows:
                if row is None:
                    self.tables[name].pop(key, None)
                else:
                    self.tables[name][key] = row
        self.source.commit(end)
        self.position = end

    def _plain(self, changes: ChangeSet) -> tuple[str, list[tuple[str, str | None]]]:
        assert changes.keyed is not None
        keys = next(info.key for info in self.source.tables() if info.name == changes.table)
        found = []
        for row in changes.keyed.to_pylist():
            operation = row.pop("_op")
            key = str([row[name] for name in keys])
            found.append((key, str(sorted(row.items())) if operation == "upsert" else None))
        return changes.table, found

    def differing(self) -> list[str]:
        """Compare with what the server gives now."""
        client = self.source._client
        assert client is not None
        found = []
        for name, table in client.tables().items():
            if name not in self.tables:
                continue
            rows = [row for batch in read_arrow(client, table) for row in batch.to_pylist()]
            keys = [column.name for column in (*table.partition_key, *table.clustering)]
            whole = [row for row in rows if all(row[key] is not None for key in keys)]
            server = sorted(str(sorted(row.items())) for row in whole)
            own = sorted(self.tables[name].values())
            if server != own:
                found.append(f"{name}: server only {set(server) - set(own)}, runnel only {set(own) - set(server)}")
        return found
