"""Runs the seven views in Pathway over change files; started by `runnel bench peers` in an environment of Pathway's own.

`python pathway_peer.py TASK.json` reads what to do and writes `answer.json` beside it: the seconds that all views together take
over the parts, results thrown away; or, with "collect", the final rows of each view as `result_VIEW.parquet`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pathway as pw
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

STEP = 2  # Pathway's times are even numbers


def changing(paths: list[str]) -> Any:
    """Give the events as a stream: each part is one step of time, signed rows are its changes; costs in cents."""
    parts = []
    for at, path in enumerate(paths):
        part = pq.read_table(path)
        cents = pc.cast(pc.multiply(part["cost"], 100), pa.decimal128(20, 0)).cast(pa.int64())
        part = part.set_column(part.schema.get_field_index("cost"), "cost", cents)
        part = part.append_column("__time__", pa.array([(at + 1) * STEP] * part.num_rows, pa.int64()))
        parts.append(part)
    return _table(pa.concat_tables(parts), {"_weight": "__diff__"}, ["id_"])


def steady(path: str) -> Any:
    """Give a table that does not change."""
    return _table(pq.read_table(path), {}, None)


def _table(rows: pa.Table, names: dict[str, str], key: list[str] | None) -> Any:
    """Give rows as a table of Pathway's, where `id` means something else."""
    names = {"id": "id_", **names}
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    return pw.debug.table_from_pandas(rows.to_pandas(), id_from=key)


def top(costs: Any) -> tuple[tuple[int, int, int], ...]:
    """Give the first three of an order: place, cost, number."""
    return tuple((place + 1, -cost, key) for place, (cost, key) in enumerate(costs[:3]))


def views(events: Any, tables: dict[str, Any]) -> dict[str, Any]:
    """Give the views; what SQL says in a word is spelled out where Pathway has no word for it."""
    products, categories, shops = tables["products"], tables["categories"], tables["shops"]
    address, customers, promotions = tables["address"], tables["customers"], tables["promotions"]
    kinds = products.join(categories, pw.left.category == pw.right.id_).select(
        pw.left.id_, pw.left.name, category=pw.right.name
    )
    sold = (
        events.join(kinds, pw.left.prod == pw.right.id_)
        .select(pw.left.shop, pw.left.cost, category=pw.right.category)
        .join(shops, pw.left.shop == pw.right.id_)
        .select(shop=pw.right.name, category=pw.left.category, cost=pw.left.cost)
    )
    where = (
        events.join(address, pw.left.shop == pw.right.shop)
        .select(pw.right.country, pw.right.city, pw.left.cost, pw.left.customer)
        .join(customers, pw.left.customer == pw.right.id_)
        .select(pw.left.country, pw.left.city, home=pw.right.city, cost=pw.left.cost)
    )
    dear = events.filter(pw.this.cost >= 99_000)
    promoted = events.join_left(promotions, pw.left.prod == pw.right.prod).select(pw.left.cost, promotion=pw.right.name)
    ranked = events.groupby(pw.this.shop).reduce(
        pw.this.shop, costs=pw.reducers.sorted_tuple(pw.make_tuple(-pw.this.cost, pw.this.id_))
    )
    first = ranked.select(pw.this.shop, row=pw.apply_with_type(top, tuple[tuple[int, int, int], ...], pw.this.costs))
    first = first.flatten(pw.this.row)
    total, count = pw.reducers.sum(pw.this.cost), pw.reducers.count()
    return {
        "takings_per_shop_and_category": sold.groupby(pw.this.shop, pw.this.category).reduce(
            pw.this.shop, pw.this.category, total=total, n=count
        ),
        "takings_per_city": where.groupby(pw.this.country, pw.this.city, pw.this.home).reduce(
            pw.this.country, pw.this.city, pw.this.home, total=total, n=count
        ),
        "expensive_events": dear.join(products, pw.left.prod == pw.right.id_).select(
            id_=pw.left.id_, time=pw.left.time, name=pw.right.name, cost=pw.left.cost
        ),
        "price_range": events.groupby(pw.this.prod).reduce(
            pw.this.prod, low=pw.reducers.min(pw.this.cost), high=pw.reducers.max(pw.this.cost)
        ),
        "customers_per_shop": events.groupby(pw.this.shop, pw.this.customer)
        .reduce(pw.this.shop, pw.this.customer)
        .groupby(pw.this.shop)
        .reduce(pw.this.shop, customers=pw.reducers.count()),
        "takings_per_promotion": promoted.groupby(pw.this.promotion).reduce(pw.this.promotion, total=total, n=count),
        "dearest_events": first.select(pw.this.shop, id_=pw.this.row[2], cost=pw.this.row[1], place=pw.this.row[0]),
    }


def main(path: Path) -> None:
    """Do a task."""
    task = json.loads(path.read_text())
    found = views(changing(task["parts"]), {name: steady(file) for name, file in task["files"].items()})
    answer: dict[str, float] = {}
    if task["collect"]:
        for name, view in found.items():
            rows = pw.debug.table_to_pandas(view, include_id=False)
            pq.write_table(pa.Table.from_pandas(rows, preserve_index=False), path.parent / f"result_{name}.parquet")
    else:
        for view in found.values():
            pw.io.null.write(view)
        begun = time.perf_counter()
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        answer["seconds"] = time.perf_counter() - begun
    (path.parent / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
