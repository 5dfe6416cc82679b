"""Compiles a view: SQL text in, delta program out. It asks the engine only for the types of queries."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import differentiate, events, passes, plan, savings, support
from runnel.compiler.bind import bind, bind_tree
from runnel.compiler.calls import called
from runnel.compiler.definite import completed
from runnel.compiler.emit import quoted
from runnel.compiler.faithful import misread
from runnel.compiler.forms import bind_by_tokens, readable
from runnel.compiler.grouping import Grouped
from runnel.compiler.keyed import keyed_step
from runnel.compiler.lower import Lowering, lower
from runnel.compiler.outputs import check_outputs, improve
from runnel.compiler.parse import parse_query
from runnel.compiler.plan import Keyed
from runnel.compiler.resolve import base_tables, find_relation, refuse_input_names
from runnel.compiler.sharing import shared_join
from runnel.compiler.source import SourceText
from runnel.compiler.spark import DIALECT
from runnel.compiler.stages import aggregate_step
from runnel.compiler.support import Finding, NotLinear
from runnel.compiler.text_limits import MOST_FOLLOWED, tables_read, too_deep
from runnel.compiler.top import top_steps
from runnel.errors import Terminal, UsageError, nearest
from runnel.model import tokens, types
from runnel.model.identity import identical
from runnel.model.program import Operator, Program, Step, Strategy, Term, changes
from runnel.model.relation import WEIGHT, Column, Kind, Relation, is_alias

if TYPE_CHECKING:
    from runnel.compiler.emit import Piece
    from runnel.compiler.lower import Kept
    from runnel.compiler.plan import Node, Top
    from runnel.errors import Place
    from runnel.model.program import Role

Analyse = Callable[[str, Mapping[str, tuple[Column, ...]]], tuple[Column, ...]]
MODES = ("auto", "incremental", "full")
_WEIGHT = Column(WEIGHT, types.BIGINT)


@dataclass
class _Compilation:
    """One view being compiled: its text, what it may read, and the stages found so far."""

    name: str
    text: SourceText
    tree: exp.Query
    relations: Mapping[str, Relation]
    analyse: Analyse
    stages: list[Program] = field(default_factory=list)
    known: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    functions: Mapping[str, str] = field(default_factory=dict)
    saved: list[savings.Found] = field(default_factory=list)

    def typed(self, node: Node) -> tuple[Column, ...]:
        """Ask the engine for a plan's column types."""
        return self.columns(differentiate.state(node, "new"))

    def columns(self, piece: Piece) -> tuple[Column, ...]:
        if piece.sql not in self.known:
            tables = {f"{name}__{role}": (*self.relation(name).rows, _WEIGHT) for name, role in piece.reads}
            self.known[piece.sql] = tuple(c for c in self.analyse(piece.sql, tables) if c.name != WEIGHT)
        return self.known[piece.sql]

    def relation(self, name: str) -> Relation:
        return next((s.relation for s in self.stages if s.view == name), None) or self.relations[name]

    def aggregate(self, grouped: Grouped) -> Relation:
        """Keep an aggregate beside the view."""
        self.saved += savings.in_plan(grouped.aggregate.source)
        step = aggregate_step(PLACEHOLDER, Kind.STAGE, grouped, self.typed)
        return self.stage((step,), (Operator("aggregate", Strategy.LINEAR, "sums kept beside the view"),))

    def keyed(self, keyed: Keyed) -> Relation:
        """Keep a keyed operator's rows beside the view."""
        self.saved += [found for feed in keyed.feeds for found in savings.in_plan(feed.node)]
        step = keyed_step(PLACEHOLDER, Kind.STAGE, keyed, self.typed, self.analyse)
        return self.stage((step,), (Operator(keyed.feature, Strategy.KEYS, "touched keys are computed again"),))

    def top(self, top: Top) -> Relation:
        """Keep the first rows of each group beside the view."""
        self.saved += savings.in_plan(top.source)
        steps = top_steps(PLACEHOLDER, top, self.typed)
        return self.stage(steps, (Operator("first rows", Strategy.KEYS, "kept with some to spare"),))

    def stage(self, steps: tuple[Step, ...], operators: tuple[Operator, ...]) -> Relation:
        """Keep a relation beside the view; an equal one, of this view or another, is kept once."""
        name = _content_name(steps, self.functions)
        named = tuple(_renamed(step, name) for step in steps)
        if all(known.view != name for known in self.stages):
            target = named[-1].target
            strategy = max((o.strategy for o in operators), key=list(Strategy).index)
            self.stages.append(Program(name, target.rows, strategy, named, _inputs(named), operators))
        return named[-1].target


PLACEHOLDER = f"#{uuid.uuid4().hex}"
"""What a stage is called until its content gives it a name. No user can have written it: it is another in each process."""


def _content_name(steps: tuple[Step, ...], functions: Mapping[str, str]) -> str:
    """Name a stage by all that it is, the bodies of users' functions too; the numbers of aliases inside it do not count."""
    numbers: dict[str, str] = {}

    def plain(sql: str) -> str:
        found = {n: numbers.setdefault(n, f"#{len(numbers)}") for n in tokens.parts(sql)[1] if is_alias(n)}
        return tokens.replace_names(sql, {**found, **_stage_names(sql, "#")})

    what = [
        (
            replace(s.target, name=_spelled(s.target.name, "#")),
            plain(s.initial),
            [plain(piece) for piece in s.around],
            [plain(term.sql) for term in s.terms],
        )
        for s in steps
    ]
    bodies = called("\n".join(step.text for step in steps), functions)
    return "#" + hashlib.sha256(repr((what, bodies)).encode()).hexdigest()[:12]


def _spelled(relation: str, name: str) -> str:
    """Give the name of a stage, or of what a step of it finds out, where its own name is known."""
    return name + relation.removeprefix(PLACEHOLDER) if relation.startswith(PLACEHOLDER) else relation


def _stage_names(sql: str, name: str) -> dict[str, str]:
    return {found: _spelled(found, name) for found in tokens.quoted_names(sql) if found.startswith(PLACEHOLDER)}


def _renamed(step: Step, name: str) -> Step:
    """Call a stage by its own name wherever its steps speak of it."""

    def spelled(sql: str) -> str:
        return tokens.replace_names(sql, _stage_names(sql, name))

    def reads(found: frozenset[tuple[str, Role]]) -> frozenset[tuple[str, Role]]:
        return frozenset((_spelled(relation, name), role) for relation, role in found)

    def term(t: Term) -> Term:
        return Term(spelled(t.sql), frozenset(_spelled(d, name) for d in t.deltas), reads(t.reads))

    return replace(
        step,
        target=replace(step.target, name=_spelled(step.target.name, name)),
        terms=tuple(term(t) for t in step.terms),
        initial=spelled(step.initial),
        grown=spelled(step.grown),
        brief=tuple(spelled(piece) for piece in step.brief),
        initial_reads=reads(step.initial_reads),
        around=tuple(spelled(piece) for piece in step.around),
        around_reads=reads(step.around_reads),
        extra=tuple(term(t) for t in step.extra),
    )


def compile_view(
    name: str,
    sql: str,
    relations: Mapping[str, Relation],
    analyse: Analyse,
    mode: str = "auto",
    place: Place | None = None,
    functions: Mapping[str, str] | None = None,
) -> Program:
    """Compile a view's SELECT; raise `Terminal` with code, place and hint for what is wrong or refused.

    `functions` are the users' own that the engine knows, each with the fingerprint of its body.
    `mode` is `auto` (incremental where possible), `incremental` (refuse what is not) or `full` (always recompute).
    """
    if mode not in MODES:
        raise UsageError(
            "RUNNEL-VIEW-MODE",
            f"unknown mode {mode!r}",
            place=place,
            hint=nearest(mode, MODES) or f"use {', '.join(MODES)}",
        )
    try:
        return _compiled(name, sql, relations, analyse, mode, place, functions)
    except RecursionError as error:
        raise too_deep(place) from error


def _compiled(
    name: str,
    sql: str,
    relations: Mapping[str, Relation],
    analyse: Analyse,
    mode: str,
    place: Place | None,
    functions: Mapping[str, str] | None,
) -> Program:
    text = SourceText(readable(sql), place)
    try:
        tree = parse_query(text.sql, place)
    except Terminal as error:
        if error.code in ("RUNNEL-VIEW-SIZE", "RUNNEL-NAME-CHARACTER"):
            raise
        return _unread(name, text, relations, analyse, mode, error)
    found = support.findings(tree)
    support.refuse([*found, *support.unsteady_findings(tree, relations)], text)
    by_name = {relation.name: relation for relation in relations.values()}
    refuse_input_names(tree, [find_relation(table, by_name, text).name for table in base_tables(tree)], text)
    read = events.sources(tree, by_name, text)
    compilation = _Compilation(name, text, tree, {**by_name, **events.virtual(read)}, analyse)
    compilation.functions = functions or {}
    unlike = misread(text.sql, tree)
    hurdles = [NotLinear("unknown form", tree, f"this query, for as it is read {unlike},").finding] if unlike else []
    if read:
        if hurdles:
            raise events.refused(hurdles[0], text)
        events.check(tree, found, read, mode, text)
        events.spread(tree, by_name, text)
        return _event_view(compilation, found, tuple(read))
    hurdles += [f for f in found if f.support.strategy is Strategy.FULL]
    if mode == "full":
        return _full(compilation, [Finding(support.BY_FEATURE["forced"], tree, "recompute"), *found])
    if not hurdles and tables_read(tree) > MOST_FOLLOWED:
        hurdles = [NotLinear("size", tree, f"a query that reads {tables_read(tree)} tables").finding]
    if not hurdles:
        written = tree.copy()  # lowering makes open choices in the tree, and may stop half-way
        try:
            return _incremental(compilation, found)
        except NotLinear as signal:
            hurdles = [signal.finding]
            compilation.tree = written
        except Terminal as error:
            compilation.tree = written
            hurdles = [_misread(compilation, error)]
    if mode == "incremental":
        raise support.not_incremental(hurdles[0], text)
    return _full(compilation, [*hurdles, *(f for f in found if f not in hurdles)])


def _unread(
    name: str, text: SourceText, relations: Mapping[str, Relation], analyse: Analyse, mode: str, error: Terminal
) -> Program:
    """Recompute a query that Spark reads and our parser does not; raise the parser's complaint where Spark has one too."""
    by_name = {relation.name: relation for relation in relations.values() if relation.kind is not Kind.STAGE}
    found = bind_by_tokens(text.sql, by_name, "rows")
    if found is None:
        raise error
    support.refuse_unread(text)
    bound, read = found
    try:
        columns = analyse(f"SELECT * FROM (\n{bound}\n)", {f"{n}__rows": by_name[n].rows for n in read})
    except Terminal:
        raise error from None
    hurdle = Finding(support.BY_FEATURE["unknown form"], exp.Select(), "a form that only Spark reads")
    if mode == "incremental":
        raise support.not_incremental(hurdle, text)
    check_outputs(name, tuple(c.name for c in columns), exp.Select(), text, named=True)
    return _recomputed(name, columns, bound, read, (hurdle.operator,))


def _misread(compilation: _Compilation, error: Terminal) -> Finding:
    """Raise the complaint of whoever is right: a query that the engine accepts is only not understood here."""
    try:
        _analysed(compilation)
    except Terminal as theirs:
        unknown = any(word in theirs.message.lower() for word in ("routine", "function with name"))
        mine = error.code.startswith("RUNNEL-VIEW-") and not (error.code == "RUNNEL-VIEW-GROUP" and unknown)
        raise (error if mine else theirs) from error
    if error.code in ("RUNNEL-VIEW-UNION", "RUNNEL-VIEW-REFUSED"):
        raise error
    return NotLinear("unknown form", compilation.tree, f"this query ({error.message})").finding


def _incremental(compilation: _Compilation, found: list[Finding]) -> Program:
    c = compilation
    context = Lowering(c.text, c.relations, c.aggregate, c.keyed, c.top, c.typed)
    context.definite = _make_definite(compilation)
    context.remember(compilation.tree)
    lowered, names = lower(context, compilation.tree)
    check_outputs(compilation.name, names, compilation.tree, compilation.text)
    lowered = _shown(lowered, names, context)
    if isinstance(lowered, Grouped):
        step = aggregate_step(compilation.name, Kind.VIEW, lowered, compilation.typed)
    elif isinstance(lowered, Keyed):
        step = keyed_step(compilation.name, Kind.VIEW, lowered, compilation.typed, compilation.analyse)
    else:
        step = _bag_step(compilation, lowered, names)
    _check_types(compilation, step.target)
    stages = _used(compilation.stages, step)
    operators = (*_operators(compilation, found, stages), *_saved(compilation, context, lowered, (step, *stages)))
    if isinstance(lowered, Keyed):
        operators = (*operators, Operator(lowered.feature, Strategy.KEYS, "touched keys are computed again"))
    return Program(
        compilation.name,
        step.target.rows,
        Strategy.KEYS if any(o.strategy is Strategy.KEYS for o in operators) else Strategy.LINEAR,
        (step,),
        _inputs((step,)),
        operators,
        stages,
        compilation.tree.sql(dialect=DIALECT, comments=False) if context.definite else "",
    )


def _shown(lowered: Kept, names: tuple[str, ...], context: Lowering) -> Kept:
    """Give the columns of a view the names the user gave them."""
    if isinstance(lowered, Grouped):
        return replace(lowered, outputs=tuple((n, what) for n, (_, what) in zip(names, lowered.outputs, strict=True)))
    if lowered.names == names:
        return lowered
    if not isinstance(lowered, Keyed):
        return plan.renamed(lowered, context.alias(), dict(zip(names, lowered.names, strict=True)))
    now = dict(zip(lowered.names, names, strict=True))
    listed = ", ".join(f"{quoted(inner)} AS {quoted(name)}" for inner, name in now.items())
    sql = f"SELECT {listed} FROM (\n{lowered.sql}\n)"
    return replace(lowered, sql=sql, names=names, keys=tuple(now[k] for k in lowered.keys))


def _saved(
    compilation: _Compilation, context: Lowering, lowered: Kept, parts: tuple[Step | Program, ...]
) -> tuple[Operator, ...]:
    """Say what declared keys spare the view and the stages below it."""
    steps = [step for part in parts for step in (part.steps if isinstance(part, Program) else (part,))]
    if isinstance(lowered, Grouped):
        nodes = [lowered.aggregate.source]
    else:
        nodes = [feed.node for feed in lowered.feeds] if isinstance(lowered, Keyed) else [lowered]
    left_out = [found for node in nodes for found in savings.in_plan(node)]
    return savings.operators([*context.saved, *compilation.saved, *left_out, *savings.in_steps(steps)])


def _event_view(compilation: _Compilation, found: list[Finding], read: tuple[str, ...]) -> Program:
    """Compile a view over `CHANGES(...)`: it follows those alone, keeps nothing beside it, and is never recomputed."""
    c, refuse = compilation, events.no_stages
    try:
        context = Lowering(c.text, c.relations, refuse, refuse, refuse, c.typed)
        lowered, names = lower(context, c.tree)
        check_outputs(c.name, names, c.tree, c.text)
        lowered = _shown(lowered, names, context)
        if isinstance(lowered, Keyed):
            refuse(lowered)
        if isinstance(lowered, Grouped):
            step, source = aggregate_step(c.name, Kind.VIEW, lowered, c.typed), lowered.aggregate.source
        else:
            step, source = _bag_step(c, lowered, names), lowered
        step = events.only_events(step, passes.run(source), {changes(name) for name in read}, c.text)
        _check_types(c, step.target)
    except NotLinear as signal:
        raise events.refused(signal.finding, c.text) from signal
    except Terminal as error:
        if not error.code.startswith("RUNNEL-VIEW-"):
            _analysed(c)  # where the user's own text is wrong, this says it better
        raise
    beside = {name for term in step.terms for name, role in term.reads if role != "delta"}
    operators = (*(Operator(f"scan {changes(name)}", Strategy.LINEAR) for name in read), *_operators(c, found, ()))
    inputs = tuple(sorted({*beside, *read}))
    return Program(c.name, step.target.rows, Strategy.LINEAR, (step,), inputs, operators, events=read)


def _make_definite(compilation: _Compilation) -> bool:
    """Make the choices the query leaves open, unless a type does not allow it; say whether there were any."""
    tree = completed(compilation.tree)
    if tree is None:
        return False
    text = tree.sql(dialect=DIALECT, comments=False)
    bound, read = bind(text, compilation.relations)
    try:
        compilation.analyse(bound, {f"{name}__rows": compilation.relations[name].rows for name in read})
    except Terminal:
        return False
    compilation.tree = tree
    return True


def _used(stages: list[Program], step: Step) -> tuple[Program, ...]:
    """Leave out stages that turned out not to be needed."""
    wanted = set(_inputs((step,)))
    for stage in reversed(stages):
        if stage.view in wanted:
            wanted |= set(stage.inputs)
    return tuple(stage for stage in stages if stage.view in wanted)


def _bag_step(compilation: _Compilation, lowered: Node, names: tuple[str, ...]) -> Step:
    node = passes.run(lowered)
    initial = differentiate.state(node, "new")
    given = compilation.columns(initial)
    target = Relation(compilation.name, Kind.VIEW, tuple(Column(n, c.type) for n, c in zip(names, given, strict=True)))
    terms = tuple(Term(p.sql, p.deltas, p.reads) for p in differentiate.delta(node))
    if not plan.takes_away(node):
        return Step(target, terms, initial.sql, initial.reads, shared=shared_join(lowered))
    columns, by = identical(given)
    weight = quoted(WEIGHT)
    net = (
        f"SELECT {columns}, CAST(sum({weight}) AS BIGINT) AS {weight} FROM (\n",
        f"\n) GROUP BY {by} HAVING sum({weight}) <> 0",
    )
    return Step(target, terms, initial.sql.join(net), initial.reads, net)


def _check_types(compilation: _Compilation, target: Relation) -> None:
    """Make sure that the program gives what the user's own text gives; widths of numbers may differ off Spark."""
    given = _analysed(compilation)[0]
    names = [[column.name.lower() for column in columns] for columns in (target.rows, given)]
    if names[0] != names[1] and sorted(names[0]) == sorted(names[1]) and _off_spark(compilation.analyse):
        given = tuple(sorted(given, key=lambda column: names[0].index(column.name.lower())))
    elif names[0] != names[1]:
        raise NotLinear(
            "type changed by rewriting", compilation.tree, f"{', '.join(names[0])} for {', '.join(names[1])}"
        )
    for mine, theirs in zip(target.rows, given, strict=True):
        if mine.type != theirs.type and not (_is_number(mine) and _is_number(theirs)):
            raise NotLinear(
                "type changed by rewriting", compilation.tree, f"{mine.name} as {mine.type} for {theirs.type}"
            )


def _off_spark(analyse: Analyse) -> bool:
    """Say whether a test asks another engine than Spark, which has another order for columns joined by USING."""
    return getattr(getattr(analyse, "__self__", None), "name", "spark") != "spark"


def _is_number(column: Column) -> bool:
    return column.type.name in (*types.INTEGERS, *types.FLOATS, "decimal")


def _analysed(compilation: _Compilation) -> tuple[tuple[Column, ...], str, frozenset[str]]:
    """Ask the engine about the user's own text; give its columns, the bound text and what it reads."""
    bound, read = bind_tree(compilation.tree, compilation.text, compilation.relations, events=True)
    virtual = [changes(name) for name in read if changes(name) in compilation.relations]
    tables = {f"{name}__rows": compilation.relations[name].rows for name in (*read, *virtual)}
    try:
        return compilation.analyse(bound, tables), bound, read
    except Terminal as error:
        known = [compilation.relations[name] for name in sorted([*read, *virtual])]
        raise improve(error, compilation.tree, known, compilation.text, compilation.functions) from error


def _full(compilation: _Compilation, found: list[Finding]) -> Program:
    columns, bound, read = _analysed(compilation)
    check_outputs(compilation.name, tuple(c.name for c in columns), compilation.tree, compilation.text, named=True)
    operators = tuple(f.operator for f in found if f.support.strategy is Strategy.FULL)
    return _recomputed(compilation.name, columns, bound, read, operators)


def _recomputed(
    view: str, columns: tuple[Column, ...], bound: str, read: frozenset[str], operators: tuple[Operator, ...]
) -> Program:
    names = ", ".join(quoted(c.name) for c in columns)
    initial = f"SELECT {names}, CAST(1 AS BIGINT) AS {quoted(WEIGHT)} FROM (\n{bound}\n)"
    target = Relation(view, Kind.VIEW, columns)
    reads: frozenset[tuple[str, Role]] = frozenset((name, "rows") for name in read)
    step = Step(target, (), initial, reads)
    return Program(view, columns, Strategy.FULL, (step,), tuple(sorted(read)), operators)


def _inputs(steps: tuple[Step, ...]) -> tuple[str, ...]:
    own = {step.target.name for step in steps}
    return tuple(sorted({name for step in steps for name, _ in step.initial_reads} - own))


def _operators(compilation: _Compilation, found: list[Finding], kept: tuple[Program, ...]) -> tuple[Operator, ...]:
    tables = {find_relation(t, compilation.relations, compilation.text).name for t in base_tables(compilation.tree)}
    scans = [Operator(f"scan {name}", Strategy.LINEAR) for name in sorted(tables)]
    stages = [Operator(f"stage {stage.view}", stage.strategy, stage.operators[0].reason) for stage in kept]
    return (*scans, *(f.operator for f in found), Operator("project", Strategy.LINEAR), *stages)
