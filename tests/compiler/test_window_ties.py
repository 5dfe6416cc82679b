"""Every window function over every frame gives an answer that its order allows, however many rows are level in it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from runnel.model.program import Strategy
from tests.compiler.conftest import table
from tests.compiler.harness import Maintained
from tests.compiler.windows_by_hand import answers, cases

if TYPE_CHECKING:
    from runnel.engine.base import Engine
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.engine.spark import SparkEngine
    from tests.compiler.windows_by_hand import Row

START: list[Row] = [
    (1, 1, 1, 10),
    (2, 1, 1, 20),
    (3, 1, 2, 5),
    (4, 1, None, None),
    (6, 2, 3, None),
    (7, 2, 3, 30),
    (8, 2, 4, 1),
]
BATCHES: list[list[tuple[Row, int]]] = [
    [((5, 1, None, 7), 1), ((10, 2, 3, 25), 1)],
    [((2, 1, 1, 20), -1), ((11, 1, 1, None), 1), ((6, 2, 3, None), -1), ((12, 3, 1, 1), 1)],
]
NTH_OF_A_FRAME = [
    c
    for c in cases()
    if c[0].startswith("nth") and c[2].startswith("RANGE BETWEEN") and "BETWEEN UNBOUNDED" not in c[2]
]
"""What is recomputed: the nth row of a frame of peers that begins within the partition."""


def views() -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    """Give a view per order and frame, with all functions; those that are recomputed have one of their own."""
    found: dict[str, tuple[str, list[tuple[str, str, str]]]] = {}

    def whether(case: tuple[str, str, str]) -> tuple[str, str, bool]:
        return (case[1], case[2], case in NTH_OF_A_FRAME)

    for number, (_, group) in enumerate(itertools.groupby(sorted(cases(), key=whether), key=whether)):
        chosen = list(group)
        shown = [f"{f} OVER (PARTITION BY k {o} {b}) AS c{i}" for i, (f, o, b) in enumerate(chosen)]
        found[f"v{number}"] = (f"SELECT id, k, {', '.join(shown)} FROM t", chosen)
    return found


def check(rows: list[Row], given: list[dict[str, object]], chosen: list[tuple[str, str, str]], what: str) -> None:
    """Compare each partition's values with those that its allowed orders give."""
    for partition in sorted({r[1] for r in rows}):
        mine = [r for r in rows if r[1] == partition]
        for i, case in enumerate(chosen):
            got = {r["id"]: r[f"c{i}"] for r in given if r["k"] == partition}
            allowed = answers(mine, *case)
            assert got in allowed, f"{what}, partition {partition}, {case}: {got}; allowed {allowed[:6]}"


def joint(rows: list[Row], given: list[dict[str, object]], chosen: list[tuple[str, str, str]], what: str) -> None:
    """One order of a partition's rows has to explain all columns that share a window."""
    for partition in sorted({r[1] for r in rows}):
        mine = [r for r in rows if r[1] == partition]
        got = [{r["id"]: r[f"c{i}"] for r in given if r["k"] == partition} for i in range(len(chosen))]
        ways = zip(*(answers(mine, *case) for case in chosen), strict=True)
        assert any(list(way) == got for way in ways), f"{what}, partition {partition}: no one order gives {got}"


def play(engine: Engine, batches: list[list[tuple[Row, int]]], only: str = "") -> None:
    state = Maintained(engine, [table("t", "id INT, k INT, x INT, v INT")])
    state.apply({"t": [(row, 1) for row in START]})
    rows = list(START)
    wanted = {name: view for name, view in views().items() if only in view[0]}
    for name, (sql, chosen) in wanted.items():
        program = state.define(name, sql)
        full = program.strategy is Strategy.FULL
        assert full == any(c in NTH_OF_A_FRAME for c in chosen), (sql, program.operators)
    for number, batch in enumerate([[], *batches]):
        state.apply({"t": list(batch)})
        rows = [r for r in rows if (r, -1) not in batch] + [r for r, weight in batch if weight > 0]
        for name, (sql, chosen) in wanted.items():
            given = state.rows(name).to_pylist()
            full = state.programs[name].strategy is Strategy.FULL
            (check if full else joint)(rows, given, chosen, f"batch {number}: {sql}")


def test_every_window_function_gives_an_answer_that_its_ties_allow(engine: DuckDbEngine) -> None:
    play(engine, BATCHES)


@pytest.mark.spark
def test_every_window_function_gives_an_answer_that_its_ties_allow_on_spark(spark_engine: SparkEngine) -> None:
    for only in ("BY x ) ", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED", "DESC RANGE BETWEEN 1 PRECEDING"):
        play(spark_engine, [], only)
