"""Files that nobody would write on purpose: lines without end, names that appear in the middle of a range."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.files import listing
from runnel.errors import Terminal

if TYPE_CHECKING:
    from runnel.connectors import Source
    from tests.connectors.conftest import Feed

ONE = {"orders": "id BIGINT"}


def ids(source: Source, start: dict[str, object], end: dict[str, object]) -> list[int]:
    """Give the keys of a range."""
    return [row["id"] for s in source.read(start, end) if s.signed is not None for row in s.signed.to_pylist()]


def test_a_file_that_appears_between_plan_and_read_is_late_and_taken_once_after_the_advised_rename(feed: Feed) -> None:
    for number in (1, 3):
        feed.rows(f"orders/{number}.jsonl", {"id": number})
    source = feed.open(schema=ONE)
    end = source.latest_offset({}, 100)
    between = feed.rows("orders/2.jsonl", {"id": 2})
    assert ids(source, {}, end) == [1, 3]
    assert feed.open(schema=ONE).lag(end)["late"] == ["feed/orders/2.jsonl"]
    feed.rows("orders/4.jsonl", {"id": 4})
    later = source.latest_offset(end, 100)
    assert ids(source, end, later) == [4]
    assert source.lag(later)["late"] == ["feed/orders/2.jsonl"]
    between.rename(between.with_name("5.jsonl"))
    last = source.latest_offset(later, 100)
    assert ids(source, later, last) == [2]
    assert source.lag(last)["late"] == []


@pytest.mark.parametrize("seed", range(20))
def test_no_file_that_was_read_is_ever_called_late(feed: Feed, seed: int) -> None:
    """Whatever is touched, deleted or put in between: what `late` names was never read."""
    chance, source, read = random.Random(seed), feed.open(schema=ONE), set[str]()
    position: dict[str, object] = {}
    for step in range(12):
        for number in chance.sample(range(step * 10, step * 10 + 10), 3):
            feed.rows(f"orders/{number:04}.jsonl", {"id": number})
        end = source.latest_offset(position, 100)
        if chance.random() < 0.7:
            feed.rows(f"orders/{chance.randrange(step * 10 + 5):04}-late.jsonl", {"id": -step})
        read |= {(s.place or "").partition(":")[0] for s in source.read(position, end)}
        position = end
        for name in chance.sample(sorted(read), chance.randrange(2)):
            path = feed.folder / name
            if path.exists():
                path.unlink() if chance.random() < 0.5 else path.chmod(0o640)
        late = feed.open(schema=ONE).lag(position)["late"]
        assert not set(late) & read, seed


@pytest.mark.parametrize("name", ["1.jsonl", "1.jsonl.gz", "1.csv", "1.csv.gz"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_without_end_is_refused_before_it_is_in_memory(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, name: str, end: str
) -> None:
    monkeypatch.setattr(listing, "LONGEST_LINE", 100_000)
    feed.write(f"orders/{name}", "id" + "a" * 3_000_000 + end)
    source = feed.open(schema=ONE)
    with pytest.raises(Terminal, match=rf"RUNNEL-FILES-LINE.*feed/orders/{name}"):
        list(source.read({}, source.latest_offset({}, 10)))


@pytest.mark.parametrize("length", [10, 65_535, 65_536, 65_537, 200_000])
def test_the_last_line_is_found_however_long_it_is(feed: Feed, length: int) -> None:
    row = '{"id": 1}' + " " * length
    for ending in ("jsonl", "jsonl.gz"):
        feed.write(f"orders/1.{ending}", f"{row}\n{row}")
        source = feed.open(schema=ONE)
        assert len(ids(source, {}, source.latest_offset({}, 10))) == 2
        feed.write(f"orders/1.{ending}", f"{row}\n{row}\n")
        source = feed.open(schema=ONE)
        assert len(ids(source, {}, source.latest_offset({}, 10))) == 2
        (feed.folder / "feed" / "orders" / f"1.{ending}").unlink()
