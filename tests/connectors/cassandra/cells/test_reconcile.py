"""Changes become the rows that `SELECT *` would give, whatever way they arrive."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.cells import ChangeTuple, Clustering, Mutation, Range, Truncation
from runnel.connectors.cassandra.cells.live_rows import deleted_until
from runnel.connectors.cassandra.cells.reconcile import (
    EXPIRED_TTL,
    PartitionState,
    Truncations,
    changes,
    merge,
    next_expiry,
    purge,
    rows,
)
from runnel.connectors.cassandra.schema.tables import TableSchema, build_tables
from runnel.connectors.cassandra.schema.text import parse_schema
from runnel.errors import Terminal
from tests.connectors.cassandra.encoder import expected
from tests.connectors.cassandra.random_updates import RandomUpdates, tables

TEXT = """
CREATE TYPE k.person (name text, age int);
CREATE TABLE k.t (p int, c int, s text static, v text, w int, l list<int>, e set<int>, m map<text, int>, u person,
  PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) AND ID = 00000000-0000-0000-0000-0000000000a1;
CREATE TABLE k.n (p int, c int, hits counter, PRIMARY KEY (p, c)) WITH ID = 00000000-0000-0000-0000-0000000000a2;
CREATE TABLE k.d (p int, c decimal, v int, e set<decimal>, PRIMARY KEY (p, c)) WITH ID = 00000000-0000-0000-0000-0000000000a3;
"""
TABLES = {table.name: table for table in build_tables(parse_schema(TEXT))}
T = TABLES["t"]
KEY = b"\x00\x00\x00\x01"
NOW = 1_000


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def change(
    kind: int,
    clustering: int | None = 1,
    column: str | None = None,
    value: Any = None,
    at: int = 10,
    *,
    path: bytes | None = None,
    ttl: int = 0,
    ldt: int = 0,
    table: TableSchema = T,
) -> ChangeTuple:
    where: Clustering | None = None if clustering is None else (number(clustering),)
    return (kind, table, KEY, where, column, path, value, at, ttl, ldt)


def put(column: str, value: bytes, at: int = 10, **more: Any) -> ChangeTuple:
    return change(cells.SET, column=column, value=value, at=at, **more)


def live(at: int = 10, clustering: int = 1, **more: Any) -> ChangeTuple:
    return change(cells.LIVENESS, clustering, at=at, **more)


def shown(*added: ChangeTuple, now: int = NOW, table: TableSchema = T) -> list[dict[str, Any]]:
    return rows(merge(PartitionState(), added), table, now)


def only(column: str, *added: ChangeTuple, now: int = NOW) -> Any:
    """Give one column of the one row these changes make."""
    found = shown(*added, now=now)
    assert len(found) == 1
    return found[0][column]


def test_an_inserted_row_is_there_without_any_cell() -> None:
    nothing = dict.fromkeys(("s", "v", "w", "l", "e", "m", "u"))
    assert shown(live()) == [{"p": 1, "c": 1, **nothing}]


def test_a_row_is_there_as_long_as_a_cell_of_it_is() -> None:
    assert only("v", put("v", b"x")) == "x"
    assert shown(put("v", b"x"), change(cells.CELL_DELETE, column="v", at=11, ldt=1)) == []


RANKED = [
    put("v", b"zz", at=9),
    put("v", b"a"),
    put("v", b"b"),
    put("v", b"a", ttl=100, ldt=NOW + 50),
    put("v", b"b", ttl=100, ldt=NOW + 50),
    put("v", b"a", ttl=50, ldt=NOW + 50),
    put("v", b"a", ttl=100, ldt=NOW + 51),
    change(cells.CELL_DELETE, column="v", ldt=5),
    change(cells.CELL_DELETE, column="v", ldt=6),
    put("v", b"a", at=11),
]
"""Versions of one cell, each beating those before it, as Cells.resolveRegular has it."""


@pytest.mark.parametrize("winner", range(1, len(RANKED)))
def test_ties_are_broken_as_the_server_breaks_them(winner: int) -> None:
    alone = merge(PartitionState(), [RANKED[winner]])
    for loser in RANKED[:winner]:
        assert merge(PartitionState(), [RANKED[winner], loser]) == alone
        assert merge(PartitionState(), [loser, RANKED[winner]]) == alone


@pytest.mark.parametrize(
    "deletion",
    [
        change(cells.PARTITION_DELETE, None, at=10, ldt=5),
        change(cells.ROW_DELETE, at=10, ldt=5),
        change(cells.RANGE_DELETE, None, value=Range((number(5),), True, (number(1),), True), at=10, ldt=5),
        change(cells.RANGE_DELETE, None, value=Range((), True, (), True), at=10, ldt=5),
    ],
)
def test_a_deletion_takes_what_is_as_old_as_itself_and_leaves_what_is_newer(deletion: ChangeTuple) -> None:
    assert shown(live(10), put("v", b"x", 10), deletion) == []
    assert only("v", live(10), put("v", b"x", 10), put("w", number(3), 11), deletion) is None
    assert only("w", put("v", b"x", 10), put("w", number(3), 11), deletion) == 3


@pytest.mark.parametrize(
    ("range_", "left"),
    [
        (Range((number(3),), True, (number(1),), True), [4, 0]),
        (Range((number(3),), False, (number(1),), False), [4, 3, 1, 0]),
        (Range((), True, (number(2),), False), [2, 1, 0]),
        (Range((number(2),), False, (), True), [4, 3, 2]),
    ],
)
def test_ranges_go_by_the_order_of_the_table(range_: Range, left: list[int]) -> None:
    inserted = [live(1, clustering=n) for n in range(5)]
    found = shown(*inserted, change(cells.RANGE_DELETE, None, value=range_, at=2, ldt=1))
    assert [row["c"] for row in found] == left


@given(st.integers(0, 2**32))
def test_many_ranges_over_many_rows_take_what_each_takes_alone(seed: int) -> None:
    made = random.Random(seed)
    inserted = [live(made.randrange(6), clustering=n) for n in range(9)]
    bounds = [(), *((number(n),) for n in range(9))]
    for _ in range(made.randrange(6)):
        range_ = Range(made.choice(bounds), made.random() < 0.5, made.choice(bounds), made.random() < 0.5)
        inserted.append(change(cells.RANGE_DELETE, None, value=range_, at=made.randrange(7), ldt=1))
    state = merge(PartitionState(), inserted)
    alone = [
        n
        for n in reversed(range(9))
        if (state.rows[number(n),].liveness or (0,))[0] > deleted_until(state, T, (number(n),))
    ]
    assert [row["c"] for row in rows(state, T, NOW)] == alone


def test_a_row_of_a_servers_view_is_there_by_its_liveness_alone() -> None:
    strict = replace(T, strict_liveness=True)
    assert shown(put("v", b"x"), table=strict) == []
    assert len(shown(live(), put("v", b"x"), table=strict)) == 1
    gone = live(ttl=EXPIRED_TTL, ldt=NOW + 1000)
    for order in ([live(), gone], [gone, live()]):
        assert shown(*order, table=strict) == []
    assert len(shown(gone, live(11), table=strict)) == 1


@pytest.mark.parametrize(("inserted_at", "left"), [(9, 0), (10, 0), (11, 1)])
def test_a_deletion_in_a_servers_view_counts_until_the_row_is_inserted_anew(inserted_at: int, left: int) -> None:
    deletion = change(cells.SHADOWABLE_DELETE, at=10, ldt=1)
    assert len(shown(deletion, live(inserted_at), put("v", b"x", 5))) == left


def test_expiry_is_a_matter_of_the_moment_one_looks_at() -> None:
    state = merge(PartitionState(), [live(10, ttl=100, ldt=NOW + 1), put("v", b"x", ttl=100, ldt=NOW + 3)])
    assert [len(rows(state, T, now)) for now in (NOW, NOW + 2, NOW + 3)] == [1, 1, 0]
    assert [next_expiry(state, now) for now in (NOW, NOW + 1, NOW + 3)] == [NOW + 1, NOW + 3, None]


def test_collections_are_put_together_from_their_cells_in_order() -> None:
    first, second = (uuid.UUID(fields=(n, 0, 0x1000, 0x80, 0, 0)).bytes for n in (1, 2))
    assert only("l", put("l", number(7), path=second), put("l", number(9), path=first)) == [9, 7]
    assert only("e", *(put("e", b"", path=number(n)) for n in (3, -1, 2))) == [-1, 2, 3]
    assert only("m", put("m", number(1), path=b"b"), put("m", number(2), path=b"a")) == [("a", 2), ("b", 1)]
    assert only("u", put("u", number(30), path=b"\x00\x01")) == {"name": None, "age": 30}


def test_overwriting_a_collection_leaves_only_what_came_with_it() -> None:
    before = put("m", number(1), path=b"old", at=9)
    overwritten = [change(cells.COMPLEX_DELETE, column="m", at=9, ldt=5), put("m", number(2), path=b"new", at=10)]
    assert only("m", before, *overwritten) == [("new", 2)]


def test_static_values_stand_in_every_row_and_alone_where_there_is_none() -> None:
    static = change(cells.SET, None, "s", b"all")
    found = shown(static, live(clustering=1), live(clustering=2))
    assert [(row["c"], row["s"]) for row in found] == [(2, "all"), (1, "all")]
    assert [(row["c"], row["s"]) for row in shown(static)] == [(None, "all")]


def context(*shards: tuple[int, int, int]) -> bytes:
    head = len(shards).to_bytes(2, "big") + b"".join((n + 0x8000).to_bytes(2, "big") for n in range(len(shards)))
    return head + b"".join(
        uuid.UUID(int=node).bytes + clock.to_bytes(8, "big") + count.to_bytes(8, "big", signed=True)
        for node, clock, count in shards
    )


def count(*shards: tuple[int, int, int], at: int = 10) -> ChangeTuple:
    return change(cells.COUNTER, column="hits", value=context(*shards), at=at, table=TABLES["n"])


def hits(*added: ChangeTuple) -> list[int]:
    return [row["hits"] for row in shown(*added, table=TABLES["n"])]


def test_a_counter_is_the_sum_of_each_nodes_newest_count() -> None:
    assert hits(count((1, 1, 5)), count((1, 2, 7), at=11), count((2, 1, 100), at=9)) == [107]
    assert hits(count((1, 3, -2), (2, 9, 1)), count((1, 2, 50))) == [-1]


def test_a_deleted_counter_that_begins_again_forgets_what_it_was() -> None:
    deletion = change(cells.ROW_DELETE, at=7, ldt=1, table=TABLES["n"])
    for order in ([0, 1, 2], [2, 1, 0], [0, 2, 1]):
        added = [count((1, 10, 99), at=5), deletion, count((1, 1, 3), at=9)]
        assert hits(*(added[n] for n in order)) == [3]


def test_shards_that_have_to_be_added_up_are_refused() -> None:
    local = b"\x00\x01\x00\x00" + context((1, 1, 1))[4:]
    with pytest.raises(Terminal) as caught:
        merge(PartitionState(), [change(cells.COUNTER, column="hits", value=local, table=TABLES["n"])])
    assert caught.value.code == "RUNNEL-CASSANDRA-COUNTER"


def test_values_that_are_equal_in_the_servers_order_are_one() -> None:
    one, same = (bytes([0, 0, 0, scale]) + bytes([unscaled]) for scale, unscaled in ((1, 10), (0, 1)))
    d = TABLES["d"]
    added: list[ChangeTuple] = [
        (cells.SET, d, KEY, (one,), "v", None, number(1), 10, 0, 0),
        (cells.SET, d, KEY, (same,), "v", None, number(2), 11, 0, 0),
        (cells.SET, d, KEY, (one,), "e", one, b"", 10, 0, 0),
        (cells.SET, d, KEY, (same,), "e", same, b"", 11, 0, 0),
    ]
    found = shown(*added, table=d)
    assert [(row["v"], len(row["e"])) for row in found] == [(2, 1)]


def test_cells_from_before_a_column_was_dropped_do_not_come_back_with_its_name() -> None:
    text = """CREATE TABLE k.t (p int, c int, v text, PRIMARY KEY (p, c)) WITH ID = 00000000-0000-0000-0000-0000000000a1;
    ALTER TABLE k.t DROP v USING TIMESTAMP 10000; ALTER TABLE k.t ADD v text;"""
    table = build_tables(parse_schema(text))[0]
    old, new = put("v", b"old", 10_000), put("v", b"new", 10_001)
    assert shown(old, table=table) == []
    assert [row["v"] for row in shown(live(1), old, table=table)] == [None]
    assert [row["v"] for row in shown(old, new, table=table)] == ["new"]


def test_a_truncate_takes_what_its_host_had_logged_whatever_its_timestamp() -> None:
    taken = Truncations()
    taken.note("a", (cells.TRUNCATE, T, b"", None, None, None, Truncation(7, 100), 0, 0, 0))
    verdicts = {(7, 100): True, (6, 999): True, (7, 101): False, (8, 1): False}
    for (segment, position), gone in verdicts.items():
        assert taken.covers("a", T, Mutation(segment, position, [])) is gone
    assert not taken.covers("b", T, Mutation(1, 1, []))
    assert not taken.covers("a", TABLES["n"], Mutation(1, 1, []))


def partition(seed: int) -> tuple[TableSchema, list[ChangeTuple]]:
    """Give random changes of one partition that meet often: few clusterings, few times."""
    made = RandomUpdates(seed)
    table = tables()[made.random.choice(["fixed", "rows", "counted", "bare"])]
    added = [c for _ in range(8) for c in expected(made.update(table, KEY)) if c[0] != cells.COUNTER]
    places: list[Clustering] = [made.clustering(table) for _ in range(2)]
    moved = [c if c[3] is None else (*c[:3], made.random.choice(places), *c[4:]) for c in added]
    if table.is_counter:
        for _ in range(6):
            shard = (made.random.randrange(2), made.random.randrange(4), made.random.randrange(9))
            at = made.random.choice([1, 5, 9])
            moved.append((cells.COUNTER, table, KEY, made.random.choice(places), "n", None, context(shard), at, 0, 0))
    return table, moved


@given(st.integers(0, 2**32))
def test_the_order_the_copies_and_the_pieces_do_not_matter(seed: int) -> None:
    _, added = partition(seed)
    whole = merge(PartitionState(KEY), added)
    shuffled = random.Random(seed).sample(added * 3, len(added) * 3)
    assert merge(PartitionState(KEY), shuffled) == whole


@given(st.integers(0, 2**32), st.integers(0, 40))
def test_states_of_parts_merge_into_the_state_of_the_whole(seed: int, cut: int) -> None:
    table, added = partition(seed)
    one, other = merge(PartitionState(KEY), added[:cut]), merge(PartitionState(KEY), added[cut:])
    assert merge(one, changes(other, table)) == merge(PartitionState(KEY), added)


@given(st.integers(0, 2**32))
def test_purging_changes_no_row_from_that_moment_on(seed: int) -> None:
    made = random.Random(seed)
    added = [put("v", b"x", made.randrange(5), ttl=made.choice([0, 9]), ldt=NOW + 9) for _ in range(3)]
    added += [change(cells.CELL_DELETE, column="v", at=made.randrange(5), ldt=NOW)]
    added += [change(cells.ROW_DELETE, at=made.randrange(5), ldt=NOW), live(made.randrange(5))]
    added += [change(cells.COMPLEX_DELETE, column="m", at=made.randrange(5), ldt=NOW)]
    added += [put("m", number(1), made.randrange(5), path=b"a")]
    added += [change(cells.PARTITION_DELETE, None, at=made.randrange(5), ldt=NOW + made.randrange(3))]
    state = merge(PartitionState(KEY), made.sample(added, made.randrange(1, len(added))))
    before = {now: rows(state, T, now) for now in (NOW + 1, NOW + 9, NOW + 10)}
    purge(state, T, NOW + 1)
    assert {now: rows(state, T, now) for now in before} == before
    assert not [c for c in changes(state, T) if c[0] == cells.CELL_DELETE]


def test_a_tombstone_from_before_the_moment_is_forgotten_with_what_it_deleted() -> None:
    state = merge(PartitionState(KEY), [put("v", b"x", 5), live(5), change(cells.ROW_DELETE, at=6, ldt=NOW)])
    assert list(changes(purge(state, T, NOW), T)) == [change(cells.ROW_DELETE, at=6, ldt=NOW)]
    assert list(changes(purge(state, T, NOW + 1), T)) == []
