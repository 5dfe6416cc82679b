"""Event views: what may stand over `CHANGES(t)`, and the program of a view that only grows.

Only the changes themselves give terms. Everything joined to them is read as of the epoch itself, and gives none: an event
stays what it was when a table beside it changes later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from runnel.compiler import differentiate, emit
from runnel.compiler.changes import NEW, OLD, WORD, changes_in, changes_relation, source_of
from runnel.compiler.plan import Scan, Spj, UnionAll, relations
from runnel.compiler.resolve import find_relation, unknown_column
from runnel.errors import Terminal
from runnel.model.program import Strategy, Term
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from runnel.compiler.emit import Piece
    from runnel.compiler.plan import Node
    from runnel.compiler.source import SourceText
    from runnel.compiler.support import Finding
    from runnel.model.program import Step
    from runnel.model.relation import Relation

HINT = "keep the event view simple, and define another view over it"
_KEPT_BESIDE = ("having", "grouping sets", "pivot")


def sources(tree: exp.Expr, known: Mapping[str, Relation], text: SourceText) -> dict[str, Relation]:
    """Give the relations whose changes a query reads, by name."""
    found = [find_relation(source_of(table, text), known, text) for table in changes_in(tree)]
    return {relation.name: relation for relation in found}


def virtual(read: Mapping[str, Relation]) -> dict[str, Relation]:
    """Give what `CHANGES` of these relations looks like, by name."""
    return {made.name: made for made in map(changes_relation, read.values())}


def check(tree: exp.Expr, found: list[Finding], read: Mapping[str, Relation], mode: str, text: SourceText) -> None:
    """Refuse what cannot stand over `CHANGES`, and fields of `old` and `new` that no changed relation has."""
    if mode == "full":
        raise Terminal(
            "RUNNEL-VIEW-EVENTS-MODE",
            "an event view cannot be recomputed: what happened is in no table",
            place=text.place,
            hint="leave out mode = full",
        )
    for finding in found:
        beside = finding.support.feature in _KEPT_BESIDE
        if beside or finding.support.strategy in (Strategy.KEYS, Strategy.FULL):
            raise refused(finding, text)
    for column in tree.find_all(exp.Column):
        _check_field(column, read, text)


def _check_field(column: exp.Column, read: Mapping[str, Relation], text: SourceText) -> None:
    parts = [part.name for part in column.parts]
    at = next((i for i, part in enumerate(parts[:2]) if part.lower() in (OLD, NEW)), None)
    if at is None or at + 1 >= len(parts) or isinstance(column.this, exp.Star):
        return
    known = [c.name for relation in read.values() for c in relation.rows]
    if parts[at + 1].lower() not in {name.lower() for name in known}:
        raise unknown_column(column, parts[at + 1], known, text)


def spread(tree: exp.Expr, known: Mapping[str, Relation], text: SourceText) -> None:
    """Write the columns out that `old.*` and `new.*` stand for."""
    for table in changes_in(tree):
        select = table.find_ancestor(exp.Select)
        if select is None:
            continue
        names = [c.name for c in find_relation(source_of(table, text), known, text).rows]
        items: list[exp.Expr] = []
        for item in select.expressions:
            star = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
            items += [_field(item, n) for n in names] if star and item.table.lower() in (OLD, NEW) else [item]
        select.set("expressions", items)


def _field(star: exp.Column, name: str) -> exp.Column:
    column = star.copy()
    column.set("this", exp.to_identifier(name, quoted=True))
    return column


def refused(finding: Finding, text: SourceText) -> Terminal:
    """Make the error for a form that is not followed over `CHANGES`."""
    return Terminal(
        "RUNNEL-VIEW-EVENTS-FORM",
        f"{finding.what} cannot stand over {WORD}(...)",
        place=text.place_of(finding.node),
        hint=HINT,
    )


def no_stages(what: object) -> NoReturn:
    """Refuse whatever would have to be kept beside an event view."""
    raise Terminal(
        "RUNNEL-VIEW-EVENTS-FORM",
        f"over {WORD}(...) there may be filters, inner joins with tables and views, UNION ALL, and SUM, COUNT and AVG on top",
        hint=HINT,
    )


def only_events(step: Step, node: Node, virtual: Collection[str], text: SourceText) -> Step:
    """Let a step that was made of this plan follow the changes alone, and begin with nothing."""
    terms = tuple(Term(p.sql, p.deltas, p.reads) for p in _terms(node, virtual, text))
    empty = [f"CAST(NULL AS {c.type}) AS {emit.quoted(c.name)}" for c in step.target.columns]
    initial = f"SELECT {', '.join(empty)}, CAST(0 AS BIGINT) AS {emit.quoted(WEIGHT)} WHERE 1 = 0"
    return replace(step, terms=terms, initial=initial, initial_reads=frozenset(), shared=None)


def _terms(node: Node, virtual: Collection[str], text: SourceText) -> list[Piece]:
    carries = [not relations(part).isdisjoint(virtual) for part in _parts(node)]
    if isinstance(node, UnionAll):
        if not all(carries):
            raise _wrong(f"every branch of an event view's UNION ALL reads {WORD}(...)", text)
        return [term for branch in node.branches for term in _terms(branch, virtual, text)]
    if sum(carries) != 1:
        several = f"an event view joins {WORD}(...) of one table with tables and views, not with another {WORD}(...)"
        raise _wrong(several if any(carries) else f"the query does not read its {WORD}(...)", text)
    if isinstance(node, Scan):
        return [emit.scan(node, "delta")]
    at = carries.index(True)
    pieces = [differentiate.state(i.node, "new") for i in node.inputs]
    return [
        emit.select(node, [*pieces[:at], term, *pieces[at + 1 :]], lead=at)
        for term in _terms(node.inputs[at].node, virtual, text)
    ]


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Scan():
            return (node,)
        case Spj(inputs):
            return tuple(i.node for i in inputs)
        case UnionAll(branches):
            return branches


def _wrong(message: str, text: SourceText) -> Terminal:
    return Terminal("RUNNEL-VIEW-EVENTS-FORM", message, place=text.place, hint=HINT)
