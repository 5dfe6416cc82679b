"""Answers questions without maintaining anything: rows of a table or view, any SQL over them, and what changed, at one epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler import bind
from runnel.engine import contents
from runnel.engine.inputs import Inputs, Pending
from runnel.errors import Terminal, UsageError
from runnel.lake.compaction import fold
from runnel.model.relation import WEIGHT, find_relation

if TYPE_CHECKING:
    from runnel.engine.base import Engine, Input
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation


def find(snapshot: Snapshot, name: str) -> Relation:
    """Find a table or view without regard to case; `orders` stands for `shop.orders` where that is unambiguous."""
    return find_relation(snapshot.shown.values(), name)


def bound(engine: Engine, snapshot: Snapshot, sql: str) -> tuple[str, dict[str, Input]]:
    """Give any SQL with its table names bound to rows at an epoch, and the inputs."""
    text, reads = bind(sql, snapshot.shown)
    return text, Inputs(engine, snapshot, snapshot, Pending()).roles([(name, "rows") for name in sorted(reads)])


def changes(lake: Lake, engine: Engine, name: str, since: int, until: int | None = None) -> pa.Table:
    """Give the net signed rows by which a table or view changed after epoch `since`, up to `until`."""
    if since is None or (isinstance(since, int) and isinstance(until, int) and until < since):
        last = "" if until is None else f" to {until}"
        raise UsageError(
            "RUNNEL-EPOCH-UNKNOWN",
            f"from {since!r}{last} are no epochs",
            hint="give an epoch, such as tx.epoch, and a later one",
        )
    head = lake.snapshot(until)
    relation = find(head, name)
    old = lake.snapshot(since)
    if old.definitions.ids.get(relation.name, None) not in (None, head.definitions.ids[relation.name]):
        return _replaced(engine, old, head, contents.plain(relation))
    return contents.changes(engine, old, head, relation)


def _replaced(engine: Engine, old: Snapshot, head: Snapshot, relation: Relation) -> pa.Table:
    """Compare two relations of one name: the view was dropped and made anew in between."""
    before = contents.rows(engine, old, old.relations[relation.name])
    after = contents.rows(engine, head, head.relations[relation.name])
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
