"""The linear rule: the change of a plan as a sum of terms, each starting from the change of one relation.

For a join the terms telescope: `d(A x B x C) = dA x B x C + A' x dB x C + A' x B' x dC` (' = new), so that a relation that
did not change drops its term, and a relation that occurs twice is treated as two. A union's terms are its branches' terms.

**Foreign keys.** Let C refer to the key of P by a foreign key that holds before and after. Sort the change of P by key:

- a *new* key, not there before: no row of C refers to it before, `C(k) = {}`;
- a *removed* key, not there after: no row of C refers to it after, `C'(k) = {}`, so that `C(k) = -dC(k)`;
- an *updated* key, there before and after.

P is put before C, so that the term of P reads C as it was. Then `dP x C` is nothing for new keys, `dP_updated x C` for updated
ones, and `-(dP_removed x dC)` for removed ones, whatever else is joined: only a row that changes under its key looks C up. As
keys are unique, the weights of a key in dP add up to +1, -1 or 0, which tells the three apart without looking at P. A key
that came and went within the change adds up to 0 too, and its rows cancel out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.compiler import emit, foreign_keys
from runnel.compiler.plan import Scan, Spj, UnionAll

if TYPE_CHECKING:
    from typing import Literal

    from runnel.compiler.emit import Piece
    from runnel.compiler.foreign_keys import Link
    from runnel.compiler.plan import Node

    Part = Literal["delta", "updated", "removed"]


def state(node: Node, role: Literal["old", "new"]) -> Piece:
    """Give the signed rows that add up to a plan's rows before or after the change."""
    match node:
        case Scan():
            return emit.scan(node, role)
        case Spj(inputs):
            return emit.select(node, [state(i.node, role) for i in inputs])
        case UnionAll(branches):
            return emit.union([state(branch, role) for branch in branches])


def delta(node: Node, part: Part = "delta") -> list[Piece]:
    """Give the terms whose rows add up to the change of a plan's rows; `part` takes only some keys of a table's change."""
    match node:
        case Scan():
            return [emit.scan(node, part)]
        case Spj():
            return _join(node, part)
        case UnionAll(branches):
            return [term for branch in branches for term in delta(branch, part)]


def _join(node: Spj, part: Part) -> list[Piece]:
    links = foreign_keys.links(node)
    order = foreign_keys.parents_first(node, links)
    terms: list[Piece] = []
    for position, i in enumerate(order):
        before = order[:position]
        others = [state(item.node, "new" if at in before else "old") for at, item in enumerate(node.inputs)]
        link = looked_up_less(node, links, before, i)
        chosen: Part = part if link is None else "updated"
        terms += [_term(node, others, {i: term}) for term in delta(node.inputs[i].node, chosen)]
        if link is not None:
            terms += _removed(node, others, link)
    return terms


def looked_up_less(node: Spj, links: list[Link], before: list[int], parent: int) -> Link | None:
    """Give a foreign key by which the term of an input needs only its updated keys: of a row that it reads as it was."""
    for link in links:
        if link.parent == parent and link.child not in before:
            return link if foreign_keys.only_scans(node.inputs[parent].node, link.relation) else None
    return None


def _removed(node: Spj, others: list[Piece], link: Link) -> list[Piece]:
    """Give the terms of removed keys: what referred to them has changed with them."""
    gone = delta(node.inputs[link.parent].node, "removed")
    changes = delta(node.inputs[link.child].node)
    taken = replace(node, sign=-node.sign)
    return [_term(taken, others, {link.parent: one, link.child: two}) for one in gone for two in changes]


def _term(node: Spj, others: list[Piece], changed: dict[int, Piece]) -> Piece:
    return emit.select(node, [changed.get(i, piece) for i, piece in enumerate(others)], lead=next(iter(changed)))
