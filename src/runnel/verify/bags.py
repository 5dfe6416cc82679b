"""Compares a relation's rows with what a text gives, as bags, in the engine; brings only the rows that differ to the driver.

Where SQL leaves a choice open, the text of the user is compared on the columns it determines, and the text with the choices made,
by which the view is kept, on all of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from runnel.compiler.choices import NOTHING_OPEN
from runnel.engine.base import Derived, TooLarge
from runnel.model import types
from runnel.model.identity import equal
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.model.tokens import quoted_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from runnel.compiler.choices import Choices
    from runnel.engine.base import Engine, Input
    from runnel.model.relation import Column, Relation

    _Row = tuple[list[float], dict[str, Any]]

# Floats are taken for equal when they agree in nine digits, or when both are so near zero that what is left of a sum
# that should be zero passes for it.
TOLERANCE = 1e-9
ABSOLUTE = 1e-12
LISTED = 100_000
# Rows with floats may differ in last digits only: many more must be fetched to find their partners.
LISTED_WITH_FLOATS = 2_000_000
AT_FIRST_SIGHT = 2_000
"""Rows fetched to see whether a text that leaves a choice open gives the same rows all the same."""
COUNTED = "(number of rows)"


@dataclass(frozen=True)
class Comparison:
    """What is compared: the rows of a relation with the user's text, and with the text whose open `choices` are made."""

    relation: Relation
    text: str
    inputs: Mapping[str, Input]
    choices: Choices = NOTHING_OPEN
    definite: str = ""
    where: str = ""
    """A condition on the columns of both sides, to compare a part of the rows."""
    few: bool = False
    """Whether few rows are read and compared: then both sides are brought to the driver, and compared there."""
    rows: pa.Table | None = None
    """The rows of the relation, where they are at hand."""


@dataclass(frozen=True)
class Found:
    """The rows that the text gives and the relation lacks, and the other way around; `too_many` says that there are more."""

    missing: tuple[dict[str, Any], ...] = ()
    unexpected: tuple[dict[str, Any], ...] = ()
    too_many: bool = False
    compared: int = 0

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.missing and not self.unexpected and not self.too_many


def compare(engine: Engine, asked: Comparison, sample: int | None = None) -> Found:
    """Compare all rows, or one in `sample`."""
    columns = asked.relation.rows
    if asked.few and _same_at_sight(engine, asked):
        return Found()
    limit = LISTED_WITH_FLOATS if any(types.floating(c.type) for c in columns) else LISTED
    if not asked.choices.any:
        return _found(engine, asked, asked.text, columns, sample, limit)
    found = _found(engine, asked, asked.text, columns, sample, min(limit, AT_FIRST_SIGHT))
    if found.same:
        return found
    for family in asked.choices.families:
        closed = [c for c in columns if c.name in family]
        found = _found(engine, asked, asked.text, closed, sample, limit) if closed else _counted(engine, asked)
        if not found.same:
            return found
    return _found(engine, asked, asked.definite, columns, sample, limit) if asked.definite else Found()


def _same_at_sight(engine: Engine, asked: Comparison) -> bool:
    """Say whether both sides are equal to the last bit, by sorting them in the driver; whatever else is found out by Spark.

    It saves Spark a shuffle, and the job where Spark and DuckDB mean the same by a text that leaves nothing open.
    """
    columns = asked.relation.rows
    if any(types.nested(c.type) for c in columns):
        return False
    try:
        expected = engine.change(asked.text, _read_by(asked.text, asked), columns, closed=not asked.choices.any)
        actual = asked.rows if asked.rows is not None else _shown(engine, asked)
    except TooLarge:
        return False
    if expected.num_rows != actual.num_rows:
        return False
    by = [(c.name, "ascending") for c in columns]
    one, other = (side.combine_chunks().sort_by(by) for side in (expected, actual.cast(expected.schema)))
    return bool(one.equals(other))


def _shown(engine: Engine, asked: Comparison) -> pa.Table:
    """Give the rows of the relation, by the text that derives them from what is stored."""
    columns = asked.relation.rows
    source = asked.inputs[f"{asked.relation.name}__rows"]
    listed = ", ".join(quote(c.name) for c in columns)
    named = f"SELECT {listed} FROM {role_name(asked.relation.name, 'rows')}"
    sql = source.sql if isinstance(source, Derived) else named
    return engine.change(sql, _read_by(sql, asked), columns, closed=True)


def _read_by(sql: str, asked: Comparison) -> dict[str, Input]:
    """Give the inputs that a text names, and those that they are derived from."""
    found: dict[str, Input] = {}
    todo = [name for name in quoted_names(sql) if name in asked.inputs]
    while todo:
        name = todo.pop()
        found[name] = one = asked.inputs[name]
        todo += one.reads if isinstance(one, Derived) else ()
    return found


def _found(
    engine: Engine, asked: Comparison, text: str, columns: Sequence[Column], sample: int | None, limit: int
) -> Found:
    conditions = [c for c in (asked.where, _sampled(columns, sample)) if c]
    sql = _differing(asked, text, columns, f" WHERE {' AND '.join(conditions)}" if conditions else "")
    rows = engine.rows(f"{sql} LIMIT {limit + 1}", asked.inputs)
    missing, unexpected = tolerate(rows.slice(0, limit), [c.name for c in columns])
    return Found(tuple(missing), tuple(unexpected), rows.num_rows > limit, min(rows.num_rows, limit))


def same_totals(engine: Engine, asked: Comparison) -> bool:
    """Compare numbers over all rows: how many there are, how many of each column are not NULL, and, on Spark, a sum of hashes.

    Equal bags have equal totals. Of columns whose last digits or order may differ only values are counted.
    """
    columns = asked.relation.rows
    typed = ", ".join(f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in columns)
    totals = ["count(*)", *(f"count({quote(c.name)})" for c in columns)]
    exact = [quote(c.name) for c in columns if _hashed(c)]
    if exact and engine.name == "spark":
        totals.append(f"coalesce(sum(CAST(xxhash64({', '.join(exact)}) AS DECIMAL(20,0))), 0)")
    listed = ", ".join(f"CAST({text} AS STRING) AS total_{at}" for at, text in enumerate(totals))
    rows = engine.rows(
        f"SELECT {listed} FROM (SELECT {typed} FROM (\n{asked.text}\n) AS expected) AS typed UNION ALL"
        f" SELECT {listed} FROM {role_name(asked.relation.name, 'rows')}",
        asked.inputs,
    ).to_pylist()
    return bool(rows[0] == rows[1])


def totals_cover(engine: Engine, columns: Sequence[Column]) -> bool:
    """Return whether totals over all rows hold the values of all columns, not only how many there are."""
    return engine.name == "spark" and all(_hashed(column) for column in columns)


def _hashed(column: Column) -> bool:
    return not types.nested(column.type) and not types.floating(column.type)


def _counted(engine: Engine, asked: Comparison) -> Found:
    """Compare the number of rows, where nothing else is determined."""
    rows = engine.rows(
        f"SELECT count(*) AS n FROM (\n{asked.text}\n) AS expected UNION ALL"
        f" SELECT -count(*) AS n FROM {role_name(asked.relation.name, 'rows')}",
        asked.inputs,
    )
    more = sum(rows.column(0).to_pylist())
    row = ({COUNTED: abs(more)},)
    return Found(row if more > 0 else (), row if more < 0 else ())


def _differing(asked: Comparison, text: str, columns: Sequence[Column], where: str) -> str:
    """Write the query for the rows that differ, with the sign of the difference."""
    quoted = [quote(c.name) for c in columns]
    listed = ", ".join(quoted)
    typed = ", ".join(f"CAST({q} AS {c.type}) AS {q}" for q, c in zip(quoted, columns, strict=True))
    shown, by = equal(columns)
    return (
        f"SELECT {shown}, sum(`{WEIGHT}`) AS `{WEIGHT}` FROM (\n"
        f"SELECT {typed}, CAST(1 AS BIGINT) AS `{WEIGHT}` FROM (\n{text}\n) AS expected\nUNION ALL\n"
        f"SELECT {listed}, CAST(-1 AS BIGINT) AS `{WEIGHT}` FROM {role_name(asked.relation.name, 'rows')}\n"
        f") AS both_sides{where} GROUP BY {by} HAVING sum(`{WEIGHT}`) <> 0"
    )


def _sampled(columns: Sequence[Column], sample: int | None) -> str:
    """Give the condition that keeps one row in `sample`: the same rows of both sides, in SQL that every engine has.

    Floats are left out: their last digits may differ, and then just one row of a pair would be kept.
    """
    exact = [quote(c.name) for c in columns if not types.floating(c.type)]
    if not exact or not sample or sample < 2:
        return ""
    text = ", ".join(f"coalesce(CAST({q} AS STRING), '')" for q in exact)
    return f"substr(md5(concat_ws('|', {text})), 1, 8) < '{max(1, 2**32 // sample):08x}'"


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
