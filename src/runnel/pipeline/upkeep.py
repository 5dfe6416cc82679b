"""Upkeep between epochs: folds runs of small files, forgets old epochs. Safe beside readers, writers and crashes."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.engine.inputs import stored
from runnel.errors import RunnelError, Terminal
from runnel.failpoints import reach
from runnel.lake import compaction, expiry, slices
from runnel.model.program import quote
from runnel.pipeline.prove import prove_first_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from runnel.lake.entries import DataFile, NewFile
    from runnel.lake.expiry import Expired
    from runnel.lake.slices import Slice
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime

OVERFLOW = ("RUNNEL-SUM-OVERFLOW", "RUNNEL-SQL-FAILED", "RUNNEL-ENGINE-SQL")
EXPIRE_EVERY = 25
DRIVER_ROWS = 200_000
PATIENCE = 1.0
log = logging.getLogger("runnel")


@dataclass(frozen=True)
class Upkept:
    """What one round of upkeep did."""

    relations: int = 0
    files_folded: int = 0
    bytes_written: int = 0
    expired: Expired | None = None


class Keeper:
    """Does upkeep in a thread of its own, between epochs where there is time between them."""

    def __init__(self, runtime: Runtime) -> None:
        """Keep the runtime; the thread is started by the first epoch."""
        self._runtime = runtime
        self._epoch = self._done = 0
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def due(self, epoch: int) -> None:
        """Note that an epoch was published: there may be something to do."""
        with self._wake:
            self._epoch = epoch
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._keep, name="runnel-upkeep", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def close(self) -> None:
        """Finish what is being done and do no more."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _keep(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._epoch > self._done)
                if self._closed:
                    return
                self._done = self._epoch
            try:
                after_epoch(self._runtime, self._done, rest=self._rest)
            except RunnelError as error:
                log.warning("upkeep after epoch %s was put off: %s", self._done, error)
            except Exception:  # the thread has to live: without upkeep files would pile up
                log.exception("upkeep after epoch %s was put off", self._done)

    def _rest(self) -> bool:
        """Let epochs go first; say whether to go on."""
        self._runtime.wait_idle(PATIENCE)
        return not self._closed


def tidy(runtime: Runtime, epoch: int) -> None:
    """See to what is due after an epoch: beside the next ones where there is a keeper, else now."""
    if runtime.keeper is not None:
        runtime.keeper.due(epoch)
    else:
        after_epoch(runtime, epoch)


def after_epoch(runtime: Runtime, epoch: int, rest: Callable[[], bool] | None = None) -> Upkept:
    """Do what is due after an epoch: cheap when nothing is. `rest` is called between pieces of work; False ends it."""
    done = compact(runtime, runtime.lake.snapshot(), rest=rest)
    prove_first_changes(runtime, rest)
    if epoch - runtime.expired_at >= EXPIRE_EVERY:
        runtime.expired_at = epoch
        return replace(done, expired=expire(runtime))
    return done


def expire(runtime: Runtime) -> Expired:
    """Forget epochs older than those to keep, and delete what nobody needs any more."""
    return expiry.expire(runtime.lake, runtime.keep, grace=runtime.grace)


def compact(
    runtime: Runtime,
    snapshot: Snapshot,
    names: Iterable[str] | None = None,
    *,
    all_files: bool = False,
    rest: Callable[[], bool] | None = None,
) -> Upkept:
    """Fold the relations that need it; `all_files` folds each into one sorted run."""
    relations = files = size = 0
    for name in names or snapshot.relations:
        relation = snapshot.relations[name]
        run = snapshot.files(name) if all_files else compaction.plan(snapshot, name)
        if not run or (all_files and len(run) < 2):
            continue
        if rest is not None and not rest():
            break
        reach("compaction:planned")
        try:
            new = fold_files(runtime, relation, run, from_start=len(run) == len(snapshot.files(name)), rest=rest)
            if new is None:
                break
        except Terminal as error:
            # Sums that do not fit are an error to whoever reads them; they must not become a number.
            if error.code not in OVERFLOW:
                raise
            continue
        reach("compaction:written")
        if compaction.publish(runtime.lake, relation, run, new) is not None:
            relations, files, size = relations + 1, files + len(run), size + sum(file.bytes for file in new)
    return Upkept(relations, files, size)


def fold_files(
    runtime: Runtime,
    relation: Relation,
    run: tuple[DataFile, ...],
    *,
    from_start: bool,
    rest: Callable[[], bool] | None = None,
) -> list[NewFile] | None:
    """Write what these files add up to; None if there was no time for it."""
    lake = runtime.lake
    if sum(file.rows for file in run) <= DRIVER_ROWS:
        folded = compaction.fold(relation, lake.read(relation, run), from_start=from_start)
        return [lake.write(relation, folded)] if folded.num_rows else []
    cut = slices.cut(relation, run)
    if cut is not None:
        return _fold_slices(runtime, relation, run, cut, from_start=from_start, rest=rest)
    name = f"{relation.name}__stored_old"
    order = relation.key or tuple(c.name for c in relation.columns[:1])
    sql = compaction.fold_sql(relation, quote(name), from_start=from_start)
    written = runtime.engine.write(
        sql, {name: stored(relation, run)}, lake.arrow_schema(relation), lake.unpublished(relation.name), order
    )
    return lake.adopt(relation, written.paths, written.rows)


def _fold_slices(
    runtime: Runtime,
    relation: Relation,
    run: tuple[DataFile, ...],
    cut: Sequence[Slice],
    *,
    from_start: bool,
    rest: Callable[[], bool] | None,
) -> list[NewFile] | None:
    """Fold one range of keys after the other; epochs go first in between."""
    lake = runtime.lake
    done: list[NewFile] = []
    try:
        for number, part in enumerate(cut):
            if number and rest is not None and not rest():
                lake.discard(done)
                return None
            folded = compaction.fold(relation, part.read(relation, run), from_start=from_start)
            if folded.num_rows:
                done.append(lake.write(relation, folded, remembered=False))
    except BaseException:
        lake.discard(done)
        raise
    return done
