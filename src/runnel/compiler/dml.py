"""Turns INSERT, UPDATE and DELETE into queries that give the signed rows by which the table changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.changes import refuse_changes
from runnel.compiler.dml_parts import own_column, refuse_many_rows, refuse_unread
from runnel.compiler.emit import expression, quoted
from runnel.compiler.literals import literal_rows
from runnel.compiler.outputs import improve
from runnel.compiler.parse import parse_statements
from runnel.compiler.resolve import base_tables, find_relation, refuse_input_names
from runnel.compiler.source import SourceText
from runnel.compiler.support import findings, refuse
from runnel.compiler.text_limits import too_deep
from runnel.errors import Terminal, nearest
from runnel.model import program
from runnel.model.relation import WEIGHT, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from runnel.compiler.views import Analyse
    from runnel.model.program import Role
    from runnel.model.relation import Column, Relation


@dataclass(frozen=True)
class Dml:
    """One statement: `sql` gives all columns of `table` in order and `_weight`; `literal_rows` are an INSERT's plain values."""

    table: str
    sql: str
    reads: frozenset[tuple[str, Role]]
    literal_rows: tuple[dict[str, object], ...] | None = None


def compile_dml(sql: str, relations: Mapping[str, Relation], analyse: Analyse) -> tuple[Dml, ...]:
    """Compile statements separated by semicolons; raise `RUNNEL-SQL-*` with the place for what is wrong."""
    text = SourceText(sql)
    try:
        return tuple(_statement(tree, text, relations, analyse) for tree in parse_statements(sql))
    except Terminal as error:
        raise _own(error) from error
    except RecursionError as error:
        raise _own(too_deep(None)) from error


def _own(error: Terminal) -> Terminal:
    code = error.code.replace("RUNNEL-VIEW-", "RUNNEL-SQL-")
    return Terminal(code, error.message, place=error.place, hint=error.hint)


def _statement(tree: exp.Expr, text: SourceText, relations: Mapping[str, Relation], analyse: Analyse) -> Dml:
    if not isinstance(tree, (exp.Insert, exp.Update, exp.Delete)):
        raise Terminal(
            "RUNNEL-SQL-SYNTAX",
            f"{tree.key.upper()} is no change of a table",
            place=text.place_of(tree),
            hint="use INSERT INTO, UPDATE or DELETE FROM",
        )
    refuse(findings(tree), text)
    target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    refuse_unread(tree, text, target)
    refuse_unread(target, text, target)
    relation = find_relation(target, relations, text)
    if relation.kind is not Kind.TABLE:
        raise Terminal(
            "RUNNEL-SQL-READONLY",
            f"{relation.name} is a {relation.kind.value}, only tables can be written",
            place=text.place_of(target),
            hint="change the tables it is made from",
        )
    if isinstance(tree, exp.Insert):
        return _insert(tree, relation, text, relations, analyse)
    if isinstance(tree, exp.Update):
        return _update(tree, relation, text, relations, analyse)
    rows, reads = _rows(tree, relation, text, relations)
    columns = ", ".join(quoted(c.name) for c in relation.columns)
    sql = f"SELECT {columns}, CAST(-1 AS BIGINT) AS {quoted(WEIGHT)}\n{rows}"
    return _checked(Dml(relation.name, sql, reads), tree, text, relations, analyse)


def _insert(
    tree: exp.Insert, relation: Relation, text: SourceText, relations: Mapping[str, Relation], analyse: Analyse
) -> Dml:
    named = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    columns = _each_once(named, relation, text) or list(relation.columns)
    source, by_name = _source(tree), bool(tree.args.get("by_name"))
    if isinstance(source, exp.Values) and not by_name:
        _check_width(source, columns, relation, text)
        values = literal_rows(source, columns, relation)
        if values is not None:
            return Dml(relation.name, _values_sql(source, columns, relation), frozenset(), values)
        return _checked(
            Dml(relation.name, _values_sql(source, columns, relation), frozenset()), source, text, relations, analyse
        )
    if not isinstance(source, exp.Query):
        raise Terminal(
            "RUNNEL-SQL-SYNTAX",
            "INSERT needs VALUES or a SELECT, and with BY NAME a SELECT",
            place=text.place_of(tree.this),
        )
    bound, reads = _bound(source, text, relations)
    tables = {f"{name}__{role}": relations_by_name(relations)[name].rows for name, role in reads}
    given = analyse(bound, tables)
    if by_name:
        columns = _each_once([exp.to_identifier(c.name, quoted=True) for c in given], relation, text)
    if len(given) != len(columns):
        raise _width(len(given), len(columns), relation, text)
    return Dml(relation.name, _inserted(bound, columns, relation), reads)


def _source(tree: exp.Insert) -> exp.Expr | None:
    """Give what is inserted, with the WITH that stands before the statement."""
    table = tree.args.get("source")
    source = exp.select("*").from_(table.copy()) if isinstance(table, exp.Table) else tree.expression
    ahead = tree.args.get("with_")
    if ahead is None or not isinstance(source, exp.Query):
        return source
    source = source.copy()
    own = source.args.get("with_")
    if own is not None:
        source = exp.select("*").from_(source.subquery("q"))
    source.set("with_", ahead.copy())
    return source


def _values_sql(source: exp.Values, columns: list[Column], relation: Relation) -> str:
    rows = [item.expressions if isinstance(item, exp.Tuple) else [item] for item in source.expressions]
    selects = [
        "SELECT " + ", ".join(f"{expression(v)} AS {quoted(f'c{i}')}" for i, v in enumerate(row)) for row in rows
    ]
    return _inserted("\nUNION ALL ".join(selects), columns, relation)


def _inserted(source: str, columns: list[Column], relation: Relation) -> str:
    position = {c.name: i for i, c in enumerate(columns)}
    values = [
        f"CAST({f'q.`c{position[c.name]}`' if c.name in position else 'NULL'} AS {c.type}) AS {quoted(c.name)}"
        for c in relation.columns
    ]
    given = ", ".join(f"`c{i}`" for i in range(len(columns)))
    return f"SELECT {', '.join(values)}, CAST(1 AS BIGINT) AS {quoted(WEIGHT)}\nFROM (\n{source}\n) AS q({given})"


def _update(
    tree: exp.Update, relation: Relation, text: SourceText, relations: Mapping[str, Relation], analyse: Analyse
) -> Dml:
    if tree.args.get("from_") is not None:
        raise Terminal(
            "RUNNEL-SQL-SYNTAX",
            "UPDATE ... FROM is not supported",
            place=text.place_of(tree),
            hint="use a subquery in SET",
        )
    sets: dict[str, exp.Expr] = {}
    reads: frozenset[tuple[str, Role]] = frozenset()
    for item in tree.expressions:
        if not isinstance(item, exp.EQ):
            raise Terminal("RUNNEL-SQL-SYNTAX", "SET needs column = value", place=text.place_of(item))
        value, read = _bound_tree(item.expression, text, relations)
        (column,) = _each_once([own_column(item.this, tree.this, text)], relation, text, set(sets))
        refuse_many_rows(item.expression, text)
        sets[column.name] = value
        reads |= read
    rows, read = _rows(tree, relation, text, relations)
    old = ", ".join(quoted(c.name) for c in relation.columns)
    new = ", ".join(
        f"CAST({expression(sets[c.name])} AS {c.type}) AS {quoted(c.name)}" if c.name in sets else quoted(c.name)
        for c in relation.columns
    )
    weight = quoted(WEIGHT)
    sql = f"SELECT {old}, CAST(-1 AS BIGINT) AS {weight}\n{rows}\nUNION ALL\nSELECT {new}, CAST(1 AS BIGINT) AS {weight}\n{rows}"
    return _checked(Dml(relation.name, sql, reads | read), tree, text, relations, analyse)


def _rows(
    tree: exp.Update | exp.Delete, relation: Relation, text: SourceText, relations: Mapping[str, Relation]
) -> tuple[str, frozenset[tuple[str, Role]]]:
    """Write the FROM and WHERE that find the rows to change."""
    reads: frozenset[tuple[str, Role]] = frozenset({(relation.name, "rows")})
    alias = tree.this.alias or tree.this.name
    rows = f"FROM {program.name(relation.name, 'rows')} AS {quoted(alias)}"
    where = tree.args.get("where")
    if where is not None:
        condition, read = _bound_tree(where.this, text, relations)
        rows, reads = f"{rows}\nWHERE {expression(condition)}", reads | read
    return rows, reads


def _bound(
    query: exp.Query, text: SourceText, relations: Mapping[str, Relation]
) -> tuple[str, frozenset[tuple[str, Role]]]:
    tree, reads = _bound_tree(query, text, relations)
    return expression(tree), reads


def _bound_tree(
    tree: exp.Expr, text: SourceText, relations: Mapping[str, Relation]
) -> tuple[exp.Expr, frozenset[tuple[str, Role]]]:
    """Put role names in the place of the tables a piece of a statement reads."""
    holder = exp.Paren(this=tree.copy())
    refuse_changes(holder, text)
    reads: set[tuple[str, Role]] = set()
    for table in base_tables(holder):
        relation = find_relation(table, relations, text)
        reads.add((relation.name, "rows"))
        alias = table.alias or table.name
        table.replace(
            exp.alias_(exp.table_(exp.to_identifier(f"{relation.name}__rows", quoted=True)), alias, table=True)
        )
    refuse_input_names(tree, (relation for relation, _ in reads), text)
    return holder.this, frozenset(reads)


def _checked(dml: Dml, tree: exp.Expr, text: SourceText, relations: Mapping[str, Relation], analyse: Analyse) -> Dml:
    """Let the engine look at the statement, so that a wrong one is refused before anything is written."""
    by_name = relations_by_name(relations)
    try:
        analyse(dml.sql, {f"{name}__{role}": by_name[name].rows for name, role in dml.reads})
    except Terminal as error:
        raise improve(error, tree, [by_name[name] for name, _ in dml.reads], text) from error
    return dml


def relations_by_name(relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """Index relations by their own names."""
    return {relation.name: relation for relation in relations.values()}


def _column(node: exp.Expr, relation: Relation, text: SourceText) -> Column:
    for column in relation.columns:
        if column.name.lower() == node.name.lower():
            return column
    raise Terminal(
        "RUNNEL-SQL-COLUMN",
        f"{relation.name} has no column {node.name!r}",
        place=text.place_of(node),
        hint=nearest(node.name, [c.name for c in relation.columns]),
    )


def _each_once(
    named: list[exp.Expr], relation: Relation, text: SourceText, before: Collection[str] = ()
) -> list[Column]:
    """Find the columns that a statement names, each once."""
    found: list[Column] = []
    for node in named:
        column = _column(node, relation, text)
        if column.name in before or column in found:
            raise Terminal(
                "RUNNEL-SQL-COLUMNS",
                f"column {column.name!r} of {relation.name} is given twice",
                place=text.place_of(node),
                hint="give it once",
            )
        found.append(column)
    return found


def _check_width(source: exp.Values, columns: list[Column], relation: Relation, text: SourceText) -> None:
    for row in source.expressions:
        width = len(row.expressions) if isinstance(row, exp.Tuple) else 1
        if width != len(columns):
            raise _width(width, len(columns), relation, text)


def _width(given: int, wanted: int, relation: Relation, text: SourceText) -> Terminal:
    return Terminal(
        "RUNNEL-SQL-COLUMNS",
        f"INSERT gives {given} values for {wanted} columns of {relation.name}",
        place=text.place,
        hint="name the columns after the table, or give them all",
    )
