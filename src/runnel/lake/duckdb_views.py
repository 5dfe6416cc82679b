"""The SQL by which DuckDB sees a relation in its final form, for the catalog's `ducklake_view`.

A bag is netted and each row repeated by its weight; partials are added up per group and turned into rows by `Final.duckdb`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.model import types
from runnel.model.identity import needs_identity
from runnel.model.relation import WEIGHT, Relation

if TYPE_CHECKING:
    from runnel.model.relation import Final
    from runnel.model.types import Type

STATE_SCHEMA = "state"
_DUCKDB_TYPES = {"string": "VARCHAR", "binary": "BLOB", "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}


def quoted(name: str) -> str:
    """Write a name as DuckDB reads it back, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_type(type_: Type) -> str:
    """Write a type as DuckDB names it.

    >>> duckdb_type(types.parse("array<struct<a:int,b:string>>"))
    'STRUCT("a" INT, "b" VARCHAR)[]'
    """
    match type_:
        case types.Array(_, element):
            return f"{duckdb_type(element)}[]"
        case types.Map(_, key, value):
            return f"MAP({duckdb_type(key)}, {duckdb_type(value)})"
        case types.Struct(_, inner):
            return "STRUCT(" + ", ".join(f"{quoted(name)} {duckdb_type(field)}" for name, field in inner) + ")"
        case _:
            return _DUCKDB_TYPES.get(type_.name, str(type_).upper())


def view_sql(relation: Relation) -> str:
    """Give the SELECT that shows a relation's rows."""
    return _partials_sql(relation) if relation.final else _bag_sql(relation)


def _source(relation: Relation) -> str:
    return f"{{DUCKLAKE_CATALOG}}.{STATE_SCHEMA}.{quoted(relation.name)}"


def _bag_sql(relation: Relation) -> str:
    columns = ", ".join(quoted(c.name) for c in relation.columns)
    shown, by = _identical(relation)
    netted = (
        f"SELECT {shown}, CAST(sum({WEIGHT}) AS BIGINT) AS {WEIGHT} FROM {_source(relation)} AS stored "
        f"GROUP BY {by} HAVING sum({WEIGHT}) > 0"
    )
    return f"SELECT {columns} FROM (SELECT {columns}, unnest(range({WEIGHT})) AS __copy FROM ({netted}))"


def _identical(relation: Relation) -> tuple[str, str]:
    """Write columns for the SELECT and the GROUP BY of a sum over identical rows, as `model.identity` does for Spark.

    DuckDB's GROUP BY and `first` make 0.0 of -0.0, the latter inside lists and structs only; `list` keeps values as they are.
    """
    shown, by = [], []
    for column in relation.columns:
        name = f"stored.{quoted(column.name)}"
        if needs_identity(column.type):
            shown.append(f"list({name})[1] AS {quoted(column.name)}")
            by += [name, f"CAST({name} AS VARCHAR)"]
        else:
            shown.append(name)
            by.append(name)
    return ", ".join(shown), ", ".join(by)


def _merged_sql(relation: Relation, final: Final, summed: str) -> str:
    """Make one row per group of its rows for each band."""
    key = [quoted(name) for name in relation.key]
    by_name = {c.name: duckdb_type(c.type) for c in relation.columns} | {WEIGHT: "BIGINT"}
    named = {m.name for m in final.merged}
    windows = [f"{m.duckdb} AS {quoted(m.name)}" for m in final.merged if m.window]
    columns = [f"{m.duckdb} AS {quoted(m.name)}" for m in final.merged if not m.window]
    columns += [
        f"CAST(coalesce(sum({quoted(name)}), 0) AS {by_name[name]}) AS {quoted(name)}"
        for name in (*relation.partial_sums, WEIGHT)
        if name not in named
    ]
    if windows:
        summed = f"SELECT *, {', '.join(windows)} FROM ({summed})"
    return f"SELECT {', '.join([*key, *columns])} FROM ({summed})" + (f" GROUP BY {', '.join(key)}" if key else "")


def _partials_sql(relation: Relation) -> str:
    assert relation.final is not None
    key = [quoted(name) for name in relation.key]
    by = [quoted(name) for name in relation.summed_by]
    by_name = {c.name: c.type for c in relation.columns}
    sums = [
        f"CAST(coalesce(sum({quoted(name)}), 0) AS {duckdb_type(by_name[name])}) AS {quoted(name)}"
        for name in relation.partial_sums
    ]
    weight = f"CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) AS {WEIGHT}"
    summed = f"SELECT {', '.join([*by, *sums, weight])} FROM {_source(relation)}"
    if by:
        summed += f" GROUP BY {', '.join(by)}"
    if relation.final.bands:
        summed = _merged_sql(relation, relation.final, summed)
    if key:
        summed = f"SELECT * FROM ({summed}) WHERE {WEIGHT} > 0"
    final = ", ".join(
        f"CAST({expression} AS {duckdb_type(column.type)}) AS {quoted(column.name)}"
        for column, expression in zip(relation.final.columns, relation.final.duckdb, strict=True)
    )
    return f"SELECT {final} FROM ({summed})"
