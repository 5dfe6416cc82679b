"""Upkeep between epochs: folds runs of small files, forgets old epochs. Safe beside readers, writers and crashes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.engine.inputs import stored
from runnel.errors import Terminal
from runnel.failpoints import reach
from runnel.lake import compaction, expiry
from runnel.model.program import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.lake.entries import DataFile, NewFile
    from runnel.lake.expiry import Expired
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime

OVERFLOW = ("RUNNEL-SUM-OVERFLOW", "RUNNEL-SQL-FAILED", "RUNNEL-ENGINE-SQL")
EXPIRE_EVERY = 25
DRIVER_ROWS = 200_000


@dataclass(frozen=True)
class Upkept:
    """What one round of upkeep did."""

    relations: int = 0
    files_folded: int = 0
    bytes_written: int = 0
    expired: Expired | None = None


def after_epoch(runtime: Runtime, epoch: int) -> Upkept:
    """Do what is due after an epoch: cheap when nothing is."""
    done = compact(runtime, runtime.lake.snapshot())
    if epoch - runtime.expired_at >= EXPIRE_EVERY:
        runtime.expired_at = epoch
        return replace(done, expired=expire(runtime))
    return done


def expire(runtime: Runtime) -> Expired:
    """Forget epochs older than those to keep, and delete what nobody needs any more."""
    return expiry.expire(runtime.lake, runtime.keep, grace=runtime.grace)


def compact(
    runtime: Runtime, snapshot: Snapshot, names: Iterable[str] | None = None, *, all_files: bool = False
) -> Upkept:
    """Fold the relations that need it; `all_files` folds each into one sorted run."""
    relations = files = size = 0
    for name in names or snapshot.relations:
        relation = snapshot.relations[name]
        run = snapshot.files(name) if all_files else compaction.plan(snapshot, name)
        if not run or (all_files and len(run) < 2):
            continue
        reach("compaction:planned")
        try:
            new = _fold(runtime, relation, run, from_start=len(run) == len(snapshot.files(name)))
        except Terminal as error:
            # Sums that do not fit are an error to whoever reads them; they must not become a number.
            if error.code not in OVERFLOW:
                raise
            continue
        reach("compaction:written")
        if compaction.publish(runtime.lake, relation, run, new) is not None:
            relations, files, size = relations + 1, files + len(run), size + sum(file.bytes for file in new)
    return Upkept(relations, files, size)


def _fold(runtime: Runtime, relation: Relation, run: tuple[DataFile, ...], *, from_start: bool) -> list[NewFile]:
    lake = runtime.lake
    if sum(file.rows for file in run) <= DRIVER_ROWS:
        folded = compaction.fold(relation, lake.read(relation, run), from_start=from_start)
        return [lake.write(relation, folded)] if folded.num_rows else []
    name = f"{relation.name}__stored_old"
    order = relation.key or tuple(c.name for c in relation.columns[:1])
    sql = compaction.fold_sql(relation, quote(name), from_start=from_start)
    paths = runtime.engine.write(
        sql, {name: stored(relation, run)}, lake.arrow_schema(relation), lake.folder(relation.name), order
    )
    return lake.adopt(relation, paths)
