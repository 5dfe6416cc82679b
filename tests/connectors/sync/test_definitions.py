"""A definition changes in mid-stream: the runner goes on, and one that comes from before reads old rows by the old definition."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.connectors.sync.conftest import BOTH

if TYPE_CHECKING:
    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH

ADD = "ALTER TABLE download ADD COLUMN country CHAR(2) NOT NULL DEFAULT '??' AFTER id"
SHOWN = "SELECT id, country, name FROM download"


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_a_column_is_added_in_mid_stream(pair: Pair, metadata: str) -> None:
    """L.c: lived through by a runner; then by one whose state was put back to a position before the ALTER."""
    pair.sql(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        pair.sql("CREATE TABLE download (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO download VALUES (1, 'a')")
        pair.deliver({"shop.download": "download"})
        pair.catch_up()
        shutil.copytree(pair.folder / ".runnel", pair.folder / "before")
        with pair.running():
            pair.sql("INSERT INTO download VALUES (2, 'old')", "UPDATE download SET name = 'older' WHERE id = 1")
            pair.wait_for("SELECT id FROM download WHERE id = 2")
            pair.sql(ADD, "INSERT INTO download VALUES (3, 'nl', 'new')", "UPDATE download SET name = 'n' WHERE id = 2")
            pair.wait_for("SELECT id FROM download WHERE id = 3")
            pair.sql("DELETE FROM download WHERE id = 1", "INSERT INTO download VALUES (4, 'de', 'end')")
            pair.wait_for("SELECT id FROM download WHERE id = 4")
        pair.compare("download")
        expected = sorted(pair.sql(SHOWN), key=repr)
        assert pair.arrived(SHOWN) == expected == [(2, "??", "n"), (3, "nl", "new"), (4, "de", "end")]
        shutil.rmtree(pair.folder / ".runnel")
        (pair.folder / "before").rename(pair.folder / ".runnel")
        pair.catch_up()
        pair.compare("download")
        assert pair.arrived(SHOWN) == expected
    finally:
        pair.sql("SET GLOBAL binlog_row_metadata = FULL")
