"""Refuses what a statement says and nobody would follow: a LIMIT that is passed over deletes every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import AGGREGATES, GENERATORS, function_name
from runnel.errors import Terminal

if TYPE_CHECKING:
    from runnel.compiler.source import SourceText

_READ: dict[type[exp.Expr], frozenset[str]] = {
    exp.Insert: frozenset({"this", "expression", "source", "with_", "by_name"}),
    exp.Update: frozenset({"this", "expressions", "where", "from_"}),
    exp.Delete: frozenset({"this", "where"}),
    exp.Table: frozenset({"this", "db", "catalog", "alias"}),
}
"""The parts of statements, and of their tables, that are followed. All others are refused."""
_WORDS = {
    "with_": "WITH before it",
    "using": "USING",
    "tables": "a list of tables",
    "joins": "JOIN",
    "where": "REPLACE WHERE",
    "order": "ORDER BY",
    "partition": "PARTITION",
    "version": "VERSION AS OF",
    "sample": "TABLESAMPLE",
    "alternative": "INSERT OR",
    "conflict": "ON CONFLICT",
}


def refuse_unread(node: exp.Expr, text: SourceText, target: exp.Expr) -> None:
    """Refuse a statement whose parts, or those of its table, are not all followed."""
    for part, value in node.args.items():
        if value and part not in _READ.get(type(node), ()):
            raise Terminal(
                "RUNNEL-SQL-SYNTAX",
                f"{_WORDS.get(part, part.strip('_').upper())} is not followed in INSERT, UPDATE and DELETE",
                place=text.place_of(target),
                hint="use INSERT INTO t SELECT ..., or say which rows are meant in WHERE, with a subquery where it takes other tables",
            )


def own_column(node: exp.Expr, target: exp.Table, text: SourceText) -> exp.Expr:
    """Give what SET names, where that is a column of the table that is changed, not a field of one or another table's."""
    owner = [part.name.lower() for part in node.parts[:-1]] if isinstance(node, exp.Column) else []
    called = [part.name.lower() for part in target.parts]
    known = ([], [target.alias.lower()]) if target.alias else ([], called, called[-1:])
    if not isinstance(node, exp.Column) or owner not in known:
        raise Terminal(
            "RUNNEL-SQL-COLUMN",
            f"SET {node.sql()} names no column of {target.name}",
            place=text.place_of(node),
            hint="set whole columns; a struct is set with named_struct(...)",
        )
    return node


def refuse_many_rows(value: exp.Expr, text: SourceText) -> None:
    """Refuse a value that is not made of one row: it would make one row of many, or many of one."""
    own = value.walk(prune=lambda node: isinstance(node, exp.Query))
    for node in own:
        if isinstance(node, (exp.Window, exp.AggFunc, exp.Explode)) or function_name(node) in AGGREGATES | GENERATORS:
            raise Terminal(
                "RUNNEL-SQL-SYNTAX",
                f"SET takes values of the row itself, not {node.sql()}",
                place=text.place_of(node),
                hint="use a subquery: SET a = (SELECT max(b) FROM t)",
            )
