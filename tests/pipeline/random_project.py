"""Random views and changes through a whole project: lake, transactions, epochs, deferred refreshes, compaction, verify.

What the views must hold is worked out from the rows that were written, see `expected`; `verify` has to agree at the end.
"""

from __future__ import annotations

import random
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

import runnel
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.foreign_keys import Reference
from runnel.model.relation import WEIGHT
from runnel.pipeline import definitions, upkeep
from tests.compiler.random_views import random_case
from tests.pipeline.expected import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.engine.base import Engine
    from runnel.model.relation import Relation
    from runnel.project import Project
    from tests.compiler.random_views import Batch


def check_project(engine: Engine, seed: int) -> int:
    """Play the case of a seed; after every epoch every view equals its query. Give the number of comparisons."""
    checks, expected = 0, Expected(engine, random_case(seed))

    def check(project: Project, what: str) -> None:
        nonlocal checks
        checks += _check(project, expected, f"seed {seed}, {what}")

    with play(engine, seed, check, expected.applied) as project:
        for report in project.verify_all():
            assert report.ok, f"seed {seed}: {report}\n{report.missing[:3]}\n{report.unexpected[:3]}"
        return checks


@contextmanager
def play(
    engine: Engine,
    seed: int,
    check: Callable[[Project, str], None] | None = None,
    applied: Callable[[Project, Batch], None] | None = None,
) -> Iterator[Project]:
    """Play the case of a seed in a throw-away project and give it as it is at the end; the engine stays open.

    `check` looks at it after each batch; `applied` hears of each batch right before it is written.
    """
    case, rng = random_case(seed), random.Random(seed)
    project = runnel.memory(engine=engine)
    look = check or (lambda project, what: None)
    hear = applied or (lambda project, batch: None)
    tables = {table.name: table for table in case.tables}
    _create(project, list(case.tables))
    hear(project, case.start)
    _apply(project, tables, case.start)
    for name, sql in case.views:
        try:
            project.create_view(name, sql, refresh=rng.choice(("immediate", "immediate", "manual")))
        except Terminal as error:
            if error.code != "RUNNEL-SQL-WRONG":
                raise
            break  # Spark itself refuses the text, and views after it may read it
    look(project, "start")
    for number, batch in enumerate(case.batches, 1):
        hear(project, batch)
        _apply(project, tables, batch)
        if rng.random() < 0.3:
            upkeep.compact(project.runtime, project.runtime.lake.snapshot(), all_files=rng.random() < 0.5)
        if rng.random() < 0.4:
            _change_a_definition(project, rng, number)
        look(project, f"batch {number}")
    project.refresh()
    look(project, "refreshed")
    try:
        yield project
    finally:
        project.runtime.lake.close()
        shutil.rmtree(project.folder)


def _create(project: Project, todo: list[Relation]) -> None:
    """Create tables behind those they refer to; in a circle the first goes without the foreign keys it cannot have yet."""
    while todo:
        waiting = {table.name for table in todo}
        free = [t for t in todo if not {k.table for k in t.references} & waiting - {t.name}]
        table = (free or todo)[0]
        references = [Reference(k.columns, k.table) for k in table.references if k.table not in waiting - {table.name}]
        definitions.create_table(project.runtime, table.name, table.columns, table.key, references)
        todo.remove(table)


def _change_a_definition(project: Project, rng: random.Random, number: int) -> None:
    """Do one of the things that may be done to definitions while changes flow; no view's rows may depend on it."""
    name, view = rng.choice(list(project.runtime.lake.snapshot().views.items()))
    read = {i for v in project.runtime.lake.snapshot().entries.values() for i in v.inputs}
    what = rng.choice(("options", "mode", "rebuild", "made anew", "column"))
    if what == "options":
        project.create_view(name, view.sql, refresh=rng.choice(("immediate", "manual")), replace=True)
    elif what == "mode":
        project.create_view(name, view.sql, mode=rng.choice(("auto", "full")), replace=True)
    elif what == "rebuild":
        project.refresh(name, full=True)
    elif what == "made anew" and name not in read:
        project.drop_view(name)
        project.create_view(name, view.sql, refresh=rng.choice(("immediate", "manual")))
    elif what == "column":
        table = rng.choice([table.name for table in project.status().tables])
        project.sql(f"ALTER TABLE `{table}` ADD COLUMN later{number} STRING")


def _apply(project: Project, tables: dict[str, Relation], batch: Batch) -> None:
    with project.transaction() as tx:
        for name, rows in batch.items():
            if rows:
                tx.apply(name, _signed(tables[name], rows))


def _signed(table: Relation, rows: list[tuple[tuple[object, ...], int]]) -> pa.Table:
    arrays = [
        pa.array([row[at] for row, _ in rows], types.to_arrow(column.type)) for at, column in enumerate(table.columns)
    ]
    weights = pa.array([weight for _, weight in rows], pa.int64())
    return pa.Table.from_arrays([*arrays, weights], names=[*[c.name for c in table.columns], WEIGHT])


def _check(project: Project, expected: Expected, what: str) -> int:
    for status in project.status().views:
        assert not status.error, f"{what}: {status.name} failed: {status.error}"
    views = project.runtime.lake.snapshot().views
    for name, view in views.items():
        problem = expected.problem(project, name)
        assert not problem, f"{what}, view {name} at epoch {view.frontier}: {problem}\n{view.sql}"
    return len(views)
