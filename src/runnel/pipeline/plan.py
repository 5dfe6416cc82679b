"""Plans a change of definitions: what has to be computed anew beside what is there, what is shared, what is left alone.

A view whose program stays the same is left alone; one that changes takes along every view that reads it. A stage is
computed only where there is none yet, or where something below it changes. Nothing is computed or published here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.compiler import bind, called, compile_view, program_to_json
from runnel.compiler.serialize import is_current
from runnel.errors import RunnelError, Terminal
from runnel.lake.entries import ViewEntry
from runnel.model.program import Operator, Strategy
from runnel.model.relation import Kind, Relation, check_columns
from runnel.pipeline import proofs
from runnel.pipeline.maintain import is_stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.errors import Place
    from runnel.lake.snapshot import Snapshot
    from runnel.model.program import Program
    from runnel.pipeline.reshape import Reshaped
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class Definition:
    """What a user says a view is."""

    name: str
    sql: str
    properties: Mapping[str, str]
    place: Place | None = None


class Refused(Terminal):
    """A definition cannot be taken; `view` is the view that stands against it: itself, or one that reads it."""

    def __init__(self, view: str, error: RunnelError, because: str = "") -> None:
        """Say what is wrong with `view`, and because of what it came up."""
        super().__init__(error.code, because + error.message, place=error.place, hint=error.hint)
        self.view = view


@dataclass
class Plan:
    """What becomes of the definitions at `head`.

    `fresh` are the programs to compute, in order; `entries` those and the ones of which only text or options change;
    `programs` are the wanted views' programs, computed or not; `tables` are tables that get another shape.
    """

    head: Snapshot
    fresh: list[Program] = field(default_factory=list)
    entries: dict[str, ViewEntry] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    tables: Mapping[str, Reshaped] = field(default_factory=dict)

    @property
    def made(self) -> frozenset[str]:
        """The relations that are computed anew."""
        return frozenset(program.view for program in self.fresh)

    @property
    def shared(self) -> frozenset[str]:
        """The stages that the new programs read and that are there already."""
        return frozenset(stage.view for program in self.fresh for stage in program.stages) - self.made

    @property
    def outside(self) -> frozenset[str]:
        """What the new programs read and that stays as it is."""
        return frozenset(n for program in self.fresh for n in program.inputs) - self.made - frozenset(self.tables)


def make_plan(
    runtime: Runtime,
    head: Snapshot,
    wanted: Sequence[Definition],
    tables: Mapping[str, Reshaped] | None = None,
    *,
    narrowed: bool = False,
    again: frozenset[str] = frozenset(),
) -> Plan:
    """Compile what is wanted, and whatever reads what changes; raise `Refused` for the first that cannot be compiled.

    `narrowed` looks only at what tables lose, not at what their columns become. Views and stages `again` are computed even if
    they stay the same: what is stored of them is damaged.
    """
    plan = Plan(head, tables=tables or {})
    chosen = {definition.name: definition for definition in wanted}
    relations = {**head.shown, **{n: s.narrowed if narrowed else s.relation for n, s in plan.tables.items()}}
    reads = _reads(head, chosen, relations)
    changed: set[str] = set()
    for name in _in_order(reads, chosen):
        stored = head.views.get(name)
        if name not in chosen and not reads[name] & (changed | plan.tables.keys()):
            continue
        program = _compile(runtime, name, chosen.get(name), stored, relations)
        relations[name] = program.relation
        plan.programs[name] = program
        calls = called(_text(program, chosen.get(name) or stored), runtime.functions)
        same = stored is not None and name not in again and _same_program(runtime, head, stored, program)
        same = same and stored is not None and (bool(program.events) or _same_means(runtime, stored, calls))
        if not same or (reads[name] & changed and not program.events):
            _refuse_emptying(name, program, chosen)
            changed.add(name)
            entry = _entry(program, chosen.get(name) or stored, head, relations, stored)
            plan.entries[name] = replace(entry, functions=calls, settings=dict(runtime.engine.meaning))
        elif stored is not None:
            _redefine(plan, stored, chosen.get(name), program, calls, runtime.engine.meaning)
    _choose_fresh(plan, changed, runtime.functions, runtime.engine.meaning, again)
    return plan


def _same_means(runtime: Runtime, stored: ViewEntry, calls: dict[str, str]) -> bool:
    """Say whether a view was computed with the same functions and under the same settings."""
    return dict(stored.functions) == calls and dict(stored.settings) == runtime.engine.meaning


def _refuse_emptying(name: str, program: Program, chosen: Mapping[str, Definition]) -> None:
    """Keep what an event view has gathered from going only because something that it reads is changed."""
    if program.events and name not in chosen:
        error = Terminal(
            "RUNNEL-VIEW-EVENTS-KEPT",
            f"the event view {name} would have to begin anew, and what it has gathered would be lost",
            hint=f"copy what you need of {name} and drop it first",
        )
        raise Refused(name, error)


def _text(program: Program, said: Definition | ViewEntry | None = None) -> str:
    """Give all SQL of a program, and the text that it was made of."""
    return "\n".join([*(step.text for step in program.steps), said.sql if said is not None else ""])


def _redefine(
    plan: Plan,
    stored: ViewEntry,
    definition: Definition | None,
    program: Program,
    calls: dict[str, str],
    meaning: Mapping[str, str],
) -> None:
    """Note what is to be said otherwise of a view that computes the same: its text, its options, the joins it shares.

    An event view goes on with other functions and settings, too: what it has gathered stays, and cannot be gone through once more.
    """
    said = definition or stored
    entry = replace(stored, sql=said.sql, properties=dict(said.properties), program=_alone(program), functions=calls)
    if stored.events and (dict(stored.functions) != calls or dict(stored.settings) != meaning):
        entry = replace(entry, settings=dict(meaning), since=-1)
    below = [replace(plan.head.entries[stage.view], program=_alone(stage)) for stage in program.stages]
    plan.entries |= {
        e.name: e for e in (*below, entry) if e != plan.head.entries[e.name] and e.name not in plan.entries
    }


def _reads(
    head: Snapshot, chosen: Mapping[str, Definition], relations: Mapping[str, Relation]
) -> dict[str, frozenset[str]]:
    """Find by its text what each view reads: the wanted ones, and all that are there."""
    named = {**relations, **{n: Relation(n, Kind.VIEW, ()) for n in chosen}}
    found = {name: text_reads(head, view, named) for name, view in head.views.items() if name not in chosen}
    for name, definition in chosen.items():
        try:
            found[name] = bind(definition.sql, named, place=definition.place, events=True)[1]
        except RunnelError as error:
            raise Refused(name, error) from error
    return found


def text_reads(head: Snapshot, view: ViewEntry, relations: Mapping[str, Relation]) -> frozenset[str]:
    """Find what a view reads: what its text names, whether or not its program has use for all of it."""
    below = [view, *(head.entries[name] for name in view.stages if name in head.entries)]
    read = {name for entry in below for name in entry.inputs} - set(view.stages)
    return frozenset(read) | bind(view.sql, relations, events=True)[1]


def _in_order(reads: Mapping[str, frozenset[str]], chosen: Mapping[str, Definition]) -> list[str]:
    """Put each view after those it reads; refuse a circle."""
    order: list[str] = []
    left = dict(reads)
    while left:
        free = [name for name, read in left.items() if not read & left.keys()]
        if not free:
            name = next(name for name in left if name in chosen)
            circle = ", ".join(sorted(reads[name] & left.keys()))
            error = Terminal(
                "RUNNEL-VIEW-CYCLE",
                f"view {name} reads {circle}, which reads {name}" if circle != name else f"view {name} reads itself",
                place=chosen[name].place,
                hint="break the cycle",
            )
            raise Refused(name, error)
        order += free
        left = {name: read for name, read in left.items() if name not in free}
    return order


def _compile(
    runtime: Runtime,
    name: str,
    definition: Definition | None,
    stored: ViewEntry | None,
    relations: Mapping[str, Relation],
) -> Program:
    """Compile a wanted view against everything there is, and one that only reads it against what it knows of its tables."""
    try:
        if definition is not None:
            mode = definition.properties.get("mode", "auto")
            program = _compiled(runtime, name, definition.sql, relations, mode, definition.place)
        else:
            assert stored is not None
            known = {n: as_seen(stored, relation) for n, relation in relations.items()}
            mode = stored.properties.get("mode", "auto")
            program = _compiled(runtime, name, stored.sql, known, mode, None)
        check_columns(name, program.columns)
    except RunnelError as error:
        raise Refused(name, error, "" if definition else f"view {name} stands against it: ") from error
    return program


def _compiled(
    runtime: Runtime, name: str, sql: str, relations: Mapping[str, Relation], mode: str, place: Place | None
) -> Program:
    """Compile a text; one whose program was found to give other rows than the text is recomputed instead."""
    program = compile_view(name, sql, relations, runtime.engine.analyse, mode, place, runtime.functions)
    why = proofs.condemned(runtime.lake, name, sql) if program.incremental and not program.events else ""
    if not why:
        return program
    if mode == "incremental":
        raise Terminal(
            "RUNNEL-VIEW-UNPROVED",
            f"view {name} cannot be kept incrementally, its proof failed: {why}",
            place=place,
            hint="use mode auto or full",
        )
    whole = compile_view(name, sql, relations, runtime.engine.analyse, "full", place, runtime.functions)
    return replace(whole, operators=(Operator("proof", Strategy.FULL, why, proofs.CODE),))


def as_seen(view: ViewEntry, relation: Relation) -> Relation:
    """Give a table with those of its columns that were there when a view over it was compiled."""
    seen = view.seen.get(relation.name)
    if seen is None:
        return relation
    return replace(relation, columns=tuple(c for c in relation.columns if c.name in seen))


def _same_program(runtime: Runtime, head: Snapshot, stored: ViewEntry, program: Program) -> bool:
    """Say whether a view is computed as before; which joins it could share with others makes no difference to it."""
    if not is_current(stored.program):
        return False
    there = [runtime.program(head.entries[name]) for name in stored.stages if name in head.entries]
    before = {part.view: _plain(part) for part in (*there, runtime.program(stored))}
    return before == {part.view: _plain(part) for part in (*program.stages, program)}


def _plain(program: Program) -> Program:
    return replace(program, stages=(), steps=tuple(replace(step, shared=None) for step in program.steps))


def _alone(program: Program) -> str:
    """Write a program as its entry keeps it: the stages below it have entries of their own."""
    return program_to_json(replace(program, stages=()))


def _entry(
    program: Program,
    said: Definition | ViewEntry | None,
    head: Snapshot,
    relations: Mapping[str, Relation],
    stored: ViewEntry | None,
) -> ViewEntry:
    assert said is not None
    named = bind(said.sql, relations, events=True)[1]
    read = {*named, *program.inputs, *(name for stage in program.stages for name in stage.inputs)}
    tables = [relations[n] for n in sorted(read) if n in relations and relations[n].kind is Kind.TABLE]
    if isinstance(said, ViewEntry):
        tables = [as_seen(said, table) for table in tables]
    return ViewEntry(
        program.view,
        said.sql,
        dict(said.properties),
        _alone(program),
        program.inputs,
        tuple(stage.view for stage in program.stages),
        head.epoch,
        seen={table.name: tuple(c.name for c in table.columns) for table in tables},
        events=program.events,
        since=head.epoch,
    )


def _choose_fresh(
    plan: Plan, changed: set[str], functions: Mapping[str, str], meaning: Mapping[str, str], again: frozenset[str]
) -> None:
    """List what must be computed: views that change, stages that are not there, and stages over something that changes."""
    made: dict[str, Program] = {}
    for name, program in plan.programs.items():
        if name not in changed:
            continue
        for stage in program.stages:
            over_changed = any(i in changed or i in made for i in stage.inputs)
            there = plan.head.entries.get(stage.view)
            stale = there is None or not is_current(there.program) or dict(there.settings) != meaning
            if stage.view not in made and (stale or over_changed or stage.view in again):
                made[stage.view] = stage
                entry = ViewEntry(stage.view, "", {}, _alone(stage), stage.inputs, (), plan.head.epoch)
                plan.entries[stage.view] = replace(
                    entry, functions=called(_text(stage), functions), settings=dict(meaning)
                )
        made[name] = program
    plan.fresh = list(made.values())


def stages_in_use(entries: Iterable[ViewEntry]) -> set[str]:
    """Give the stages that some view of these reads."""
    return {name for entry in entries if not is_stage(entry) for name in entry.stages}
