"""Compiles a view: SQL text in, delta program out. It asks the engine only for the types of queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    stages: list[Step] = field(default_factory=list)

    def typed(self, node: Node) -> tuple[Column, ...]:
        """Ask the engine for a plan's column types."""
        return self.columns(differentiate.state(node, "new"))

    def columns(self, piece: Piece) -> tuple[Column, ...]:
        tables = {f"{name}__{role}": (*self.relation(name).rows, _WEIGHT) for name, role in piece.reads}
        return tuple(c for c in self.analyse(piece.sql, tables) if c.name != WEIGHT)

    def relation(self, name: str) -> Relation:
        return next((s.target for s in self.stages if s.target.name == name), None) or self.relations[name]

    def stage(self, grouped: Grouped) -> Relation:
        """Keep an aggregate inside the view; an equal one is kept once."""
        step = aggregate_step(f"{self.name}#{len(self.stages) + 1}", Kind.STAGE, grouped, self.typed)
        for known in self.stages:
            if _same_text(known.initial, step.initial) and known.target.final == step.target.final:
                return known.target
        self.stages.append(step)
        return step.target


def _same_text(one: str, other: str) -> bool:
    """Say whether two queries differ at most in the names of their inputs' aliases."""

    def plain(sql: str) -> str:
        numbers: dict[str, str] = {}
        return re.sub(
            r"`t\d+`|BROADCAST\(t\d+\)", lambda m: numbers.setdefault(re.sub(r"\D", "", m[0]), f"#{len(numbers)}"), sql
        )

    return plain(one) == plain(other)


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
    context = Lowering(compilation.text, compilation.relations, compilation.stage, compilation.typed)
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
        (*compilation.stages, step),
        _inputs((*compilation.stages, step)),
        _operators(compilation, found),
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
        Operator(f"stage {step.target.name}", Strategy.LINEAR, "sums kept inside the view")
        for step in compilation.stages
    ]
    return (*scans, *(f.operator for f in found), Operator("project", Strategy.LINEAR), *stages)
