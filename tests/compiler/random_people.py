"""Writes what people write beyond the plain grammar: stars, aliases that shadow, joins in chains, structs, odd literals.

Each form is a query that has one answer: where an order decides something, it leaves no ties but equal ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compiler.random_sources import condition
from tests.compiler.random_sql import Named, Query, qualified

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.compiler.random_sql import Maker

TEXTS = (
    "'{terms}'",
    "'#stage'",
    "'`t__rows`'",
    "'%s'",
    "'$1 {0}'",
    "'-- no comment'",
    "'/* nor this */'",
    "'a\\\\b'",
    "'it''s'",
    '"double"',
    "'SELECT 1; DROP'",
    "'_weight'",
    "'x__delta'",
    "'😀'",
    "''",
)
COMPARABLE = ("int", "str", "date", "bool", "dec", "ts", "wide")
OVER_NOTHING = (
    ("count(*)", "int"),
    ("count(DISTINCT {c})", "int"),
    ("count_if({c} IS NOT NULL)", "int"),
    ("size(collect_list({c}))", "int"),
    ("size(collect_set({c}))", "int"),
    ("sum({i})", "int"),
    ("max({c})", ""),
    ("coalesce(max({i}), -1)", "int"),
    ("bool_or({i} > 1)", "bool"),
    ("sort_array(array_agg({i}))", "arr"),
)


def _table(m: Maker) -> tuple[str, list[Named]]:
    """Give a relation under an alias, and its columns."""
    name, columns = m.rng.choice(m.tables)
    alias = m.name("a")
    return f"{name} {alias}", [c for c in qualified(alias, columns) if c.sql.count(".") == 1 and "[" not in c.sql]


def _column(m: Maker, columns: list[Named], *families: str) -> Named:
    found = [c for c in columns if c.exact and c.family in (families or COMPARABLE)]
    literal = Named("7 - 5", "int") if not families or "int" in families else Named("CAST(NULL AS STRING)", families[0])
    return m.rng.choice(found) if found else literal


def _bare(column: Named) -> str:
    return column.sql.rpartition(".")[2]


def starred(m: Maker, depth: int) -> Query:
    """Select everything, with more beside it or less."""
    del depth
    name, columns = m.rng.choice(m.tables)
    x, alias = m.name("x"), m.name("a")
    own = [Named(c.sql, c.family, c.exact) for c in columns]
    i = _column(m, list(columns), "int")
    form = m.rng.randint(0, 4)
    if form == 0 and len(own) > 1:
        gone = m.rng.choice(own)
        return Query(f"SELECT * EXCEPT ({gone.sql}) FROM {name}", tuple(c for c in own if c is not gone))
    if form == 1:
        return Query(f"SELECT {alias}.*, {i.sql} + 1 AS {x} FROM {name} {alias}", (*own, Named(x, "int")))
    if form == 2:
        return Query(f"SELECT {m.rng.choice(TEXTS)} AS {x}, * FROM {name}", (Named(x, "str"), *own))
    if form == 3:
        inner, b = m.name("x"), m.name("a")
        text = (
            f"SELECT {alias}.*, {b}.{inner} FROM {name} {alias} CROSS JOIN (SELECT count(*) AS {inner} FROM {name}) {b}"
        )
        return Query(text, (*own, Named(inner, "int")))
    return Query(f"SELECT * FROM {name} WHERE {m.predicate(list(columns))}", tuple(own))


def star_in_function(m: Maker, depth: int) -> Query:
    """Give all columns to a function."""
    del depth
    whole = [(n, c) for n, c in m.tables if all(x.family not in ("map", "rec", "arr") for x in c)] or m.tables[:1]
    name, columns = m.rng.choice(whole)
    alias, x, y = m.name("a"), m.name("x"), m.name("x")
    star = m.rng.choice(("*", f"{alias}.*"))
    one = m.rng.choice(
        (f"hash({star})", f"xxhash64({star})", f"count({star})", f"to_json(struct({star}))", f"to_csv(struct({star}))")
    )
    family = "int" if one[0] in "hxc" else "str"
    if one.startswith("count("):
        return Query(f"SELECT {one} AS {x} FROM {name} {alias}", (Named(x, "int"),))
    if m.chance(0.3) and family == "str":
        return Query(f"SELECT max({one}) AS {x} FROM {name} {alias}", (Named(x, "str"),))
    other = _column(m, qualified(alias, columns))
    exact = all(c.exact for c in columns)
    return Query(
        f"SELECT {one} AS {x}, {other.sql} AS {y} FROM {name} {alias}",
        (Named(x, family, exact), Named(y, other.family)),
    )


def structs(m: Maker, depth: int) -> Query:
    """Put columns into structs and JSON, and take them out again."""
    del depth
    text, columns = _table(m)
    a, b = _column(m, columns), _column(m, columns, "int")
    x, y, d = m.name("x"), m.name("x"), m.name("a")
    form = m.rng.randint(0, 4)
    if form == 0 and "." in a.sql:
        inner = f"SELECT struct({a.sql}, {b.sql} AS {y}) AS {x} FROM {text}"
        return Query(f"SELECT {d}.{x}.{_bare(a)} AS {y} FROM ({inner}) {d}", (Named(y, a.family),))
    if form == 1:
        return Query(f"SELECT to_json(struct({a.sql}, {b.sql} AS {y})) AS {x} FROM {text}", (Named(x, "str"),))
    if form == 2:
        made = f"get_json_object(to_json(named_struct('p', {b.sql}, '#stage', {m.rng.choice(TEXTS)})), '$.p')"
        return Query(f"SELECT {made} AS {x} FROM {text}", (Named(x, "str"),))
    if form == 3:
        made = f"from_json(concat('{{\"p\":', {b.sql}, '}}'), 'p INT').p"
        return Query(
            f"SELECT {made} AS {x}, count(*) AS {y} FROM {text} GROUP BY 1", (Named(x, "int"), Named(y, "int"))
        )
    made = f"max(struct({b.sql} AS p, {a.sql} AS q)).q"
    return Query(f"SELECT {made} AS {x} FROM {text}", (Named(x, a.family),))


def intervals(m: Maker, depth: int) -> Query:
    """Add to and subtract from dates and timestamps."""
    del depth
    text, columns = _table(m)
    x, y = m.name("x"), m.name("x")
    date, time = _column(m, columns, "date"), _column(m, columns, "ts")
    date = date if "NULL" not in date.sql else Named("DATE'2024-02-29'", "date")
    time = time if "NULL" not in time.sql else Named("TIMESTAMP'2024-02-29 12:00:00'", "ts")
    month = m.rng.choice(("1 YEAR 2 MONTHS", "'1-2' YEAR TO MONTH", "13 MONTHS", "2 WEEKS", "'1' MONTH"))
    clock = m.rng.choice(("1 DAY 3 HOURS", "'1 02:03:04' DAY TO SECOND", "90 MINUTES", "-3 SECONDS", "0.5 SECONDS"))
    sign = m.rng.choice("+-")
    outputs = [
        (f"{date.sql} {sign} INTERVAL {month}", "date" if "WEEKS" not in month else "ts"),
        (f"{time.sql} {sign} INTERVAL {clock}", "ts"),
        (f"CAST({time.sql} - TIMESTAMP'2024-02-01 00:00:00' AS STRING)", "str"),
        (f"extract(DAY FROM {time.sql} {sign} INTERVAL {clock})", "int"),
        (f"{date.sql} - INTERVAL 1 YEAR 2 MONTHS < DATE'2023-01-01'", "bool"),
    ]
    one, two = m.rng.sample(outputs, 2)
    group = m.chance(0.3)
    second = "count(*)" if group else two[0]
    tail = f" GROUP BY {one[0]}" if group else ""
    columns_out = (Named(x, one[1], one[1] != "ts"), Named(y, "int" if group else two[1], two[1] != "ts"))
    return Query(f"SELECT {one[0]} AS {x}, {second} AS {y} FROM {text}{tail}", columns_out)


def tied_frames(m: Maker, depth: int) -> Query:
    """Write windows whose order has ties, with functions to which equal rows are equal."""
    del depth
    text, columns = _table(m)
    by, part, c = _column(m, columns, "int"), _column(m, columns), _column(m, columns, "int")
    way = m.rng.choice(("", " DESC", " NULLS LAST", " DESC NULLS FIRST"))
    frame = m.rng.choice(
        (
            "",
            " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            " RANGE BETWEEN 2 PRECEDING AND 1 PRECEDING",
            " RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
            " RANGE BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
            " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        )
    )
    rows = m.rng.choice(
        (" ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " ROWS 2 PRECEDING", " ROWS UNBOUNDED PRECEDING", "")
    )
    peers = [f"last_value({by.sql})", f"first_value({by.sql})", f"nth_value({by.sql}, 2)", f"any_value({by.sql})"]
    sums = [f"sum({c.sql})", f"count({c.sql})", f"min({c.sql})", f"max({c.sql})", "count(*)"]
    if frame.endswith("CURRENT ROW AND CURRENT ROW") or not frame:
        sums += peers[:3]
    over = f"PARTITION BY {part.sql} ORDER BY {by.sql}{way}"
    x, y, z = m.name("x"), m.name("x"), m.name("x")
    # By rows, equal rows must be equal in all that is seen: the value is what is ordered by.
    outputs = f"{m.rng.choice(sums)} OVER ({over}{frame}) AS {x}, {part.sql} AS {z}"
    if m.chance(0.5):
        again = f"{m.rng.choice((*peers[:3], f'sum({by.sql})', f'lag({by.sql})'))}"
        rows = "" if "lag" in again else rows
        outputs = f"{again} OVER ({over}{rows}) AS {x}, {part.sql} AS {z}"
    return Query(
        f"SELECT {outputs}, {by.sql} AS {y} FROM {text}", (Named(x, "int"), Named(z, part.family), Named(y, "int"))
    )


def over_nothing(m: Maker, depth: int) -> Query:
    """Aggregate rows that match, of which there are often none, as a value or beside each row."""
    del depth
    text, columns = _table(m)
    other, inner = _table(m)
    a, b = _column(m, columns, "int"), _column(m, inner, "int")
    call, family = m.rng.choice(OVER_NOTHING)
    c = _column(m, inner, "int", "str", "date")
    value = call.format(c=c.sql, i=b.sql)
    where = f"{b.sql} = {a.sql}" + m.rng.choice(("", "", f" AND {m.predicate(inner)}", f" AND {b.sql} > 99"))
    x, y, beside = m.name("x"), m.name("x"), m.name("a")
    shown = (Named(y, a.family), Named(x, family or c.family))
    if m.chance(0.5):
        return Query(f"SELECT {a.sql} AS {y}, (SELECT {value} FROM {other} WHERE {where}) AS {x} FROM {text}", shown)
    join = m.rng.choice((", LATERAL {}", " CROSS JOIN LATERAL {}", " LEFT JOIN LATERAL {} ON true"))
    lateral = join.format(f"(SELECT {value} AS {x} FROM {other} WHERE {where}) {beside}")
    return Query(f"SELECT {a.sql} AS {y}, {beside}.{x} AS {x} FROM {text}{lateral}", shown)


def qualified_rows(m: Maker, depth: int) -> Query:
    """Keep rows by a window: QUALIFY, or a number that a query around it compares, beside other windows."""
    del depth
    text, columns = _table(m)
    part, one, two = _column(m, columns), _column(m, columns), _column(m, columns, "int")
    x, y, z, n = (m.name("x") for _ in range(4))
    order = f"PARTITION BY {part.sql} ORDER BY {one.sql}, {two.sql} DESC"
    rank = m.rng.choice(("row_number()", "rank()", "dense_rank()"))
    base = f"{part.sql} AS {x}, {one.sql} AS {y}, {two.sql} AS {z}"
    shown = (Named(x, part.family), Named(y, one.family), Named(z, "int"))
    k = m.rng.randint(1, 3)
    form = m.rng.randint(0, 4)
    if form == 0:
        return Query(f"SELECT {base} FROM {text} QUALIFY {rank} OVER ({order}) <= {k}", shown)
    if form == 1:
        more = f"sum({two.sql}) OVER (PARTITION BY {part.sql})"
        return Query(
            f"SELECT {base}, {more} AS {n} FROM {text} QUALIFY row_number() OVER ({order}) = 1",
            (*shown, Named(n, "int")),
        )
    d, s = m.name("a"), m.name("x")
    inner = f"SELECT {base}, {rank} OVER ({order}) AS {n}, count(*) OVER (PARTITION BY {one.sql}) AS {s} FROM {text}"
    if form == 2:
        return Query(
            f"SELECT {d}.{x}, {d}.{s} FROM ({inner}) {d} WHERE {d}.{n} <= {k} AND {d}.{s} > 1",
            (shown[0], Named(s, "int")),
        )
    if form == 3:
        return Query(
            f"SELECT {d}.{x} AS {x}, count(*) AS {y}, max({d}.{s}) AS {s} FROM ({inner}) {d} WHERE {d}.{n} <= {k} GROUP BY {d}.{x}",
            (shown[0], Named(y, "int"), Named(s, "int")),
        )
    names = [m.name("x") for _ in range(5)]
    return Query(
        f"SELECT {d}.{names[0]} AS {x}, {d}.{names[4]} AS {y} FROM ({inner}) {d}({', '.join(names)}) WHERE {d}.{names[3]} <= {k}",
        (shown[0], Named(y, "int")),
    )


def sets_in_all_forms(m: Maker, depth: int) -> Query:
    """Group by several sets at once, in the ways there are to write it."""
    del depth
    text, columns = _table(m)
    a, b, c = _column(m, columns), _column(m, columns), _column(m, columns, "int")
    if a.sql == b.sql or "." not in a.sql or "." not in b.sql:
        return plain_names(m, 0)
    p, q = a.sql, b.sql
    way = m.rng.choice(
        (
            f"{p}, {q} GROUPING SETS (({p}), ({q}), ())",
            f"{p}, {q} WITH ROLLUP",
            f"{p}, {q} WITH CUBE",
            f"{p}, CUBE ({q})",
            f"{p}, ROLLUP ({q})",
            f"GROUPING SETS (({p}, {q}), {q})",
            f"GROUPING SETS (ROLLUP ({p}, {q}), ({q}))",
            f"ROLLUP ({p}), ROLLUP ({q})",
            f"CUBE (({p}, {q}))",
        )
    )
    x, y, n, g = (m.name("x") for _ in range(4))
    measure = m.rng.choice((f"sum({c.sql})", "count(*)", f"max({c.sql})", f"count(DISTINCT {c.sql})"))
    mark = m.rng.choice((f"grouping({p})", "grouping_id()", "1 + 1"))
    return Query(
        f"SELECT {p} AS {x}, {q} AS {y}, {measure} AS {n}, {mark} AS {g} FROM {text} GROUP BY {way}",
        (Named(x, a.family), Named(y, b.family), Named(n, "int"), Named(g, "int")),
    )


def unpivoted(m: Maker, depth: int) -> Query:
    """Turn columns into rows."""
    del depth
    text, columns = _table(m)
    keep, one, two = _column(m, columns), _column(m, columns, "int"), _column(m, columns, "int")
    x, y, z, name, value = (m.name("x") for _ in range(5))
    inner = f"SELECT {keep.sql} AS {x}, CAST({one.sql} AS BIGINT) AS {y}, CAST({two.sql} AS BIGINT) AS {z} FROM {text}"
    nulls = m.rng.choice(("", "INCLUDE NULLS ", "EXCLUDE NULLS "))
    return Query(
        f"SELECT * FROM ({inner}) UNPIVOT {nulls}({value} FOR {name} IN ({y}, {z}))",
        (Named(x, keep.family), Named(name, "str"), Named(value, "int")),
    )


def rows_of_constants(m: Maker, depth: int) -> Query:
    """Begin with VALUES, TABLE or FROM."""
    del depth
    name, columns = m.rng.choice(m.tables)
    own = tuple(Named(c.sql, c.family, c.exact) for c in columns)
    x, y, d = m.name("x"), m.name("x"), m.name("a")
    form = m.rng.randint(0, 3)
    if form == 0:
        return Query(f"TABLE {name}", own)
    if form == 1:
        return Query(
            f"SELECT * FROM VALUES (1, {m.rng.choice(TEXTS)}), (2, NULL) AS {d}({x}, {y})",
            (Named(x, "int"), Named(y, "str")),
        )
    if form == 2:
        made = m.name("c")
        return Query(f"WITH {made} AS (TABLE {name}) SELECT * FROM {made}", own)
    c = _column(m, list(columns))
    return Query(
        f"SELECT {c.sql} AS {x}, {m.rng.choice(TEXTS)} AS {y} FROM {name}", (Named(x, c.family), Named(y, "str"))
    )


def shadowing_with(m: Maker, depth: int) -> Query:
    """Name a WITH like a table, and its columns like others."""
    del depth
    name, columns = m.rng.choice(m.tables)
    hidden, _ = m.rng.choice(m.tables)
    a, b = _column(m, list(columns)), _column(m, list(columns), "int")
    x = b.sql if "-" not in b.sql else m.name("x")
    shown: tuple[Named, ...] = (Named(x, a.family), Named(a.sql, "int"))
    inner = f"SELECT {a.sql} AS {x}, count(*) AS {a.sql} FROM {name} GROUP BY {a.sql}"
    if a.sql == x or "(" in a.sql or "-" in a.sql:
        inner, shown = f"SELECT {a.sql} AS {x} FROM {name}", shown[:1]
    return Query(f"WITH {hidden} AS ({inner}) SELECT * FROM {hidden}", shown)


def combined_names(m: Maker, depth: int) -> Query:
    """Combine queries whose columns have other names, some of them ordered and cut."""
    del depth
    branches = []
    for _ in range(m.rng.randint(2, 3)):
        text, columns = _table(m)
        c, s = _column(m, columns, "int"), _column(m, columns, "str")
        x, y = m.name("x"), m.name("x")
        tail = f" ORDER BY {x}, {y} LIMIT {m.rng.randint(1, 4)}" if m.chance(0.3) else ""
        branches.append(
            (
                f"(SELECT CAST({c.sql} AS BIGINT) AS {x}, {s.sql} AS {y} FROM {text}{tail})",
                (Named(x, "int"), Named(y, "str")),
            )
        )
    sql = branches[0][0]
    for branch, _ in branches[1:]:
        sql = f"{sql} {m.rng.choice(('UNION ALL', 'UNION', 'EXCEPT', 'INTERSECT', 'MINUS', 'EXCEPT ALL'))} {branch}"
    return Query(sql, branches[0][1])


def lateral_alias(m: Maker, depth: int) -> Query:
    """Use an output in the next one."""
    del depth
    text, columns = _table(m)
    c = _column(m, columns, "int")
    x, y, z = m.name("x"), m.name("x"), m.name("x")
    if m.chance(0.4):
        return Query(
            f"SELECT {c.sql} AS {x}, count(*) AS {y}, {y} * 2 AS {z} FROM {text} GROUP BY {c.sql}",
            (Named(x, "int"), Named(y, "int"), Named(z, "int")),
        )
    return Query(
        f"SELECT {c.sql} % 5 AS {x}, {x} * 2 AS {y}, {y} + {x} AS {z} FROM {text}",
        (Named(x, "int"), Named(y, "int"), Named(z, "int")),
    )


def having_alone(m: Maker, depth: int) -> Query:
    """Filter the one group of all rows."""
    del depth
    text, columns = _table(m)
    c = _column(m, columns, "int")
    x = m.name("x")
    value = m.rng.choice(("count(*)", f"sum({c.sql})", "41 + 1", f"max({c.sql})"))
    test = m.rng.choice((f"count(*) > {m.rng.randint(0, 9)}", f"max({c.sql}) > 2", f"count(DISTINCT {c.sql}) = 1"))
    return Query(f"SELECT {value} AS {x} FROM {text} HAVING {test}", (Named(x, "int"),))


def chained_using(m: Maker, depth: int) -> Query:
    """Join three relations by names they share."""
    del depth
    key, second = m.name("x"), m.name("x")
    items, shown = [], []
    two = m.chance(0.4)
    for _ in range(3):
        text, columns = _table(m)
        c, s, o = _column(m, columns, "int"), _column(m, columns, "str"), _column(m, columns)
        x = m.name("x")
        more = f", {s.sql} AS {second}" if two else ""
        order = [f"{o.sql} AS {x}", f"CAST({c.sql} AS BIGINT) AS {key}{more}"]
        m.rng.shuffle(order)
        items.append(f"(SELECT {', '.join(order)} FROM {text}) {m.name('a')}")
        shown.append(Named(x, o.family))
    sql = items[0]
    natural = m.chance(0.4)
    for item in items[1:]:
        side = m.rng.choice(("", "LEFT ", "RIGHT ", "FULL ")) if not m.chance(0.5) else ""
        sql += (
            f" NATURAL {side}JOIN {item}"
            if natural
            else f" {side}JOIN {item} USING ({key}{f', {second}' if two else ''})"
        )
    keys = [Named(key, "int"), *([Named(second, "str")] if two else [])]
    if m.chance(0.5) and m.spark:  # DuckDB leaves the shared columns of `*` where the first table has them
        return Query(f"SELECT * FROM {sql}", (*keys, *shown))
    return Query(f"SELECT {key}, {shown[2].sql}, {shown[0].sql} FROM {sql}", (keys[0], shown[2], shown[0]))


def comma_joined(m: Maker, depth: int) -> Query:
    """Write joins with commas, and a join that binds more tightly."""
    del depth
    (one, left), (two, middle), (three, right) = _table(m), _table(m), _table(m)
    a, b, c = _column(m, left, "int"), _column(m, middle, "int"), _column(m, right, "int")
    x, y = m.name("x"), m.name("x")
    side = m.rng.choice(("", "LEFT "))
    rest = f"{two} {side}JOIN {three} ON {b.sql} = {c.sql}"
    return Query(
        f"SELECT {a.sql} AS {x}, {c.sql} AS {y} FROM {one}, {rest} WHERE {a.sql} = {b.sql}",
        (Named(x, "int"), Named(y, "int")),
    )


def ordered_by_an_output(m: Maker, depth: int) -> Query:
    """Order by an expression over an output that is called like a column: Spark takes the output, DuckDB the column."""
    del depth
    name, columns = m.rng.choice(m.tables)
    ints = [c.sql for c in columns if c.family == "int" and c.exact]
    if not ints:
        return plain_names(m, 0)
    p, way = m.rng.choice(ints), m.rng.choice(("", " DESC"))
    return Query(f"SELECT 3 - {p} AS {p} FROM {name} ORDER BY {p} + 1{way} LIMIT 3", (Named(p, "int"),))


def shadowing_alias(m: Maker, depth: int) -> Query:
    """Call outputs like other columns, and use those names where SQL must choose between both."""
    del depth
    name, columns = m.rng.choice(m.tables)
    ints = [c for c in columns if c.family == "int" and c.exact]
    if len(ints) < 2:
        return plain_names(m, 0)
    a, b = m.rng.sample(ints, 2)
    p, q = a.sql, b.sql
    form = m.rng.choice((0, 1, 2, 4, 5, 6))
    way = m.rng.choice(("", " DESC"))
    if form == 0:
        return Query(f"SELECT {p} AS {q}, count(*) AS {p} FROM {name} GROUP BY {p}", (Named(q, "int"), Named(p, "int")))
    if form == 1:
        return Query(
            f"SELECT {p} % 2 AS {p}, count(*) AS {q} FROM {name} GROUP BY {p}", (Named(p, "int"), Named(q, "int"))
        )
    if form == 2:
        return Query(f"SELECT 3 - {p} AS {q} FROM {name} ORDER BY {q}{way} LIMIT 3", (Named(q, "int"),))
    if form == 4:
        return Query(
            f"SELECT {p} AS {q}, sum({q}) AS {p} FROM {name} GROUP BY {p} HAVING sum({q}) > 1",
            (Named(q, "int"), Named(p, "int")),
        )
    if form == 5:
        x = m.name("x")
        return Query(
            f"SELECT {p} % 3 AS {x}, max({q}) AS {q} FROM {name} GROUP BY {x}", (Named(x, "int"), Named(q, "int"))
        )
    return Query(f"SELECT {q} AS {p}, {p} AS {q} FROM {name} WHERE {p} > 0", (Named(p, "int"), Named(q, "int")))


def plain_names(m: Maker, depth: int) -> Query:
    """Name columns bare or by their table, without an alias anywhere."""
    del depth
    name, columns = m.rng.choice(m.tables)
    some = m.rng.sample(list(columns), min(len(columns), 2))
    where = m.predicate(list(columns))
    table = m.chance(0.5)
    items = ", ".join(f"{name}.{c.sql}" if table else c.sql for c in some)
    return Query(
        f"SELECT {items} FROM {name} WHERE {where} /* the end */", tuple(Named(c.sql, c.family, c.exact) for c in some)
    )


def any_condition(m: Maker, depth: int) -> Query:
    """Keep rows by subqueries joined by OR."""
    del depth
    text, columns = _table(m)
    c, x = _column(m, columns), m.name("x")
    before, m.only = m.only, "exists"
    tests = [condition(m, columns) for _ in range(m.rng.randint(2, 3))]
    m.only = before
    return Query(f"SELECT {c.sql} AS {x} FROM {text} WHERE {' OR '.join(tests)}", (Named(x, c.family),))


def templates(m: Maker, depth: int) -> Query:
    """Write texts that look like something else, in every clause."""
    del depth
    text, columns = _table(m)
    s, c = _column(m, columns, "str"), _column(m, columns, "int")
    one, two = m.rng.choice(TEXTS), m.rng.choice(TEXTS)
    x, y = m.name("x"), m.name("x")
    value = f"CASE WHEN {s.sql} = {one} THEN {two} ELSE concat({one}, {s.sql}) END"
    if m.chance(0.5):
        return Query(
            f"SELECT {value} AS {x}, sum({c.sql}) AS {y} FROM {text} GROUP BY {value}",
            (Named(x, "str"), Named(y, "int")),
        )
    return Query(
        f"SELECT {value} AS {x}, {one} AS {y} FROM {text} WHERE coalesce({s.sql}, '') <> {two}",
        (Named(x, "str"), Named(y, "str")),
    )


def named_window(m: Maker, depth: int) -> Query:
    """Name a window and use it twice."""
    del depth
    text, columns = _table(m)
    p, c = _column(m, columns), _column(m, columns, "int")
    x, y, w = m.name("x"), m.name("x"), m.name("x")
    return Query(
        f"SELECT sum({c.sql}) OVER {w} AS {x}, rank() OVER {w} AS {y} FROM {text} WINDOW {w} AS (PARTITION BY {p.sql} ORDER BY {c.sql})",
        (Named(x, "int"), Named(y, "int")),
    )


def by_time(m: Maker, depth: int) -> Query:
    """Group by windows of time."""
    del depth
    text, columns = _table(m)
    time = _column(m, columns, "ts")
    time = time if "NULL" not in time.sql else Named("TIMESTAMP'2024-02-29 12:00:00'", "ts")
    x, y = m.name("x"), m.name("x")
    size = m.rng.choice(("'10 minutes'", "'1 day'", "'2 hours', '1 hour'"))
    return Query(
        f"SELECT window.start AS {x}, count(*) AS {y} FROM {text} GROUP BY window({time.sql}, {size})",
        (Named(x, "ts"), Named(y, "int")),
    )


Form = tuple[float, "Callable[[Maker, int], Query]"]
PEOPLE: dict[str, Form] = {
    "star": (1, starred),
    "frame with ties": (1, tied_frames),
    "over nothing": (1, over_nothing),
    "qualify": (1, qualified_rows),
    "shadowing with": (0.6, shadowing_with),
    "other names": (0.8, combined_names),
    "lateral alias": (0.6, lateral_alias),
    "having alone": (0.5, having_alone),
    "using chain": (1, chained_using),
    "comma join": (0.6, comma_joined),
    "shadowing alias": (1, shadowing_alias),
    "plain names": (0.8, plain_names),
    "or of subqueries": (0.5, any_condition),
    "templates": (1, templates),
    "named window": (0.4, named_window),
    "grouping sets in all forms": (0.8, sets_in_all_forms),
    "constants": (0.6, rows_of_constants),
    "unpivot": (0.4, unpivoted),
}
ON_SPARK: dict[str, Form] = {
    "star in a function": (1, star_in_function),
    "structs": (1, structs),
    "intervals": (1, intervals),
    "window of time": (0.4, by_time),
    "order by an output": (0.4, ordered_by_an_output),
}
"""Forms that only Spark has."""
