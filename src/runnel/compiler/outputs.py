"""Checks the columns a view gives, and makes an engine's complaint about a column name as clear as our own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.changes import is_changes
from runnel.compiler.forms import readable
from runnel.compiler.functions import GENERATORS, function_name
from runnel.compiler.parse import parse_query
from runnel.compiler.resolve import base_tables, find_relation, unknown_column
from runnel.compiler.source import SourceText
from runnel.compiler.spark import DIALECT
from runnel.errors import Terminal, nearest
from runnel.model import types
from runnel.model.relation import Column, Relation, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def output_name(item: exp.Expr) -> str:
    """Give the name of a column of a SELECT; '' where it has none."""
    bare = item.unnest()
    return bare.alias_or_name if isinstance(bare, (exp.Alias, exp.Column, exp.Dot)) else ""


def check_outputs(view: str, names: tuple[str, ...], tree: exp.Query, text: SourceText, *, named: bool = False) -> None:
    """Refuse unnamed, reserved and repeated output columns; `named` says that the engine made names up."""
    items = tree.selects if isinstance(tree, exp.Query) else []
    for position, item in enumerate(items, 1):
        known = isinstance(item, (exp.Alias, exp.Aliases, exp.Column, exp.Dot, exp.Star)) or item.is_star
        known = known or function_name(item) in GENERATORS  # Spark names what they make
        if not known and not output_name(item):
            raise Terminal(
                "RUNNEL-VIEW-REFUSED",
                f"column {position} of {view} has no name",
                place=text.place_of(item),
                hint=f"write {item.sql(dialect=DIALECT, comments=False)[:40]} AS name",
            )
    if not named and any(not name for name in names):
        raise Terminal(
            "RUNNEL-VIEW-REFUSED", f"a column of {view} has no name", place=text.place, hint="write ... AS name"
        )
    try:
        check_columns(view, tuple(Column(name, types.STRING) for name in names))
    except Terminal as error:
        place = next((text.place_of(i) for i in items if _spelled_in(error.message, i)), text.place)
        raise Terminal("RUNNEL-VIEW-REFUSED", error.message, place=place, hint=error.hint) from error


def _spelled_in(message: str, item: exp.Expr) -> bool:
    return bool(item.alias_or_name) and repr(item.alias_or_name) in message


def improved(error: Terminal, sql: str, relations: Mapping[str, Relation]) -> Terminal:
    """Make an engine's complaint about a query of the user as clear as a complaint about a view."""
    if error.place is not None or error.code not in ("RUNNEL-ENGINE-SQL", "RUNNEL-SQL-WRONG"):
        return error
    sql = readable(sql)
    try:
        tree, text = parse_query(sql), SourceText(sql)
    except Terminal:
        return error  # Spark alone reads it
    known = [find_relation(table, relations, text) for table in base_tables(tree)]
    return improve(error, tree, known, text)


def improve(
    error: Terminal, tree: exp.Expr, known: list[Relation], text: SourceText, functions: Iterable[str] = ()
) -> Terminal:
    """Say which column does not exist where that can be told from the text alone; else give the engine's own error a place."""
    names = [column.name for relation in known for column in relation.rows]
    spoken = {name.lower() for name in names} | {
        i.name.lower() for a in tree.find_all(exp.Alias, exp.TableAlias) for i in _given(a)
    }
    for column in tree.find_all(exp.Column):
        if column.parent is not None and column.parent.parent is not None and is_changes(column.parent.parent):
            continue
        if isinstance(column.this, exp.Star):
            tables = [t.alias_or_name.lower() for t in tree.find_all(exp.Table, exp.TableAlias) if t.alias_or_name]
            if column.table and column.table.lower() not in tables:
                return unknown_column(column, column.table, tables, text, "table")
            continue
        parts = [part.name.lower() for part in column.parts]
        if not any(part in spoken for part in parts):
            return unknown_column(column, column.name, names, text)
        if (
            len(parts) > 1
            and parts[-1] not in spoken
            and not any(isinstance(c.type, types.Struct) for r in known for c in r.rows)
        ):
            return unknown_column(column, column.name, names, text)
    called = _called(tree, error.message)
    if called is not None:
        place = text.place_of(called)
        if _exists(error.message):
            return Terminal(error.code, error.message, place=place, hint=error.hint)
        name = function_name(called)
        hint = nearest(name, [*functions, *(n.lower() for n in exp.FUNCTION_BY_NAME)], likeness=0.75)
        hint = hint or f"a function of your own is made known by project.register_function({name!r}, ...)"
        return Terminal("RUNNEL-VIEW-FUNCTION", f"unknown function {name!r}", place=place, hint=hint)
    return Terminal(error.code, error.message, place=error.place or text.place, hint=error.hint)


def _exists(message: str) -> bool:
    """Say whether an engine complains about a call for another reason than its name."""
    return not re.search(r"not exist|ROUTINE|not found|undefined", message, re.IGNORECASE)


def _called(tree: exp.Expr, message: str) -> exp.Anonymous | None:
    """Find the function an engine complains about."""
    words = set(re.findall(r"\w+", message.lower()))
    return next((call for call in tree.find_all(exp.Anonymous) if function_name(call) in words), None)


def _given(alias: exp.Expr) -> list[exp.Expr]:
    named = [alias.args["alias"]] if isinstance(alias, exp.Alias) else [alias.this, *(alias.args.get("columns") or [])]
    return [i for i in named if isinstance(i, exp.Identifier)]
