"""How stored rows become the rows a user sees, and how a change of stored sums becomes a change of those rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler.emit import quoted
from runnel.model import program, tokens
from runnel.model.identity import identical
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from runnel.model.relation import Final, Relation

_ONE = f"CAST(1 AS BIGINT) AS {quoted(WEIGHT)}"


def rows_sql(relation: Relation, stored: str, *, signed: bool, minus: str | None = None) -> str:
    """Give a relation's rows from its stored rows: with `_weight` if `signed`, else each as often as it occurs.

    `stored` is the name (in backquotes) of an input with the stored columns and `_weight`. `minus` names the input that holds
    all of the stored rows that take others away, and perhaps more; "" says that there are none.
    """
    if relation.final is not None:
        return _final_rows(relation, relation.final, stored, signed=signed)
    columns = ", ".join(quoted(c.name) for c in relation.columns)
    if signed:
        return f"SELECT {columns}, {quoted(WEIGHT)} FROM {stored}"
    if relation.key and minus == "":
        return f"SELECT {columns} FROM {stored}"
    if relation.key:
        return _untouched_and_netted(relation, stored, minus) if minus else _netted(relation, stored)
    copies = stored if minus == "" else f"(SELECT * FROM ({_net(relation, stored)}) WHERE {quoted(WEIGHT)} > 0)"
    return (
        f"SELECT {columns} FROM {copies}\n"
        f"LATERAL VIEW explode(sequence(CAST(1 AS BIGINT), {quoted(WEIGHT)})) _copies AS _copy"
    )


def _net(relation: Relation, stored: str) -> str:
    shown, by = identical(relation.columns)
    return f"SELECT {shown}, CAST(sum({quoted(WEIGHT)}) AS BIGINT) AS {quoted(WEIGHT)} FROM {stored} GROUP BY {by}"


def _netted(relation: Relation, stored: str) -> str:
    columns = ", ".join(quoted(c.name) for c in relation.columns)
    return f"SELECT {columns} FROM ({_net(relation, stored)}) WHERE {quoted(WEIGHT)} > 0"


def _untouched_and_netted(relation: Relation, stored: str, minus: str) -> str:
    """Add up only the rows of keys that something was taken from; of all others the one stored row is the row."""
    keys = [quoted(name) for name in relation.key]
    touched = f"(SELECT DISTINCT {', '.join(keys)} FROM {minus} WHERE {quoted(WEIGHT)} < 0) AS t"
    on = " AND ".join(f"s.{k} <=> t.{k}" for k in keys)
    columns = ", ".join(f"s.{quoted(c.name)}" for c in relation.columns)
    some = f"(SELECT {columns}, s.{quoted(WEIGHT)} FROM {stored} AS s LEFT SEMI JOIN {touched} ON {on})"
    return f"SELECT {columns} FROM {stored} AS s LEFT ANTI JOIN {touched} ON {on}\nUNION ALL\n{_netted(relation, some)}"


def part_sql(relation: Relation, role: program.Role) -> str:
    """Give the part of a table's change whose keys are there before and after (`updated`), or only before (`removed`).

    Keys are unique, so the weights of a key add up to 0 or to -1.
    """
    columns = ", ".join(quoted(name) for name in (*(c.name for c in relation.columns), WEIGHT))
    keys = ", ".join(quoted(name) for name in relation.key)
    total = f"sum({quoted(WEIGHT)}) OVER (PARTITION BY {keys})"
    sum_ = quoted("_total" + "_" * max(len(c.name) for c in relation.columns))  # longer than any other
    counted = f"SELECT {columns}, {total} AS {sum_} FROM {program.name(relation.name, 'delta')}"
    return f"SELECT {columns} FROM ({counted}) WHERE {sum_} {'=' if role == 'updated' else '<'} 0"


def _final_rows(relation: Relation, final: Final, stored: str, *, signed: bool) -> str:
    sums = [f"{_summed(relation, name)} AS {quoted(name)}" for name in (*relation.partial_sums, WEIGHT)]
    keys = [quoted(name) for name in relation.key]
    by = [quoted(name) for name in relation.summed_by]
    grouped = f"\n  GROUP BY {', '.join(by)}" if by else ""
    columns = [f"{sql} AS {quoted(c.name)}" for sql, c in zip(final.spark, final.columns, strict=True)]
    columns += [_ONE] if signed else []
    there = f"\nWHERE {quoted(WEIGHT)} > 0" if keys else ""
    inner = f"SELECT {', '.join([*by, *sums])}\n  FROM {stored}{grouped}"
    if final.bands:
        inner = _merged(relation, final, inner, {"": ""}, keys)
    return f"SELECT {', '.join(columns)}\nFROM ({inner}){there}"


def _merged(relation: Relation, final: Final, inner: str, sides: dict[str, str], keys: list[str]) -> str:
    """Make one row per group of its rows for each band; the sums of each of `sides` have names that begin with it."""
    named = {m.name for m in final.merged}
    windows: list[str] = []
    columns: list[str] = []
    for side, prefix in sides.items():
        for m in final.merged:
            sql = _renamed(m.spark, side, relation, final) if side else m.spark
            (windows if m.window else columns).append(f"{sql} AS {quoted(prefix + m.name)}")
        for name in (*relation.partial_sums, WEIGHT):
            if name not in named:
                type_ = _type(relation, name)
                total = f"coalesce(CAST(sum({quoted(prefix + name)}) AS {type_}), CAST(0 AS {type_}))"
                columns.append(f"{total} AS {quoted(prefix + name)}")
    if windows:
        inner = f"SELECT *, {', '.join(windows)}\n  FROM ({inner})"
    grouped = f"\n  GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *columns])}\n  FROM ({inner}){grouped}"


def _type(relation: Relation, name: str) -> str:
    return next((str(c.type) for c in relation.columns if c.name == name), "bigint")


def _summed(relation: Relation, name: str, condition: str = "") -> str:
    """Add up a stored column; nothing adds up to zero."""
    type_ = _type(relation, name)
    value = f"CASE WHEN {condition} THEN {quoted(name)} END" if condition else quoted(name)
    return f"coalesce(CAST(sum({value}) AS {type_}), CAST(0 AS {type_}))"


def rows_delta_sql(relation: Relation) -> str:
    """Give the signed rows by which a relation of partials changes, from the change of its stored sums.

    One pass over the sums of the touched groups: before and after side by side, -1 for the row before and +1 for the row
    after, nothing where they are equal. A global aggregate has exactly one row before and after.
    """
    assert relation.final is not None, relation.name
    final = relation.final
    before = [_renamed(sql, "_before", relation, final, relation.key) for sql in final.spark]
    after = [_renamed(sql, "_after", relation, final, relation.key) for sql in final.spark]
    numbers = range(1, len(before) + 1)
    pairs = [f"{b} AS `_was_{i}`, {a} AS `_is_{i}`" for i, b, a in zip(numbers, before, after, strict=True)]
    there = (
        ["`_before _weight` > 0 AS `_was`", "`_after _weight` > 0 AS `_is`"]
        if relation.key
        else ["true AS `_was`", "true AS `_is`"]
    )
    columns = [
        f"CASE WHEN `_sign` < 0 THEN `_was_{i}` ELSE `_is_{i}` END AS {quoted(c.name)}"
        for i, c in zip(numbers, final.columns, strict=True)
    ]
    same = " AND ".join(f"`_was_{i}` <=> `_is_{i}`" for i in numbers)
    return (
        f"SELECT {', '.join(columns)}, `_sign` AS {quoted(WEIGHT)}\n"
        f"FROM (SELECT {', '.join([*pairs, *there])}\n  FROM ({_both_sums(relation)}))\n"
        "LATERAL VIEW explode(array(CAST(-1 AS BIGINT), CAST(1 AS BIGINT))) _signs AS `_sign`\n"
        f"WHERE CASE WHEN `_sign` < 0 THEN `_was` ELSE `_is` END AND NOT (`_was` AND `_is` AND {same})"
    )


def _both_sums(relation: Relation) -> str:
    """Write the sums of the touched groups before and after the change, named `_before x` and `_after x`."""
    delta, old = program.name(relation.name, "stored_delta"), program.name(relation.name, "stored_old")
    assert relation.final is not None, relation.name
    bands = relation.final.bands
    stored = [quoted(name) for name in (*relation.summed_by, *relation.partial_sums, WEIGHT)]
    keys = [quoted(name) for name in relation.key]
    touched = ""
    if keys:
        on = " AND ".join(f"o.{k} <=> d.{k}" for k in keys)
        touched = f" LEFT SEMI JOIN (SELECT DISTINCT {', '.join(keys)} FROM {delta}) AS d ON {on}"
    hint = "/*+ BROADCAST(d) */ " if keys else ""
    named = [
        f"{k} AS {q}"
        for name, k in zip(relation.key, keys, strict=True)
        for q in (quoted(f"_before {name}"), quoted(f"_after {name}"))
    ]
    by = [quoted(name) for name in relation.summed_by]
    sums = list(by if bands else named)
    for name in (*relation.partial_sums, WEIGHT):
        sums.append(f"{_summed(relation, name, '`_old`')} AS {quoted('_before ' + name)}")
        sums.append(f"{_summed(relation, name)} AS {quoted('_after ' + name)}")
    both = (
        f"SELECT {', '.join(sums)}\n"
        f"  FROM (SELECT {hint}{', '.join('o.' + s for s in stored)}, true AS `_old` FROM {old} AS o{touched}\n"
        f"    UNION ALL SELECT {', '.join(stored)}, false AS `_old` FROM {delta})"
        + (f"\n  GROUP BY {', '.join(by)}" if by else "")
    )
    if not bands:
        return both
    sides = {"_before": "_before ", "_after": "_after "}
    merged = _merged(relation, relation.final, both, sides, keys)
    return f"SELECT *, {', '.join(named)}\n  FROM ({merged})" if named else merged


def _renamed(sql: str, side: str, relation: Relation, final: Final, keys: tuple[str, ...] = ()) -> str:
    """Make a formula read the sums of one side; a key is the same on both sides until it is given two names, as `keys`."""
    own = {*relation.partial_sums, WEIGHT, *(m.name for m in final.merged), *keys}
    return tokens.replace_names(sql, {name: f"{side} {name}" for name in tokens.quoted_names(sql) if name in own})
