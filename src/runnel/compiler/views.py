"""Compiles a view: SQL text in, delta program out. It asks the engine only for the types of queries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.compiler import differentiate, passes, support
from runnel.compiler.bind import bind_tree
from runnel.compiler.emit import quoted
from runnel.compiler.grouping import Grouped
from runnel.compiler.lower import Lowering, lower
from runnel.compiler.outputs import check_outputs, improve
from runnel.compiler.parse import parse_query
from runnel.compiler.resolve import base_tables, find_relation
from runnel.compiler.source import SourceText
from runnel.compiler.stages import aggregate_step
from runnel.compiler.support import Finding, NotLinear
from runnel.errors import Terminal, UsageError, nearest
from runnel.model import types
from runnel.model.program import Operator, Program, Step, Strategy, Term
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from sqlglot import exp

    from runnel.compiler.emit import Piece
    from runnel.compiler.plan import Node
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

    def typed(self, node: Node) -> tuple[Column, ...]:
        """Ask the engine for a plan's column types."""
        return self.columns(differentiate.state(node, "new"))

    def columns(self, piece: Piece) -> tuple[Column, ...]:
        tables = {f"{name}__{role}": (*self.relation(name).rows, _WEIGHT) for name, role in piece.reads}
        return tuple(c for c in self.analyse(piece.sql, tables) if c.name != WEIGHT)

    def relation(self, name: str) -> Relation:
        return next((s.relation for s in self.stages if s.view == name), None) or self.relations[name]

    def aggregate(self, grouped: Grouped) -> Relation:
        """Keep an aggregate beside the view."""
        step = aggregate_step(PLACEHOLDER, Kind.STAGE, grouped, self.typed)
        return self.stage((step,), (Operator("aggregate", Strategy.LINEAR, "sums kept beside the view"),))

    def stage(self, steps: tuple[Step, ...], operators: tuple[Operator, ...]) -> Relation:
        """Keep a relation beside the view; an equal one, of this view or another, is kept once."""
        name = _content_name(steps)
        named = tuple(_renamed(step, name) for step in steps)
        if all(known.view != name for known in self.stages):
            target = named[-1].target
            strategy = max((o.strategy for o in operators), key=list(Strategy).index)
            self.stages.append(Program(name, target.rows, strategy, named, _inputs(named), operators))
        return named[-1].target


PLACEHOLDER = "#stage"
"""What a stage is called until its content gives it a name."""


def _content_name(steps: tuple[Step, ...]) -> str:
    """Name a stage by all that it is; the numbers of aliases inside it do not count."""
    numbers: dict[str, str] = {}
    text = "\0".join(repr((s.target, s.initial, s.around, [t.sql for t in s.terms])) for s in steps)
    plain = re.sub(
        r"`t\d+`|BROADCAST\(t\d+\)", lambda m: numbers.setdefault(re.sub(r"\D", "", m[0]), f"#{len(numbers)}"), text
    )
    return "#" + hashlib.sha256(plain.encode()).hexdigest()[:12]


def _renamed(step: Step, name: str) -> Step:
    """Call a stage by its own name wherever its steps speak of it."""

    def spelled(text: str) -> str:
        return text.replace(PLACEHOLDER, name)

    def reads(found: frozenset[tuple[str, Role]]) -> frozenset[tuple[str, Role]]:
        return frozenset((spelled(relation), role) for relation, role in found)

    def term(t: Term) -> Term:
        return Term(spelled(t.sql), frozenset(spelled(d) for d in t.deltas), reads(t.reads))

    return replace(
        step,
        target=replace(step.target, name=spelled(step.target.name)),
        terms=tuple(term(t) for t in step.terms),
        initial=spelled(step.initial),
        initial_reads=reads(step.initial_reads),
        around=spelled(step.around),
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
) -> Program:
    """Compile a view's SELECT; raise `Terminal` with code, place and hint for what is wrong or refused.

    `mode` is `auto` (incremental where possible), `incremental` (refuse what is not) or `full` (always recompute).
    """
    if mode not in MODES:
        raise UsageError(
            "RUNNEL-VIEW-MODE",
            f"unknown mode {mode!r}",
            place=place,
            hint=nearest(mode, MODES) or f"use {', '.join(MODES)}",
        )
    text = SourceText(sql, place)
    tree = parse_query(sql, place)
    found = support.findings(tree)
    support.refuse(found, text)
    by_name = {relation.name: relation for relation in relations.values()}
    for table in base_tables(tree):
        find_relation(table, by_name, text)
    compilation = _Compilation(name, text, tree, by_name, analyse)
    hurdles = [f for f in found if f.support.strategy is Strategy.FULL]
    if mode == "full":
        return _full(compilation, [Finding(support.BY_FEATURE["forced"], tree, "recompute"), *found])
    if not hurdles:
        try:
            return _linear(compilation, found)
        except NotLinear as signal:
            hurdles = [signal.finding]
        except Terminal as error:
            if not error.code.startswith("RUNNEL-VIEW-"):
                _analysed(compilation)  # the engine's complaint about the user's own text is the better one
            raise
    if mode == "incremental":
        raise support.not_incremental(hurdles[0], text)
    return _full(compilation, [*hurdles, *(f for f in found if f not in hurdles)])


def _linear(compilation: _Compilation, found: list[Finding]) -> Program:
    context = Lowering(compilation.text, compilation.relations, compilation.aggregate, compilation.typed)
    lowered, names = lower(context, compilation.tree)
    check_outputs(compilation.name, names, compilation.tree, compilation.text)
    if isinstance(lowered, Grouped):
        step = aggregate_step(compilation.name, Kind.VIEW, lowered, compilation.typed)
    else:
        step = _bag_step(compilation, lowered, names)
    _check_types(compilation, step.target)
    return Program(
        compilation.name,
        step.target.rows,
        Strategy.LINEAR,
        (step,),
        _inputs((step,)),
        _operators(compilation, found),
        tuple(compilation.stages),
    )


def _bag_step(compilation: _Compilation, lowered: Node, names: tuple[str, ...]) -> Step:
    node = passes.run(lowered)
    initial = differentiate.state(node, "new")
    given = compilation.columns(initial)
    target = Relation(compilation.name, Kind.VIEW, tuple(Column(n, c.type) for n, c in zip(names, given, strict=True)))
    terms = tuple(Term(p.sql, p.deltas, p.reads) for p in differentiate.delta(node))
    return Step(target, terms, initial.sql, initial.reads)


def _check_types(compilation: _Compilation, target: Relation) -> None:
    """Make sure that the program gives what the user's own text gives; widths of numbers may differ off Spark."""
    for mine, theirs in zip(target.rows, _analysed(compilation)[0], strict=True):
        if mine.type != theirs.type and not (_is_number(mine) and _is_number(theirs)):
            raise NotLinear(
                "type changed by rewriting", compilation.tree, f"{mine.name} as {mine.type} for {theirs.type}"
            )


def _is_number(column: Column) -> bool:
    return column.type.name in (*types.INTEGERS, *types.FLOATS, "decimal")


def _analysed(compilation: _Compilation) -> tuple[tuple[Column, ...], str, frozenset[str]]:
    """Ask the engine about the user's own text; give its columns, the bound text and what it reads."""
    bound, read = bind_tree(compilation.tree, compilation.text, compilation.relations)
    tables = {f"{name}__rows": compilation.relations[name].rows for name in read}
    try:
        return compilation.analyse(bound, tables), bound, read
    except Terminal as error:
        known = [compilation.relations[name] for name in sorted(read)]
        raise improve(error, compilation.tree, known, compilation.text) from error


def _full(compilation: _Compilation, found: list[Finding]) -> Program:
    columns, bound, read = _analysed(compilation)
    check_outputs(compilation.name, tuple(c.name for c in columns), compilation.tree, compilation.text, named=True)
    names = ", ".join(quoted(c.name) for c in columns)
    initial = f"SELECT {names}, CAST(1 AS BIGINT) AS {quoted(WEIGHT)} FROM (\n{bound}\n)"
    target = Relation(compilation.name, Kind.VIEW, columns)
    reads: frozenset[tuple[str, Role]] = frozenset((name, "rows") for name in read)
    operators = tuple(f.operator for f in found if f.support.strategy is Strategy.FULL)
    return Program(
        compilation.name, columns, Strategy.FULL, (Step(target, (), initial, reads),), tuple(sorted(read)), operators
    )


def _inputs(steps: tuple[Step, ...]) -> tuple[str, ...]:
    own = {step.target.name for step in steps}
    return tuple(sorted({name for step in steps for name, _ in step.initial_reads} - own))


def _operators(compilation: _Compilation, found: list[Finding]) -> tuple[Operator, ...]:
    tables = {find_relation(t, compilation.relations, compilation.text).name for t in base_tables(compilation.tree)}
    scans = [Operator(f"scan {name}", Strategy.LINEAR) for name in sorted(tables)]
    stages = [
        Operator(f"stage {stage.view}", stage.strategy, stage.operators[0].reason) for stage in compilation.stages
    ]
    return (*scans, *(f.operator for f in found), Operator("project", Strategy.LINEAR), *stages)
