"""Programs as JSON text and back, so that a program is stored with the view it keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from runnel.model import types
from runnel.model.program import Operator, Program, Shared, Step, Strategy, Term
from runnel.model.relation import Column, Final, Kind, Merged, Relation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.model.program import Role

VERSION = 5


def program_to_json(program: Program) -> str:
    """Write a program; equal programs give equal text."""
    return json.dumps({"version": VERSION, **_program_out(program)}, sort_keys=True)


def is_current(text: str) -> bool:
    """Say whether a program was written by this version, so that it can be read back."""
    return bool(json.loads(text).get("version") == VERSION)


def program_from_json(text: str) -> Program:
    """Read a program back."""
    return _program_in(json.loads(text))


def _program_out(program: Program) -> dict[str, Any]:
    return {
        "view": program.view,
        "columns": _columns_out(program.columns),
        "strategy": program.strategy.value,
        "steps": [_step_out(step) for step in program.steps],
        "inputs": list(program.inputs),
        "operators": [[o.name, o.strategy.value, o.reason, o.code] for o in program.operators],
        "stages": [_program_out(stage) for stage in program.stages],
        "definite": program.definite,
        **({"events": list(program.events)} if program.events else {}),
    }


def _program_in(data: dict[str, Any]) -> Program:
    return Program(
        data["view"],
        _columns_in(data["columns"]),
        Strategy(data["strategy"]),
        tuple(_step_in(step) for step in data["steps"]),
        tuple(data["inputs"]),
        tuple(Operator(name, Strategy(strategy), reason, code) for name, strategy, reason, code in data["operators"]),
        tuple(_program_in(stage) for stage in data["stages"]),
        data["definite"],
        tuple(data.get("events", ())),
    )


def relation_to_json(relation: Relation) -> dict[str, Any]:
    """Give a relation as plain data."""
    final = relation.final
    return {
        "name": relation.name,
        "kind": relation.kind.value,
        "columns": _columns_out(relation.columns),
        "key": list(relation.key),
        "final": None
        if final is None
        else {
            "columns": _columns_out(final.columns),
            "spark": list(final.spark),
            "duckdb": list(final.duckdb),
            "bands": list(final.bands),
            "merged": [[m.name, m.spark, m.duckdb, m.window] for m in final.merged],
        },
    }


def relation_from_json(data: dict[str, Any]) -> Relation:
    """Make a relation from plain data."""
    final = data["final"]
    return Relation(
        data["name"],
        Kind(data["kind"]),
        _columns_in(data["columns"]),
        tuple(data["key"]),
        None if final is None else _final_in(final),
    )


def _final_in(data: dict[str, Any]) -> Final:
    return Final(
        _columns_in(data["columns"]),
        tuple(data["spark"]),
        tuple(data["duckdb"]),
        tuple(data.get("bands", ())),
        tuple(Merged(*merged) for merged in data.get("merged", ())),
    )


def _step_out(step: Step) -> dict[str, Any]:
    return {
        "target": relation_to_json(step.target),
        "terms": [_term_out(term) for term in step.terms],
        "initial": step.initial,
        "grown": step.grown,
        "initial_reads": _reads_out(step.initial_reads),
        "around": list(step.around),
        "around_reads": _reads_out(step.around_reads),
        "extra": [_term_out(term) for term in step.extra],
        "stored": step.stored,
        **({"brief": list(step.brief), "unless": step.unless} if step.brief else {}),
        "shared": None
        if step.shared is None
        else {
            "relation": relation_to_json(step.shared.relation),
            "terms": [_term_out(term) for term in step.shared.terms],
            "term": _term_out(step.shared.term),
        },
    }


def _step_in(data: dict[str, Any]) -> Step:
    return Step(
        relation_from_json(data["target"]),
        tuple(_term_in(term) for term in data["terms"]),
        data["initial"],
        _reads_in(data["initial_reads"]),
        tuple(data["around"]),
        _reads_in(data["around_reads"]),
        tuple(_term_in(term) for term in data["extra"]),
        data["stored"],
        None if data["shared"] is None else _shared_in(data["shared"]),
        data.get("grown", ""),
        tuple(data.get("brief", ())),
        data.get("unless", ""),
    )


def _shared_in(data: dict[str, Any]) -> Shared:
    terms = tuple(_term_in(term) for term in data["terms"])
    return Shared(relation_from_json(data["relation"]), terms, _term_in(data["term"]))


def _term_out(term: Term) -> dict[str, Any]:
    return {"sql": term.sql, "deltas": sorted(term.deltas), "reads": _reads_out(term.reads)}


def _term_in(data: dict[str, Any]) -> Term:
    return Term(data["sql"], frozenset(data["deltas"]), _reads_in(data["reads"]))


def _columns_out(columns: Iterable[Column]) -> list[list[str]]:
    return [[c.name, str(c.type)] for c in columns]


def _columns_in(data: list[list[str]]) -> tuple[Column, ...]:
    return tuple(Column(name, types.parse(type_)) for name, type_ in data)


def _reads_out(reads: frozenset[tuple[str, Role]]) -> list[list[str]]:
    return sorted([name, role] for name, role in reads)


def _reads_in(data: list[list[str]]) -> frozenset[tuple[str, Role]]:
    return frozenset((name, cast("Role", role)) for name, role in data)
