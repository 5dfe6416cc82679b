"""Which columns are unique in a view's rows, as far as its text says so beyond doubt.

Those it is grouped by, if it shows them all; all of them under DISTINCT; the key of the one table it reads, if it shows that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.forms import readable
from runnel.compiler.parse import parse_query
from runnel.compiler.resolve import base_tables, cte_of, find_relation
from runnel.compiler.rowmakers import is_generator
from runnel.compiler.source import SourceText
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.model.relation import Relation

_MORE_ROWS = ("joins", "laterals", "pivots", "match")


def unique_columns(relation: Relation, relations: Mapping[str, Relation], texts: Mapping[str, str]) -> tuple[str, ...]:
    """Give the columns that are unique in a table or view; `texts` are the queries of the views. Empty where none are known."""
    if relation.unique or relation.name not in texts:
        return relation.unique
    sql = readable(texts[relation.name])
    try:
        tree = parse_query(sql)
    except Terminal:
        return ()  # Spark alone reads it
    if not isinstance(tree, exp.Select) or any(
        is_generator(node) for shown in tree.expressions for node in shown.walk()
    ):
        return ()
    names = [column.name for column in relation.rows]
    if tree.args.get("group") is not None:
        return _grouped(tree, names, relations, SourceText(sql))
    if tree.args.get("distinct") is not None:
        return () if tree.args["distinct"].args.get("on") is not None else tuple(names)
    return _of_one_table(tree, names, relations, texts)


def _grouped(
    tree: exp.Select, names: list[str], relations: Mapping[str, Relation], text: SourceText
) -> tuple[str, ...]:
    group = tree.args["group"]
    if any(value for name, value in group.args.items() if name != "expressions") or len(names) != len(tree.expressions):
        return ()
    inputs, aliases = _input_names(tree, relations, text), _aliases(tree)
    found: list[str] = []
    for by in group.expressions:
        if isinstance(by, exp.Literal) and by.is_int:
            found.append(names[int(by.name) - 1])
            continue
        shown = [name for name, item in zip(names, tree.expressions, strict=True) if _same(by, item.unalias(), aliases)]
        if not shown and inputs is not None and isinstance(by, exp.Column) and by.name.lower() not in inputs:
            shown = [name for name in names if name.lower() == by.name.lower() and not by.table]
        if not shown:
            return ()
        found.append(shown[0])
    return tuple(dict.fromkeys(found))


def _input_names(tree: exp.Select, relations: Mapping[str, Relation], text: SourceText) -> frozenset[str] | None:
    """Give the names of all columns that a name in GROUP BY may stand for before it stands for an alias; None = not known."""
    plain = base_tables(tree)
    if len(plain) < len(list(tree.find_all(exp.Table))) or tree.find(exp.Subquery, exp.Lateral, exp.Pivot):
        return None
    return frozenset(c.name.lower() for table in plain for c in find_relation(table, relations, text).rows)


def _aliases(tree: exp.Select) -> frozenset[str]:
    """Give the names of the tables; what else stands before a dot is a struct."""
    from_ = tree.args.get("from_")
    items = [*([from_.this] if from_ is not None else []), *(join.this for join in tree.args.get("joins") or ())]
    return frozenset(item.alias_or_name.lower() for item in items)


def _column(node: exp.Expr, aliases: frozenset[str]) -> str | None:
    """Give the name of a column of a table, without the table's; None where it is something else."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star) or node.args.get("db"):
        return None
    return node.name.lower() if not node.table or node.table.lower() in aliases else None


def _same(one: exp.Expr, other: exp.Expr, aliases: frozenset[str]) -> bool:
    if one == other:
        return True
    name = _column(one, aliases)
    if name is None or name != _column(other, aliases):
        return False
    assert isinstance(one, exp.Column)
    assert isinstance(other, exp.Column)
    # A name without a table can be that of one table only.
    return not one.table or not other.table or one.table.lower() == other.table.lower()


def _of_one_table(
    tree: exp.Select, names: list[str], relations: Mapping[str, Relation], texts: Mapping[str, str]
) -> tuple[str, ...]:
    from_ = tree.args.get("from_")
    table = from_.this if from_ is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or cte_of(table) is not None:
        return ()
    if any(node.args.get(more) for node in (tree, table) for more in _MORE_ROWS):
        return ()
    key = unique_columns(find_relation(table, relations, SourceText("")), relations, texts)
    shown = _shown(tree, names, frozenset({table.alias_or_name.lower()}))
    found = [shown.get(part.lower()) for part in key]
    return tuple(name for name in found if name is not None) if None not in found else ()


def _shown(tree: exp.Select, names: list[str], aliases: frozenset[str]) -> dict[str, str]:
    """Say under which name each column of the one table is shown."""
    if len(tree.expressions) == 1 and isinstance(star := tree.expressions[0], exp.Star) and not any(star.args.values()):
        return {name.lower(): name for name in names}
    if len(tree.expressions) != len(names):
        return {}
    columns = [_column(shown.unalias(), aliases) for shown in tree.expressions]
    return {column: name for column, name in zip(columns, names, strict=True) if column is not None}
