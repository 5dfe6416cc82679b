"""The SQL of a step's change, and its outcome as files that are not published yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.engine.base import TooLarge
from runnel.engine.inputs import signed
from runnel.lake.files import ROW_GROUP
from runnel.model import arrow, types
from runnel.model.identity import identical
from runnel.model.negative import negative
from runnel.model.program import Strategy, quote
from runnel.model.program import name as input_name
from runnel.model.relation import WEIGHT, Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.engine.base import Input
    from runnel.engine.inputs import Inputs
    from runnel.lake.entries import NewFile
    from runnel.model.program import Role, Step
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime


def change_sql(
    step: Step, strategy: Strategy, changed: frozenset[str], inputs: Inputs
) -> tuple[str | None, frozenset[tuple[str, Role]]]:
    """Give the SQL of a step's change when these relations changed, and what it reads: the change of a join if it is at hand."""
    if strategy is Strategy.FULL:
        return difference_sql(step)
    if step.shared is not None and inputs.handed_on(step.shared.relation.name):
        return step.shared_sql(changed), step.shared_reads(changed)
    empty = inputs.empty_of(step.parts)
    return step.delta_sql(changed, empty), step.delta_reads(changed, empty)


def recompute_sql(step: Step) -> tuple[str, frozenset[tuple[str, Role]]]:
    """Give the SQL of a recomputed bag's change: its new contents minus what is stored."""
    target = step.target
    columns = ", ".join(quote(c.name) for c in target.columns)
    weight = quote(WEIGHT)
    shown, by = identical(target.columns)
    sql = (
        f"SELECT {shown}, sum({weight}) AS {weight} FROM (\n{step.initial}\nUNION ALL\n"
        f"SELECT {columns}, -{weight} AS {weight} FROM {input_name(target.name, 'stored_old')}\n)"
        f" GROUP BY {by} HAVING sum({weight}) <> 0"
    )
    return sql, step.initial_reads | {(target.name, "stored_old")}


def difference_sql(step: Step) -> tuple[str, frozenset[tuple[str, Role]]]:
    """Give the SQL of what turns the stored contents into new ones: bags row by row, sums group by group."""
    target = step.target
    if target.final is None:
        return recompute_sql(step)
    names = [c.name for c in target.columns]
    added = {name: f"sum({quote(name)})" for name in [*target.partial_sums, WEIGHT]}
    listed = ", ".join(quote(name) for name in [*names, WEIGHT])
    kinds = {c.name: c.type for c in (*target.columns, Column(WEIGHT, types.BIGINT))}
    negated = ", ".join(
        quote(n) if n in target.summed_by else f"{negative(quote(n), kind)} AS {quote(n)}" for n, kind in kinds.items()
    )
    chosen = ", ".join(f"{added[n]} AS {quote(n)}" if n in added else quote(n) for n in [*names, WEIGHT])
    by = f" GROUP BY {', '.join(quote(name) for name in target.summed_by)}" if target.summed_by else ""
    sql = (
        f"SELECT {chosen} FROM (\nSELECT {listed} FROM (\n{step.initial}\n)\nUNION ALL\n"
        f"SELECT {negated} FROM {input_name(target.name, 'stored_old')}\n){by}"
        f" HAVING {' OR '.join(f'{text} <> 0' for text in added.values())}"
    )
    return sql, step.initial_reads | {(target.name, "stored_old")}


def materialise(
    runtime: Runtime, target: Relation, sql: str, inputs: Mapping[str, Input], *, large: bool
) -> list[NewFile]:
    """Run a query and store its signed rows: small results by the driver, large ones by the engine's own writer.

    `large` says that the change is; a small one whose result is large is found out on the way.
    """
    lake = runtime.lake
    order = target.key or tuple(c.name for c in target.columns[:1])
    if large:
        found = runtime.engine.in_driver(sql, inputs, signed(target.columns))
    else:
        try:
            found = runtime.engine.change(sql, inputs, signed(target.columns))
        except TooLarge:
            found = None
    if found is not None:
        return [lake.write(target, in_order(found, order))] if found.num_rows else []
    written = runtime.engine.write(sql, inputs, lake.arrow_schema(target), lake.unpublished(target.name), order)
    return lake.adopt(target, written.paths, written.rows)


def in_order(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Sort rows by these columns, so that look-ups can skip most of a large file; what has no order stays as it is."""
    flat = [n for n in names if not pa.types.is_nested(table.schema.field(n).type)]
    return arrow.in_order(table, flat) if flat and table.num_rows > ROW_GROUP else table
