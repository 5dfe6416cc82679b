"""What an event view should hold: everything that happened since it was defined, gone through once more from kept history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler import program_from_json, rows_sql
from runnel.engine.base import Rows
from runnel.engine.events import moments
from runnel.engine.inputs import signed
from runnel.errors import Terminal
from runnel.model import types

if TYPE_CHECKING:
    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot

REPLAYED = "replayed events"


def replay(lake: Lake, engine: Engine, head: Snapshot, view: ViewEntry) -> tuple[str, dict[str, Input]] | str:
    """Give the SQL of an event view's rows with its inputs; a reason where history does not reach back far enough."""
    try:
        return _replayed(lake, engine, head, view)
    except Terminal as error:
        if error.code != "RUNNEL-EPOCH-EXPIRED":
            raise
        return f"not all epochs since it was defined at {view.since} are kept"


def _replayed(lake: Lake, engine: Engine, head: Snapshot, view: ViewEntry) -> tuple[str, dict[str, Input]] | str:
    if view.since < 0:
        return "it went on with another body of a function"
    first, last = lake.snapshot(view.since), lake.snapshot(view.frontier)
    for name in view.inputs:
        if first.definitions.ids.get(name) != head.definitions.ids.get(name):
            return f"{name} was made anew since it was defined at epoch {view.since}"
    program = program_from_json(view.program)
    step = program.steps[-1]
    columns = signed(step.target.columns)
    schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns])
    found = [schema.empty_table()]
    for moment in moments(lake, engine, program.events, first, last):
        changed = moment.changed(program.events)
        sql = step.delta_sql(changed)
        if sql is not None:
            roles = moment.roles(view, program.events, step.delta_reads(changed))
            found.append(engine.rows(sql, roles, columns).cast(schema))
    inputs: dict[str, Input] = {REPLAYED: Rows(pa.concat_tables(found), columns)}
    return rows_sql(step.target, f"`{REPLAYED}`", signed=False), inputs
