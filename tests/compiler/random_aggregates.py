"""Writes aggregates of every kind, and queries that group: plainly, by sets, with HAVING, pivoted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compiler.random_sources import inner_rows, source
from tests.compiler.random_sql import NUMBERS, Named, Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.compiler.random_sources import Source, Write
    from tests.compiler.random_sql import Maker


def _filter(m: Maker, columns: list[Named]) -> str:
    return f" FILTER (WHERE {m.predicate(columns)})" if m.chance(0.15) else ""


def _number(m: Maker, columns: list[Named], *families: str) -> Named | None:
    found = [c.family for c in columns if c.family in (families or NUMBERS)]
    return m.of_family(columns, m.rng.choice(found)) if found else None


def _count(m: Maker, columns: list[Named]) -> Named:
    argument = m.rng.choice(("*", "1", m.rng.choice(columns).sql))
    return Named(f"count({argument})" + _filter(m, columns), "int")


def _sum(m: Maker, columns: list[Named]) -> Named:
    number = _number(m, columns)
    if number is None:
        return _count(m, columns)
    return Named(f"sum({number.sql})" + _filter(m, columns), number.family, number.family != "dbl" and number.exact)


def _average(m: Maker, columns: list[Named]) -> Named:
    number = _number(m, columns)
    if number is None:
        return _count(m, columns)
    function = m.rng.choice(("avg", "avg", "stddev", "var_pop"))
    # DuckDB's own spread of doubles fails on infinities.
    if function != "avg" and not (number.exact and (m.finite or number.family != "dbl")):
        function = "avg"
    family = "dec" if function == "avg" and number.family == "dec" else "dbl"
    return Named(f"{function}({number.sql})" + _filter(m, columns), family, exact=False)


def _count_if(m: Maker, columns: list[Named]) -> Named:
    return Named(f"count_if({m.predicate(columns)})", "int")


def _extremum(m: Maker, columns: list[Named]) -> Named:
    families = ("int", "dec", "dbl", "str", "date", "ts")
    found = [c for c in columns if c.family in families and c.exact]
    if not found:
        return _count(m, columns)
    c = m.dressed(m.rng.choice(found), columns)
    return Named(f"{m.rng.choice(('min', 'max'))}({c.sql})" + _filter(m, columns), c.family, c.exact)


def _distinct(m: Maker, columns: list[Named]) -> Named:
    found = [c for c in columns if c.exact]
    if not found:
        return _count(m, columns)
    c = m.dressed(m.rng.choice(found), columns)
    if c.family in ("int", "dec") and m.chance(0.5):
        function = m.rng.choice(("sum", "sum", "avg"))
        if function == "avg":
            return Named(f"avg(DISTINCT {c.sql})", "dec" if c.family == "dec" else "dbl", exact=False)
        return Named(f"sum(DISTINCT {c.sql})" + _filter(m, columns), c.family)
    more = f", {m.rng.choice(found).sql}" if m.chance(0.15) else ""
    return Named(f"count(DISTINCT {c.sql}{more})" + _filter(m, columns), "int")


def _case(m: Maker, columns: list[Named]) -> Named:
    inner = measure(m, columns)
    if inner.sql.endswith(")") and inner.family in ("int", "dec", "str") and m.chance(0.8):
        when = f"count(*) {m.rng.choice(('>', '='))} {m.rng.randint(0, 2)}"
        return Named(f"CASE WHEN {when} THEN {inner.sql} END", inner.family, inner.exact)
    if inner.family in ("int", "dec"):
        return Named(f"coalesce({inner.sql}, 0) * 2", inner.family, inner.exact)
    return inner


def _percentile(m: Maker, columns: list[Named]) -> Named:
    found = [c for c in columns if c.exact and c.family in ("int", "dec")]
    if not found:
        return _count(m, columns)
    c = m.rng.choice(found).sql
    form = m.rng.choice((f"percentile({c}, 0.25)", f"median({c})", f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {c})"))
    return Named(form, "dbl", exact=False)


def _mode(m: Maker, columns: list[Named]) -> Named:
    found = [c for c in columns if c.exact and c.family in ("int", "str", "date")]
    if not found:
        return _count(m, columns)
    c = m.rng.choice(found)
    return Named(f"mode() WITHIN GROUP (ORDER BY {c.sql})", c.family)


def _collected(m: Maker, columns: list[Named]) -> Named:
    found = [c for c in columns if c.exact and c.family in ("int", "str", "date")]
    if not found:
        return _count(m, columns)
    c = m.rng.choice(found)
    function = m.rng.choice(("collect_list", "collect_set", "array_agg"))
    if c.family == "str" and m.chance(0.3):
        return Named(f"concat_ws('-', sort_array(collect_list({c.sql})))", "str")
    text = f"sort_array({function}({c.sql}))"
    return Named(text, "arr") if c.family == "int" else Named(f"size({text})", "int")


def _picked(m: Maker, columns: list[Named]) -> Named:
    """Take the value of one row; ties are rows of equal value, so that it does not matter which."""
    found = [c for c in columns if c.exact and c.family in ("int", "str", "date", "dec")]
    if not found:
        return _count(m, columns)
    c, by = m.rng.choice(found), m.rng.choice(found)
    function = m.rng.choice(("max_by", "min_by"))
    if m.chance(0.3):
        return Named(f"{function}({c.sql}, {c.sql})", c.family)
    return Named(f"{function}({c.sql}, struct({by.sql} AS o1, {c.sql} AS o2))", c.family)


def _boolean(m: Maker, columns: list[Named]) -> Named:
    function = m.rng.choice(("bool_and", "bool_or", "every", "some"))
    return Named(f"{function}({m.predicate(columns)})", "bool")


def _bits(m: Maker, columns: list[Named]) -> Named:
    found = [c for c in columns if c.exact and c.family == "int"]
    if not found:
        return _count(m, columns)
    return Named(f"{m.rng.choice(('bit_and', 'bit_or', 'bit_xor'))}({m.rng.choice(found).sql})", "int")


MEASURES: dict[str, tuple[float, Callable[[Maker, list[Named]], Named]]] = {
    "count": (2, _count),
    "sum": (2, _sum),
    "avg": (1.2, _average),
    "count_if": (0.4, _count_if),
    "min max": (2, _extremum),
    "distinct aggregate": (1.2, _distinct),
    "case over aggregate": (0.8, _case),
    "percentile": (0.4, _percentile),
    "mode": (0.2, _mode),
    "collect": (0.4, _collected),
    "max_by": (0.4, _picked),
    "bool_and": (0.4, _boolean),
    "bit_and": (0.3, _bits),
}


def measure(m: Maker, columns: list[Named]) -> Named:
    """Write an aggregate; those whose value depends on how it is computed are not exact."""
    return m.choose(MEASURES)(m, columns)


def grouped(m: Maker, write: Write, depth: int) -> Query:
    """Write a query that groups, or aggregates everything."""
    found = source(m, write, depth)
    columns = found.columns
    groups = [m.expression(columns, exact=True) for _ in range(m.rng.choice((0, 1, 1, 2)))]
    groups = [g for g in groups if g.family != "rec" and not g.sql.lstrip("-").isdigit()]
    measures = [measure(m, columns) for _ in range(m.rng.randint(0 if groups else 1, 3))]
    if groups and m.chance(0.06):
        measures.append(Named(f"any_value({groups[0].sql})", groups[0].family))
    if found.unique(m) and m.chance(0.15):
        c = m.rng.choice([c for c in columns if c.family != "map"])
        measures.append(Named(f"{m.rng.choice(('max_by', 'min_by'))}({c.sql}, {found.unique(m)})", c.family, c.exact))
    shown = [g for g in groups if measures == [] or m.chance(0.85)]
    outputs = [*shown, *measures] or [Named("count(*)", "int")]
    m.rng.shuffle(outputs)
    having = f" HAVING {_having(m, groups, columns)}" if m.chance(0.25) or m.only == "having" else ""
    return m.select(outputs, found.text, "", _group_by(m, groups, outputs) + having)


def _having(m: Maker, groups: list[Named], columns: list[Named]) -> str:
    kind = m.rng.random()
    if kind < 0.5:
        return f"count(*) {m.rng.choice(('>', '<', '<>'))} {m.rng.randint(0, 2)}"
    if kind < 0.8 or not groups:
        rows, _ = inner_rows(m, [], correlated=0)
        inner = measure(m, columns)
        if inner.exact and inner.family == "int":
            return f"{inner.sql} >= (SELECT count(*) FROM {rows}) - 3"
        return f"{inner.sql} IS NOT NULL"
    plain = [g for g in groups if g.sql.replace(".", "").replace("_", "").isalnum()]
    rows, _ = inner_rows(m, plain, correlated=1)
    return f"{m.rng.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {rows})"


def _group_by(m: Maker, groups: list[Named], outputs: list[Named]) -> str:
    written = []
    for group in groups:
        ordinal = next((i for i, o in enumerate(outputs, 1) if o is group), None)
        written.append(str(ordinal) if ordinal is not None and m.chance(0.25) else group.sql)
    return f" GROUP BY {', '.join(written)}" if written else ""


def grouping_sets(m: Maker, write: Write, depth: int) -> Query:
    """Write a query with several groupings at once."""
    found = source(m, write, depth)
    usable = {c.sql: c for c in found.columns if c.exact and c.family not in ("rec", "arr")}
    if not usable:
        return grouped(m, write, depth)
    groups = m.rng.sample(sorted(usable.values(), key=lambda c: c.sql), min(len(usable), m.rng.randint(1, 3)))
    names = [g.sql for g in groups]
    measures = [measure(m, found.columns) for _ in range(m.rng.randint(1, 2))]
    if m.chance(0.6):
        measures.append(Named(m.rng.choice(("grouping_id()", f"grouping({names[0]})")), "int"))
    outputs = [*[Named(g.sql, g.family) for g in groups if m.chance(0.9)], *measures]
    return m.select(outputs, found.text, "", f" GROUP BY {_sets(m, names)}")


def _sets(m: Maker, names: list[str]) -> str:
    both = ", ".join(names)
    kind = m.rng.randint(0, 3)
    if kind == 0:
        return f"ROLLUP ({both})"
    if kind == 1:
        return f"CUBE ({both})"
    if kind == 2 and len(names) > 1:
        return f"{names[0]}, ROLLUP ({', '.join(names[1:])})"
    return f"GROUPING SETS (({both}), ({m.rng.choice(names)}), ())"


def pivot(m: Maker, write: Write, depth: int) -> Query:
    """Write a PIVOT of a small derived table."""
    found: Source = source(m, write, depth)
    ints = [c for c in found.columns if c.family == "int" and c.exact]
    if not ints:
        return grouped(m, write, depth)
    key, by, value = m.expression(found.columns, exact=True), m.rng.choice(ints), m.rng.choice(ints)
    if key.family == "rec":
        key = by
    names = [m.name("x") for _ in range(3)]
    inner = f"SELECT {key.sql} AS {names[0]}, {by.sql} AS {names[1]}, {value.sql} AS {names[2]} FROM {found.text}"
    p, q = m.name("p"), m.name("p")
    function = m.rng.choice(("sum", "count", "max"))
    values = f"FOR {names[1]} IN (1 AS {p}, 2 AS {q})"
    if m.chance(0.5):
        outputs = [Named(names[0], key.family), Named(p, "int"), Named(q, "int")]
        return Query(f"SELECT * FROM ({inner}) PIVOT ({function}({names[2]}) {values})", tuple(outputs))
    outputs = [Named(names[0], key.family), *[Named(f"{v}_{f}", "int") for v in (p, q) for f in ("f", "n")]]
    two = f"{function}({names[2]}) AS f, count({names[2]}) AS n"
    return Query(f"SELECT * FROM ({inner}) PIVOT ({two} {values})", tuple(outputs))
