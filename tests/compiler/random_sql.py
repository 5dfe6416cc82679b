"""What writers of random queries share: names, tables in reach, expressions and conditions.

A column is *exact* if any two ways of computing it give the same bits; only such columns are compared, grouped or joined by.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.compiler.random_keys import Mark

NUMBERS = ("int", "dec", "dbl")
LITERALS = {
    "int": ("2", "3", "0"),
    "dec": ("1.50", "4.5"),
    "dbl": ("0.5D", "1.5D"),
    "str": ("'ab'", "'{terms}'", "''", "'#stage'", "'`t__rows`'"),
    "date": ("DATE'2024-01-02'",),
    "ts": ("TIMESTAMP'2024-02-02 00:00:00'", "CAST(NULL AS TIMESTAMP)"),
    "bool": ("true", "false"),
    "arr": ("array(1, 2)",),
}
T = TypeVar("T")


@dataclass(frozen=True)
class Named:
    """A column an expression may use: its SQL, its family, whether it may be compared, and what it is to a key."""

    sql: str
    family: str
    exact: bool = True
    key: Mark | None = None
    refers: Mark | None = None


@dataclass(frozen=True)
class Query:
    """A SELECT and what it gives."""

    sql: str
    columns: tuple[Named, ...]


@dataclass
class Maker:
    """What a query in the making knows: the tables in reach, how much more may be nested, and the one feature asked for."""

    rng: random.Random
    tables: list[tuple[str, tuple[Named, ...]]]
    keyed: frozenset[str] = frozenset()
    finite: bool = True
    only: str = ""
    spark: bool = False
    names: int = 0
    budget: int = 5
    used: set[str] = field(default_factory=set)

    def name(self, prefix: str) -> str:
        """Give a name nobody has."""
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, probability: float) -> bool:
        """Throw a coin."""
        return self.rng.random() < probability

    def choose(self, features: Mapping[str, tuple[float, Callable[..., T]]], *without: str) -> Callable[..., T]:
        """Take one feature by its weight; mostly the one asked for, where it is among them."""
        if self.only in features and self.only not in without and self.chance(0.7):
            name = self.only
        else:
            names = [n for n in features if n not in without]
            (name,) = self.rng.choices(names, [features[n][0] for n in names])
        self.used.add(name)
        return features[name][1]

    def select(self, outputs: list[Named], source: str, prefix: str = "", suffix: str = "") -> Query:
        """Write `SELECT outputs FROM source`, each output under a new name."""
        named = [(o, self.name("x")) for o in outputs]
        items = ", ".join(f"{o.sql} AS {n}" for o, n in named)
        return Query(f"SELECT {prefix}{items} FROM {source}{suffix}", tuple(replace(o, sql=n) for o, n in named))

    def of_family(self, columns: list[Named], family: str, *, exact: bool = False) -> Named:
        """Give some expression of a family."""
        found = [c for c in columns if c.family == family and (c.exact or not exact)]
        if found and self.chance(0.85):
            return self.dressed(self.rng.choice(found), columns, same=True)
        return Named(self.rng.choice(LITERALS[family]), family)

    def expression(self, columns: list[Named], *, exact: bool) -> Named:
        """Write an expression over some column."""
        usable = [c for c in columns if c.exact or not exact]
        return self.dressed(self.rng.choice(usable), columns) if usable else Named("'none'", "str")

    def dressed(self, c: Named, columns: list[Named], *, same: bool = False) -> Named:
        """Put a column into a scalar expression, of its own family or another."""
        if self.chance(0.5) or not c.exact or c.family in ("rec", "map"):
            return c
        forms = self._forms(c, columns)
        sql, family = self.rng.choice([f for f in forms if f[1] == c.family] if same else forms)
        return Named(sql, family)

    def _forms(self, c: Named, columns: list[Named]) -> list[tuple[str, str]]:
        s = c.sql
        match c.family:
            case "int":
                case = f"CASE WHEN {self.predicate(columns)} THEN {s} ELSE 0 END"
                same = [f"{s} + 1", f"coalesce({s}, 0)", f"abs({s})", f"{s} * 2", f"nullif({s}, 2)", f"{s} % 3", case]
                same += [f"if({s} > 1, {s}, -1)", f"greatest({s}, 1)"]
                return [*[(f, "int") for f in same], (f"CAST({s} AS STRING)", "str"), (f"array({s}, 1)", "arr")]
            case "dec":
                same = [f"{s} + 1.5", f"coalesce({s}, 0)", f"-{s}", f"CASE WHEN {self.predicate(columns)} THEN {s} END"]
                return [(f, "dec") for f in same]
            case "dbl":
                return [(f"{s} * 0.5D", "dbl"), (f"coalesce({s}, 0D)", "dbl")]
            case "str":
                same = [f"upper({s})", f"concat({s}, 'it''s')", f"coalesce({s}, 'none')", f"substring({s}, 1, 1)"]
                json = f"get_json_object(concat('{{\"a\":\"', {s}, '\"}}'), '$.a')"
                return [*[(f, "str") for f in [*same, json]], (f"length({s})", "int")]
            case "date":
                return [
                    (f"date_add({s}, 1)", "date"),
                    (f"datediff({s}, DATE'2024-01-01')", "int"),
                    (f"day({s})", "int"),
                ]
            case "ts":
                return [(s, "ts"), (f"date_trunc('DAY', {s})", "ts"), (f"CAST({s} AS DATE)", "date")]
            case "arr":
                same = [f"sort_array({s})", s]
                return [*[(f, "arr") for f in same], (f"size({s})", "int"), (f"get({s}, 0)", "int")]
            case _:
                return [(f"NOT {s}", "bool"), (f"coalesce({s}, false)", "bool")]

    def predicate(self, columns: list[Named]) -> str:
        """Write a condition over exact columns, without subqueries."""
        rng = self.rng
        exact = [c for c in columns if c.exact and c.family in LITERALS]
        if not exact:
            return "true"
        c = rng.choice(exact)
        if self.chance(0.15):
            return f"{c.sql} IS {rng.choice(('', 'NOT '))}NULL"
        plain = f"{c.sql} {rng.choice(('=', '<>', '<', '>=', '<=>'))} {LITERALS[c.family][0]}"
        peers = [o for o in exact if o.family == c.family and o.sql != c.sql]
        if peers and self.chance(0.3):
            plain = f"{c.sql} {rng.choice(('=', '<>', '<', '>=', '<=>'))} {rng.choice(peers).sql}"
        if c.family == "str" and self.chance(0.4):
            plain = rng.choice((f"{c.sql} LIKE 'a%'", f"{c.sql} IN ('a', 'it''s')", f"{c.sql} NOT IN ('a', NULL)"))
            plain = plain if self.chance(0.8) else f"{c.sql} LIKE ANY ('a%', '%b')"
        if c.family == "int" and self.chance(0.3):
            plain = f"{c.sql} BETWEEN 0 AND 3"
        if c.family == "arr":
            plain = rng.choice((f"array_contains({c.sql}, 1)", f"size({c.sql}) > 1"))
        if self.chance(0.2):
            return f"({plain} {rng.choice(('AND', 'OR'))} {self.predicate(columns)})"
        return f"NOT ({plain})" if self.chance(0.1) else plain


def qualified(alias: str, columns: tuple[Named, ...]) -> list[Named]:
    """Give a relation's columns under its alias, with the fields of structs and the values of maps beside them."""
    found = []
    for c in columns:
        sql = f"{alias}.{c.sql}"
        found.append(Named(sql, c.family, c.exact and c.family != "map", c.key, c.refers))
        if c.family == "rec":
            found += [Named(f"{sql}.f", "int", c.exact), Named(f"{sql}.g", "str", c.exact)]
        if c.family == "map":
            found.append(Named(f"{sql}['a']", "int"))
    return found


def pairs(left: list[Named], right: list[Named]) -> list[tuple[Named, Named]]:
    """Give the pairs of columns that can be compared."""
    return [
        (a, b)
        for a in left
        for b in right
        if a.family == b.family and a.exact and b.exact and a.family in ("int", "str", "date", "bool")
    ]


def by_foreign_key(left: list[Named], right: list[Named]) -> list[tuple[tuple[Named, Named], ...]]:
    """Give the pairs of columns, left and right, that join a foreign key to its whole key."""
    found = []
    for ours, theirs, turned in ((left, right, False), (right, left, True)):
        keys = _together([(c, c.key) for c in theirs if c.key is not None])
        for referring in _together([(c, c.refers) for c in ours if c.refers is not None]):
            for key in keys:
                if {m for _, m in key} == {m for _, m in referring}:
                    part = {m: c for c, m in key}
                    pairs = [(c, part[m]) for c, m in referring]
                    found.append(tuple((b, a) if turned else (a, b) for a, b in pairs))
    return found


def _together(columns: list[tuple[Named, Mark]]) -> list[list[tuple[Named, Mark]]]:
    """Group columns that are the parts of one key of one item; keys of which a part is missing are left out."""
    groups: dict[tuple[str, str], list[tuple[Named, Mark]]] = {}
    for column, mark in columns:
        groups.setdefault((column.sql.partition(".")[0], mark.table), []).append((column, mark))
    return [group for group in groups.values() if sorted(m.part for _, m in group) == list(range(group[0][1].parts))]
