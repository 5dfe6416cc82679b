"""Writes Spark SQL from plan nodes, and is the only place that knows how a term's text looks.

A query is written so that the reader of `explain` can follow it: one input per line, the changed input first.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.compiler import plan
from runnel.compiler.spark import DIALECT
from runnel.model import program
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from sqlglot import exp

    from runnel.compiler.plan import Generator, Scan, Spj
    from runnel.model.program import Around, Role


@dataclass(frozen=True)
class Piece:
    """A SELECT of signed rows, the relations without whose change it gives none, and the inputs it names."""

    sql: str
    deltas: frozenset[str]
    reads: frozenset[tuple[str, Role]]
    bare: str = ""
    """The input's name where the SELECT is nothing but the columns of one input."""


def quoted(name: str) -> str:
    """Write a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


GAP = f"<{uuid.uuid4().hex}>"
"""Where the terms of a change go while a text is written. No user can have written it: it is another one in each process."""


def cut(text: str) -> Around:
    """Give a text as the pieces around its gaps."""
    return tuple(text.split(GAP))


def expression(expr: exp.Expr) -> str:
    """Write an expression as Spark reads it."""
    return expr.sql(dialect=DIALECT, comments=False)


def scan(node: Scan, role: Role) -> Piece:
    """Write the signed rows of a relation."""
    name = program.name(node.relation.name, role)
    columns = ", ".join(quoted(c) for c in (*node.columns, WEIGHT))
    changed = frozenset({node.relation.name}) if role in ("delta", *program.PARTS) else frozenset()
    return Piece(f"SELECT {columns} FROM {name}", changed, frozenset({(node.relation.name, role)}), bare=name)


def union(pieces: list[Piece]) -> Piece:
    """Write several SELECTs as one."""
    reads = frozenset(read for piece in pieces for read in piece.reads)
    return Piece("\nUNION ALL\n".join(p.sql for p in pieces), frozenset(), reads)


def select(node: Spj, pieces: list[Piece], lead: int | None = None) -> Piece:
    """Write a select-project-join over the given pieces, one per input; `lead` is the one that changed and comes first."""
    order = _order(node, lead)
    conditions = list(node.where)
    lines: list[str] = []
    seen: set[str] = set()
    for position, index in enumerate(order):
        alias = node.inputs[index].alias
        seen.add(alias)
        ready = [c for c in conditions if position and plan.aliases(c) and plan.aliases(c) <= seen]
        conditions = [c for c in conditions if not any(c is r for r in ready)]
        lines.append(_from_line(pieces[index], alias, position, ready))
    lines += [_lateral(generator) for generator in node.generators]
    if conditions:
        lines.append("WHERE " + " AND ".join(_condition(c) for c in conditions))
    hint = f"/*+ BROADCAST({quoted(node.inputs[lead].alias)}) */ " if lead is not None and len(node.inputs) > 1 else ""
    columns = [f"{expression(p.expr)} AS {quoted(p.name)}" for p in node.projections]
    weight = " * ".join(f"{quoted(node.inputs[i].alias)}.{quoted(WEIGHT)}" for i in order) or "CAST(1 AS BIGINT)"
    signed = weight if node.sign > 0 else f"-({weight})"
    text = f"SELECT {hint}" + ", ".join([*columns, f"{signed} AS {quoted(WEIGHT)}"]) + "\n" + "\n".join(lines)
    return Piece(
        text,
        frozenset().union(*(p.deltas for p in pieces)),
        frozenset().union(*(p.reads for p in pieces)),
    )


def _order(node: Spj, lead: int | None) -> list[int]:
    """Start from the changed input and go on to inputs that a condition ties to those already there."""
    if lead is None:
        return list(range(len(node.inputs)))
    order, rest = [lead], [i for i in range(len(node.inputs)) if i != lead]
    while rest:
        seen = {node.inputs[i].alias for i in order}
        tied = (i for i in rest if _tied(node, seen, node.inputs[i].alias))
        following = next(tied, rest[0])
        order.append(following)
        rest.remove(following)
    return order


def _tied(node: Spj, seen: set[str], alias: str) -> bool:
    return any(alias in used and used <= seen | {alias} and used != {alias} for used in map(plan.aliases, node.where))


def _from_line(piece: Piece, alias: str, position: int, conditions: list[exp.Expr]) -> str:
    source = piece.bare or "(" + piece.sql.replace("\n", "\n  ") + ")"
    source = f"{source} AS {quoted(alias)}"
    if not position:
        return f"FROM {source}"
    if not conditions:
        return f"CROSS JOIN {source}"
    return f"JOIN {source} ON " + " AND ".join(_condition(c) for c in conditions)


def _lateral(generator: Generator) -> str:
    columns = ", ".join(quoted(c) for c in generator.columns)
    outer = "OUTER " if generator.outer else ""
    return f"LATERAL VIEW {outer}{expression(generator.call)} {quoted(generator.alias)} AS {columns}"


def _condition(condition: exp.Expr) -> str:
    return f"({expression(condition)})"
