"""A folder of segments is followed without losing, repeating or inventing anything."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.log import tail
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.positions import END_OF_SEGMENT, START, Position, covers, position_of
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.readers import Readers
from runnel.connectors.cassandra.log.segment import Segment, segment_file
from runnel.connectors.cassandra.log.tail import LogFolder, read_index
from runnel.errors import Terminal, UsageError
from tests.connectors.cassandra.encoder import Cell, Row, Updated, body, header, write_segment
from tests.connectors.cassandra.random_updates import schema, tables

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.connectors.cassandra.cells import Mutation


def update(timestamp: int) -> bytes:
    cell = Cell("a", b"\x00\x00\x00\x07", timestamp)
    return body(Updated(tables()["fixed"], b"\x00\x00\x00\x01", rows=(Row((), (timestamp, 0, 0), cells=(cell,)),)))


def times(mutations: list[Mutation]) -> list[int]:
    return [mutation.changes[0][7] for mutation in mutations]


class Server:
    """Writes a folder as a server does: sections grow, indexes follow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = LogFolder(folder)

    def write(
        self, id_: int, sections: list[list[int]], index: int | str | None, *, compression: str | None = None
    ) -> Path:
        """Write the times of each section; the index names the sections that are safe, or says COMPLETED."""
        bodies = [[update(time) for time in section] for section in sections]
        path = write_segment(self.folder, bodies, id_=id_, compression=compression)
        ends = self.ends(path)
        if isinstance(index, int):
            segment_file(path).index.write_text(str(ends[index - 1] if index else 28))
        elif index is not None:
            segment_file(path).index.write_text(index)
        return path

    def ends(self, path: Path) -> list[int]:
        with Segment(path) as segment:
            return list(segment.section_ends())

    def read(self, start: Position = START, end: Position | None = None) -> list[int]:
        return times(list(self.log.read(LogReader(Catalog(schema())), start, end)))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


@pytest.mark.parametrize("compression", [None, "LZ4Compressor"])
def test_an_open_segment_is_read_up_to_what_is_safe(server: Server, compression: str | None) -> None:
    server.write(1, [[1, 2], [3], [4]], 2, compression=compression)
    assert server.read() == [1, 2, 3]
    seen = server.log.latest(START)
    server.write(1, [[1, 2], [3], [4]], 3, compression=compression)
    assert server.read(seen) == [4]
    assert server.read(START, seen) == [1, 2, 3]


def test_segments_are_deleted_only_when_every_reader_has_passed_them(server: Server) -> None:
    for id_ in (1, 2, 3):
        server.write(id_, [[id_]], "9999\nCOMPLETED")
    one, other = (Readers(server.folder, name) for name in ("one", "other"))
    assert one.hold(Position(3, 5)) and other.hold(Position(2, 1))
    server.log.release(one.released(Position(3, 5)))
    assert server.read() == [2, 3], "the other one needs the second"
    assert other.hold(Position(3, 1))
    assert [reader.name for reader in one.others()] == ["other"]
    server.log.release(Readers(server.folder, "one").released(Position(3, 5)))
    assert server.read() == [3]
    (server.folder / "runnel-readers" / "broken.json").write_text("{")
    assert one.released(Position(3, 5)) == START, "a reader of whom nothing is known may need everything"


def test_the_next_segment_is_read_only_when_the_one_before_is_complete(server: Server) -> None:
    server.write(1, [[1], [2]], 1)
    server.write(2, [[3]], 1)
    assert server.read() == [1]
    server.write(1, [[1], [2]], "83\nCOMPLETED")
    assert server.read() == [1, 2, 3]


def test_after_a_crash_the_index_may_name_the_end_of_the_file(server: Server) -> None:
    path = server.write(1, [[1], [2]], "1048576\nCOMPLETED")
    assert path.stat().st_size < 1048576
    assert server.read() == [1, 2]
    assert server.log.latest(START) == Position(1, END_OF_SEGMENT)
    assert server.read(Position(1, END_OF_SEGMENT)) == []


def test_a_segment_without_an_index_is_read_when_a_later_one_has_one(server: Server) -> None:
    server.write(1, [[1]], None)
    assert server.read() == []
    server.write(2, [[2]], 1)
    assert server.read() == [1, 2]


def test_spare_segments_are_left_alone(server: Server) -> None:
    server.write(1, [[1]], 1)
    server.write(2, [], None)
    (server.folder / "CommitLog-7-3.log").write_bytes(header(7, 3, {}))
    (server.folder / "CommitLog-7-4.log").write_bytes(b"")
    (server.folder / "something else").write_bytes(b"")
    assert server.read() == [1]
    assert server.log.latest(START).segment == 1


def test_segments_are_ordered_by_number_not_by_name(server: Server) -> None:
    server.write(9, [[1]], "999\nCOMPLETED")
    server.write(10, [[2]], "999\nCOMPLETED")
    assert server.read() == [1, 2]


def test_reading_goes_on_behind_every_position_without_gap_or_repetition(server: Server) -> None:
    server.write(1, [[1, 2], [3]], "999\nCOMPLETED", compression="ZstdCompressor")
    server.write(2, [[4], [5, 6]], 2)
    every = list(server.log.read(LogReader(Catalog(schema())), START))
    assert times(every) == [1, 2, 3, 4, 5, 6]
    for n, mutation in enumerate(every):
        assert server.read(Position(mutation.segment, mutation.position)) == times(every)[n + 1 :]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_range_can_be_bounded_in_mutations_also_within_a_section(server: Server, most: int) -> None:
    server.write(1, [[1], [2, 3, 4, 5], [6]], "999\nCOMPLETED")
    server.write(2, [[7, 8], [9]], 2)
    start, found = START, []
    while (end := server.log.latest_within(start, most)[0]) != start:
        part = server.read(start, end)
        assert len(part) <= most
        found += part
        start = end
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert start == server.log.latest(START)


@pytest.mark.parametrize("id_", [1, 2])
def test_what_was_safe_once_is_read_also_while_an_index_is_written_anew(server: Server, id_: int) -> None:
    paths = {1: server.write(1, [[1], [2]], "999\nCOMPLETED"), 2: server.write(2, [[3], [4]], 1)}
    end = server.log.latest(START)
    segment_file(paths[id_]).index.write_text("")  # as the server leaves it for a moment
    assert server.read(START, end) == [1, 2, 3]


@pytest.mark.parametrize("compression", [None, "LZ4Compressor"])
def test_a_long_segment_is_not_walked_from_its_beginning_at_every_look(
    server: Server, compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.write(1, [[n] for n in range(1000)], 900, compression=compression)
    reader = LogReader(Catalog(schema()))
    seen = server.log.latest_within(START, 1000)[0]
    assert times(list(server.log.read(reader, START, seen))) == list(range(900))
    assert server.log.latest_within(seen, 150)[0] == seen
    server.write(1, [[n] for n in range(1000)], 1000, compression=compression)
    markers, marker = list[int](), Segment._marker

    def noted(segment: Segment, at: int, size: int) -> int | None:
        markers.append(at)
        return marker(segment, at, size)

    monkeypatch.setattr(Segment, "_marker", noted)
    end = server.log.latest_within(seen, 150)[0]
    assert times([next(server.log.read(reader, seen, end))]) == [900]  # as one looks whether there is anything new
    assert times(list(server.log.read(reader, seen, end))) == list(range(900, 1000))
    assert len(markers) < 210
    assert times(list(server.log.read(reader, START, end))) == list(range(1000))


def test_a_segment_that_somebody_else_deleted_before_its_end_was_read_is_an_error(server: Server) -> None:
    path = server.write(1, [[1], [2]], 1)
    half = server.log.latest(START)
    server.write(1, [[1], [2]], "999\nCOMPLETED")
    server.write(2, [[3]], 1)
    assert server.read(half) == [2, 3]
    end = server.log.latest(half)
    path.unlink()
    for look in (lambda: server.log.latest(half), lambda: server.read(half, end), lambda: server.read(half)):
        with pytest.raises(Terminal, match="RUNNEL-CASSANDRA-LOG-GONE"):
            look()
    assert server.read(Position(1, END_OF_SEGMENT)) == server.read() == [3]


def test_an_index_that_is_just_being_written_anew_is_asked_again(tmp_path: Path) -> None:
    index = tmp_path / "CommitLog-7-1_cdc.idx"
    index.write_text("")
    assert read_index(index) == tail.Durable(0, completed=False)
    timer = threading.Timer(tail.PAUSE_SECONDS, index.write_text, ["77"])
    timer.start()
    found = read_index(index)
    timer.join()
    assert found in (tail.Durable(77, completed=False), tail.Durable(0, completed=False))
    assert read_index(index) == tail.Durable(77, completed=False)
    assert read_index(tmp_path / "no such file") is None


@pytest.mark.parametrize("text", ["x", "-5", "12\nWHATEVER", "12 34"])
def test_an_index_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    index = tmp_path / "CommitLog-7-1_cdc.idx"
    index.write_text(text)
    with pytest.raises(LogError) as caught:
        read_index(index)
    assert caught.value.code == "RUNNEL-CASSANDRA-LOG-INDEX"


def test_only_completed_segments_before_the_position_are_deleted(server: Server) -> None:
    for id_, index in ((1, "999\nCOMPLETED"), (2, None), (3, "999\nCOMPLETED"), (4, "28")):
        server.write(id_, [[id_]], index)
    assert [segment.id for segment in server.log.release(Position(3, 50))] == [1]
    assert [segment.id for segment in server.log.release(Position(5, 0))] == [3]
    assert sorted(path.name for path in server.folder.iterdir()) == [
        "CommitLog-7-2.log",
        "CommitLog-7-4.log",
        "CommitLog-7-4_cdc.idx",
    ]


def test_a_folder_of_finished_segments_needs_no_index(server: Server) -> None:
    server.write(1, [[1]], None)
    last = server.write(2, [[2]], None)
    log = LogFolder(server.folder, indexed=False)
    assert times(list(log.read(LogReader(Catalog(schema())), START))) == [1, 2]
    assert log.latest(START) == Position(2, server.ends(last)[-1])


def test_positions_are_compared_host_by_host() -> None:
    assert covers({"a": [2, 5], "b": [1, 1]}, {"a": [2, 5]})
    assert not covers({"a": [2, 4]}, {"a": [2, 5]})
    assert position_of({}, "a") == START
    with pytest.raises(UsageError) as caught:
        position_of({"a": [1, "x"]}, "a")
    assert caught.value.code == "RUNNEL-CASSANDRA-POSITION"
