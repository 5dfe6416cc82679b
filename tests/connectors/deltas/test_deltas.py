"""Deltas are read back as they were written, whatever names and values hold; lists of them are thinned out as promised."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.connectors.deltas.forms import (
    STANDARD,
    Separators,
    from_json,
    from_oplog,
    from_snapshot,
    from_text,
    to_json,
    to_oplog,
    to_snapshot,
    to_text,
)
from runnel.connectors.deltas.model import Delta, Operation, Span
from runnel.connectors.deltas.reduce import expand_deletes, last_per_key, merge_equal
from runnel.errors import RunnelError, UsageError

INS, UPD, UPS, DEL = Operation.INS, Operation.UPD, Operation.UPS, Operation.DEL
GRADES = ("School", "Grades", ("Carol",))

tricky = st.text(
    st.sampled_from("/:-,\\[]().null \n\r\t\u2028ab#|") | st.characters(exclude_categories=["Cs"]), max_size=8
)
parts = st.lists(tricky, min_size=1, max_size=3).map(tuple)
times = st.none() | st.integers(-(2**63), 2**63 - 1)
spans = st.builds(Span, st.just(()) | parts, st.booleans(), st.just(()) | parts, st.booleans())


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    operation = draw(st.sampled_from(Operation))
    base = (operation, draw(tricky), draw(tricky), draw(parts))
    cluster = draw(st.just(()) | st.just(("null",)) | parts)
    if operation is not DEL:
        return Delta(*base, cluster, draw(tricky), draw(tricky), draw(times))
    coarse = draw(st.booleans())
    if draw(st.integers(0, 4)) == 0:
        return Delta(*base[:3], (), None, draw(st.none() | tricky), time=draw(times))
    if coarse:
        return Delta(*base, draw(st.none() | parts | spans), time=draw(times))
    return Delta(*base, cluster, draw(tricky), time=draw(times))


@st.composite
def separators(draw: st.DrawFn) -> Separators:
    allowed = [c for c in string.punctuation + "\t " if c not in "\\,[]()"]
    return Separators(*draw(st.permutations(allowed))[:3])


@given(deltas(), separators())
def test_text_and_oplog_are_read_back_as_they_were_written(delta: Delta, separators: Separators) -> None:
    for line, read in (
        (to_text(delta, separators), from_text),
        (to_oplog(delta, separators), from_oplog),
    ):
        assert "\n" not in line
        assert read(line, separators) == delta


@given(deltas(), st.none() | tricky, st.none() | st.integers(1, 10**9), st.booleans())
def test_json_is_read_back_with_all_it_tells(delta: Delta, previous: str | None, ttl: int | None, row: bool) -> None:
    full = Delta(**{**vars(delta), "previous": previous, "ttl": ttl, "row": row})
    assert from_json(to_json(full)) == full
    assert from_text(to_text(full)) == from_json(to_json(full)).bare()


@given(deltas().filter(lambda delta: delta.operation is not DEL))
def test_a_cell_of_a_snapshot_has_the_same_form_without_the_operation(delta: Delta) -> None:
    assert to_text(delta) == f"{delta.operation}/{to_snapshot(delta)}"
    assert from_snapshot(to_snapshot(delta)) == Delta(**{**vars(delta), "operation": INS})


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (
            Delta(INS, *GRADES, ("SecondSemester",), "Mathematic", "89", 1349430004096),
            "ins/School/Grades/Carol/SecondSemester/Mathematic:89-1349430004096",
        ),
        (Delta(UPD, *GRADES, (), "Mathematic", "91"), "upd/School/Grades/Carol/null/Mathematic:91"),
        (Delta(DEL, *GRADES), "del/School/Grades/Carol"),
        (Delta(DEL, *GRADES, ("SecondSemester",)), "del/School/Grades/Carol/SecondSemester"),
        (
            Delta(DEL, *GRADES, ("SecondSemester",), "Mathematic"),
            "del/School/Grades/Carol/SecondSemester/Mathematic",
        ),
        (Delta(DEL, "School", "Grades", (), time=7), "del/School/Grades/[]-7"),
        (Delta(DEL, "School", "Grades", (), None, "Mathematic", time=7), "del/School/Grades/[]/[]/Mathematic-7"),
        (Delta(UPS, "k", "t", ("a", "b"), ("null",), "c", "-1", 5), "ups/k/t/a,b/\\null/c:\\-1-5"),
        (Delta(DEL, "k", "t", ("a",), Span(("5",), True, (), False), time=7), "del/k/t/a/[5[])-7"),
        (Delta(DEL, "k", "t", ("a",), Span(("",), True, ("", ""), False)), "del/k/t/a/[,[],,)"),
    ],
)
def test_the_text_is_that_of_the_grammar(delta: Delta, text: str) -> None:
    assert to_text(delta) == text
    assert from_text(text) == delta


@pytest.mark.parametrize(
    "wrong", ["", "ins", "nix/a/b/c", "ins/a/b/c/null/d", "del/a/b/c/null/d:1", "ins/a/b/c/null/d:1-x"]
)
def test_what_is_no_delta_is_refused(wrong: str) -> None:
    with pytest.raises(RunnelError, match="RUNNEL-CAPTURE-DELTA"):
        from_text(wrong)


@pytest.mark.parametrize("given", [("/", "/", "-"), ("/", ":", ":"), ("", ":", "-"), ("a", ":", "-"), ("/", "//", "-")])
def test_separators_that_cannot_be_told_apart_are_refused(given: tuple[str, str, str]) -> None:
    with pytest.raises(UsageError, match="RUNNEL-CAPTURE-SEPARATOR"):
        Separators(*given)
    assert Separators("/", ":", "-") == STANDARD


def test_equal_deltas_are_two_unless_they_are_to_be_merged() -> None:
    twice = [Delta(UPD, *GRADES, (), "a", "1"), Delta(UPD, *GRADES, (), "a", "1")]
    assert list(merge_equal(twice)) == twice[:1]
    dated = [Delta(UPD, *GRADES, (), "a", "1", 1), Delta(UPD, *GRADES, (), "a", "1", 2)]
    assert list(merge_equal(dated)) == dated


def test_the_last_operation_of_a_key_hides_what_was_below_it() -> None:
    before = [Delta(INS, *GRADES, ("one",), "a", "1", 1), Delta(DEL, *GRADES, ("one",), time=2)]
    other = Delta(INS, "School", "Grades", ("Tom",), ("one",), "a", "1", 3)
    key = Delta(DEL, *GRADES, time=4)
    after = [Delta(INS, *GRADES, ("one",), "a", "2", 5), Delta(UPD, *GRADES, ("one",), "a", "3", 6)]
    assert last_per_key([*before, other, key]) == [other, key]
    assert last_per_key([*before, other, key, *after]) == [other, key, after[1]]


def test_a_truncated_table_and_a_dropped_column_hide_what_is_older() -> None:
    old = [Delta(INS, *GRADES, ("one",), name, "1", 1) for name in "ab"]
    new = Delta(UPD, *GRADES, ("one",), "a", "2", 9)
    table, column = Delta(DEL, *GRADES[:2], (), time=5), Delta(DEL, *GRADES[:2], (), None, "a", time=5)
    assert last_per_key([*old, new, column]) == [old[1], new, column]
    assert last_per_key([*old, new, table]) == [new, table]
    assert last_per_key([table, *old]) == [table]


def test_a_coarse_delete_becomes_one_delete_per_live_column() -> None:
    cells = [Delta(INS, *GRADES, ("one",), name, value) for name, value in (("a", "1"), ("b", "2"))]
    key, column = Delta(DEL, *GRADES, time=4), Delta(DEL, *GRADES, ("one",), "c", time=5)
    assert list(expand_deletes([key, column], lambda delta: cells)) == [
        Delta(DEL, *GRADES, ("one",), "a", time=4, previous="1"),
        Delta(DEL, *GRADES, ("one",), "b", time=4, previous="2"),
        column,
    ]
