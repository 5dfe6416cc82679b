"""Finds what a name means: the relation a table name stands for, the column a column name stands for.

Names are compared without case. A table of a source is `shop.orders`, or `orders` where only one source has such a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.plan import substitute as substituted
from runnel.errors import Terminal, nearest
from runnel.model.program import ROLES
from runnel.model.relation import Kind, is_alias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runnel.compiler.source import SourceText
    from runnel.model.relation import Relation


def find_relation(table: exp.Table, relations: Mapping[str, Relation], text: SourceText) -> Relation:
    """Find the relation a table name stands for; raise `RUNNEL-VIEW-TABLE` or `-AMBIGUOUS` with the place and the nearest name."""
    wanted = table_name(table)
    relations = {name: relation for name, relation in relations.items() if relation.kind is not Kind.STAGE}
    exact = [r for name, r in relations.items() if name.lower() == wanted.lower()]
    found = exact or [r for name, r in relations.items() if name.lower().rpartition(".")[2] == wanted.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(sorted(r.name for r in found))
        raise Terminal(
            "RUNNEL-VIEW-AMBIGUOUS",
            f"the table {wanted!r} could be any of {several}",
            place=text.place_of(table),
            hint="put the source's name and a dot before it",
        )
    names = [*relations, *(name.rpartition(".")[2] for name in relations)]
    raise Terminal(
        "RUNNEL-VIEW-TABLE",
        f"unknown table {wanted!r}",
        place=text.place_of(table),
        hint=nearest(wanted, names)
        or (f"there is {', '.join(sorted(relations))}" if relations else "no table exists yet"),
    )


def table_name(table: exp.Table) -> str:
    """Write a table's name as the user did, without quotes."""
    return ".".join(part.name for part in table.parts)


def cte_of(table: exp.Table) -> exp.CTE | None:
    """Find the common table expression a table name stands for, if it stands for one.

    A CTE is seen by its query and by the CTEs after it, and by itself only where it is recursive.
    """
    if table.args.get("db") is not None or not isinstance(table.this, exp.Identifier):
        return None
    node: exp.Expr = table
    while node.parent is not None:
        parent = node.parent
        with_ = parent if isinstance(parent, exp.With) else parent.args.get("with_")
        if isinstance(with_, exp.With) and node is not with_:
            found = _named(with_, node, table.name)
            if found is not None:
                return found
        node = parent
    return None


def _named(with_: exp.With, at: exp.Expr, name: str) -> exp.CTE | None:
    found: exp.CTE | None = None
    for cte in with_.expressions:
        if cte is at and not with_.args.get("recursive"):
            break
        if cte.alias.lower() == name.lower():
            found = cte
        if cte is at:
            break
    return found


def base_tables(tree: exp.Expr) -> list[exp.Table]:
    """List the table names of a query that stand for relations, in the order of the text."""
    found = [t for t in tree.find_all(exp.Table) if isinstance(t.this, exp.Identifier) and cte_of(t) is None]
    return sorted(found, key=lambda t: t.this.meta.get("start", 0))


def refuse_input_names(tree: exp.Expr, read: Iterable[str], text: SourceText) -> None:
    """Refuse names by which a program calls the relations this text reads: `orders__rows` in a text over `orders`."""
    inputs = {f"{relation}__{role}".lower() for relation in read for role in ROLES}
    for identifier in tree.find_all(exp.Identifier):
        if identifier.name.lower() in inputs or is_alias(identifier.name):
            raise Terminal(
                "RUNNEL-VIEW-REFUSED",
                f"the name {identifier.name!r} is reserved",
                place=text.place_of(identifier),
                hint="choose another name",
            )


@dataclass(frozen=True)
class Source:
    """One item of a FROM: the names it may be called by, and its columns as expressions over the plan's inputs."""

    names: tuple[str, ...]
    columns: tuple[tuple[str, exp.Expr], ...]

    def get(self, name: str) -> list[exp.Expr]:
        """Find the columns of that name."""
        return [expr for column, expr in self.columns if column.lower() == name.lower()]


@dataclass(frozen=True)
class Shown:
    """One column that `*` gives, and the names of the item of the FROM it is of."""

    name: str
    expr: exp.Expr
    owner: tuple[str, ...]

    def over(self, values: Mapping[tuple[str, str], exp.Expr]) -> Shown:
        """Let it stand for other columns of the plan."""
        return Shown(self.name, substituted(self.expr, values), self.owner)


@dataclass
class Scope:
    """What a SELECT's expressions may name.

    `shown` is what `*` stands for, in Spark's order: of columns joined by USING or NATURAL one, and before all others. The
    other is in `hidden`, and only found by its table's name. `first` are names that mean something else before all others.
    """

    text: SourceText
    sources: list[Source] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    hidden: list[Shown] = field(default_factory=list)
    aliases: dict[str, exp.Expr] = field(default_factory=dict)
    outer: Scope | None = None
    first: Mapping[str, exp.Expr] = field(default_factory=dict)

    def add(self, source: Source) -> None:
        """Bring one more item of a FROM into scope."""
        self.sources = [*self.sources, source]
        self.shown = [*self.shown, *(Shown(name, expr, source.names) for name, expr in source.columns)]

    def beside(self, right: Scope) -> Scope:
        """Give the scope of a join's condition."""
        return Scope(
            self.text,
            [*self.sources, *right.sources],
            [*self.shown, *right.shown],
            [*self.hidden, *right.hidden],
            outer=self.outer,
        )

    def column(self, column: exp.Column) -> exp.Expr:
        """Give the expression a column name stands for; raise `RUNNEL-VIEW-COLUMN` or `-AMBIGUOUS` otherwise.

        A name that is not found here may belong to the query around this one.
        """
        try:
            return self._own(column)
        except Terminal as error:
            if self.outer is None or error.code != "RUNNEL-VIEW-COLUMN":
                raise
            try:
                return self.outer.column(column)
            except Terminal as outside:
                if outside.code == "RUNNEL-VIEW-COLUMN" and not (outside.hint or "").startswith("did you mean"):
                    raise error from outside
                raise

    def remap(self, values: Mapping[tuple[str, str], exp.Expr]) -> None:
        """Let everything named so far stand for other columns of the plan."""
        self.sources = [
            Source(s.names, tuple((name, substituted(expr, values)) for name, expr in s.columns)) for s in self.sources
        ]
        self.shown = [one.over(values) for one in self.shown]
        self.hidden = [one.over(values) for one in self.hidden]

    def _own(self, column: exp.Column) -> exp.Expr:
        parts = [part.name for part in column.parts]
        before = self.first.get(parts[0].lower())
        if before is not None and (len(parts) == 1 or not any(parts[0].lower() in s.names for s in self.sources)):
            return _fields(exp.paren(before.copy()), parts[1:])
        for size in range(len(parts) - 1, 0, -1):
            named = [s for s in self.sources if ".".join(parts[:size]).lower() in s.names]
            if named:
                found = [expr for source in named for expr in source.get(parts[size])]
                return _fields(self._one(found, parts[size], column, named), parts[size + 1 :])
        return _fields(self._unqualified(parts, column), parts[1:])

    def columns(self) -> list[tuple[str, exp.Expr]]:
        """List what `*` stands for."""
        return [(one.name, one.expr) for one in self.shown]

    def columns_of(self, called: str) -> list[tuple[str, exp.Expr]]:
        """List what `t.*` stands for: columns that a join hides come first."""
        return [(one.name, one.expr) for one in (*self.hidden, *self.shown) if called in one.owner]

    def _unqualified(self, parts: list[str], column: exp.Column) -> exp.Expr:
        name = parts[0]
        found = [one.expr for one in self.shown if one.name.lower() == name.lower()]
        if not found and len(parts) == 1 and name.lower() in self.aliases:
            return exp.paren(self.aliases[name.lower()].copy())
        return self._one(found, name, column, self.sources)

    def _one(self, found: list[exp.Expr], name: str, column: exp.Column, among: list[Source]) -> exp.Expr:
        if len(found) == 1:
            return _placed(found[0], column)
        if found:
            owners = dict.fromkeys(s.names[0] for s in among if s.get(name) and s.names[:1] != ("",))
            ways = " or ".join(f"{owner}.{name}" for owner in owners) if len(owners) > 1 else ""
            raise Terminal(
                "RUNNEL-VIEW-AMBIGUOUS",
                f"the column {name!r} is in more than one table",
                place=self.text.place_of(column),
                hint=f"write {ways}" if ways else "put the table's name or alias and a dot before it",
            )
        known = [n for source in among for n, _ in source.columns]
        if column.table and name == column.parts[0].name:
            called = [n for source in among for n in source.names if n]
            raise unknown_column(column, name, [*called, *known], self.text, "table or column")
        raise unknown_column(column, name, known, self.text)


def unknown_column(column: exp.Expr, name: str, known: list[str], text: SourceText, what: str = "column") -> Terminal:
    """Say that a column does not exist, with the nearest name."""
    return Terminal(
        "RUNNEL-VIEW-COLUMN",
        f"unknown {what} {name!r}",
        place=text.place_of(column),
        hint=nearest(name, known) or (f"there is {', '.join(dict.fromkeys(known))}" if known else None),
    )


def _placed(expr: exp.Expr, column: exp.Column) -> exp.Expr:
    """Let what stands for a column remember where the column stood."""
    copied = expr.copy()
    copied.meta.update(column.parts[0].meta)
    return copied


def _fields(expr: exp.Expr, names: list[str]) -> exp.Expr:
    for name in names:
        expr = exp.Dot(this=expr, expression=exp.to_identifier(name, quoted=True))
    return expr


def resolved(expr: exp.Expr, scope: Scope, subquery: Callable[[exp.Expr], exp.Expr | None] | None = None) -> exp.Expr:
    """Put the plan's columns in the place of the user's names, and what `subquery` gives in the place of a subquery."""

    def replace(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return node if node.meta.get("plan") else scope.column(node)
        if subquery is not None:
            found = subquery(node)
            if found is not None:
                return found
        return node

    return expr.copy().transform(replace)
