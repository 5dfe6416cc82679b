"""The linear rule: the change of a plan as a sum of terms, each starting from the change of one relation.

For a join the terms telescope: `d(A x B x C) = dA x B x C + A' x dB x C + A' x B' x dC` (' = new), so that a relation that
did not change drops its term, and a relation that occurs twice is treated as two. A union's terms are its branches' terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler import emit
from runnel.compiler.plan import Scan, Spj, UnionAll

if TYPE_CHECKING:
    from typing import Literal

    from runnel.compiler.emit import Piece
    from runnel.compiler.plan import Node


def state(node: Node, role: Literal["old", "new"]) -> Piece:
    """Give the signed rows that add up to a plan's rows before or after the change."""
    match node:
        case Scan():
            return emit.scan(node, role)
        case Spj(inputs):
            return emit.select(node, [state(i.node, role) for i in inputs])
        case UnionAll(branches):
            return emit.union([state(branch, role) for branch in branches])


def delta(node: Node) -> list[Piece]:
    """Give the terms whose rows add up to the change of a plan's rows."""
    match node:
        case Scan():
            return [emit.scan(node, "delta")]
        case Spj():
            return _join(node)
        case UnionAll(branches):
            return [term for branch in branches for term in delta(branch)]


def _join(node: Spj) -> list[Piece]:
    terms: list[Piece] = []
    for i, changed in enumerate(node.inputs):
        before = [state(other.node, "new") for other in node.inputs[:i]]
        after = [state(other.node, "old") for other in node.inputs[i + 1 :]]
        terms += [emit.select(node, [*before, term, *after], lead=i) for term in delta(changed.node)]
    return terms
