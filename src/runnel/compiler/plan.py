"""What a view is made of: a few frozen nodes between the user's SQL and the delta program.

Every node gives rows with named columns and, once emitted, a `_weight`. Expressions are sqlglot trees in which each column
names an input's alias and one of that input's columns; nobody changes a tree in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.model.relation import INTERNAL, RESERVED, WEIGHT

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
class Generator:
    """Rows made from each row: `call` is a generator function such as explode, `alias` and `columns` name what it gives."""

    alias: str
    call: exp.Expr
    columns: tuple[str, ...]
    outer: bool = False


@dataclass(frozen=True)
class Spj:
    """Select, project, join: those combinations of the inputs' rows for which every condition is true.

    With `sign` -1 its rows are taken away from the union it stands in. Without inputs it is one row of constants.
    """

    inputs: tuple[Input, ...]
    where: tuple[exp.Expr, ...]
    projections: tuple[Projection, ...]
    sign: int = 1
    generators: tuple[Generator, ...] = ()

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


@dataclass(frozen=True)
class Feed:
    """One input of a keyed operator: the name by which its SQL calls it, and the columns that hold the key."""

    name: str
    node: Node
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Keyed:
    """Any query over its feeds that can be computed for each key apart: `sql` gives `names`, of which `keys` hold the key.

    Without keys the whole query is computed again, so its feeds must be small.
    """

    feeds: tuple[Feed, ...]
    sql: str
    names: tuple[str, ...]
    keys: tuple[str, ...]
    feature: str


@dataclass(frozen=True)
class Order:
    """One item of an order: a column, its direction, and where NULL stands."""

    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Top:
    """The first rows of each group of `source` in an order: at least `count` of them where there are so many."""

    source: Node
    keys: tuple[str, ...]
    order: tuple[Order, ...]
    count: int


def alias(number: int) -> str:
    """Name an input; in the text of a view this form of a name is refused (`resolve.refuse_input_names`)."""
    return f"{INTERNAL}{number}"


def inner(name: str) -> str:
    """Give the name that a user's column has inside a plan: what looks like a name of ours is marked.

    >>> inner("a"), inner("_key_1"), inner("~1")
    ('a', '~_key_1', '~~1')
    """
    return f"{INTERNAL}{name}" if name.startswith(("_", INTERNAL)) and name.lower() not in _GIVEN else name


_GIVEN = frozenset(RESERVED) - {WEIGHT}
"""Columns of CHANGES(...), which nobody else can have."""


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
        case Spj(inputs):
            return frozenset().union(*(relations(i.node) for i in inputs))
        case UnionAll(branches):
            return frozenset().union(*(relations(b) for b in branches))


PLACEHOLDER = "#sub"
"""What a call is named that stands for a subquery until its answer is joined."""


def has_placeholder(expr: exp.Expr) -> bool:
    """Say whether an expression waits for the answer of a subquery."""
    return any(isinstance(n, exp.Anonymous) and n.this == PLACEHOLDER for n in expr.walk())


def takes_away(node: Node) -> bool:
    """Say whether a plan has branches that are taken away from others, so that its rows must be added up to be counted."""
    match node:
        case Scan():
            return False
        case Spj(inputs):
            return node.sign < 0 or any(takes_away(i.node) for i in inputs)
        case UnionAll(branches):
            return any(takes_away(b) for b in branches)


def renamed(node: Node, alias: str, names: Mapping[str, str] | None = None) -> Spj:
    """Select all columns of a node, or those given by `{new name: column}`."""
    names = names if names is not None else {name: name for name in node.names}
    return Spj((Input(alias, node),), (), tuple(Projection(n, column(alias, c)) for n, c in names.items()))


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
