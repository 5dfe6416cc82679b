"""Puts role names in the place of table names in the user's own text, and changes nothing else of it.

The result is what `verify`, ad-hoc queries and full recomputation run, so it must not depend on how the compiler reads SQL.

>>> from runnel.model.relation import Kind, Relation
>>> bind("SELECT o.a FROM Orders o", {"shop.orders": Relation("shop.orders", Kind.TABLE, ())})[0]
'SELECT o.a FROM `shop.orders__rows` o'
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import parse
from runnel.compiler.changes import WORD, changes_in, refuse_changes, source_of
from runnel.compiler.forms import bind_by_tokens, readable
from runnel.compiler.resolve import base_tables, find_relation, refuse_input_names
from runnel.compiler.source import SourceText
from runnel.errors import Terminal
from runnel.model import program, tokens
from runnel.model.relation import Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.errors import Place
    from runnel.model.program import Role


def bind(
    sql: str,
    relations: Mapping[str, Relation],
    role: Role = "rows",
    *,
    place: Place | None = None,
    events: bool = False,
) -> tuple[str, frozenset[str]]:
    """Give the text over role names, and the names of the relations it reads; `events` lets it read `CHANGES(...)`."""
    lowered = sql.lower()
    names = frozenset(
        (name, r.name) for name, r in relations.items() if r.kind is not Kind.STAGE and _may_be_named(name, lowered)
    )
    try:
        text, read, of_changes = _bound(sql, names, role)
    except Terminal:
        pass
    else:
        if events or not of_changes:
            return text, read
    return _bind(sql, relations, role, place, events=events)  # again, for an error that knows all names and the place


def _may_be_named(name: str, lowered: str) -> bool:
    """Say whether a text can speak of a relation: others do not decide what it means."""
    short = name.rpartition(".")[2]
    return not short.isascii() or "`" in short or short.lower() in lowered


@lru_cache(maxsize=1024)
def _bound(sql: str, names: frozenset[tuple[str, str]], role: Role) -> tuple[str, frozenset[str], bool]:
    """Bind a text once, and say whether it reads changes: creating a view asks for its text, and all others', many times.

    Only the names of relations decide, and of those the ones that occur in the text.
    """
    relations = {name: Relation(own, Kind.TABLE, ()) for name, own in names}
    text, read = _bind(sql, relations, role, None, events=True)
    return text, read, any(program.name(program.changes(name), role) in text for name in read)


def _bind(
    sql: str, relations: Mapping[str, Relation], role: Role, place: Place | None, *, events: bool
) -> tuple[str, frozenset[str]]:
    text = SourceText(readable(sql), place)
    try:
        tree = parse.parse_query(text.sql, place)
    except Terminal:
        found = bind_by_tokens(text.sql, relations, role)
        if found is None:
            raise
        return found
    return bind_tree(tree, text, relations, role, events=events)


def bind_tree(
    tree: exp.Expr,
    text: SourceText,
    relations: Mapping[str, Relation],
    role: Role = "rows",
    *,
    events: bool = False,
) -> tuple[str, frozenset[str]]:
    """Do what `bind` does for a text that has been parsed already."""
    edits: list[tuple[int, int, str]] = []
    read: set[str] = set()
    qualified: set[str] = set()
    for table in base_tables(tree):
        relation = find_relation(table, relations, text)
        read.add(relation.name)
        first, last = parse.span(table.parts[0]), parse.span(table.parts[-1])
        if first is None or last is None:
            continue
        alias = "" if table.alias else f" AS {text.sql[last[0] : last[1]]}"
        edits.append((first[0], last[1], program.name(relation.name, role) + alias))
        if len(table.parts) > 1 and not table.alias:
            qualified.add(".".join(part.name for part in table.parts).lower())
    if not events:
        refuse_changes(tree, text)
    for table in changes_in(tree):
        relation = find_relation(source_of(table, text), relations, text)
        read.add(relation.name)
        edits.append(_changes_edit(table, text.sql, program.name(program.changes(relation.name), role)))
    refuse_input_names(tree, read, text)
    edits += [edit for column in tree.find_all(exp.Column) for edit in _unqualify(column, qualified)]
    return without_end(_edited(text.sql, edits)), frozenset(read)


def without_end(sql: str) -> str:
    """Leave out the semicolon and the comments that a text ends with, so that it can be put into brackets."""
    end = max((t.end for t in tokens.tokens(sql) if t.kind != "comment" and t.text != ";"), default=0)
    return sql[:end]


def _changes_edit(table: exp.Table, sql: str, name: str) -> tuple[int, int, str]:
    """Put a name in the place of all of `CHANGES(t)`."""
    start = int(table.this.meta["start"])
    inside = max(int(part.meta["end"]) for part in table.this.expressions[0].parts)
    return start, sql.index(")", inside) + 1, name + ("" if table.alias else f" AS {WORD.lower()}")


def _unqualify(column: exp.Column, qualified: set[str]) -> list[tuple[int, int, str]]:
    """`shop.orders.a` becomes `orders.a`, because the table is now an alias."""
    parts = column.parts
    for size in range(2, len(parts)):
        if ".".join(part.name for part in parts[:size]).lower() in qualified:
            first, last = parse.span(parts[0]), parse.span(parts[size - 1])
            if first is not None and last is not None:
                return [(first[0], last[0], "")]
    return []


def _edited(sql: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, replacement in sorted(set(edits), reverse=True):
        sql = sql[:start] + replacement + sql[end:]
    return sql
