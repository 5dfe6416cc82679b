"""Writes what stands between FROM and GROUP BY: items, joins of every kind, generators, and conditions with subqueries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.compiler.random_sql import LITERALS, Named, by_foreign_key, pairs, qualified

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.compiler.random_sql import Maker, Query

    Write = Callable[["Maker", int], Query]


@dataclass
class Source:
    """A FROM being written: the text, the columns in reach, the conditions of its WHERE, and its single table if it is one."""

    sql: str
    columns: list[Named]
    conditions: list[str] = field(default_factory=list)
    table: str = ""

    def unique(self, m: Maker) -> str:
        """Give the column no two of its rows share, if there is one."""
        return self.columns[0].sql if self.table in m.keyed else ""

    @property
    def text(self) -> str:
        """The whole of it."""
        return self.sql + (f" WHERE {' AND '.join(self.conditions)}" if self.conditions else "")


def source(m: Maker, write: Write, depth: int, *, most: int = 3) -> Source:
    """Write a FROM with one to three items, joined in various ways, and a WHERE now and then."""
    sql, columns, table = _item(m, write, depth)
    found = Source(sql, columns, table=table)
    joins = m.rng.choice((0, 0, 1, 1, 2)) if most > 1 else 0
    for _ in range(max(joins, 1) if m.only in JOINS else joins):
        m.choose(JOINS)(m, write, found, max(0, depth - 1))
        found.table = ""
    if m.chance(0.08) or (m.only in GENERATORS and m.chance(0.8)):
        m.choose(GENERATORS)(m, found)
        found.table = ""
    if m.chance(0.45) or m.only in CONDITIONS:
        found.conditions.append(condition(m, found.columns))
    return found


def _item(m: Maker, write: Write, depth: int, beside: list[Named] | None = None) -> tuple[str, list[Named], str]:
    """Write a table or a subquery; often one that a foreign key ties to what stands beside it, if there is one."""
    alias = m.name("a")
    tied = [(n, c) for n, c in m.tables if beside and by_foreign_key(beside, qualified(alias, c))]
    if tied and m.chance(0.6):
        name, known = m.rng.choice(tied)
        return f"{name} {alias}", qualified(alias, known), name
    if depth and m.budget > 0 and m.chance(0.55):
        m.budget -= 1
        inner = write(m, depth - 1)
        return f"({inner.sql}) AS {alias}", qualified(alias, inner.columns), ""
    if m.chance(0.03) or (m.only == "values" and m.chance(0.5)):
        m.used.add("values")
        names = (m.name("x"), m.name("x"))
        rows = m.rng.choice(("(1, 'a'), (2, 'b'), (2, NULL)", "(3, 'ab'), (NULL, 'a')", "(1, '')"))
        columns = (Named(names[0], "int"), Named(names[1], "str"))
        return f"(VALUES {rows}) AS {alias}({', '.join(names)})", qualified(alias, columns), ""
    name, known = m.rng.choice(m.tables if m.chance(0.6) else m.tables[-2:])
    return f"{name} {alias}", qualified(alias, known), name


def _matched(m: Maker, left: list[Named], right: list[Named], *, theta: float = 0.1) -> str:
    """Write a condition between two sides: equal, null-safe, by order, with one-sided parts or none in common."""
    found = pairs(left, right)
    if not found:
        return m.predicate(left)
    keys = by_foreign_key(left, right)
    if keys and m.chance(0.65):
        text = " AND ".join(f"{a.sql} {m.rng.choice(('=', '=', '<=>'))} {b.sql}" for a, b in m.rng.choice(keys))
        return text if m.chance(0.75) else f"{text} AND {m.predicate(m.rng.choice((left, right, [*left, *right])))}"
    a, b = m.rng.choice(found)
    if m.chance(theta):
        return f"{a.sql} {m.rng.choice(('<', '>=', '<>'))} {b.sql}"
    text = f"{a.sql} {m.rng.choice(('=', '=', '=', '<=>'))} {b.sql}"
    if m.chance(0.15):
        a, b = m.rng.choice(found)
        text += f" AND {a.sql} {m.rng.choice(('=', '<=>', '<='))} {b.sql}"
    if m.chance(0.3):
        text += f" AND {m.predicate(m.rng.choice((left, right, [*left, *right])))}"
    return text if m.chance(0.95) else f"({text} OR {m.predicate(right)})"


def _inner(m: Maker, write: Write, found: Source, depth: int) -> None:
    item, more, _ = _item(m, write, depth, found.columns)
    both = [*found.columns, *more]
    common = pairs(found.columns, more)
    if not common or m.chance(0.1):
        found.sql += f" CROSS JOIN {item}"
        if common and m.chance(0.5):
            a, b = m.rng.choice(common)
            found.conditions.append(f"{a.sql} = {b.sql}")
    else:
        word = m.rng.choice(("JOIN", "INNER JOIN"))
        found.sql += f" {word} {item} ON {_matched(m, found.columns, more, theta=0.15)}"
    found.columns = both


def _outer(side: str) -> Callable[[Maker, Write, Source, int], None]:
    def join(m: Maker, write: Write, found: Source, depth: int) -> None:
        item, more, _ = _item(m, write, depth, found.columns)
        found.sql += f" {side} JOIN {item} ON {_matched(m, found.columns, more)}"
        found.columns = [*found.columns, *more]

    return join


def _half(word: str) -> Callable[[Maker, Write, Source, int], None]:
    def join(m: Maker, write: Write, found: Source, depth: int) -> None:
        item, more, _ = _item(m, write, depth, found.columns)
        found.sql += f" {word} JOIN {item} ON {_matched(m, found.columns, more)}"

    return join


def _using(m: Maker, write: Write, found: Source, depth: int) -> None:
    """Join two plain tables by a column both have; only as the first join, for names to be unambiguous."""
    base = [(n, c) for n, c in m.tables if any(x.sql == "k" for x in c)]
    if " JOIN " in found.sql or found.table not in [n for n, _ in base]:
        return _inner(m, write, found, depth)
    name, columns = m.rng.choice(base)
    alias = m.name("a")
    side = m.rng.choice(("", "LEFT ", "RIGHT ", "FULL "))
    on = m.rng.choice(("k", "id, k", "id"))
    found.sql += f" {side}JOIN {name} {alias} USING ({on})"
    shown = [Named(n.strip(), "int") for n in on.split(",")]
    found.columns = [*shown, *found.columns, *qualified(alias, columns)]
    return None


def _natural(m: Maker, write: Write, found: Source, depth: int) -> None:
    base = [(n, c) for n, c in m.tables if any(x.sql == "k" for x in c)]
    if " JOIN " in found.sql or found.table not in [n for n, _ in base]:
        return _inner(m, write, found, depth)
    name, columns = m.rng.choice(base)
    other, alias = m.rng.choice([c for c in columns if c.family != "map"]), m.name("x")
    item = m.name("a")
    side = m.rng.choice(("", "LEFT ", "FULL "))
    found.sql += f" NATURAL {side}JOIN (SELECT k, {other.sql} AS {alias} FROM {name}) {item}"
    found.columns = [*found.columns, Named("k", "int"), Named(f"{item}.{alias}", other.family, other.exact)]
    return None


def _lateral(m: Maker, write: Write, found: Source, depth: int) -> None:
    """Join each row with an aggregate over the rows that match it."""
    item, inner, _ = _item(m, write, 0)
    common = pairs(found.columns, inner)
    if not common:
        return _inner(m, write, found, depth)
    a, b = m.rng.choice(common)
    alias, n = m.name("a"), m.name("x")
    value = m.rng.choice(("count(*)", f"max({b.sql})"))
    found.sql += f" CROSS JOIN LATERAL (SELECT {value} AS {n} FROM {item} WHERE {b.sql} = {a.sql}) AS {alias}"
    found.columns = [*found.columns, Named(f"{alias}.{n}", "int" if value == "count(*)" else b.family)]
    return None


JOINS: dict[str, tuple[float, Callable[[Maker, Write, Source, int], None]]] = {
    "inner join": (5, _inner),
    "left join": (2, _outer("LEFT")),
    "right join": (0.8, _outer("RIGHT")),
    "full join": (1, _outer("FULL")),
    "semi join": (0.7, _half("LEFT SEMI")),
    "anti join": (0.7, _half("LEFT ANTI")),
    "using": (0.5, _using),
    "natural join": (0.3, _natural),
    "lateral subquery": (0.2, _lateral),
}


def _exploded(m: Maker, found: Source) -> None:
    arrays = [c.sql for c in found.columns if c.family == "arr"]
    ints = [c for c in found.columns if c.family == "int"]
    if not arrays or m.chance(0.3):
        arrays = [f"array({m.rng.choice(ints).sql if ints else '1'}, 2)", "array(1, NULL)"]
    alias, x, p = m.name("e"), m.name("x"), m.name("x")
    outer = m.rng.choice(("", "", "OUTER "))
    if m.chance(0.3):
        call, names = f"posexplode({m.rng.choice(arrays)})", f"{p}, {x}"
        found.columns = [*found.columns, Named(f"{alias}.{p}", "int")]
    else:
        call, names = f"explode({m.rng.choice(arrays)})", x
    found.sql += f" LATERAL VIEW {outer}{call} {alias} AS {names}"
    exact = all(c.exact for c in ints)
    found.columns = [*found.columns, Named(f"{alias}.{x}", "int", exact)]


def _exploded_map(m: Maker, found: Source) -> None:
    ints = [c for c in found.columns if c.family == "int" and c.exact]
    maps = [c.sql for c in found.columns if c.family == "map"]
    made = f"map('p', {m.rng.choice(ints).sql if ints else '1'}, 'q', 7)"
    alias, k, v = m.name("e"), m.name("x"), m.name("x")
    found.sql += f" LATERAL VIEW explode({m.rng.choice([*maps, made])}) {alias} AS {k}, {v}"
    found.columns = [*found.columns, Named(f"{alias}.{k}", "str"), Named(f"{alias}.{v}", "int")]


GENERATORS: dict[str, tuple[float, Callable[[Maker, Source], None]]] = {
    "explode": (3, _exploded),
    "explode map": (1, _exploded_map),
}


def condition(m: Maker, columns: list[Named], depth: int = 0) -> str:
    """Write a condition, now and then with a subquery, alone or inside OR, AND, NOT or CASE."""
    if not (m.chance(0.2) or m.only in CONDITIONS):
        return m.predicate(columns)
    text = m.choose(CONDITIONS)(m, columns)
    form = m.rng.random()
    if form < 0.12:
        return f"({text} OR {m.predicate(columns)})"
    if form < 0.24:
        return f"{text} AND {m.predicate(columns)}"
    if form < 0.3:
        return f"NOT ({text})"
    if form < 0.36:
        return f"CASE WHEN {m.predicate(columns)} THEN {text} ELSE false END"
    if form < 0.42 and depth < 1:
        return f"({text} {m.rng.choice(('AND', 'OR'))} {condition(m, columns, depth + 1)})"
    return text


def inner_rows(m: Maker, columns: list[Named], *, correlated: float = 0.6) -> tuple[str, list[Named]]:
    """Write `item WHERE ...` for a subquery, mostly tied to a column of the query around it."""
    item, inner, _ = _item(m, _never, 0, columns)
    where = []
    common = pairs(columns, inner)
    keys = by_foreign_key(columns, inner)
    if keys and correlated and m.chance(0.6):
        where += [f"{b.sql} = {a.sql}" for a, b in m.rng.choice(keys)]
    elif common and m.chance(correlated):
        a, b = m.rng.choice(common)
        where.append(f"{b.sql} {m.rng.choice(('=', '=', '=', '=', '<=>', '<', '<>'))} {a.sql}")
    if m.chance(0.4):
        where.append(m.predicate(inner))
    return item + (f" WHERE {' AND '.join(where)}" if where else ""), inner


def _never(m: Maker, depth: int) -> Query:
    raise AssertionError((m, depth))


def _exists(m: Maker, columns: list[Named]) -> str:
    rows, inner = inner_rows(m, columns, correlated=0.85)
    return f"{m.rng.choice(('', 'NOT '))}EXISTS (SELECT {m.rng.choice(('1', '*', inner[0].sql))} FROM {rows})"


def _in(m: Maker, columns: list[Named]) -> str:
    two = m.chance(0.1)
    # DuckDB has no correlated IN of two columns.
    rows, inner = inner_rows(m, columns, correlated=0 if two else 0.3)
    common = pairs(columns, inner)
    if not common:
        return _exists(m, columns)
    a, b = m.rng.choice(common)
    keys = [pair for pair in by_foreign_key(columns, inner) if len(pair) == 1]
    if keys and m.chance(0.6):
        a, b = m.rng.choice(keys)[0]
    word = m.rng.choice(("IN", "NOT IN"))
    if two:
        c, d = m.rng.choice(common)
        return f"({a.sql}, {c.sql}) {word} (SELECT {b.sql}, {d.sql} FROM {rows})"
    return f"{a.sql} {word} (SELECT {b.sql} FROM {rows})"


def scalar(m: Maker, columns: list[Named], wanted: str = "") -> Named:
    """Write a scalar subquery of a family, or of any."""
    rows, inner = inner_rows(m, columns)
    usable = [c for c in inner if c.exact and c.family in LITERALS and c.family not in ("arr", "bool")]
    usable = [c for c in usable if not wanted or c.family == wanted]
    if not usable or (wanted in ("", "int") and m.chance(0.3)):
        return Named(f"(SELECT count(*) FROM {rows})", "int")
    c = m.rng.choice(usable)
    function = m.rng.choice(("max", "min", "sum") if c.family in ("int", "dec") else ("max", "min"))
    return Named(f"(SELECT {function}({c.sql}) FROM {rows})", c.family)


def _compared(m: Maker, columns: list[Named]) -> str:
    found = [c for c in columns if c.exact and c.family in ("int", "dec", "str", "date")]
    if not found:
        return _exists(m, columns)
    c = m.rng.choice(found)
    value = scalar(m, columns, c.family)
    if value.family != c.family:
        return f"{value.sql} > {m.rng.choice(('0', '1', '2'))}"
    return f"{c.sql} {m.rng.choice(('=', '<', '>=', '<>'))} {value.sql}"


CONDITIONS: dict[str, tuple[float, Callable[[Maker, list[Named]], str]]] = {
    "exists": (2, _exists),
    "in": (2, _in),
    "scalar subquery": (1.5, _compared),
}
