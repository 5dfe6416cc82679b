"""Finds where a plan joins a foreign key to the key it references.

Everything here rests on what `ForeignKey` says: a row that refers to the key `k` exists only while a row with that key does.
It holds for any rows made of the referencing table's rows, as long as their columns are those of the foreign key: what is
filtered, joined or padded by NULLs below a column has no value there that the table does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.plan import Scan, Spj, UnionAll

if TYPE_CHECKING:
    from runnel.compiler.plan import Input, Node
    from runnel.model.relation import ForeignKey, Relation

Origin = tuple["Relation", tuple[str, ...]]


@dataclass(frozen=True)
class Link:
    """Input `child` is joined to input `parent` by a foreign key: `columns[i]` of the one equals `targets[i]` of the other.

    `relation` is the referenced table, whose key the targets are. Inputs are given by their places in the join.
    """

    child: int
    parent: int
    relation: Relation
    columns: tuple[str, ...]
    targets: tuple[str, ...]


def links(node: Spj) -> list[Link]:
    """Give every join of a foreign key to its key among a node's inputs."""
    found = []
    tied = _equalities(node)
    for (child, parent), pairs in tied.items():
        link = _link(node, child, parent, pairs)
        if link is not None:
            found.append(link)
    return found


def _equalities(node: Spj) -> dict[tuple[int, int], list[tuple[str, str]]]:
    """Give for each pair of inputs the columns that must be equal, both ways round."""
    places = {item.alias: place for place, item in enumerate(node.inputs)}
    tied: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for condition in node.where:
        sides = equal_columns(condition)
        if sides is None:
            continue
        for one, two in (sides, sides[::-1]):
            if one.table in places and two.table in places and one.table != two.table:
                tied.setdefault((places[one.table], places[two.table]), []).append((one.name, two.name))
    return tied


def equal_columns(condition: exp.Expr) -> tuple[exp.Column, exp.Column] | None:
    """Give the two columns that a condition wants equal; keys are never NULL, so that `<=>` is no different from `=`."""
    bare = condition.unnest()
    if not isinstance(bare, (exp.EQ, exp.NullSafeEQ)):
        return None
    one, two = bare.this.unnest(), bare.expression.unnest()
    return (one, two) if isinstance(one, exp.Column) and isinstance(two, exp.Column) else None


def _link(node: Spj, child: int, parent: int, pairs: list[tuple[str, str]]) -> Link | None:
    by_target = {target: column for column, target in pairs}
    targets = tuple(by_target)
    origins = origins_of(node.inputs[parent].node, targets)
    if not origins or len({(r.name, cols) for r, cols in origins}) != 1:
        return None
    relation, named = origins[0]
    at = {name: target for target, name in zip(targets, named, strict=True)}
    if not relation.key or not all(part in at for part in relation.key):
        return None
    targets = tuple(at[part] for part in relation.key)
    columns = tuple(by_target[target] for target in targets)
    if not refers(node.inputs[child].node, columns, relation):
        return None
    return Link(child, parent, relation, columns, targets)


def refers(node: Node, columns: tuple[str, ...], parent: Relation) -> bool:
    """Say whether columns of a node hold a foreign key to a table, in the order of its key, wherever none of them is NULL."""
    origins = origins_of(node, columns)
    return bool(origins) and all(_has_key(relation, named, parent) for relation, named in origins or ())


def _has_key(relation: Relation, columns: tuple[str, ...], parent: Relation) -> bool:
    def wanted(key: ForeignKey) -> bool:
        return key.holds and key.table == parent.name and key.columns == columns

    return any(wanted(key) for key in relation.references)


def origins_of(node: Node, columns: tuple[str, ...]) -> list[Origin] | None:
    """Give the tables and columns that a node's columns are taken from unchanged, all of one row; None where they are not.

    A part of a union in which all of the columns are NULL has no origin and does no harm.
    """
    match node:
        case Scan(relation, _):
            return [(relation, columns)] if relation.final is None else None
        case UnionAll(branches):
            found = [origins_of(branch, columns) for branch in branches]
            known = [part for part in found if part is not None]
            return [origin for part in known for origin in part] if len(known) == len(found) else None
        case Spj(inputs, _, projections):
            shown = {p.name: p.expr.unnest() for p in projections}
            exprs = [shown[name] for name in columns if name in shown]
            return _through(inputs, exprs) if len(exprs) == len(columns) else None


def _through(inputs: tuple[Input, ...], exprs: list[exp.Expr]) -> list[Origin] | None:
    if all(_is_null(e) for e in exprs):
        return []
    plain = [e for e in exprs if isinstance(e, exp.Column)]
    below = [item.node for item in inputs if plain and item.alias == plain[0].table]
    if len(plain) < len(exprs) or len({e.table for e in plain}) > 1 or not below:
        return None
    return origins_of(below[0], tuple(e.name for e in plain))


def _is_null(expr: exp.Expr) -> bool:
    return isinstance(expr.this if isinstance(expr, exp.Cast) else expr, exp.Null)


def parents_first(node: Spj, found: list[Link]) -> list[int]:
    """Order a join's inputs so that what is referenced comes before what refers to it, as far as there is no circle."""
    order: list[int] = []
    rest = list(range(len(node.inputs)))
    while rest:
        waiting = {link.child for link in found if link.parent in rest and link.child != link.parent}
        following = next((i for i in rest if i not in waiting), rest[0])
        order.append(following)
        rest.remove(following)
    return order


def only_scans(node: Node, relation: Relation) -> bool:
    """Say whether a node selects from one table alone, maybe in several parts, so that its change is made of that table's."""
    match node:
        case Scan():
            return node.relation.name == relation.name
        case UnionAll(branches):
            return all(only_scans(branch, relation) for branch in branches)
        case Spj(inputs):
            return len(inputs) <= 1 and all(only_scans(item.node, relation) for item in inputs)


def is_whole(node: Node, relation: Relation) -> bool:
    """Say whether a node has every row of a table, each once."""
    match node:
        case Scan():
            return node.relation.name == relation.name
        case Spj((item,), ()):
            return node.sign > 0 and not node.generators and is_whole(item.node, relation)
    return False
