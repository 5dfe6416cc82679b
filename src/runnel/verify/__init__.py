"""Proves views right: recomputes a view from the user's own SQL text and compares as bags, both ways."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runnel.compiler import bind, program_from_json
from runnel.compiler.choices import NOTHING_OPEN, open_choices
from runnel.engine.functions import check_functions
from runnel.engine.inputs import Inputs, Pending, shows
from runnel.errors import Terminal
from runnel.model.program import name as role_name
from runnel.verify.bags import Comparison, compare
from runnel.verify.replay import replay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.compiler.choices import Choices
    from runnel.engine.base import Engine, Input
    from runnel.lake.entries import ViewEntry
    from runnel.lake.lake import Lake
    from runnel.model.program import Program
    from runnel.model.relation import Relation


@dataclass(frozen=True)
class Report:
    """The outcome for one view: rows its query gives and it lacks (`missing`), rows it has and should not (`unexpected`).

    `too_many` says that more rows differ than were fetched (`compared`): the view counts as wrong, and not all is listed.
    `open` are the columns for which SQL allows more than one value, `reasons` say why: of them only what the text determines is
    compared with the user's text, and all of it with the text in which the choices are made.
    `unchecked` says why nothing could be compared, for an event view whose history is no longer kept; it is not wrong then.
    `failed` says why the view could not come further than `epoch`, if it could not: it is not fine, whatever its old rows are.
    """

    view: str
    epoch: int
    rows_checked: int
    missing: tuple[dict[str, Any], ...] = field(default=())
    unexpected: tuple[dict[str, Any], ...] = field(default=())
    too_many: bool = False
    compared: int = 0
    unchecked: str = ""
    open: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    failed: str = ""

    @property
    def ok(self) -> bool:
        """Whether the view equals its query as a bag, and has not failed since."""
        return self.same and not self.failed

    @property
    def same(self) -> bool:
        """Whether the view equals its query as of `epoch`, up to which it has come."""
        return not self.missing and not self.unexpected and not self.too_many

    def __str__(self) -> str:
        if self.failed and self.same:
            return f"{self.view}: FAILED, right as of epoch {self.epoch} only: {self.failed}"
        if self.unchecked:
            return f"{self.view}: NOT CHECKED, {self.unchecked}"
        if self.ok:
            left = f"; SQL leaves open {', '.join(self.open)}: {'; '.join(self.reasons)}" if self.open else ""
            return f"{self.view}: verified, {self.rows_checked} rows at epoch {self.epoch}{left}"
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
    choices, definite = NOTHING_OPEN, ""
    if view.events:
        known = replay(lake, engine, head, view)
        if isinstance(known, str):
            return Report(view.name, view.frontier, 0, unchecked=known, failed=view.error or "")
        text, inputs = known
    else:
        then = shows(lake, head, view)
        program = program_from_json(view.program)
        choices = choices_of(view, program, then.shown)
        text, inputs = own_text(Inputs(engine, then, then, Pending()), then.shown, view)
        definite = bind(program.definite, then.shown)[0] if program.definite else ""
    inputs.update(Inputs(engine, head, head, Pending()).roles([(view.name, "rows")]))
    count = engine.rows(f"SELECT count(*) AS n FROM {role_name(relation.name, 'rows')}", inputs).column(0)[0].as_py()
    found = compare(engine, Comparison(relation, text, inputs, choices, definite), sample)
    return Report(
        view.name,
        view.frontier,
        count,
        found.missing,
        found.unexpected,
        found.too_many,
        found.compared,
        open=choices.columns,
        reasons=choices.reasons,
        failed=view.error or "",
    )


def own_text(inputs: Inputs, relations: Mapping[str, Relation], view: ViewEntry) -> tuple[str, dict[str, Input]]:
    """Bind the user's text to rows, each table with the columns the text meant when it was compiled."""
    text, reads = bind(view.sql, relations)
    return text, inputs.roles([(name, "rows") for name in sorted(reads)], seen=view.seen)


def choices_of(view: ViewEntry, program: Program, relations: Mapping[str, Relation]) -> Choices:
    """Say what a view's text leaves open. A view that is recomputed takes the engine's choice, whatever it is."""
    known = {name: seen_by(view, relation) for name, relation in relations.items()}
    return open_choices(view.sql, known, [c.name for c in program.columns], loose=not program.incremental)


def seen_by(view: ViewEntry, relation: Relation) -> Relation:
    """Give a table with the columns that a view's text means by `*`."""
    seen = view.seen.get(relation.name)
    if seen is None:
        return relation
    return replace(relation, columns=tuple(c for c in relation.columns if c.name in seen))
