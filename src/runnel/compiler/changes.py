"""What `CHANGES(t)` stands for: one row per changed key and epoch, with the row before and the row after.

It is a relation that nobody stores: its change in an epoch is written as SQL over the change of `t`, and that is all it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.emit import quoted
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.program import changes, name
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.compiler.source import SourceText

WORD = "CHANGES"
OLD, NEW, OP, EPOCH, TIME, TRANSACTION = "old", "new", "_op", "_epoch", "_time", "_transaction"


def is_changes(table: exp.Expr) -> bool:
    """Say whether an item of a FROM is `CHANGES(...)`."""
    return isinstance(table, exp.Table) and isinstance(table.this, exp.Anonymous) and table.this.name.upper() == WORD


def changes_in(tree: exp.Expr) -> list[exp.Table]:
    """List the `CHANGES(...)` of a query, in the order of the text."""
    found = [table for table in tree.find_all(exp.Table) if is_changes(table)]
    return sorted(found, key=lambda table: table.this.meta.get("start", 0))


def refuse_changes(tree: exp.Expr, text: SourceText) -> None:
    """Refuse `CHANGES(...)` where it has no meaning: anywhere but in a view."""
    for table in changes_in(tree):
        raise Terminal(
            "RUNNEL-SQL-EVENTS",
            f"{WORD}(...) can be read by a materialized view only",
            place=text.place_of(table),
            hint="define an event view and read that, or ask project.changes()",
        )


def source_of(table: exp.Table, text: SourceText) -> exp.Table:
    """Give the name inside `CHANGES(...)` as a table; raise `RUNNEL-VIEW-EVENTS-SOURCE` for anything else in there."""
    inside = table.this.expressions
    if len(inside) != 1 or not isinstance(inside[0], exp.Column) or isinstance(inside[0].this, exp.Star):
        raise Terminal(
            "RUNNEL-VIEW-EVENTS-SOURCE",
            f"{WORD} takes the name of one table or view",
            place=text.place_of(table),
            hint=f"write {WORD}(orders)",
        )
    parts = inside[0].parts
    held = [exp.to_identifier(part.name, quoted=True) for part in parts]
    for made, given in zip(held, parts, strict=True):
        made.meta.update(given.meta)
    return exp.Table(this=held[-1], db=held[-2] if len(held) > 1 else None)


def event_key(relation: Relation) -> tuple[str, ...] | None:
    """Give the columns by which rows of a relation are told apart; () for one that always has one row, None for a plain bag.

    Of an aggregate these are the groups, where all of them are shown.
    """
    if relation.final is None:
        return relation.key or None
    shown = dict(zip(relation.final.spark, (c.name for c in relation.final.columns), strict=True))
    found = [shown.get(quoted(part)) for part in relation.key]
    return tuple(part for part in found if part is not None) if None not in found else None


def changes_relation(relation: Relation) -> Relation:
    """Give what `CHANGES` of a relation looks like."""
    row = types.Struct("struct", tuple((c.name, c.type) for c in relation.rows))
    columns = [Column(OLD, row), Column(NEW, row), Column(OP, types.STRING), Column(EPOCH, types.BIGINT)]
    columns += [Column(TIME, types.Type("timestamp")), Column(TRANSACTION, types.STRING)]
    return Relation(changes(relation.name), Kind.STAGE, tuple(columns))


def events_sql(relation: Relation, seen: Iterable[str] | None, epoch: int, time: str) -> str:
    """Write the events of one epoch over the change of a relation in it; `seen` are the columns the view knows of.

    A change that cancels itself out within the epoch is none. Of a bag, equal rows are one event with their number as weight.
    """
    known = None if seen is None else set(seen)
    columns = [c.name for c in relation.rows if known is None or c.name in known]
    listed = ", ".join(quoted(c) for c in columns)
    weight = quoted(WEIGHT)
    net = (
        f"SELECT {listed}, CAST(sum({weight}) AS BIGINT) AS {weight} FROM {name(relation.name, 'delta')}"
        f" GROUP BY {listed} HAVING sum({weight}) <> 0"
    )
    about = (
        f"CAST({epoch} AS BIGINT) AS {quoted(EPOCH)}, CAST('{time}' AS TIMESTAMP) AS {quoted(TIME)},"
        f" CAST(NULL AS STRING) AS {quoted(TRANSACTION)}"
    )
    key = event_key(relation)
    if key is None:
        op = f"CASE WHEN {weight} < 0 THEN 'delete' ELSE 'insert' END AS {quoted(OP)}"
        old, new = (_row("r", columns, f"r.{weight} {sign} 0") for sign in "<>")
        return (
            f"SELECT {old} AS {quoted(OLD)}, {new} AS {quoted(NEW)}, {op}, {about}, abs({weight}) AS {weight}\n"
            f"FROM ({net}) AS r"
        )
    old, new = _row("o", columns, "o.`__there`"), _row("n", columns, "n.`__there`")
    op = (
        f"CASE WHEN o.`__there` IS NULL THEN 'insert' WHEN n.`__there` IS NULL THEN 'delete' ELSE 'update' END"
        f" AS {quoted(OP)}"
    )
    same = " AND ".join(f"o.{k} <=> n.{k}" for k in ("`__there`", *map(quoted, key)))
    sides = [f"(SELECT *, true AS `__there` FROM ({net}) AS net WHERE {weight} {sign} 0)" for sign in "<>"]
    return (
        f"SELECT {old} AS {quoted(OLD)}, {new} AS {quoted(NEW)}, {op}, {about}, CAST(1 AS BIGINT) AS {weight}\n"
        f"FROM {sides[0]} AS o\nFULL OUTER JOIN {sides[1]} AS n ON {same}"
    )


def _row(alias: str, columns: list[str], there: str) -> str:
    fields = ", ".join(f"{alias}.{quoted(c)} AS {quoted(c)}" for c in columns)
    return f"CASE WHEN {there} THEN struct({fields}) END"
