"""Proves views right: recomputes a view from the user's own SQL text and compares as bags, both ways."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from runnel.compiler import bind
from runnel.engine.inputs import Inputs, Pending, standing
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation

TOLERANCE = 1e-9
LISTED = 100_000


@dataclass(frozen=True)
class Report:
    """The outcome for one view: rows its query gives and it lacks (`missing`), rows it has and should not (`unexpected`)."""

    view: str
    epoch: int
    rows_checked: int
    missing: tuple[dict[str, Any], ...] = field(default=())
    unexpected: tuple[dict[str, Any], ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether the view equals its query as a bag."""
        return not self.missing and not self.unexpected

    def __str__(self) -> str:
        if self.ok:
            return f"{self.view}: verified, {self.rows_checked} rows at epoch {self.epoch}"
        return (
            f"{self.view}: WRONG at epoch {self.epoch}: {len(self.missing)} rows missing, {len(self.unexpected)} unexpected"
            f" (of {self.rows_checked})"
        )


def verify(lake: Lake, engine: Engine, view: ViewEntry, *, sample: int | None = None) -> Report:
    """Recompute a view as of its frontier and compare it with what is stored; `sample` compares one row in `sample`."""
    head = lake.snapshot()
    then = standing(lake, head, view)
    relation = head.relations[view.name]
    expected, inputs = _expected(engine, then, view)
    inputs.update(Inputs(engine, head, head, Pending()).roles([(view.name, "rows")]))
    checked, rows = _differences(engine, relation, expected, inputs, sample)
    missing, unexpected = tolerate(rows, [c.name for c in relation.rows])
    return Report(view.name, view.frontier, checked, tuple(missing), tuple(unexpected))


def _expected(engine: Engine, then: Snapshot, view: ViewEntry) -> tuple[str, dict[str, Input]]:
    visible = {name: r for name, r in then.relations.items() if r.kind is not Kind.STAGE}
    text, reads = bind(view.sql, visible)
    return text, Inputs(engine, then, then, Pending()).roles([(name, "rows") for name in sorted(reads)])


def _differences(
    engine: Engine, relation: Relation, expected: str, inputs: dict[str, Input], sample: int | None
) -> tuple[int, pa.Table]:
    """Count the rows of the view and bring the rows that differ to the driver, with the sign of the difference."""
    quoted = [quote(c.name) for c in relation.rows]
    columns = ", ".join(quoted)
    typed = ", ".join(f"CAST({q} AS {c.type}) AS {q}" for q, c in zip(quoted, relation.rows, strict=True))
    where = f" WHERE pmod(xxhash64({columns}), {sample}) = 0" if sample else ""
    actual = f"SELECT {columns} FROM {role_name(relation.name, 'rows')}"
    sql = (
        f"SELECT {columns}, sum(`{WEIGHT}`) AS `{WEIGHT}` FROM (\n"
        f"SELECT {typed}, CAST(1 AS BIGINT) AS `{WEIGHT}` FROM (\n{expected}\n) AS expected\nUNION ALL\n"
        f"SELECT {columns}, CAST(-1 AS BIGINT) AS `{WEIGHT}` FROM ({actual}) AS actual\n) AS both_sides{where}"
        f" GROUP BY {columns} HAVING sum(`{WEIGHT}`) <> 0 LIMIT {LISTED}"
    )
    count = engine.rows(f"SELECT count(*) AS n FROM {role_name(relation.name, 'rows')}", inputs)
    return count.column(0)[0].as_py(), engine.rows(sql, inputs)


def tolerate(differing: pa.Table, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pair rows that differ only in the last digits of floating-point numbers; give what is left: missing, unexpected."""
    missing: list[dict[str, Any]] = []
    surplus: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    rows = differing.to_pylist()
    for row in rows:
        weight = row.pop(WEIGHT)
        bare = {name: row[name] for name in names}
        if weight < 0:
            surplus[_rigid(bare)].extend([bare] * -weight)
        else:
            missing.extend([bare] * weight)
    left = []
    for row in missing:
        candidates = surplus.get(_rigid(row), [])
        match = next((at for at, other in enumerate(candidates) if _close(row, other)), None)
        if match is None:
            left.append(row)
        else:
            candidates.pop(match)
    return left, [row for rows in surplus.values() for row in rows]


def _rigid(value: Any) -> Any:
    """Reduce a value to what must be equal exactly, so that candidates are found by hashing."""
    if isinstance(value, float):
        return "float"
    if isinstance(value, dict):
        return tuple((key, _rigid(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_rigid(item) for item in value)
    return value


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(one, dict):
        return all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_close(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Decimal):
        return bool(one == other)
    return bool(one == other)
