"""What a reader of a source's changes knows, held against what the server gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.connectors.cassandra.snapshot import read_arrow
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Transient
from runnel.pipeline.epoch import Captured, capture, plan, run_epoch
from runnel.pipeline.source_tables import check_source_tables
from runnel.pipeline.step import Change, immediate, take
from tests.support.places import places_of

if TYPE_CHECKING:
    from runnel.connectors.cassandra.source import CassandraSource
    from runnel.lake.snapshot import Snapshot
    from runnel.project import Project
    from tests.connectors.cassandra.conftest import Shop

READINGS = 20
"""How often a range is read before it counts as unstable; rows of the random statements expire within seconds."""


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
    """What a reader of the source's changes knows: its tables in a state of its own, taken range by range."""

    def __init__(self, source: CassandraSource, engine: DuckDbEngine | None = None) -> None:
        self.source = source
        self._project = runnel.memory(engine=engine or DuckDbEngine(threads=1))
        self.tables = [info.name for info in source.tables()]

    @property
    def position(self) -> dict[str, Any]:
        """How far the state has come."""
        return dict(self._project.runtime.lake.snapshot().positions.get("shop") or self.source.initial_offset())

    def take(self, shop: Shop) -> None:
        """Take what is new as an epoch does, but read it until two readings agree."""
        shop.wait_for_log()
        runtime = self._project.runtime
        assert check_source_tables(runtime, {"shop": self.source}) == {}
        captured = Captured()
        head = runtime.lake.snapshot()
        ranges = plan(runtime, head, {"shop": self.source}, 1_000_000, captured)
        assert captured.errors == {}, captured.errors
        taken = take(runtime, lambda now: self._read_until_stable(now, ranges))
        assert taken.published or not ranges
        for _, end in ranges.values():
            self.source.commit(end)

    def take_once(self, shop: Shop) -> None:
        """Take what is new as an epoch does; what is only transient is tried again, as a run does."""
        shop.wait_for_log()
        runtime = self._project.runtime
        assert check_source_tables(runtime, {"shop": self.source}) == {}
        for _ in range(READINGS):
            _, captured = run_epoch(runtime, {"shop": self.source}, 1_000_000, immediate)
            if not any(isinstance(error, Transient) for error in captured.errors.values()):
                break
        assert captured.errors == {}, captured.errors

    def places(self) -> set[str]:
        """Say where cells were reconciled."""
        return {place for epoch in self._project.epochs() for place in places_of(epoch, "keyed")}

    def _read_until_stable(self, head: Snapshot, ranges: dict[str, Any]) -> Change:
        """Read the same range until two readings agree.

        A range read again gives the same rows, except for those that the server itself is asked for: such a row may expire between
        two readings.
        """
        first = self._read(head, ranges)
        for _ in range(READINGS):
            again = self._read(head, ranges)
            if _plain(first) == _plain(again):
                return again
            first = again
        pytest.fail(f"{READINGS} readings of one range, and no two in a row agree")

    def _read(self, head: Snapshot, ranges: dict[str, Any]) -> Change:
        captured = Captured()
        change = capture(self._project.runtime, head, {"shop": self.source}, ranges, captured)
        assert captured.errors == {}, captured.errors
        change.positions |= {name: end for name, (_, end) in ranges.items()}
        return change

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
            server = sorted(map(_values, whole))
            own = self.rows(name)
            if server != own:
                found.append(f"{name}: server only {set(server) - set(own)}, runnel only {set(own) - set(server)}")
        return found

    def rows(self, name: str) -> list[str]:
        """Give the rows of a table as texts."""
        return sorted(map(_values, self._project.table(f"shop.{name}").to_pylist()))

    def close(self) -> None:
        """Let go of the state."""
        self._project.close()


def _plain(change: Change) -> dict[str, list[str]]:
    return {name: sorted(map(str, rows.to_pylist())) for name, rows in change.signed.items() if rows.num_rows}


def _values(row: dict[str, Any]) -> str:
    """Give a row as text without its NULLs: a dropped column stays, and is NULL."""
    return str(sorted(item for item in row.items() if item[1] is not None))
