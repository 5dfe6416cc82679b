"""Joins that several views of an epoch have in common: the change of each is computed once and handed to all of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.engine.base import Rows
from runnel.engine.inputs import signed, stored
from runnel.errors import RunnelError, Unreachable
from runnel.pipeline.materialise import materialise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel.engine.inputs import Inputs
    from runnel.lake.entries import NewFile, ViewEntry
    from runnel.model.program import Shared
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class Joined:
    """A join's change that was handed on: how many rows it has, and to which views it went."""

    name: str
    rows: int
    milliseconds: float
    views: tuple[str, ...]
    files: tuple[NewFile, ...] = ()


def hand_on(runtime: Runtime, views: Iterable[ViewEntry], ranges: Mapping[str, Inputs]) -> list[Joined]:
    """Compute the change of every join that is read twice or more over the same range, and hand it on."""
    readers: dict[tuple[int, str], list[str]] = {}
    joins: dict[tuple[int, str], tuple[Inputs, Shared]] = {}
    for view in views:
        for step in runtime.program(view).steps:
            if step.shared is not None:
                key = (id(ranges[view.name]), step.shared.relation.name)
                joins[key] = (ranges[view.name], step.shared)
                readers.setdefault(key, []).extend([view.name] * step.uses)
    wanted = [key for key, names in readers.items() if len(names) > 1]
    made = [_joined(runtime, *joins[key], tuple(dict.fromkeys(readers[key]))) for key in wanted]
    return [joined for joined in made if joined is not None]


def _joined(runtime: Runtime, inputs: Inputs, shared: Shared, views: tuple[str, ...]) -> Joined | None:
    begun = time.perf_counter()
    read = sorted({name for term in shared.terms for name in term.deltas})
    files: list[NewFile] = []
    try:
        sizes = {name: inputs.delta_rows(name) for name in read}
        changed = frozenset(name for name, rows in sizes.items() if rows)
        empty = inputs.empty_of(shared.parts)
        sql = shared.delta_sql(changed, empty)
        if sql is None:
            return None
        roles = inputs.roles(shared.delta_reads(changed, empty))
        columns = signed(shared.relation.columns)
        if sum(sizes.values()) > runtime.large:
            files = materialise(runtime, shared.relation, sql, roles, large=True)
            inputs.hand_on(shared.relation, replace(stored(shared.relation, files), change=True))
            rows = sum(file.rows for file in files)
        else:
            change = inputs.computed(shared.relation, sql, roles, columns)
            inputs.hand_on(shared.relation, change)
            rows = change.table.num_rows if isinstance(change, Rows) else change.rows
    except Unreachable:
        raise
    except RunnelError:
        # What fails in the join may not be what a view needs of it: each goes its own way, and says what it fails of.
        return None
    return Joined(shared.relation.name, rows, round((time.perf_counter() - begun) * 1000, 3), views, tuple(files))
