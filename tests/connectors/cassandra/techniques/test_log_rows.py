"""Rows of a log: the short way, which most values take, tells what the general way tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.techniques import log_rows
from tests.connectors.cassandra.log.test_kept_logs import KEYS, SEGMENTS

if TYPE_CHECKING:
    from pathlib import Path


def told(path: Path) -> pa.Table:
    batches = log_rows.log_rows("host", "w", LogReader(Catalog(), KEYS).read(path))
    return pa.Table.from_batches(batches, log_rows.SCHEMA)


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.name)
def test_the_short_way_tells_what_the_general_way_tells(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[bool] = []
    usual = log_rows._Plain.row

    def counted(self: log_rows._Plain, change: Any) -> Any:
        found = usual(self, change)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(log_rows._Plain, "row", counted)
    short = told(path)
    monkeypatch.setattr(log_rows._Plain, "row", lambda _self, _change: None)
    assert told(path).equals(short)
    assert 0 < sum(ways) < len(ways)  # some take the short way, some cannot
    assert short.num_rows > 100
    assert len(set(short["table"].to_pylist())) > 5
