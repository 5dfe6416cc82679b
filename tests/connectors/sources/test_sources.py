"""What every source keeps: positions, replay, crashes, hand-over from snapshot to log, types, bad input, waiting, closing."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from runnel import config
from runnel.connectors import guarded_source
from runnel.errors import RunnelError
from tests.connectors.cassandra.by_tasks import sent
from tests.connectors.sources.conftest import Reader, changes
from tests.pipeline.test_large_reads import ByTasks

if TYPE_CHECKING:
    from runnel.connectors.base import Source
    from tests.connectors.sources.conftest import Shop


def row(id_: int, g: str = "a", x: int = 1) -> dict[str, Any]:
    return {"id": id_, "g": g, "x": x}


def test_positions_are_json_and_stay_where_they_are_while_nothing_happens(shop: Shop, source: Source) -> None:
    shop.store.put(row(1))
    shop.store.settle()
    reader = Reader(source)
    reader.take()
    assert json.loads(json.dumps(reader.position)) == reader.position
    assert source.latest_offset(reader.position, 1000) == reader.position
    shop.store.put(row(2))
    shop.store.settle()
    before = reader.position
    after = reader.take()
    assert after != before
    assert source.covers(after, before)
    assert source.covers(after, after)
    assert reader.rows() == shop.store.rows()


def test_a_range_that_is_read_again_gives_the_same_also_to_another_reader(shop: Shop, source: Source) -> None:
    shop.store.put(row(1), row(2))
    shop.store.settle()
    reader = Reader(source)
    reader.take()
    shop.store.put(row(2, "b"), row(3))
    shop.store.delete(1)
    shop.store.settle()
    end = source.latest_offset(reader.position, 1_000_000)
    first = changes(source, reader.position, end)
    assert first
    assert changes(source, reader.position, end) == first
    source.close()
    again = shop.source()
    again.tables()
    assert changes(again, reader.position, end) == first
    again.close()


def test_partitions_can_be_sent_elsewhere_and_give_what_reading_gives(shop: Shop, source: Source) -> None:
    shop.store.put(*(row(n) for n in range(20)))
    shop.store.settle()
    reader = Reader(source)
    for step in range(2):
        end = source.latest_offset(reader.position, 1_000_000)
        parts = source.partitions(reader.position, end)
        if parts is not None:
            found = [one for part in sent([part for part in parts if part.table in ("t", "")]) for one in part.read()]
            by_parts = changes(source, reader.position, end, read=found)
            assert sorted(by_parts, key=str) == sorted(changes(source, reader.position, end), key=str)
            assert sum(part.rows for part in parts) > 0
        reader.take()
        shop.store.put(row(step, "b"))
        shop.store.settle()


def test_nothing_falls_between_the_snapshot_and_the_log_nor_comes_twice(shop: Shop, source: Source) -> None:
    shop.store.put(row(1), row(2), row(3))
    shop.store.settle()
    reader = Reader(source)
    end = source.latest_offset(reader.position, 1_000_000)
    shop.store.put(row(2, "b"), row(4))  # after the position was chosen, before its range is read
    shop.store.delete(3)
    reader.apply(reader.position, end)
    source.commit(end)
    reader.position = end
    shop.store.put(row(1, "c"))
    shop.store.settle()
    reader.take()
    assert reader.rows() == shop.store.rows()


def test_views_take_over_from_the_snapshot_to_the_log(shop: Shop) -> None:
    shop.store.put(*(row(n) for n in range(5)))
    shop.run()
    shop.store.put(row(1, "b", 7), row(9))
    shop.store.delete(0, 2)
    shop.run()
    shop.store.put(row(2, "c"))  # a key that was deleted comes again
    shop.run()
    shop.check()


def test_ranges_that_tasks_read_give_what_the_driver_gives(shop: Shop) -> None:
    shop.store.put(*(row(n) for n in range(5)))
    shop.run(ByTasks())
    shop.store.put(row(1, "b", 7), row(1, "c", 8), row(9))
    shop.store.delete(0, 9)
    shop.run(ByTasks())
    shop.check()


def test_a_process_that_dies_between_capture_and_release_loses_and_doubles_nothing(shop: Shop) -> None:
    shop.store.put(row(1), row(2))
    for number, point in enumerate(("epoch:captured", "publish:after-commit"), start=3):  # of the snapshot, of the log
        assert shop.killed(point) == -signal.SIGKILL
        shop.store.put(row(number, "c"))
        shop.store.delete(number - 2)
        shop.run()
        shop.check()
        shop.store.put(row(2, "d"), row(9))


def test_values_keep_their_types(shop: Shop) -> None:
    kinds, expected = shop.store.typed()
    shop.run()
    with shop.open() as project:
        relation = project.runtime.lake.snapshot().relations["s.typed"]
        assert {column.name: str(column.type).lower() for column in relation.columns} == kinds
        assert project.table("s.typed").to_pylist() == [expected]


def test_bad_input_has_a_named_error_and_nothing_is_lost(shop: Shop) -> None:
    shop.store.put(row(1))
    shop.run()
    shop.store.damage()
    shop.store.put(row(2))
    for _ in range(2):  # it stays, and is no other error the second time
        with pytest.raises(RunnelError, match=shop.store.BAD):
            shop.run()
    with shop.open() as project:
        (told,) = project.status().sources
        assert told.error is not None
        assert shop.store.BAD in told.error
        assert [one["id"] for one in project.table("s.t").to_pylist()] == [1]
    shop.store.mend()
    shop.run()
    shop.check()


def test_lag_says_what_waits_and_a_position_is_covered_once_it_is_taken_in(shop: Shop) -> None:
    shop.store.put(row(1))
    shop.run()
    with shop.open() as project:
        shop.store.put(row(2), row(3))
        shop.store.settle()
        (told,), wanted = project.status().sources, project.position("s")
        assert told.lag
        assert json.loads(json.dumps(told.lag)) == told.lag
        with pytest.raises(RunnelError, match="RUNNEL-WAIT-TIMEOUT"):
            project.wait("s", wanted, timeout=0)
        project.run(once=True)
        epoch = project.wait("s", wanted, timeout=0)
        assert sum(r["n"] for r in project.view("sums").to_pylist(at=epoch)) == 3


def test_a_source_can_be_closed_twice_and_opened_again(shop: Shop, source: Source) -> None:
    assert "t" in {info.name for info in source.tables()}
    source.close()
    source.close()
    assert "t" in {info.name for info in source.tables()}


def test_a_setting_that_is_not_known_is_refused_with_its_place(shop: Shop) -> None:
    shop.configure()
    with (shop.folder / "runnel.toml").open("a") as file:
        file.write('colour = "red"\n')
    section = config.load(shop.folder).sources[0]
    with pytest.raises(RunnelError, match=r"unknown key 'colour' \(runnel.toml:\d+"):
        guarded_source(section, shop.folder).tables()
