"""What has to hold when everybody is dead: nothing lost, nothing twice, no file missing or left, views and target right."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake import expiry, tables

FORBIDDEN = ("RUNNEL-FILE-MISSING", "RUNNEL-FILE-BROKEN", "RUNNEL-KEY-DUPLICATE", "RUNNEL-EPOCH-FAULT")


def journal(folder: Path) -> tuple[dict[str, set[int]], Counter[str], list[str]]:
    """Read what the processes noted: ids by outcome, errors by code, and what should not have happened."""
    ids: dict[str, set[int]] = {mark: set() for mark in "BAUF"}
    codes: Counter[str] = Counter()
    wrong: list[str] = []
    for path in (folder / "journal").iterdir():
        for line in path.read_text().splitlines() if path.name != "said" else ():
            mark, _, rest = line.partition(" ")
            if mark in ids:
                ids[mark].add(int(rest.split(" ")[0]))
                codes[" ".join(rest.split(" ")[1:2])] += mark in "UF"
            elif mark == "E":
                codes[rest.split(" ")[0]] += 1
            wrong += [f"{path.name}: {line}"] if mark == "X" or any(code in line for code in FORBIDDEN) else []
    return ids, codes, wrong


def problems(folder: Path, fed: int, target: str | None) -> tuple[list[str], Counter[str], dict[str, int]]:
    """Open the project as anybody would, let it catch up, and give all that is wrong."""
    ids, codes, wrong = journal(folder)
    with runnel.open(folder, engine=DuckDbEngine(), sync=False, create=False) as project:
        project.run(once=True)
        lake = project.runtime.lake
        rows = {name: Counter(r["id"] for r in project.table(name).to_pylist()) for name in ("t", "l", "feed.orders")}
        acknowledged, failed, begun = ids["A"], ids["F"], ids["B"]
        for name in ("t", "l"):
            wrong += [f"{name}: {len(acknowledged - set(rows[name]))} acknowledged writes are lost"] * bool(
                acknowledged - set(rows[name])
            )
            wrong += [f"{name}: {n} times {i}" for i, n in rows[name].items() if n != 1]
            wrong += [f"{name}: {i} is there although its write failed" for i in failed & set(rows[name])]
            wrong += [f"{name}: {i} was never written" for i in set(rows[name]) - begun]
        wrong += ["t and l differ"] * (rows["t"] != rows["l"])
        expected = Counter(range(fed))
        wrong += [f"feed: {expected - rows['feed.orders']} lost, {rows['feed.orders'] - expected} doubled"] * (
            rows["feed.orders"] != expected
        )
        wrong += [f"{r.view}: {r}" for r in project.verify_all() if not r.ok]
        wrong += missing(project)
        if target is not None:
            with psycopg.connect(target) as connection:
                there = sorted(connection.execute("SELECT worker, n, total FROM by_worker").fetchall())
            wrong += ["the target differs"] * (there != shown(project.view("by_worker").to_pylist()))
        project.sql("INSERT INTO t VALUES (-1, 0, 0)")
        project.compact()
        time.sleep(0.01)
        expiry.expire(lake, 0, grace=0.0)
        wrong += missing(project)
        wrong += left(project)
    done = {"acknowledged": len(acknowledged), "failed": len(failed), "rows": len(rows["t"])}
    return wrong, codes, done


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Give rows of the view as the target holds them."""
    return sorted((row["worker"], row["n"], row["total"]) for row in rows)


def listed(project: runnel.Project) -> set[str]:
    """Give the paths of all files that the catalog lists, of every epoch."""
    f, r = tables.data_file, tables.runnel_relation
    lake = project.runtime.lake
    with lake.catalog.read() as connection:
        found = connection.execute(
            sa.select(r.c.name, f.c.path, f.c.path_is_relative).join(r, r.c.table_id == f.c.table_id)
        ).all()
    return {f"{lake.folder(name)}/{path}" if relative else path for name, path, relative in found}


def missing(project: runnel.Project) -> list[str]:
    """Give the listed files that do not exist."""
    return [f"missing: {path}" for path in listed(project) if not Path(path).exists()]


def left(project: runnel.Project) -> list[str]:
    """Give the files that exist and that nobody lists."""
    lake = project.runtime.lake
    there = {str(path) for path in Path(lake.data, "state").rglob("*.parquet")}
    return [f"left over: {path}" for path in there - listed(project)]
