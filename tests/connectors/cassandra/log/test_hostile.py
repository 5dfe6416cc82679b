"""Damaged and crafted segments: an error, or the right beginning; never a wrong change, a hang, or much memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.compression import opener
from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.segment import Segment
from runnel.connectors.cassandra.values.vints import write_unsigned
from tests.connectors.cassandra.encoder import body, header, record, write_segment
from tests.connectors.cassandra.fuzz import crafted, fuzz, outcome
from tests.connectors.cassandra.random_updates import RandomUpdates, schema, tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = [None, "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor"]


def small(folder: Path, compression: str | None) -> Path:
    made = RandomUpdates(3)
    names = ["fixed", "bare", "rows", "counted"]
    sections = [[body(made.update(tables()[name])) for name in names[:count]] for count in (2, 4, 1)]
    return write_segment(folder, sections, compression=compression, room=24)


@pytest.mark.slow
@pytest.mark.parametrize("compression", KINDS)
def test_every_byte_that_is_flipped_is_noticed_or_was_never_read(tmp_path: Path, compression: str | None) -> None:
    path = small(tmp_path, compression)
    data = path.read_bytes()
    truth, _ = outcome(path)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])
            found, error = outcome(path)
            assert found == truth[: len(found)], at
            assert error is not None or found == truth, at


@pytest.mark.slow
@pytest.mark.parametrize("compression", KINDS)
def test_every_cut_leaves_an_error_or_the_right_beginning(tmp_path: Path, compression: str | None) -> None:
    path = small(tmp_path, compression)
    data = path.read_bytes()
    truth, _ = outcome(path)
    silent = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        found, error = outcome(path)
        assert found == truth[: len(found)], length
        if error is None:
            silent.add(len(found))
    # Only what is cut between sections looks like a segment that goes on later.
    assert silent <= {0, len(truth), *_ends_of_sections(path, data)}


def _ends_of_sections(path: Path, data: bytes) -> set[int]:
    path.write_bytes(data)
    with Segment(path) as segment:
        ends = list(segment.section_ends())
    positions = [mutation.position for mutation in LogReader(Catalog(schema())).read(path)]
    return {sum(position <= end for position in positions) for end in ends}


def refused(path: Path) -> LogError:
    with pytest.raises(LogError) as caught:
        list(LogReader(Catalog(schema())).read(path))
    return caught.value


@pytest.mark.parametrize("version", [2, 5, 9, 255])
def test_other_versions_are_refused_by_name(tmp_path: Path, version: int) -> None:
    path = tmp_path / "CommitLog-7-1.log"
    path.write_bytes(header(version, 1, {}))
    error = refused(path)
    assert error.code == "RUNNEL-CASSANDRA-LOG-VERSION"
    assert f"version {version}" in str(error)
    assert str(path) in str(error)


def test_a_segment_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [], id_=1).rename(tmp_path / "CommitLog-7-2.log")
    error = refused(path)
    assert error.code == "RUNNEL-CASSANDRA-LOG-HEADER"
    assert "segment 1" in str(error)


@pytest.mark.parametrize("compression", ["LZ4Compressor", "SnappyCompressor"])
def test_a_length_that_no_data_of_that_size_opens_to_is_refused_before_room_is_made(compression: str) -> None:
    claimed = 200 << 20
    data = {"LZ4Compressor": claimed.to_bytes(4, "little"), "SnappyCompressor": b"\x80\x80\x80\x64"}[compression]
    found = opener(compression)
    assert found is not None
    tracemalloc.start()
    with pytest.raises(ValueError, match="more bytes than it can have"):
        found(data + b"rest", claimed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("compression", KINDS[1:])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 20, b"\x0a", bytes(20), b"\x0a\x00\x00\x00"])
def test_a_section_that_is_no_compressed_data_is_refused(compression: str, data: bytes) -> None:
    found = opener(compression)
    assert found is not None
    with pytest.raises(ValueError):
        found(data, 10)


def test_a_block_that_begins_like_a_length_is_a_block_all_the_same() -> None:
    """Some packages take these first four bytes for a length of their own, and give five bytes less."""
    block = bytes.fromhex(
        "aa00000069152a06e001000100f53f01049d904f7d10fffffadfb552258001f0124e4781090601610162016301640166016701240005fe06379d"
        "a05b5ffff017b11e7d084218c5af11150e040e000008a4511102cc375ab5089e4371f42800ee63019a61a9080000002b8df8265c750053"
        "2217ca12147500207ffb7500b0800000000000014e3751cc"
    )
    found = opener("LZ4Compressor")
    assert found is not None
    assert len(found((172).to_bytes(4, "little") + block, 172)) == 172


def _wrong_marker(data: bytearray) -> None:
    data[24] ^= 1


def _marker_beyond_the_file(data: bytearray) -> None:
    data[20:28] = struct.pack(">II", len(data) + 1, zlib.crc32(struct.pack(">III", 1, 0, 20)))


def _marker_before_itself(data: bytearray) -> None:
    data[20:28] = struct.pack(">II", 21, zlib.crc32(struct.pack(">III", 1, 0, 20)))


@pytest.mark.parametrize(
    ("damage", "code", "offset"),
    [
        (_wrong_marker, "RUNNEL-CASSANDRA-LOG-CHECKSUM", 20),
        (_marker_beyond_the_file, "RUNNEL-CASSANDRA-LOG-LENGTH", 20),
        (_marker_before_itself, "RUNNEL-CASSANDRA-LOG-LENGTH", 20),
    ],
)
def test_damaged_sections_are_named_with_their_place(
    tmp_path: Path, damage: Callable[[bytearray], None], code: str, offset: int
) -> None:
    path = write_segment(tmp_path, [[body(RandomUpdates(1).update(tables()["fixed"]))]], id_=1)
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    error = refused(path)
    assert (error.code, error.offset, error.path) == (code, offset, path)


HUGE = write_unsigned((1 << 64) - 1)
START = b"\x01" + tables()["rows"].id.bytes
AFTER_KEY = START + b"\x01k" + b"\x10" + bytes(3)
BODIES = {
    "updates": HUGE + START[1:] + b"\x01k\x01",
    "key": START + HUGE + bytes(20),
    "columns": AFTER_KEY + HUGE + bytes(20),
    "column name": AFTER_KEY + b"\x01" + HUGE + bytes(20),
    "rows": AFTER_KEY + b"\x00" + HUGE + b"\x00" * 20,
    "cells of a collection": AFTER_KEY + b"\x01\x01y" + b"\x01" + b"\x20\x00" + bytes(4) + b"\x00" + HUGE + bytes(20),
    "value": AFTER_KEY + b"\x01\x01w" + b"\x01" + b"\x20\x00" + bytes(4) + b"\x00" + b"\x00\x00" + HUGE + bytes(20),
    "clustering value": AFTER_KEY + b"\x00\x01" + b"\x20\x00" + bytes(4) + HUGE + bytes(20),
    "bound": AFTER_KEY + b"\x00\x01" + b"\x02\x01\xff\xff" + bytes(20),
    "no end": AFTER_KEY + b"\x00\x00",
    "left over": AFTER_KEY + b"\x00\x00\x01" + b"more",
    "flags of a partition": START + b"\x01k" + b"\x02" + bytes(20),
    "flags of a cell": AFTER_KEY + b"\x01\x01v" + b"\x01" + b"\x20\x00" + bytes(4) + b"\x01a" + b"\xe0" + bytes(20),
    "name that is no text": AFTER_KEY + b"\x01\x02\xff\xfe" + bytes(20),
}


@pytest.mark.parametrize("what", BODIES)
def test_impossible_bodies_are_refused_though_their_checksums_are_right(tmp_path: Path, what: str) -> None:
    right = RandomUpdates(2).update(tables()["fixed"], b"k")
    path = write_segment(tmp_path, [[body(right), BODIES[what], body(right)]])
    tracemalloc.start()
    found, error = outcome(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error is not None
    assert error.code == "RUNNEL-CASSANDRA-LOG-BODY"
    assert error.offset == 28 + len(record(body(right)))
    assert len(found) == 1
    assert peak < 4 << 20


@pytest.mark.parametrize("compression", KINDS[1:])
def test_a_section_that_opens_to_more_than_it_says_takes_no_memory(tmp_path: Path, compression: str) -> None:
    huge = bytes(64 << 20)
    path = write_segment(tmp_path, [[huge]], compression=compression)
    data = bytearray(path.read_bytes())
    where = data.index(b"}") + 1 + 4 + 8
    data[where : where + 4] = (1000).to_bytes(4, "big")
    path.write_bytes(data)
    del huge
    tracemalloc.start()
    error = refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.code == "RUNNEL-CASSANDRA-LOG-SECTION"
    assert peak < 16 << 20


def test_a_section_that_claims_more_than_the_bound_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [[bytes(5000)]], compression="ZstdCompressor")
    with pytest.raises(LogError, match="more than 4000") as caught:
        list(LogReader(Catalog(schema()), largest_section=4000).read(path))
    assert caught.value.code == "RUNNEL-CASSANDRA-LOG-LENGTH"


@pytest.mark.slow
def test_random_damage_behind_right_checksums_is_refused_or_read(tmp_path: Path, say: Callable[[str], None]) -> None:
    """The body of a mutation is changed and its checksum made anew: it may mean something else, but nothing may break."""
    generator = random.Random(0)
    counts = fuzz(tmp_path, generator, cases=3000)
    say(f"{counts['refused']} refused, {counts['read']} read")
    assert counts["refused"] > 1000


def test_crafted_bodies_cover_the_format() -> None:
    generator = random.Random(1)
    assert len({crafted(generator) for _ in range(50)}) == 50
