"""A log folder that is served elsewhere is read like one of this machine: the same mutations, each byte fetched once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.config import Secret
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.mirror import Mirror
from runnel.connectors.cassandra.log.positions import END_OF_SEGMENT, START, Position
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.tail import LogFolder
from runnel.connectors.served.client import LogClient
from runnel.connectors.served.server import server_tls
from runnel.errors import RunnelError
from tests.connectors.cassandra.encoder import body, write_segment
from tests.connectors.cassandra.following import opened
from tests.connectors.cassandra.random_updates import RandomUpdates, schema
from tests.connectors.test_served import TOKEN, certificate, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.cassandra.cells import Mutation
    from tests.connectors.cassandra.conftest import Shop

FIRST, SECOND = 1_700_000_000_001, 1_700_000_000_002


class Counting(LogClient):
    """Counts the bytes of segments that were fetched."""

    fetched = 0

    def part(self, name: str, begin: int, length: int) -> tuple[bytes, int]:
        found = super().part(name, begin, length)
        self.fetched += len(found[0])
        return found


@pytest.fixture
def node(tmp_path: Path) -> Path:
    made = tmp_path / "cdc_raw"
    made.mkdir()
    return made


@pytest.fixture
def client(node: Path) -> Iterator[Counting]:
    with running(node) as server:
        yield Counting(server.url, Secret(TOKEN))


def segment(
    node: Path, sections: int, *, id_: int = FIRST, completed: bool = False, compression: str | None = None
) -> Path:
    """Write a segment with so many sections, and its index; unfinished plain ones have room for more."""
    made = [[body(RandomUpdates(n).update())] for n in range(sections)]
    path = write_segment(node, made, id_=id_, compression=compression, room=100_000)
    position = LogFolder(node, indexed=False).latest(Position(id_, 0)).position
    text = f"{position}\nCOMPLETED" if completed else str(position)
    path.with_name(path.name.replace(".log", "_cdc.idx")).write_text(text)
    return path


def mutations(folder: LogFolder, start: Position = START) -> list[Mutation]:
    return list(folder.read(LogReader(Catalog(schema())), start, folder.latest(start)))


@pytest.mark.parametrize("compression", [None, "LZ4Compressor"])
def test_what_is_read_here_is_what_is_read_there(
    node: Path, tmp_path: Path, client: Counting, compression: str | None
) -> None:
    copy = LogFolder(tmp_path / "copy", mirror=Mirror(client, tmp_path / "copy"))
    begin = START
    for sections in (3, 3, 10, 40):
        path = segment(node, sections, compression=compression)
        assert copy.latest(START) == LogFolder(node).latest(START)
        assert mutations(copy) == mutations(LogFolder(node)) != []
        assert mutations(copy, begin) == mutations(LogFolder(node), begin)
        begin = copy.latest(begin)
    size = path.stat().st_size - (0 if compression else 100_000)
    assert client.fetched == size, "each byte is fetched once, and none after the index"
    path = segment(node, 40, completed=True, compression=compression)
    segment(node, 5, id_=SECOND, compression=compression)
    assert copy.latest(begin) == LogFolder(node).latest(begin) > Position(FIRST, END_OF_SEGMENT)
    assert mutations(copy, begin) == mutations(LogFolder(node), begin) != []


def test_segments_are_forgotten_here_and_left_alone_there(node: Path, tmp_path: Path, client: Counting) -> None:
    first = segment(node, 3, completed=True)
    segment(node, 3, id_=SECOND)
    copy = LogFolder(tmp_path / "copy", mirror=Mirror(client, tmp_path / "copy"))
    assert len(mutations(copy)) == len(mutations(LogFolder(node)))
    end = copy.latest(START)
    assert copy.release(end) == []
    copy.forget(end)
    fetched = client.fetched
    assert copy.latest(end) == end
    assert not (tmp_path / "copy" / first.name).exists()
    assert first.exists()
    assert client.fetched == fetched
    assert copy.kept() == LogFolder(node).kept()


def test_another_log_under_the_same_name_is_noticed(node: Path, tmp_path: Path, client: Counting) -> None:
    path = segment(node, 10, completed=True)
    copy = LogFolder(tmp_path / "copy", mirror=Mirror(client, tmp_path / "copy"))
    mutations(copy)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(RunnelError, match="RUNNEL-SERVED-OTHER"):
        mutations(copy)


@pytest.mark.cassandra
def test_views_follow_a_node_whose_log_is_served_with_tls(shop: Shop, tmp_path: Path) -> None:
    shop.cql("CREATE TABLE KS.orders (id int PRIMARY KEY, amount int) WITH cdc = true")
    shop.cql("INSERT INTO KS.orders (id, amount) VALUES (1, 1)")
    cert, key = certificate(tmp_path)
    with running(shop.node.cdc_raw, server_tls(cert, key)) as server:
        shop.configure(tables=["orders"], cdc_raw=[server.url], log_token=TOKEN, log_ca=str(cert))
        with opened(shop) as project:
            project.create_view("total", "SELECT sum(amount) AS s FROM orders")
            project.run(once=True)
            for n in range(2, 6):
                shop.cql(
                    f"INSERT INTO KS.orders (id, amount) VALUES ({n}, 1)", f"DELETE FROM KS.orders WHERE id = {n - 1}"
                )
                shop.wait_for_log()
                project.run(once=True)
                assert project.table("shop.orders").to_pylist() == [{"id": n, "amount": 1}]
            assert project.verify("total").ok
            position = project.position("shop")
            assert list(position["hosts"]) == [server.url]
            project.run(once=True)
            project.wait("shop", position, view="total", timeout=60)
    assert TOKEN not in (Path(shop.folder) / ".runnel" / "catalog.sqlite").read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cdc_raw": ["https://h:1"]}, "'log_token' is missing"),
        ({"cdc_raw": ["http://h:1"], "log_token": "t"}, "in the clear"),
        ({"cdc_raw": ["https://h:1"], "log_token": "t", "log_ca": "nothing.pem"}, "there is no file"),
    ],
)
def test_settings_of_served_logs_are_checked(tmp_path: Path, settings: dict[str, object], told: str) -> None:
    from runnel.config import Source
    from runnel.connectors.cassandra.settings import read_settings
    from runnel.errors import Place

    with pytest.raises(RunnelError, match=told):
        read_settings(Source("s", "cassandra", {"hosts": ["h"], "keyspace": "k", **settings}, Place("x")), tmp_path)
