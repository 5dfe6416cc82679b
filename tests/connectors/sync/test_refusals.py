"""Logs that cannot be followed: refused at the start with the setting to change, or stopped with file and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.connectors.sync.conftest import BOTH

if TYPE_CHECKING:
    from tests.connectors.sync.conftest import Pair

pytestmark = BOTH


@pytest.mark.parametrize(
    ("setting", "value", "mended"),
    [("binlog_format", "STATEMENT", "ROW"), ("binlog_row_image", "MINIMAL", "FULL")],
)
def test_wrong_log_settings_are_refused_at_the_start(pair: Pair, setting: str, value: str, mended: str) -> None:
    """L.i: by `runnel check` and by `runnel run`, which name the setting; nothing is captured or delivered."""
    pair.sql("CREATE TABLE download (id INT PRIMARY KEY)", "INSERT INTO download VALUES (1)")
    pair.deliver({"shop.download": "download"})
    pair.sql(f"SET GLOBAL {setting} = '{value}'")
    try:
        said = [pair.run("check", exit_code=1), pair.run("run", "--once", exit_code=1)]
    finally:
        pair.sql(f"SET GLOBAL {setting} = '{mended}'")
    for text in said:
        assert f"SET GLOBAL {setting} = {mended}" in " ".join(text.split())
    assert pair.arrived("SELECT * FROM download") == []
    pair.run("run", "--once")
    assert pair.arrived("SELECT * FROM download") == [(1,)]


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("other", ["DATE", "VARCHAR(20)", "INT UNSIGNED", "BIGINT", "FLOAT"])
def test_a_pair_of_types_that_is_not_listed_stops_with_file_and_position(pair: Pair, other: str, metadata: str) -> None:
    """L.i: the log has a column of another type than was declared, by an ALTER that was kept out of the log and undone."""
    pair.sql(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        pair.sql("CREATE TABLE download (id INT PRIMARY KEY, size INT)", "INSERT INTO download VALUES (1, 10)")
        pair.deliver({"shop.download": "download"})
        pair.catch_up()
        unlogged = ["SET sql_log_bin = 0", "DELETE FROM download", f"ALTER TABLE download MODIFY size {other}"]
        pair.sql(*unlogged)
        pair.sql("INSERT INTO download VALUES (2, 20240506)")
        pair.sql(*unlogged[:2], "ALTER TABLE download MODIFY size INT")
        said = pair.run("run", "--once", exit_code=1)
    finally:
        pair.sql("SET GLOBAL binlog_row_metadata = FULL")
    print(said)
    assert "download" in said
    assert "binlog.0" in said
    assert pair.arrived("SELECT * FROM download") == [(1, 10)]
