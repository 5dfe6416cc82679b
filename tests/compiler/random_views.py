"""Makes random cases: tables, views over them (and over each other), and batches of signed rows that are valid bags."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.compiler.random_keys import linked, marks, mend
from tests.compiler.random_names import disguised
from tests.compiler.random_queries import FEATURES, query
from tests.compiler.random_rows import Bag, Batch, Row, family, random_batches, random_table
from tests.compiler.random_sql import Maker, Named

if TYPE_CHECKING:
    from runnel.model.relation import Relation

__all__ = ["FEATURES", "Batch", "Case", "Row", "random_case"]


@dataclass(frozen=True)
class Case:
    """Tables with their first rows, views in order of definition, and the batches that follow."""

    tables: tuple[Relation, ...]
    start: Batch
    views: tuple[tuple[str, str], ...]
    batches: tuple[Batch, ...]
    features: frozenset[str] = frozenset()


def random_case(
    seed: int,
    only: str = "",
    *,
    small: bool = False,
    keys: bool | None = None,
    spark: bool = False,
    names: bool = True,
    many: bool = False,
) -> Case:
    """Make the case of a seed, mostly out of one feature where one is named; the same seed always makes the same case.

    A `small` case has up to three views that nest little, for engines that take seconds over a query. Every third case has
    foreign keys, unless `keys` says whether it has. With `spark` there are forms that only Spark has, with `names` three of
    four cases have odd names, with `many` more batches: a further batch costs less than a further view.
    """
    rng = random.Random(seed)
    tables = tuple(random_table(rng, f"t{i + 1}") for i in range(rng.randint(1, 3)))
    if keys or (keys is None and seed % 3 == 0):
        tables = linked(random.Random(f"keys of {seed}"), tables)
    specials = rng.random() < 0.15
    bags = {table.name: Bag(rng, table, specials=specials) for table in tables}
    for table in tables:
        bags[table.name].parents = [(key, bags[key.table]) for key in table.references]
    sizes = (0, 3, 8, 14) if small or rng.random() < 0.95 else (200, 40)
    start = {name: bag.change(rng.choice(sizes)) for name, bag in bags.items()}
    mend(bags, start)
    marked = marks(tables)
    maker = Maker(
        rng,
        [
            (
                t.name,
                tuple(
                    Named(c.name, family(c), family(c) != "map", *marked.get((t.name, c.name), ())) for c in t.columns
                ),
            )
            for t in tables
        ],
        frozenset(t.name for t in tables if t.key),
        finite=not specials,
        only=only,
        spark=spark,
    )
    views = []
    several = rng.choice((1, 2, 3)) if small else 1 if only and rng.random() < 0.6 else rng.choice((1, 1, 2, 3, 4))
    for i in range(several):
        maker.budget = 1 if small else 4
        made = query(maker, rng.choice((0, 0, 1)) if small else rng.choice((0, 1, 1, 2)), top=True)
        views.append((f"v{i + 1}", made.sql))
        maker.tables.append((f"v{i + 1}", made.columns))
    case = Case(tables, start, tuple(views), tuple(random_batches(rng, bags, many=many)), frozenset(maker.used))
    return disguised(random.Random(f"names of {seed}"), case, spark=spark) if names and seed % 4 else case
