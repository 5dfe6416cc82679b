"""What is kept of files in memory is bounded by what it takes, and goes with the file."""

from __future__ import annotations

from pathlib import Path

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake import files, footers, lookup
from runnel.lake.kept import Kept
from runnel.lake.lake import Lake
from tests.lake.samples import ORDERS, signed


def test_the_values_used_longest_ago_give_way_at_the_bound() -> None:
    """Bytes never exceed the bound but for a single value, whatever is put, replaced and dropped."""
    kept: Kept[str] = Kept(100)
    for n in range(1000):
        kept.put(f"f{n % 7}", "x", 30, f"p{n % 3}")
        assert kept.bytes == 30 * len(kept) <= 100
        if n % 5 == 0:
            kept.drop(f"f{n % 7}")
            assert all(path != f"f{n % 7}" for path, _ in kept.parts())
    kept.put("a", "1", 40)
    kept.put("b", "2", 40)
    assert kept.get("a") == "1"
    kept.put("c", "3", 40)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("1", None, "3")
    kept.put("large", "4", 1000)
    assert kept.get("large") == "4"
    assert len(kept) == 1


def test_what_is_kept_of_a_deleted_file_is_let_go(tmp_path: Path) -> None:
    """Rows, columns and footer go with the file."""
    lake = Lake.create(f"sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data", durable=False)
    file = lake.write(ORDERS, signed(ORDERS, (1, "a", None, 1)))
    footers.footer(ORDERS.name, file)
    lookup.remember(file.path, signed(ORDERS, (1, "a", None, 1)), "column id")
    assert file.path in lookup._memory
    files.delete(file.path)
    assert not [path for path, _ in lookup._memory.parts() if path == file.path]
    assert file.path not in footers._kept


def test_small_epochs_keep_no_more_in_memory_than_there_are_files() -> None:
    """Each small change is counted with what its table takes, and forgotten when upkeep deletes its file."""
    lookup.forget()
    with runnel.memory(engine=DuckDbEngine(threads=1)) as project:
        project.runtime.keep, project.runtime.grace = 3, 0.0
        project.create_table("t", "id BIGINT, g BIGINT", key=["id"])
        project.create_view("v", "SELECT g, count(*) AS n FROM t GROUP BY g")
        for n in range(40):
            project.sql(f"INSERT INTO t VALUES ({n}, {n % 2})")
        project.compact()
        on_disk = len(list(Path(project.config.state.data).rglob("*.parquet")))
        assert len(lookup._memory) <= on_disk < 40
        assert lookup._memory.bytes >= len(lookup._memory) * lookup.TABLE_BYTES
