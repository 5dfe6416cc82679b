"""Gives a random case the names people give: reserved words, spaces, quotes, other scripts, names that look internal.

A case is written with plain names first (`t1`, `k`, `x5`) and disguised afterwards, so whatever the grammar writes gets them. A
new name may be that of a column of another relation: the text around it is qualified where that matters.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from runnel.model.relation import Relation
    from tests.compiler.random_views import Case

RESERVED = [
    "select",
    "from",
    "where",
    "group",
    "order",
    "by",
    "table",
    "join",
    "on",
    "using",
    "case",
    "when",
    "then",
    "end",
    "and",
    "or",
    "not",
    "in",
    "as",
    "limit",
    "window",
    "lateral",
    "values",
    "interval",
    "date",
    "timestamp",
    "user",
    "all",
    "distinct",
    "union",
    "left",
    "right",
    "natural",
    "cross",
    "filter",
    "over",
    "partition",
    "rows",
    "range",
    "exists",
    "null",
    "true",
    "false",
    "having",
    "sum",
    "count",
    "rand",
    "now",
    "current_date",
    "hash",
    "key",
    "value",
    "element",
    "array",
    "map",
    "struct",
    "pivot",
    "lead",
    "first",
    "last",
]
INTERNAL = [
    "t5",
    "t6",
    "t7",
    "_c1",
    "_c2",
    "_key_1",
    "_key_2",
    "_argument_1",
    "_weight_",
    "weights",
    "col1",
    "col2",
    "x_delta",
    "t1_old",
    "delta__x",
    "rows__k",
    "_sum_1",
    "_1",
    "g0",
    "w",
    "n",
    "m",
    "d",
    "s",
    "q",
    "r",
    "i",
    "j",
    "_op_",
    "stage",
    "terms",
    "_all",
    "fresh",
    "kept",
    "matched",
    "missing",
    "pairs",
    "rn",
    "_mark",
]
ODD = (
    "1st|2|a b|a.b|x-y|it's|q\"q|b`q|`|Größe|名前|MiXeD Case|{terms}|#stage|%s|$1|a,b|(x)|x;y|--c|/*c*/|😀| lead|trail |"
    "İ|ß|select *|'|\\|\\n|é|[0]|:a|a:b|?|@x|_é|x" + "y" * 60
).split("|")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT = re.compile(r"""('(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`)""")
_NAME = re.compile(r"(?<![\w`.$])((?:fk\d[ab]|id|k|[a-z]\d+)(?:\.(?:fk\d[ab]|id|k|[a-z]\d+))*)(?!\w)")


def disguised(rng: random.Random, case: Case, *, spark: bool = True) -> Case:
    """Give the case with other names, the same in tables, rows and views.

    Only Spark tells the common columns of a NATURAL JOIN by their letters as written; for others they are written in one way.
    """
    found = {
        part
        for _, sql in case.views
        for text in _outside(sql)
        for name in _NAME.findall(text)
        for part in name.split(".")
    }
    columns = {column.name for table in case.tables for column in table.columns}
    relations = {table.name for table in case.tables} | {name for name, _ in case.views}
    named = _invent(rng, sorted(found | columns | relations), relations)

    recased = spark or not any("NATURAL " in sql for _, sql in case.views)

    def written(found: re.Match[str]) -> str:
        return ".".join(_quoted(rng, named[part], recased=recased) for part in found[1].split("."))

    def text(sql: str) -> str:
        return "".join(part if at % 2 else _NAME.sub(written, part) for at, part in enumerate(_TEXT.split(sql)))

    views = tuple((named[name], text(sql)) for name, sql in case.views)
    tables = tuple(_renamed(table, named) for table in case.tables)
    batches = tuple({named[name]: rows for name, rows in batch.items()} for batch in case.batches)
    return replace(
        case,
        tables=tables,
        views=views,
        start={named[name]: rows for name, rows in case.start.items()},
        batches=batches,
    )


def _invent(rng: random.Random, names: Iterable[str], relations: set[str]) -> dict[str, str]:
    """Give each name another; no two become the same, in any case of letters."""
    pool = [*RESERVED, *INTERNAL, *ODD]
    rng.shuffle(pool)
    taken: set[str] = set()
    found = {}
    for name in names:
        new = pool.pop() if pool and rng.random() < 0.7 else name
        # A dot in a relation's name says which source it is of.
        while new.casefold() in taken or ("." in new and name in relations):
            new = pool.pop() if pool else f"{name}_{len(taken)}"
        if new == name and rng.random() < 0.2:
            new = name.upper()
        if new.casefold() in taken:
            new = f"{name}_{len(taken)}"
        taken.add(new.casefold())
        found[name] = new
    return found


def _outside(sql: str) -> list[str]:
    return _TEXT.split(sql)[::2]


def _quoted(rng: random.Random, name: str, *, recased: bool) -> str:
    plain = _BARE.fullmatch(name) and name.lower() not in RESERVED
    if plain and rng.random() < 0.6:
        other = rng.random() >= 0.8 and rng.choice((name.upper(), name.lower()))
        return other if other and recased else name
    return "`" + name.replace("`", "``") + "`"


def _renamed(table: Relation, named: dict[str, str]) -> Relation:
    columns = tuple(replace(column, name=named[column.name]) for column in table.columns)
    references = tuple(
        replace(key, columns=tuple(named[c] for c in key.columns), table=named[key.table]) for key in table.references
    )
    return replace(
        table,
        name=named[table.name],
        columns=columns,
        key=tuple(named[part] for part in table.key),
        references=references,
    )
