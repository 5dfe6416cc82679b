"""Segments that real servers wrote, kept with the rows those servers gave: the format cannot drift away unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.encryption import Keys
from runnel.connectors.cassandra.log.key_store import read_key_store
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.segment import Segment
from runnel.errors import Terminal
from tests.connectors.cassandra.compare import rebuild, rebuilt_rows

DATA = Path(__file__).parents[1] / "data"
KEYS = Keys(read_key_store(DATA / "keys.jceks", "cassandra"))
SEGMENTS = sorted(path for path in DATA.iterdir() if path.name.endswith((".log", ".log.gz")))


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.name)
@pytest.mark.parametrize("compiled", [True, False])
def test_the_rows_of_a_kept_segment_are_those_its_server_gave(path: Path, compiled: bool) -> None:
    said = json.loads(path.with_name(path.name.partition(".")[0] + ".json").read_text())
    catalog = Catalog()
    states = rebuild(LogReader(catalog, KEYS, compile_readers=compiled).read(path))
    tables = [table for table in catalog.tables() if table.keyspace == "w"]
    assert {table.name: rebuilt_rows(states, table, said["now"]) for table in tables} == said["rows"]


def test_the_kept_segments_are_of_several_kinds() -> None:
    kinds = set()
    for path in SEGMENTS:
        with Segment(path, KEYS) as segment:
            kinds.add((segment.header.version, segment.header.compression is None, segment.header.cipher))
    assert kinds == {(6, True, None), (7, True, None), (8, False, None), (7, True, "AES/CBC/PKCS5Padding")}


@pytest.mark.parametrize("at", range(0, 504, 7))
def test_a_damaged_key_store_is_refused(tmp_path: Path, at: int) -> None:
    data = bytearray((DATA / "keys.jceks").read_bytes())
    data[at] ^= 1
    (tmp_path / "keys.jceks").write_bytes(data)
    with pytest.raises(Terminal) as caught:
        read_key_store(tmp_path / "keys.jceks", "cassandra")
    assert caught.value.code == "RUNNEL-CASSANDRA-KEYSTORE"


def test_a_key_store_is_not_opened_by_another_password() -> None:
    with pytest.raises(Terminal, match="password") as caught:
        read_key_store(DATA / "keys.jceks", "another")
    assert caught.value.code == "RUNNEL-CASSANDRA-KEYSTORE"
