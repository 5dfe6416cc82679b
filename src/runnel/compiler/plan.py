"""What a view is made of: a few frozen nodes between the user's SQL and the delta program.

Every node gives rows with named columns and, once emitted, a `_weight`. Expressions are sqlglot trees in which each column
names an input's alias and one of that input's columns; nobody changes a tree in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.model.relation import Relation
    from runnel.model.types import Type


@dataclass(frozen=True)
class Scan:
    """The rows of a relation, of which `columns` are needed."""

    relation: Relation
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns this node gives."""
        return self.columns


@dataclass(frozen=True)
class Input:
    """A node under the name by which expressions call it."""

    alias: str
    node: Node


@dataclass(frozen=True)
class Projection:
    """One output column."""

    name: str
    expr: exp.Expr


@dataclass(frozen=True)
class Spj:
    """Select, project, join: those combinations of the inputs' rows for which every condition is true."""

    inputs: tuple[Input, ...]
    where: tuple[exp.Expr, ...]
    projections: tuple[Projection, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns this node gives."""
        return tuple(p.name for p in self.projections)


@dataclass(frozen=True)
class UnionAll:
    """The rows of every branch; the branches give columns of the same names and types."""

    branches: tuple[Node, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns this node gives."""
        return self.branches[0].names


Node = Scan | Spj | UnionAll


@dataclass(frozen=True)
class Measure:
    """One aggregate of a grouping: `function` of the source's column `argument` (None: COUNT(*))."""

    function: str
    argument: str | None
    type: Type | None


@dataclass(frozen=True)
class Aggregate:
    """Groups `source` by its columns `keys` and computes the measures."""

    source: Node
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]


def column(alias: str, name: str) -> exp.Column:
    """Name a column of an input."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Split a condition at its ANDs."""
    if isinstance(condition, exp.And):
        yield from conjuncts(condition.left)
        yield from conjuncts(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from conjuncts(condition.this)
    else:
        yield condition


def aliases(expr: exp.Expr) -> frozenset[str]:
    """Give the inputs an expression reads."""
    return frozenset(c.table for c in expr.find_all(exp.Column))


def substitute(expr: exp.Expr, values: Mapping[tuple[str, str], exp.Expr]) -> exp.Expr:
    """Put expressions in the place of columns, given by input alias and name."""

    def replace(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column):
            value = values.get((node.table, node.name))
            if value is not None:
                return value.copy() if isinstance(value, (exp.Column, exp.Literal)) else exp.paren(value.copy())
        return node

    return expr.copy().transform(replace)


def relations(node: Node) -> frozenset[str]:
    """Give the names of the relations a plan reads."""
    match node:
        case Scan(relation, _):
            return frozenset({relation.name})
        case Spj(inputs, _, _):
            return frozenset().union(*(relations(i.node) for i in inputs))
        case UnionAll(branches):
            return frozenset().union(*(relations(b) for b in branches))


def unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Name columns apart inside a plan where the user left them unnamed or named two alike."""
    taken: set[str] = set()
    result = []
    for position, name in enumerate(names, 1):
        wanted = name or f"_column_{position}"
        while wanted.lower() in taken:
            wanted += f"_{position}"
        taken.add(wanted.lower())
        result.append(wanted)
    return tuple(result)
