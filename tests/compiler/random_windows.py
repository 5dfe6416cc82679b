"""Writes window functions, picks by them, and LIMIT: always ordered by every column that is used, so that ties are equal rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compiler.random_sources import source
from tests.compiler.random_sql import Named, Query

if TYPE_CHECKING:
    from tests.compiler.random_sources import Write
    from tests.compiler.random_sql import Maker

RUNNING = (
    "",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
)
RANGES = (
    " RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    "",
)


def windowed(m: Maker, write: Write, depth: int) -> Query:
    """Write windows over the rows of a source, with or without PARTITION BY."""
    return _windowed(m, write, depth, parted=m.chance(0.98))


def global_window(m: Maker, write: Write, depth: int) -> Query:
    """Write a window over all groups or for the first rows of all, and now and then over all rows, which has to be full."""
    if m.chance(0.2):
        return _windowed(m, write, depth, parted=False)
    return ranked_groups(m, write, depth, parted=False) if m.chance(0.5) else picked(m, write, depth, parted=False)


def _windowed(m: Maker, write: Write, depth: int, *, parted: bool) -> Query:
    found = source(m, write, depth)
    used = _used(m, found.columns)
    parts = m.rng.sample(used, min(len(used), m.rng.choice((1, 1, 2)))) if parted else []
    unique = found.unique(m)
    functions = [_function(m, used, parts, unique) for _ in range(m.rng.randint(1, 3))]
    if m.chance(0.15):
        functions.append(Named(f"{used[0].sql} IS NULL OR {_function(m, used, parts, unique).sql} IS NULL", "bool"))
    return m.select([*used, *functions], found.text)


def _used(m: Maker, columns: list[Named]) -> list[Named]:
    exact = {c.sql: c for c in columns if c.exact and c.family not in ("rec", "arr", "map")}
    found = sorted(exact.values(), key=lambda c: c.sql)
    return m.rng.sample(found, min(len(found), m.rng.randint(2, 4))) or [Named("1 + 0", "int")]


def _order(m: Maker, used: list[Named], unique: str = "") -> str:
    """Order by all of them, in any order and either way, or by what is unique."""
    ways = ("", "", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")
    if unique and m.chance(0.4):
        return unique + m.rng.choice(ways)
    return ", ".join(c.sql + m.rng.choice(ways) for c in m.rng.sample(used, len(used)))


def _function(m: Maker, used: list[Named], parts: list[Named], unique: str) -> Named:
    by = f"PARTITION BY {', '.join(p.sql for p in parts)} " if parts else ""
    order = _order(m, used, unique)
    c = m.rng.choice(used)
    match m.rng.choice(("number", "rank", "rank", "offset", "offset", "edge", "sum", "sum", "frame", "range", "whole")):
        case "number":
            return Named(f"{m.rng.choice(('row_number()', 'ntile(2)'))} OVER ({by}ORDER BY {order})", "int")
        case "rank":
            some = _order(m, m.rng.sample(used, m.rng.randint(1, len(used))))
            name = m.rng.choice(("rank()", "dense_rank()", "percent_rank()", "cume_dist()"))
            double = name in ("percent_rank()", "cume_dist()")
            return Named(f"{name} OVER ({by}ORDER BY {some})", "dbl" if double else "int", not double)
        case "offset":
            name = m.rng.choice(("lag", "lead"))
            return Named(f"{name}({c.sql}{m.rng.choice(('', ', 2'))}) OVER ({by}ORDER BY {order})", c.family)
        case "edge":
            name = m.rng.choice(("first_value", "last_value"))
            return Named(f"{name}({c.sql}) OVER ({by}ORDER BY {order}{m.rng.choice(RUNNING)})", c.family)
        case "range":
            return _ranged(m, used, by)
        case "whole":
            return _aggregate(m, used, by.strip())
    return _aggregate(m, used, f"{by}ORDER BY {order}{m.rng.choice(RUNNING)}")


def _ranged(m: Maker, used: list[Named], by: str) -> Named:
    ints = [c for c in used if c.family == "int"]
    if not ints:
        return _aggregate(m, used, by.strip())
    return _aggregate(m, used, f"{by}ORDER BY {m.rng.choice(ints).sql}{m.rng.choice(RANGES)}")


def _aggregate(m: Maker, used: list[Named], over: str) -> Named:
    c = m.rng.choice(used)
    if c.family in ("int", "dec", "dbl") and m.chance(0.6) and (m.finite or c.family != "dbl"):
        return Named(f"sum({c.sql}) OVER ({over})", c.family, c.family != "dbl")
    name = m.rng.choice(("count", "min", "max"))
    if c.family == "bool":
        name = "count"
    return Named(f"{name}({c.sql}) OVER ({over})", "int" if name == "count" else c.family)


def picked(m: Maker, write: Write, depth: int, *, parted: bool = True) -> Query:
    """Keep the first rows of each group by their number or rank."""
    found = source(m, write, depth)
    used = _used(m, found.columns)
    parts = m.rng.sample(used, m.rng.randint(1, max(1, len(used) - 1))) if parted and m.chance(0.85) else []
    by = f"PARTITION BY {', '.join(p.sql for p in parts)} " if parts else ""
    name = m.rng.choice(("row_number()", "row_number()", "rank()", "dense_rank()"))
    number = Named(f"{name} OVER ({by}ORDER BY {_order(m, used, found.unique(m))})", "int")
    # Over all rows only the first ones: what comes behind them depends on every row.
    which = m.rng.choice(("= 1", "<= 2", "<= 3", "BETWEEN 2 AND 3", *(["> 1"] if parts else [])))
    if m.chance(0.25):
        return m.select(used, found.text, "", f" QUALIFY {number.sql} {which}")
    inner = m.select([*used, number], found.text)
    *shown, rank = inner.columns
    test = f"{rank.sql} {which}"
    kept = [c for c in (*shown, rank) if m.chance(0.8)] or shown
    alias = m.name("a")
    return m.select([Named(f"{alias}.{c.sql}", c.family) for c in kept], f"({inner.sql}) {alias} WHERE {alias}.{test}")


def ranked_groups(m: Maker, write: Write, depth: int, *, parted: bool = True) -> Query:
    """Rank groups by what was aggregated over them."""
    found = source(m, write, depth)
    groups = _used(m, found.columns)[:2]
    groups = [g for g in groups if "." in g.sql]
    total = Named(f"count({m.rng.choice(found.columns).sql})", "int")
    keys = ", ".join(g.sql for g in groups)
    by = f"PARTITION BY {groups[0].sql} " if groups and parted and m.chance(0.6) else ""
    rank = Named(f"{m.rng.choice(('rank()', 'dense_rank()'))} OVER ({by}ORDER BY {total.sql} DESC)", "int")
    share = Named(f"sum({total.sql}) OVER ({by.strip()})", "int")
    outputs = [*groups, total, m.rng.choice((rank, share))]
    return m.select(outputs, found.text, "", f" GROUP BY {keys}" if keys else "")


def limited(m: Maker, write: Write, depth: int) -> Query:
    """Keep the first rows of all."""
    found = source(m, write, depth)
    used = _used(m, found.columns)
    offset = f" OFFSET {m.rng.randint(1, 2)}" if m.chance(0.25) else ""
    tail = f" ORDER BY {_order(m, used, found.unique(m))} LIMIT {m.rng.randint(1, 5)}{offset}"
    distinct = "DISTINCT " if m.chance(0.15) else ""
    if distinct:
        query = m.select(used, found.text, distinct)
        order = _order(m, list(query.columns))
        return Query(f"{query.sql} ORDER BY {order} LIMIT {m.rng.randint(1, 5)}{offset}", query.columns)
    return m.select(used, found.text, "", tail)
