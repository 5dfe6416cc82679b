"""Proves views right: recomputes a view from the user's own SQL text and compares as bags, both ways."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from runnel.compiler import bind, program_from_json
from runnel.compiler.emit import grouped
from runnel.engine.functions import check_functions
from runnel.engine.inputs import Inputs, Pending, shows
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.verify.replay import replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Role
    from runnel.model.relation import Relation

    _Row = tuple[list[float], dict[str, Any]]

# Floats are taken for equal when they agree in nine digits, or when both are so near zero that what is left of a sum
# that should be zero passes for it.
TOLERANCE = 1e-9
ABSOLUTE = 1e-12
LISTED = 100_000
# Rows with floats may differ in last digits only: many more must be fetched to find their partners.
LISTED_WITH_FLOATS = 2_000_000


@dataclass(frozen=True)
class Report:
    """The outcome for one view: rows its query gives and it lacks (`missing`), rows it has and should not (`unexpected`).

    `too_many` says that more rows differ than were fetched (`compared`): the view counts as wrong, and not all is listed.
    `unchecked` says why nothing could be compared, for an event view whose history is no longer kept; it is not wrong then.
    """

    view: str
    epoch: int
    rows_checked: int
    missing: tuple[dict[str, Any], ...] = field(default=())
    unexpected: tuple[dict[str, Any], ...] = field(default=())
    too_many: bool = False
    compared: int = 0
    unchecked: str = ""

    @property
    def ok(self) -> bool:
        """Whether the view equals its query as a bag."""
        return not self.missing and not self.unexpected and not self.too_many

    def __str__(self) -> str:
        if self.unchecked:
            return f"{self.view}: NOT CHECKED, {self.unchecked}"
        if self.ok:
            return f"{self.view}: verified, {self.rows_checked} rows at epoch {self.epoch}"
        if self.too_many:
            return (
                f"{self.view}: WRONG at epoch {self.epoch}: more than {self.compared} rows differ"
                f" (of {self.rows_checked}); the first ones are listed"
            )
        return (
            f"{self.view}: WRONG at epoch {self.epoch}: {len(self.missing)} rows missing, {len(self.unexpected)} unexpected"
            f" (of {self.rows_checked})"
        )


def verify(lake: Lake, engine: Engine, view: ViewEntry, *, sample: int | None = None) -> Report:
    """Recompute a view as of its frontier and compare it with what is stored; `sample` compares one row in `sample`.

    An event view is compared with what happened since it was defined, as far as that is kept.
    """
    head = lake.snapshot()
    if view.name not in head.views:
        raise Terminal("RUNNEL-VIEW-UNKNOWN", f"there is no view {view.name!r}", hint="it has been dropped meanwhile")
    # A writer may have moved it on since the caller looked: frontier and rows must be of one snapshot.
    view = head.views[view.name]
    check_functions(engine, view)
    relation = head.relations[view.name]
    if view.events:
        known = replay(lake, engine, head, view)
        if isinstance(known, str):
            return Report(view.name, view.frontier, 0, unchecked=known)
        expected, inputs = known
    else:
        expected, inputs = _expected(engine, shows(lake, head, view), view)
    inputs.update(Inputs(engine, head, head, Pending()).roles([(view.name, "rows")]))
    limit = LISTED_WITH_FLOATS if any(types.floating(c.type) for c in relation.rows) else LISTED
    checked, rows = _differences(engine, relation, expected, inputs, sample, limit + 1)
    missing, unexpected = tolerate(rows.slice(0, limit), [c.name for c in relation.rows])
    too_many = rows.num_rows > limit
    return Report(
        view.name, view.frontier, checked, tuple(missing), tuple(unexpected), too_many, min(rows.num_rows, limit)
    )


def _expected(engine: Engine, then: Snapshot, view: ViewEntry) -> tuple[str, dict[str, Input]]:
    """Bind the user's text to the rows as of then, each table with the columns the text meant when it was compiled."""
    text, reads = bind(program_from_json(view.program).definite or view.sql, then.shown)
    wanted: list[tuple[str, Role]] = [(name, "rows") for name in sorted(reads)]
    return text, Inputs(engine, then, then, Pending()).roles(wanted, seen=view.seen)


def _differences(
    engine: Engine, relation: Relation, expected: str, inputs: dict[str, Input], sample: int | None, limit: int
) -> tuple[int, pa.Table]:
    """Count the rows of the view and bring the rows that differ to the driver, with the sign of the difference."""
    quoted = [quote(c.name) for c in relation.rows]
    columns = ", ".join(quoted)
    typed = ", ".join(f"CAST({q} AS {c.type}) AS {q}" for q, c in zip(quoted, relation.rows, strict=True))
    where = _sampled(relation, sample) if sample and sample > 1 else ""
    actual = f"SELECT {columns} FROM {role_name(relation.name, 'rows')}"
    shown, by = grouped(relation.rows)
    sql = (
        f"SELECT {shown}, sum(`{WEIGHT}`) AS `{WEIGHT}` FROM (\n"
        f"SELECT {typed}, CAST(1 AS BIGINT) AS `{WEIGHT}` FROM (\n{expected}\n) AS expected\nUNION ALL\n"
        f"SELECT {columns}, CAST(-1 AS BIGINT) AS `{WEIGHT}` FROM ({actual}) AS actual\n) AS both_sides{where}"
        f" GROUP BY {by} HAVING sum(`{WEIGHT}`) <> 0 LIMIT {limit}"
    )
    count = engine.rows(f"SELECT count(*) AS n FROM {role_name(relation.name, 'rows')}", inputs)
    return count.column(0)[0].as_py(), engine.rows(sql, inputs)


def _sampled(relation: Relation, sample: int) -> str:
    """Give the condition that keeps one row in `sample`: the same rows of both sides, in SQL that every engine has.

    Floats are left out: their last digits may differ, and then just one row of a pair would be kept.
    """
    exact = [quote(c.name) for c in relation.rows if not types.floating(c.type)]
    if not exact:
        return ""
    text = ", ".join(f"coalesce(CAST({q} AS STRING), '')" for q in exact)
    return f" WHERE substr(md5(concat_ws('|', {text})), 1, 8) < '{max(1, 2**32 // sample):08x}'"


def tolerate(differing: pa.Table, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pair rows that differ only in the last digits of floating-point numbers; give what is left: missing, unexpected."""
    sides: dict[Any, tuple[list[_Row], list[_Row]]] = defaultdict(lambda: ([], []))
    for row in differing.to_pylist():
        weight = row[WEIGHT]
        bare = {name: row[name] for name in names}
        floats: list[float] = []
        sides[_rigid(bare, floats)][weight < 0].extend([(floats, bare)] * abs(weight))
    missing: list[dict[str, Any]] = []
    unexpected: list[dict[str, Any]] = []
    for expected, actual in sides.values():
        lacking, surplus = _unpaired(expected, actual)
        missing += lacking
        unexpected += surplus
    return missing, unexpected


def _unpaired(expected: list[_Row], actual: list[_Row]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pair rows whose floats are close; both sides are walked in order, so that each looks at its neighbours only."""
    expected.sort(key=itemgetter(0))
    actual.sort(key=itemgetter(0))
    lacking, taken, start = [], [False] * len(actual), 0
    for floats, row in expected:
        while start < len(actual) and (taken[start] or _below(actual[start][0], floats)):
            start += 1
        match = None
        for at in range(start, len(actual)):
            if not taken[at] and _close(actual[at][0], floats):
                match = at
                break
            if _below(floats, actual[at][0]):
                break
        if match is None:
            lacking.append(row)
        else:
            taken[match] = True
    return lacking, [row for (_, row), gone in zip(actual, taken, strict=True) if not gone]


def _below(one: list[float], other: list[float]) -> bool:
    """Say whether the first number is less by more than the tolerance: then so is everything sorted before it."""
    return bool(one) and one[0] < other[0] and not _near(one[0], other[0])


def _rigid(value: Any, floats: list[float]) -> Any:
    """Reduce a value to what must be equal exactly, so that candidates are found by hashing; collect its finite floats."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        floats.append(value)
        return "float"
    if isinstance(value, dict):
        return tuple((key, _rigid(item, floats)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_rigid(item, floats) for item in value)
    return value


def _close(one: list[float], other: list[float]) -> bool:
    return all(_near(a, b) for a, b in zip(one, other, strict=True))


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=ABSOLUTE)
