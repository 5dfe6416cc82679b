"""Answers questions without maintaining anything: rows of a table or view, any SQL over them, and what changed, at one epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler import bind
from runnel.engine.inputs import Inputs, Pending, signed
from runnel.errors import Terminal, nearest
from runnel.lake.compaction import fold
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT, Relation

if TYPE_CHECKING:
    from runnel.engine.base import Engine, Input
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Column


def find(snapshot: Snapshot, name: str) -> Relation:
    """Find a table or view without regard to case; `orders` stands for `shop.orders` where that is unambiguous."""
    shown = list(snapshot.shown.values())
    exact = [r for r in shown if r.name.lower() == name.lower()]
    short = [r for r in shown if r.name.lower().rpartition(".")[2] == name.lower()]
    if exact or len(short) == 1:
        return (exact or short)[0]
    if short:
        raise Terminal(
            "RUNNEL-NAME-AMBIGUOUS",
            f"{name!r} may be {' or '.join(r.name for r in short)}",
            hint="write the whole name",
        )
    raise Terminal(
        "RUNNEL-RELATION-UNKNOWN",
        f"there is no table or view {name!r}",
        hint=nearest(name, [r.name for r in shown]) or f"there are {', '.join(r.name for r in shown) or 'none yet'}",
    )


def rows_query(engine: Engine, snapshot: Snapshot, relation: Relation) -> tuple[str, dict[str, Input]]:
    """Give the SQL of a relation's rows at an epoch, and its inputs."""
    columns = ", ".join(quote(c.name) for c in relation.rows)
    inputs = Inputs(engine, snapshot, snapshot, Pending()).roles([(relation.name, "rows")])
    return f"SELECT {columns} FROM {role_name(relation.name, 'rows')}", inputs


def rows(engine: Engine, snapshot: Snapshot, relation: Relation) -> pa.Table:
    """Give a relation's rows at an epoch."""
    sql, inputs = rows_query(engine, snapshot, relation)
    return engine.rows(sql, inputs, relation.rows)


def bound(engine: Engine, snapshot: Snapshot, sql: str) -> tuple[str, dict[str, Input]]:
    """Give any SQL with its table names bound to rows at an epoch, and the inputs."""
    text, reads = bind(sql, snapshot.shown)
    return text, Inputs(engine, snapshot, snapshot, Pending()).roles([(name, "rows") for name in sorted(reads)])


def changes(lake: Lake, engine: Engine, name: str, since: int, until: int | None = None) -> pa.Table:
    """Give the net signed rows by which a table or view changed after epoch `since`, up to `until`."""
    head = lake.snapshot(until)
    relation = find(head, name)
    columns: tuple[Column, ...] = signed(relation.rows)
    old = lake.snapshot(since)
    plain = Relation(relation.name, relation.kind, relation.rows, () if relation.final else relation.key)
    if old.definitions.ids.get(relation.name, None) not in (None, head.definitions.ids[relation.name]):
        return _replaced(engine, old, head, plain)
    source = Inputs(engine, old, head, Pending()).delta(relation.name)
    sql = f"SELECT * FROM {role_name(relation.name, 'delta')}"
    table = engine.rows(sql, {role_name(relation.name, "delta")[1:-1]: source}, columns)
    return fold(plain, table)


def _replaced(engine: Engine, old: Snapshot, head: Snapshot, relation: Relation) -> pa.Table:
    """Compare two relations of one name: the view was dropped and made anew in between."""
    before = rows(engine, old, old.relations[relation.name])
    after = rows(engine, head, head.relations[relation.name])
    if before.schema != after.schema:
        raise Terminal(
            "RUNNEL-CHANGES-REPLACED",
            f"{relation.name} was made anew with other columns since epoch {old.epoch}",
            hint="read it whole, then follow its changes from there",
        )
    parts = [
        table.append_column(WEIGHT, pa.repeat(pa.scalar(w, pa.int64()), table.num_rows))
        for table, w in ((before, -1), (after, 1))
    ]
    return fold(relation, pa.concat_tables(parts))
