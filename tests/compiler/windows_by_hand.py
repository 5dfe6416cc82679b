"""Window functions computed by hand for every order that ties allow: an oracle that shares nothing with compiler or engine."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Row = tuple[int, int, int | None, int | None]
"""id, partition, order, value."""
Edge = int | None
"""How many rows (or how much) before (-) or after (+) the current one; None: unbounded."""

FRAMES: dict[str, tuple[str, Edge, Edge]] = {
    "": ("range", None, 0),
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW": ("rows", None, 0),
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING": ("rows", None, None),
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING": ("rows", -1, 1),
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING": ("rows", 0, None),
    "ROWS 2 PRECEDING": ("rows", -2, 0),
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING": ("range", None, None),
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING": ("range", 0, None),
    "RANGE BETWEEN CURRENT ROW AND CURRENT ROW": ("range", 0, 0),
    "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING": ("range", -1, 1),
    "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING": ("range", None, -1),
    "RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING": ("range", 1, None),
}
ORDERS = {"": 0, "ORDER BY x": 1, "ORDER BY x DESC": -1}

Frame = list[Row]


def _given(frame: Frame) -> list[int]:
    return [r[3] for r in frame if r[3] is not None]


def _at(values: list[int | None] | list[int], place: int) -> int | None:
    return values[place] if -len(values) <= place < len(values) else None


FRAMED: dict[str, Callable[[Frame], object]] = {
    "first_value(v)": lambda f: f[0][3] if f else None,
    "last_value(v)": lambda f: f[-1][3] if f else None,
    "any_value(v)": lambda f: f[0][3] if f else None,
    "nth_value(v, 2)": lambda f: f[1][3] if len(f) > 1 else None,
    "first_value(v) IGNORE NULLS": lambda f: _at(_given(f), 0),
    "last_value(v) IGNORE NULLS": lambda f: _at(_given(f), -1),
    "nth_value(v, 2) IGNORE NULLS": lambda f: _at(_given(f), 1),
    "last_value(id)": lambda f: f[-1][0] if f else None,
    "first_value(id)": lambda f: f[0][0] if f else None,
    "sum(v)": lambda f: sum(_given(f)) if _given(f) else None,
    "count(*)": len,
    "count(v)": lambda f: len(_given(f)),
    "min(v)": lambda f: min(_given(f), default=None),
    "max(id)": lambda f: max((r[0] for r in f), default=None),
}
PLACED: dict[str, Callable[[list[Row], int], object]] = {
    "row_number()": lambda rows, i: i + 1,
    "ntile(2)": lambda rows, i: 1 if i < (len(rows) + 1) // 2 else 2,
    "lag(id)": lambda rows, i: rows[i - 1][0] if i else None,
    "lead(v, 1, -1)": lambda rows, i: rows[i + 1][3] if i + 1 < len(rows) else -1,
    "rank()": lambda rows, i: 1 + next(n for n, r in enumerate(rows) if r[2] == rows[i][2]),
    "dense_rank()": lambda rows, i: len({r[2] for r in rows[: i + 1]}),
    "cume_dist()": lambda rows, i: max(n + 1 for n, r in enumerate(rows) if r[2] == rows[i][2]) / len(rows),
    "percent_rank()": lambda rows, i: (
        next(n for n, r in enumerate(rows) if r[2] == rows[i][2]) / (len(rows) - 1) if len(rows) > 1 else 0.0
    ),
}


def cases() -> list[tuple[str, str, str]]:
    """List every function with every order and frame that SQL allows."""
    found = [(name, order, "") for name in PLACED for order in ORDERS if order]
    found += [("rank()", "ORDER BY x", "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")]
    for name, order, frame in itertools.product(FRAMED, ORDERS, FRAMES):
        distance = FRAMES[frame][0] == "range" and ("CURRENT" in frame or "1" in frame)
        if order or not (distance or name.startswith("nth")):
            found.append((name, order, frame))
    return found


def _orders(rows: list[Row], direction: int) -> Iterator[list[Row]]:
    """Give every order of a partition's rows that its ORDER BY allows; NULL is least."""

    def place(row: Row) -> tuple[bool, int]:
        return (row[2] is not None, row[2] or 0)

    if not direction:
        yield from (list(p) for p in itertools.permutations(rows))
        return
    ranked = sorted(rows, key=place, reverse=direction < 0)
    ties = [list(itertools.permutations(group)) for _, group in itertools.groupby(ranked, key=place)]
    for chosen in itertools.product(*ties):
        yield [row for group in chosen for row in group]


def _in_frame(rows: list[Row], i: int, frame: tuple[str, Edge, Edge], direction: int) -> Frame:
    kind, start, end = frame
    if kind == "rows":
        low = 0 if start is None else max(0, i + start)
        high = len(rows) if end is None else max(0, i + end + 1)
        return rows[low:high]

    def away(row: Row) -> float:
        """Say how far a row lies after the current one in the order; NULLs are level with each other and far from all else."""
        mine, theirs = rows[i][2], row[2]
        if mine is None or theirs is None:
            return 0 if mine is theirs else (-direction if theirs is None else direction) * float("inf")
        return (theirs - mine) * direction

    if not direction:
        return rows
    own = rows[i][2] is None  # a NULL has no distance: only its peers are as near as any offset
    low_edge, high_edge = (start and 0 if own else start), (end and 0 if own else end)
    return [
        r for r in rows if (low_edge is None or away(r) >= low_edge) and (high_edge is None or away(r) <= high_edge)
    ]


def answers(rows: list[Row], name: str, order: str, frame: str) -> list[dict[int, object]]:
    """Give every answer that is allowed for one partition, as `{id: value}`."""
    direction = ORDERS[order]
    found = []
    for ranked in _orders(rows, direction):
        if name in PLACED:
            found.append({r[0]: PLACED[name](ranked, i) for i, r in enumerate(ranked)})
        else:
            spec = FRAMES[frame] if order or frame else ("range", None, None)
            found.append({r[0]: FRAMED[name](_in_frame(ranked, i, spec, direction)) for i, r in enumerate(ranked)})
    return found
