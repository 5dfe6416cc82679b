"""Makes random cases: tables, views over them (and over each other), and batches of signed rows that are valid bags.

A column is *exact* if any two ways of computing it give the same bits; only such columns are compared, grouped or joined by.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from runnel.model import types
from runnel.model.relation import Column, Kind, Relation

Row = tuple[object, ...]
Batch = dict[str, list[tuple[Row, int]]]
NAN = float("nan")
TYPES = {
    "int": ("int", "bigint", "smallint"),
    "dec": ("decimal(12,2)", "decimal(9,3)"),
    "dbl": ("double",),
    "str": ("string",),
    "date": ("date",),
    "ts": ("timestamp",),
    "bool": ("boolean",),
}
NUMBERS = ("int", "dec", "dbl")
DOUBLES = (0.0, 0.25, -1.5, 2.75, 49.5, 0.1, 0.7, 12.3, 1e12 + 0.5, 3e-7, 4e-20)
SPECIALS = (NAN, float("inf"), float("-inf"), 1e30)


@dataclass(frozen=True)
class Named:
    """A column an expression may use: its SQL, its family, and whether it may be compared."""

    sql: str
    family: str
    exact: bool = True


@dataclass(frozen=True)
class Query:
    """A SELECT and what it gives."""

    sql: str
    columns: tuple[Named, ...]


@dataclass(frozen=True)
class Case:
    """Tables with their first rows, views in order of definition, and the batches that follow."""

    tables: tuple[Relation, ...]
    start: Batch
    views: tuple[tuple[str, str], ...]
    batches: tuple[Batch, ...]


def random_case(seed: int) -> Case:
    """Make the case of a seed; the same seed always makes the same case."""
    rng = random.Random(seed)
    tables = tuple(_table(rng, f"t{i + 1}") for i in range(rng.randint(1, 3)))
    specials = rng.random() < 0.15
    bags = {table.name: _Bag(rng, table, specials=specials) for table in tables}
    start = {name: bag.change(rng.choice((0, 0, 3, 8, 14))) for name, bag in bags.items()}
    maker = _Maker(
        rng, [(t.name, tuple(Named(c.name, _family(c)) for c in t.columns)) for t in tables], finite=not specials
    )
    views = []
    for i in range(rng.choice((1, 1, 2, 3))):
        query = maker.query(rng.randint(0, 2), top=True)
        views.append((f"v{i + 1}", query.sql))
        maker.tables.append((f"v{i + 1}", query.columns))
    batches = []
    for _ in range(rng.randint(1, 3)):
        batches.append(
            {name: bag.change(rng.choice((0, 1, 3, 6))) for name, bag in bags.items() if rng.random() < 0.75}
        )
    return Case(tables, start, tuple(views), tuple(batches))


def _table(rng: random.Random, name: str) -> Relation:
    columns = [Column("id", types.BIGINT), Column("k", types.parse("int"))]
    families = rng.choices(list(TYPES), k=rng.randint(2, 5))
    columns += [Column(f"{f[0]}{i}", types.parse(rng.choice(TYPES[f]))) for i, f in enumerate(families)]
    return Relation(name, Kind.TABLE, tuple(columns), ("id",) if rng.random() < 0.5 else ())


def _family(column: Column) -> str:
    text = str(column.type)
    return next(family for family, names in TYPES.items() if text in names)


class _Bag:
    """The rows of a table while batches are made, so that only rows that are there are deleted."""

    def __init__(self, rng: random.Random, table: Relation, *, specials: bool) -> None:
        self.rng, self.table, self.specials = rng, table, specials
        self.rows: Counter[Row] = Counter()

    def change(self, size: int) -> list[tuple[Row, int]]:
        signed: list[tuple[Row, int]] = []
        for _ in range(size):
            present = sorted(self.rows, key=repr)
            kind = self.rng.random()
            if present and kind < 0.3:
                row = self.rng.choice(present)
                self._add(signed, row, -self.rng.randint(1, self.rows[row]))
            elif present and kind < 0.6:
                old = self.rng.choice(present)
                self._add(signed, old, -1)
                self._add(signed, self._updated(old), 1)
            else:
                row = self._row()
                self._add(signed, row, 1 if self.table.key else self.rng.choice((1, 1, 1, 2, 3)))
                if self.rng.random() < 0.1:
                    self._add(signed, row, -1)
        return signed

    def _add(self, signed: list[tuple[Row, int]], row: Row, weight: int) -> None:
        signed.append((row, weight))
        self.rows[row] += weight
        if not self.rows[row]:
            del self.rows[row]

    def _updated(self, old: Row) -> Row:
        """Change some columns; the key too, now and then."""
        fresh = self._row()
        keep_key = self.table.key and self.rng.random() < 0.8
        return tuple(
            o if (i == 0 and keep_key) or (i and self.rng.random() < 0.5) else f
            for i, (o, f) in enumerate(zip(old, fresh, strict=True))
        )

    def _row(self) -> Row:
        values = [self._value(c) for c in self.table.columns]
        if self.table.key:
            taken = {row[0] for row in self.rows}
            values[0] = self.rng.choice([i for i in range(60) if i not in taken])
        return tuple(values)

    def _value(self, column: Column) -> object:
        rng = self.rng
        if rng.random() < 0.15:
            return None
        match _family(column):
            case "int":
                return rng.randint(-2, 6)
            case "dec":
                scale = column.type.scale if isinstance(column.type, types.Decimal) else 0
                return Decimal(rng.randint(-500, 2000)).scaleb(-scale)
            case "dbl":
                return rng.choice(SPECIALS) if self.specials and rng.random() < 0.2 else rng.choice(DOUBLES)
            case "str":
                return rng.choice(("a", "b", "ab", "", "it's", "Zürich"))
            case "date":
                return datetime.date(2024, 1, rng.randint(1, 4))
            case "ts":
                return datetime.datetime(2024, 2, rng.randint(1, 3), rng.randint(0, 23), tzinfo=datetime.UTC)
            case _:
                return rng.random() < 0.5


@dataclass
class _Maker:
    """Writes queries over the tables it knows."""

    rng: random.Random
    tables: list[tuple[str, tuple[Named, ...]]]
    finite: bool = True
    names: int = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def query(self, depth: int, *, top: bool = False) -> Query:
        """Write a query; `top` ones may use what only stands at the top of a view."""
        kind = self.rng.random()
        if kind < 0.12:
            return self._union(depth)
        if kind < 0.55:
            return self._grouped(depth, top=top)
        if kind < 0.62 and not top:
            return self._plain(depth, distinct=True)
        if top and depth and kind < 0.75:
            return self._with(depth)
        return self._plain(depth, distinct=self.rng.random() < 0.08)

    def _with(self, depth: int) -> Query:
        inner = self.query(depth - 1)
        name = self.name("c")
        self.tables.append((name, inner.columns))
        outer = self.query(0, top=True)
        self.tables.pop([n for n, _ in self.tables].index(name))
        return Query(f"WITH {name} AS ({inner.sql}) {outer.sql}", outer.columns)

    def _source(self, depth: int, most: int = 3) -> tuple[str, list[Named]]:
        """Write a FROM with one to three items, joined in various ways, and a WHERE now and then."""
        sql, columns = self._item(depth)
        conditions: list[str] = []
        for _ in range(self.rng.choice((0, 0, 1, 1, 2)) if most > 1 else 0):
            item, more = self._item(max(0, depth - 1))
            pairs = [
                (a, b)
                for a in columns
                for b in more
                if a.family == b.family and a.exact and b.exact and a.family in ("int", "str", "date")
            ]
            how = self.rng.random()
            if not pairs or how < 0.08:
                sql += f", {item}" if self.rng.random() < 0.5 else f" CROSS JOIN {item}"
            elif how < 0.1:
                a, b = self.rng.choice(pairs)
                sql += f" LEFT JOIN {item} ON {a.sql} = {b.sql}"
            elif how < 0.2:
                a, b = self.rng.choice(pairs)
                sql += f" JOIN {item} ON {a.sql} < {b.sql}"
            elif how < 0.3:
                a, b = self.rng.choice(pairs)
                sql += f", {item}"
                conditions.append(f"{a.sql} = {b.sql}")
            else:
                a, b = self.rng.choice(pairs)
                extra = f" AND {self.predicate([*columns, *more])}" if self.rng.random() < 0.3 else ""
                sql += f" {self.rng.choice(('JOIN', 'INNER JOIN'))} {item} ON {a.sql} {self.rng.choice(('=', '=', '<=>'))} {b.sql}{extra}"
            columns = [*columns, *more]
        if self.rng.random() < 0.45:
            conditions.append(self.predicate(columns))
        return sql + (f" WHERE {' AND '.join(conditions)}" if conditions else ""), columns

    def _item(self, depth: int) -> tuple[str, list[Named]]:
        alias = self.name("a")
        if depth and self.rng.random() < 0.55:
            inner = self.query(depth - 1)
            return f"({inner.sql}) AS {alias}", [Named(f"{alias}.{c.sql}", c.family, c.exact) for c in inner.columns]
        name, columns = self.rng.choice(self.tables)
        return f"{name} {alias}", [Named(f"{alias}.{c.sql}", c.family, c.exact) for c in columns]

    def _plain(self, depth: int, *, distinct: bool = False) -> Query:
        source, columns = self._source(depth)
        outputs = [self.expression(columns, exact=distinct) for _ in range(self.rng.randint(1, 4))]
        return self._select(outputs, source, "DISTINCT " if distinct else "")

    def _select(self, outputs: list[Named], source: str, prefix: str = "", suffix: str = "") -> Query:
        named = [(o, self.name("x")) for o in outputs]
        items = ", ".join(f"{o.sql} AS {n}" for o, n in named)
        return Query(
            f"SELECT {prefix}{items} FROM {source}{suffix}", tuple(Named(n, o.family, o.exact) for o, n in named)
        )

    def _union(self, depth: int) -> Query:
        families = [self.rng.choice(("int", "dbl", "str", "date")) for _ in range(self.rng.randint(1, 3))]
        branches = []
        for _ in range(self.rng.randint(2, 3)):
            source, columns = self._source(max(0, depth - 1), most=1)
            mixed = ["int" if f == "dbl" and self.rng.random() < 0.3 else f for f in families]
            branches.append(self._select([self.of_family(columns, f) for f in mixed], source))
        word = " UNION ALL " if self.rng.random() < 0.85 else " UNION "
        shown = tuple(
            Named(c.sql, f, word == " UNION ALL " and f != "dbl")
            for c, f in zip(branches[0].columns, families, strict=True)
        )
        return Query(word.join(b.sql for b in branches), shown)

    def _grouped(self, depth: int, *, top: bool) -> Query:
        source, columns = self._source(depth)
        groups = [self.expression(columns, exact=True) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        measures = [self.measure(columns, top=top) for _ in range(self.rng.randint(0 if groups else 1, 3))]
        having = ""
        if self.rng.random() < 0.25:
            having = f" HAVING count(*) {self.rng.choice(('>', '<', '<>'))} {self.rng.randint(0, 2)}"
        if self.rng.random() < 0.25:
            measures = [self._over(m) for m in measures]
        shown = [g for g in groups if measures == [] or self.rng.random() < 0.85]
        outputs = [*shown, *measures] or [Named("count(*)", "int")]
        self.rng.shuffle(outputs)
        by = self._group_by(groups, outputs)
        return self._select(outputs, source, "", by + having)

    def _group_by(self, groups: list[Named], outputs: list[Named]) -> str:
        written = []
        for group in groups:
            ordinal = next((i for i, o in enumerate(outputs, 1) if o is group), None)
            written.append(str(ordinal) if ordinal is not None and self.rng.random() < 0.25 else group.sql)
        if "1" in [g.sql for g in groups]:
            return ""
        return f" GROUP BY {', '.join(written)}" if written else ""

    def _over(self, measure: Named) -> Named:
        if measure.family in ("int", "dec"):
            return Named(f"coalesce({measure.sql}, 0) * 2", measure.family, measure.exact)
        return measure

    def measure(self, columns: list[Named], *, top: bool) -> Named:
        """Write an aggregate; those whose value depends on how it is computed are not exact."""
        rng = self.rng
        numbers = [c for c in columns if c.family in NUMBERS]
        if not numbers or rng.random() < 0.3:
            argument = rng.choice(("*", "1", rng.choice(columns).sql))
            return Named(f"count({argument})" + self._filter(columns), "int")
        number = self.of_family(columns, rng.choice(numbers).family)
        if top and rng.random() < 0.04:
            return Named(f"max({number.sql})", number.family, number.exact)
        function = rng.choice(("sum", "sum", "avg", "count_if", "stddev", "var_pop"))
        if function == "count_if":
            return Named(f"count_if({self.predicate(columns)})", "int")
        if function == "sum":
            return Named(
                f"sum({number.sql})" + self._filter(columns), number.family, number.family != "dbl" and number.exact
            )
        if function == "avg" and number.family == "dec" and not top:
            return Named(f"sum({number.sql})", "dec")
        # DuckDB's own spread of doubles fails on infinities.
        if function in ("stddev", "var_pop") and not (number.exact and (self.finite or number.family != "dbl")):
            return Named(f"avg({number.sql})", "dbl", exact=False)
        family = "dec" if function == "avg" and number.family == "dec" else "dbl"
        return Named(f"{function}({number.sql})" + self._filter(columns), family, exact=False)

    def _filter(self, columns: list[Named]) -> str:
        return f" FILTER (WHERE {self.predicate(columns)})" if self.rng.random() < 0.15 else ""

    def of_family(self, columns: list[Named], family: str) -> Named:
        """Give some expression of a family."""
        found = [c for c in columns if c.family == family]
        if found and self.rng.random() < 0.85:
            return self._dressed(self.rng.choice(found), columns)
        literals = {
            "int": "3",
            "dec": "1.50",
            "dbl": "0.5D",
            "str": "'lit'",
            "date": "DATE'2024-01-02'",
            "bool": "true",
        }
        return Named(literals.get(family, "CAST(NULL AS TIMESTAMP)"), family)

    def expression(self, columns: list[Named], *, exact: bool) -> Named:
        """Write an expression over some column."""
        usable = [c for c in columns if c.exact or not exact]
        return self._dressed(self.rng.choice(usable), columns) if usable else Named("'none'", "str")

    def _dressed(self, c: Named, columns: list[Named]) -> Named:
        rng = self.rng
        if rng.random() < 0.5 or not c.exact:
            return c
        forms = {
            "int": (
                f"{c.sql} + 1",
                f"coalesce({c.sql}, 0)",
                f"abs({c.sql})",
                f"{c.sql} * 2",
                f"CASE WHEN {self.predicate(columns)} THEN {c.sql} ELSE 0 END",
            ),
            "dec": (
                f"{c.sql} + 1.5",
                f"coalesce({c.sql}, 0)",
                f"-{c.sql}",
                f"CASE WHEN {self.predicate(columns)} THEN {c.sql} END",
            ),
            "dbl": (f"{c.sql} * 0.5D", f"coalesce({c.sql}, 0D)"),
            "str": (
                f"upper({c.sql})",
                f"concat({c.sql}, 'it''s')",
                f"coalesce({c.sql}, 'none')",
                f"substring({c.sql}, 1, 1)",
            ),
            "date": (f"date_add({c.sql}, 1)", c.sql),
            "ts": (c.sql, f"date_trunc('DAY', {c.sql})"),
            "bool": (f"NOT {c.sql}", f"coalesce({c.sql}, false)"),
        }
        return Named(rng.choice(forms[c.family]), c.family)

    def predicate(self, columns: list[Named]) -> str:
        """Write a condition over exact columns."""
        rng = self.rng
        exact = [c for c in columns if c.exact]
        if not exact:
            return "true"
        c = rng.choice(exact)
        if rng.random() < 0.15:
            return f"{c.sql} IS {rng.choice(('', 'NOT '))}NULL"
        literal = {
            "int": "2",
            "dec": "4.5",
            "dbl": "1.5D",
            "str": "'ab'",
            "date": "DATE'2024-01-02'",
            "ts": "TIMESTAMP'2024-02-02 00:00:00'",
            "bool": "true",
        }
        plain = f"{c.sql} {rng.choice(('=', '<>', '<', '>=', '<=>'))} {literal[c.family]}"
        if c.family == "str" and rng.random() < 0.4:
            plain = rng.choice((f"{c.sql} LIKE 'a%'", f"{c.sql} IN ('a', 'it''s')"))
        if c.family == "int" and rng.random() < 0.3:
            plain = f"{c.sql} BETWEEN 0 AND 3"
        if rng.random() < 0.2:
            return f"({plain} {rng.choice(('AND', 'OR'))} {self.predicate(columns)})"
        return f"NOT ({plain})" if rng.random() < 0.1 else plain
