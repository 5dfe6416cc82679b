"""Makes a failing random case small, and keeps cases as JSON: `python -m tests.compiler.shrink SEED [--only FEATURE] [--save NAME]`."""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import re
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from runnel.compiler.spark import DIALECT
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.relation import Column, ForeignKey, Kind, Relation
from tests.compiler.harness import play_case
from tests.compiler.random_keys import keeps_keys
from tests.compiler.random_views import Case, random_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.engine.base import Engine
    from runnel.model.types import Type
    from tests.compiler.random_views import Batch

REGRESSIONS = Path(__file__).parent / "regressions"


def failure(engine: Engine, case: Case, mode: str = "auto") -> str:
    """Say how a case fails: '' if it does not, `wrong`, an error code, or the name of an exception."""
    try:
        play_case(engine, case, "case", mode)
    except AssertionError:
        return "wrong"
    except Terminal as error:
        return error.code
    except Exception as error:
        # Any way of failing is what is looked for.
        return type(error).__name__
    return ""


def shrink(engine: Engine, case: Case, seconds: float = 120) -> Case:
    """Drop views, batches, rows and parts of the SQL for as long as the case fails in the same way, and only incrementally."""
    how, by_itself = failure(engine, case), failure(engine, case, "full")
    end = time.monotonic() + seconds

    def fails(smaller: Case) -> bool:
        return _valid(smaller) and failure(engine, smaller) == how and failure(engine, smaller, "full") == by_itself

    before = None
    while before != case and time.monotonic() < end:
        before = case
        for cuts in (_views, _batches, _halves, _queries, _rows):
            case = _cut_down(case, cuts, fails, end)
    return case


def _cut_down(case: Case, cuts: Callable[[Case], Iterator[Case]], fails: Callable[[Case], bool], end: float) -> Case:
    """Follow one way of cutting as far as it goes; after a success go on at the same place."""
    at = 0
    while time.monotonic() < end:
        smaller = next(itertools.islice(cuts(case), at, None), None)
        if smaller is None:
            return case
        if fails(smaller):
            case = smaller
        else:
            at += 1
    return case


def _views(case: Case) -> Iterator[Case]:
    for at in reversed(range(len(case.views))):
        yield replace(case, views=case.views[:at] + case.views[at + 1 :])
    for table in case.tables if len(case.tables) > 1 else ():
        if not any(table.name in sql for _, sql in case.views):
            yield _without(case, table.name)


def _batches(case: Case) -> Iterator[Case]:
    for at in reversed(range(len(case.batches))):
        yield replace(case, batches=case.batches[:at] + case.batches[at + 1 :])
    yield from _by_batch(case, lambda batch: ({**batch, name: []} for name, rows in batch.items() if rows))


def _halves(case: Case) -> Iterator[Case]:
    def halves(batch: Batch) -> Iterator[Batch]:
        for name, rows in batch.items():
            if len(rows) > 3:
                yield {**batch, name: rows[: len(rows) // 2]}
                yield {**batch, name: rows[len(rows) // 2 :]}

    return _by_batch(case, halves)


def _rows(case: Case) -> Iterator[Case]:
    def fewer(batch: Batch) -> Iterator[Batch]:
        for name, rows in batch.items():
            for at in range(len(rows)):
                yield {**batch, name: rows[:at] + rows[at + 1 :]}

    return _by_batch(case, fewer)


def _by_batch(case: Case, cuts: Callable[[Batch], Iterator[Batch]]) -> Iterator[Case]:
    yield from (replace(case, start=start) for start in cuts(case.start))
    for at, batch in enumerate(case.batches):
        for fewer in cuts(batch):
            yield replace(case, batches=(*case.batches[:at], fewer, *case.batches[at + 1 :]))


def _queries(case: Case) -> Iterator[Case]:
    for at, (name, sql) in enumerate(case.views):
        for text in _simpler(sql):
            yield replace(case, views=(*case.views[:at], (name, text), *case.views[at + 1 :]))


def _without(case: Case, name: str) -> Case:
    def drop(batch: Batch) -> Batch:
        return {table: rows for table, rows in batch.items() if table != name}

    return Case(
        tuple(t for t in case.tables if t.name != name),
        drop(case.start),
        case.views,
        tuple(drop(batch) for batch in case.batches),
    )


def _valid(case: Case) -> bool:
    """Whether no batch takes away what is not there, and keys stay unique and foreign keys right."""
    for table in case.tables:
        rows: Counter[str] = Counter()
        for batch in (case.start, *case.batches):
            keys: Counter[str] = Counter()
            for row, weight in batch.get(table.name, []):
                rows[repr(row)] += weight
            if min(rows.values(), default=0) < 0:
                return False
            if table.key:
                for text, weight in rows.items():
                    keys[text.split(",")[0]] += weight
                if max(keys.values(), default=0) > 1:
                    return False
    return bool(case.views) and keeps_keys(case.tables, (case.start, *case.batches))


def _simpler(sql: str) -> Iterator[str]:
    """Give the query with one part less, for every part that can be left out."""
    size = len(list(sqlglot.parse_one(sql, dialect=DIALECT).walk()))
    for at in range(size):
        for way in range(6):
            tree = sqlglot.parse_one(sql, dialect=DIALECT)
            node = list(tree.walk())[at]
            smaller = _cut(tree, node, way)
            if smaller is None:
                break
            text = smaller.sql(dialect=DIALECT)
            if text != sql:
                yield text


def _cut(tree: exp.Expr, node: exp.Expr, way: int) -> exp.Expr | None:
    """Leave out the part number `way` of a node, if it has so many."""
    match node:
        case exp.Select():
            keys = [k for k in ("where", "having", "limit", "offset", "order", "distinct", "with_") if node.args.get(k)]
            parts: list[tuple[str, int]] = [(k, -1) for k in keys]
            parts += [("joins", i) for i in range(len(node.args.get("joins") or []))]
            parts += [("laterals", i) for i in range(len(node.args.get("laterals") or []))]
            parts += [("expressions", i) for i in range(len(node.expressions)) if len(node.expressions) > 1]
            return _dropped(tree, node, parts, way)
        case exp.And() | exp.Or() | exp.SetOperation():
            return _replaced(tree, node, [node.this, node.expression], way)
        case exp.Not() | exp.Paren() | exp.Coalesce() | exp.Filter():
            return _replaced(tree, node, [node.this], way)
        case exp.Case():
            return _replaced(tree, node, [node.args["ifs"][0].args["true"]], way)
    return None


def _dropped(tree: exp.Expr, node: exp.Expr, parts: list[tuple[str, int]], way: int) -> exp.Expr | None:
    if way >= len(parts):
        return None
    key, at = parts[way]
    if at < 0:
        node.set(key, None)
    else:
        kept = list(node.args[key])
        del kept[at]
        node.set(key, kept)
    return tree


def _replaced(tree: exp.Expr, node: exp.Expr, parts: list[exp.Expr], way: int) -> exp.Expr | None:
    if way >= len(parts):
        return None
    if node is tree:
        return parts[way].copy()
    node.replace(parts[way].copy())
    return tree


def to_json(case: Case, note: str = "") -> str:
    """Write a case; `from_json` reads it back."""
    columns = {t.name: t.columns for t in case.tables}

    def written(batch: Batch) -> dict[str, object]:
        return {
            name: [[[_plain(v) for v in row], weight] for row, weight in rows] for name, rows in batch.items() if rows
        }

    tables = [
        {
            "name": t.name,
            "columns": [[c.name, str(c.type)] for c in columns[t.name]],
            "key": t.key,
            "references": [[k.columns, k.table] for k in t.references],
        }
        for t in case.tables
    ]
    document = {
        "note": note,
        "tables": tables,
        "views": case.views,
        "start": written(case.start),
        "batches": [written(batch) for batch in case.batches],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    # A row stands on one line.
    return re.sub(r"\n {4,}|\n {3}(?=\])", "", text) + "\n"


def from_json(text: str) -> Case:
    """Read a case."""
    document = json.loads(text)
    tables = tuple(
        Relation(
            t["name"],
            Kind.TABLE,
            tuple(Column(n, types.parse(k)) for n, k in t["columns"]),
            tuple(t["key"]),
            references=tuple(ForeignKey(tuple(own), table) for own, table in t.get("references", ())),
        )
        for t in document["tables"]
    )
    kinds = {t.name: [c.type for c in t.columns] for t in tables}

    def read(batch: dict[str, list[tuple[list[object], int]]]) -> Batch:
        return {
            name: [(tuple(_typed(v, k) for v, k in zip(row, kinds[name], strict=True)), weight) for row, weight in rows]
            for name, rows in batch.items()
        }

    views = tuple((name, sql) for name, sql in document["views"])
    return Case(tables, read(document["start"]), views, tuple(read(batch) for batch in document["batches"]))


def _plain(value: object) -> object:
    if isinstance(value, Decimal | datetime.date):
        return str(value)
    return value


def _typed(value: object, kind: Type) -> object:
    if value is None:
        return None
    match kind.name:
        case "decimal":
            return Decimal(str(value))
        case "date":
            return datetime.date.fromisoformat(str(value))
        case "timestamp":
            return datetime.datetime.fromisoformat(str(value))
        case "map":
            assert isinstance(value, list)
            return [tuple(pair) for pair in value]
    return value


def main() -> None:
    """Shrink the case of a seed and print it, or keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--save", default="")
    given = parser.parse_args()
    engine = DuckDbEngine(threads=2)
    case = random_case(given.seed, given.only)
    print("fails:", failure(engine, case) or "not at all", "| recomputed:", failure(engine, case, "full") or "right")
    small = shrink(engine, case)
    text = to_json(small, f"seed {given.seed} {given.only}".strip())
    print(text)
    if given.save:
        (REGRESSIONS / f"{given.save}.json").write_text(text)


if __name__ == "__main__":
    main()
