"""Writes queries: the kinds of SELECT there are, and how they nest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compiler.random_aggregates import MEASURES, grouped, grouping_sets, pivot
from tests.compiler.random_people import ON_SPARK, PEOPLE
from tests.compiler.random_sources import CONDITIONS, GENERATORS, JOINS, condition, scalar, source
from tests.compiler.random_sql import Named, Query
from tests.compiler.random_windows import global_window, limited, picked, ranked_groups, windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.compiler.random_sql import Maker


def query(m: Maker, depth: int, *, top: bool = False) -> Query:
    """Write a query of some kind; `top` ones may begin with WITH."""
    if m.only in MEASURES or m.only == "having":
        return grouped(m, query, depth) if m.chance(0.7) else plain(m, depth)
    return m.choose(QUERIES, *(() if m.spark else ON_SPARK), *(() if top and depth else ("with",)))(m, depth)


def plain(m: Maker, depth: int) -> Query:
    """Write a query without grouping, now and then DISTINCT, or with subqueries in its SELECT list."""
    found = source(m, query, depth)
    outputs = [m.expression(found.columns, exact=False) for _ in range(m.rng.randint(1, 4))]
    if m.chance(0.08) or (m.only == "scalar subquery" and m.chance(0.5)):
        m.used.add("scalar subquery in SELECT")
        outputs.append(scalar(m, found.columns))
    if m.chance(0.04) or (m.only in ("exists", "in") and m.chance(0.4)):
        m.used.add("condition in SELECT")
        outputs.append(Named(condition(m, found.columns), "bool"))
    return m.select(outputs, found.text)


def distinct(m: Maker, depth: int) -> Query:
    """Write a SELECT DISTINCT."""
    found = source(m, query, depth)
    outputs = [m.expression(found.columns, exact=True) for _ in range(m.rng.randint(1, 3))]
    return m.select(outputs, found.text, "DISTINCT ")


def combined(m: Maker, depth: int) -> Query:
    """Write a UNION ALL, whose branches may mix numbers."""
    families = [m.rng.choice(("int", "dbl", "str", "date")) for _ in range(m.rng.randint(1, 3))]
    branches = []
    for _ in range(m.rng.randint(2, 3)):
        mixed = ["int" if f == "dbl" and m.chance(0.3) else f for f in families]
        branches.append(_branch(m, depth, mixed))
    columns = zip(branches[0].columns, families, strict=True)
    exact = [all(b.columns[i].exact for b in branches) for i in range(len(families))]
    shown = tuple(Named(c.sql, f, e and f != "dbl") for (c, f), e in zip(columns, exact, strict=True))
    return Query(" UNION ALL ".join(b.sql for b in branches), shown)


def compared(m: Maker, depth: int) -> Query:
    """Write UNION, INTERSECT or EXCEPT over exact columns."""
    families = [m.rng.choice(("int", "str", "date", "bool")) for _ in range(m.rng.randint(1, 3))]
    words = ("UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
    text, columns = "", tuple[Named, ...]()
    for _ in range(m.rng.choice((2, 2, 3))):
        branch = _branch(m, depth, families, exact=True)
        text = f"({text}) {m.rng.choice(words)} {branch.sql}" if columns else branch.sql
        columns = columns or tuple(Named(c.sql, f) for c, f in zip(branch.columns, families, strict=True))
    return Query(text, columns)


def _branch(m: Maker, depth: int, families: list[str], *, exact: bool = False) -> Query:
    found = source(m, query, max(0, depth - 1), most=1 if m.chance(0.7) else 2)
    return m.select([m.of_family(found.columns, f, exact=exact) for f in families], found.text)


def common(m: Maker, depth: int) -> Query:
    """Write a WITH whose query is used once or more."""
    inner = query(m, depth - 1)
    name = m.name("c")
    before = list(m.tables)
    m.tables = [*before, (name, inner.columns), (name, inner.columns)]
    outer = query(m, m.rng.randint(0, 1))
    m.tables = before
    return Query(f"WITH {name} AS ({inner.sql}) {outer.sql}", outer.columns)


QUERIES: dict[str, tuple[float, Callable[[Maker, int], Query]]] = {
    "plain": (4, plain),
    "group by": (4.5, lambda m, depth: grouped(m, query, depth)),
    "distinct": (0.8, distinct),
    "union all": (0.9, combined),
    "set operation": (0.8, compared),
    "grouping sets": (0.6, lambda m, depth: grouping_sets(m, query, depth)),
    "pivot": (0.3, lambda m, depth: pivot(m, query, depth)),
    "window": (1.2, lambda m, depth: windowed(m, query, depth)),
    "window without partition": (0.1, lambda m, depth: global_window(m, query, depth)),
    "window over groups": (0.3, lambda m, depth: ranked_groups(m, query, depth)),
    "top per key": (0.8, lambda m, depth: picked(m, query, depth)),
    "limit": (0.5, lambda m, depth: limited(m, query, depth)),
    "with": (1.5, common),
    **PEOPLE,
    **ON_SPARK,
}
FEATURES = (
    *(name for name in QUERIES if name not in ON_SPARK),
    *JOINS,
    *GENERATORS,
    *CONDITIONS,
    *MEASURES,
    "having",
    "values",
)
