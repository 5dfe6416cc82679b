"""Expiry: forgetting old epochs and the files only they needed, without disturbing anyone who reads a kept one.

The catalog forgets first; files are deleted afterwards, when a grace for readers of just-forgotten epochs has passed. What a
crash leaves is deleted when the lease of its writer is gone: a file's age decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pyarrow import fs

from runnel.failpoints import reach
from runnel.lake import digests, encoding, epochs, files, tables
from runnel.lake.catalog import now
from runnel.lake.epochs import frontiers_of, head_of
from runnel.lake.lease import pinned
from runnel.lake.snapshot import decode_view
from runnel.lake.writer import end_gone_writers, live_writers, writer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.lake import Lake

GRACE_SECONDS = 3600.0
CURSOR = "cursor:"
"""What the names of subscriptions' cursors begin with, among the targets."""
CURSOR_KEEPS = 10
"""A cursor keeps this many times the epochs that are kept anyway, then it is left behind."""
_BATCH = 500


@dataclass(frozen=True)
class Expired:
    """What is gone: snapshots forgotten, files deleted and their bytes."""

    snapshots: int
    files: int
    bytes: int


@dataclass(frozen=True)
class _Kept:
    """The epochs that stay readable: the newest ones, and where each view stands."""

    epochs: list[int]
    horizon: int
    passed: dict[str, int]

    def sees(self, begin: int, end: int | None) -> bool:
        """Say whether a kept epoch sees what was visible in [begin, end)."""
        at = bisect_left(self.epochs, begin)
        return end is None or (at < len(self.epochs) and self.epochs[at] < end)

    def needs_change(self, relation: str, begin: int) -> bool:
        """Say whether a relation's change of epoch `begin` may still be asked for."""
        return begin > self.horizon or begin > self.passed.get(relation, begin)


def expire(lake: Lake, keep: int, *, grace: float = GRACE_SECONDS) -> Expired:
    """Forget epochs older than the newest `keep`, but not one where a view still stands; then delete what nobody needs.

    A file goes when no kept epoch sees it and, if it is a change, every view that reads its relation is past it. Files are
    deleted `grace` seconds after they were let go. Files of this state that no catalog entry names are deleted when the
    lease of whoever wrote them is gone; files of other states, or without a state's id in their names, are left alone.
    """

    def forget(connection: sa.Connection) -> int:
        kept = _kept(connection, keep)
        reach("expiry:planned")
        _forget_files(connection, kept)
        snapshots = _forget_snapshots(connection, kept)
        _forget_definitions(connection, kept)
        end_gone_writers(connection)
        reach("expiry:before-commit")
        return snapshots

    snapshots = lake.catalog.transact(forget)
    reach("expiry:after-commit")
    scheduled = _delete_scheduled(lake, grace)
    orphans = _delete_orphans(lake)
    reach("expiry:done")
    return Expired(snapshots, scheduled[0] + orphans[0], scheduled[1] + orphans[1])


def _kept(connection: sa.Connection, keep: int) -> _Kept:
    head = head_of(connection)
    horizon = min([head - keep, *pinned(connection)])
    frontiers = {name: frontier for name, (frontier, _) in frontiers_of(connection, head).items()}
    passed: dict[str, int] = {}
    since = horizon
    v = tables.runnel_view
    for row in connection.execute(sa.select(v).where(v.c.end_snapshot.is_(None))):
        view = decode_view(row.name, row.definition)
        for relation in view.inputs:
            passed[relation] = min(passed.get(relation, head), frontiers[row.name])
        if view.events:  # it will go through every epoch since its frontier, one by one
            since = min(since, frontiers[row.name])
    d = tables.runnel_delivery
    for epoch in connection.execute(sa.select(d.c.epoch).where(d.c.target.startswith(CURSOR))).scalars():
        since = min(since, max(epoch, head - CURSOR_KEEPS * keep))
    s = tables.snapshot.c.snapshot_id
    epochs = connection.execute(
        sa.select(s).where(sa.or_(s >= since, s.in_(sorted(set(frontiers.values()))))).order_by(s)
    ).scalars()
    return _Kept(list(epochs), horizon, passed)


def _forget_files(connection: sa.Connection, kept: _Kept) -> None:
    f, r, m = tables.data_file, tables.runnel_relation, tables.runnel_file
    ended = connection.execute(
        sa.select(f.c.data_file_id, f.c.table_id, f.c.path, f.c.path_is_relative, f.c.begin_snapshot, f.c.end_snapshot)
        .add_columns(r.c.name, m.c.change)
        .join(r, r.c.table_id == f.c.table_id)
        .join(m, m.c.data_file_id == f.c.data_file_id)
        .where(f.c.end_snapshot.is_not(None))
    ).all()
    going = [
        row
        for row in ended
        if not kept.sees(row.begin_snapshot, row.end_snapshot)
        and not (row.change and kept.needs_change(row.name, row.begin_snapshot))
    ]
    if not going:
        return
    at = now()
    connection.execute(tables.scheduled.insert(), [_schedule(row, at) for row in going])
    _remember_forgotten(connection, [row for row in going if row.change])
    for start in range(0, len(going), _BATCH):
        ids = [row.data_file_id for row in going[start : start + _BATCH]]
        for table in (tables.file_column_stats, m, f):
            connection.execute(table.delete().where(table.c.data_file_id.in_(ids)))


def _schedule(row: sa.Row[Any], at: str) -> dict[str, Any]:
    # Here a relative path counts from the data folder, as DuckLake has it.
    path = f"state/{encoding.folder_name(row.name)}/{row.path}" if row.path_is_relative else row.path
    return {
        "data_file_id": row.data_file_id,
        "path": path,
        "path_is_relative": bool(row.path_is_relative),
        "schedule_start": at,
    }


def _remember_forgotten(connection: sa.Connection, changes: Sequence[sa.Row[Any]]) -> None:
    newest: dict[int, int] = {}
    for row in changes:
        newest[row.table_id] = max(newest.get(row.table_id, -1), row.begin_snapshot)
    r, c = tables.runnel_relation, tables.runnel_changes
    for table_id, begin in newest.items():
        kept = epochs.kept_changes(connection, table_id, "the catalog", needed=False)
        if kept is not None and kept[0] < begin:
            left = epochs.changes_row(table_id, begin, digests.total(entry for at, entry in kept[1] if at > begin))
            connection.execute(c.update().where(c.c.table_id == table_id).values(**left))
        connection.execute(
            r.update().where(r.c.table_id == table_id, r.c.changes_from < begin).values(changes_from=begin)
        )


def _forget_snapshots(connection: sa.Connection, kept: _Kept) -> int:
    s = tables.snapshot.c.snapshot_id
    old = [e for e in connection.execute(sa.select(s).where(s < kept.horizon)).scalars() if e not in set(kept.epochs)]
    for start in range(0, len(old), _BATCH):
        ids = old[start : start + _BATCH]
        for column in (s, tables.snapshot_changes.c.snapshot_id, tables.runnel_epoch.c.epoch):
            connection.execute(sa.delete(column.table).where(column.in_(ids)))
    return len(old)


def _forget_definitions(connection: sa.Connection, kept: _Kept) -> None:
    for table in (tables.runnel_view, tables.runnel_position, tables.view):
        for begin, end in _unseen(connection, table, kept):
            connection.execute(table.delete().where(table.c.begin_snapshot == begin, table.c.end_snapshot == end))
    r, f = tables.runnel_relation, tables.data_file
    dropped = connection.execute(sa.select(r).where(r.c.end_snapshot.is_not(None))).all()
    for row in dropped:
        if kept.sees(row.begin_snapshot, row.end_snapshot):
            continue
        if connection.scalar(sa.select(sa.func.count()).select_from(f).where(f.c.table_id == row.table_id)):
            continue
        for table in (
            tables.table,
            tables.column,
            tables.table_stats,
            tables.table_column_stats,
            tables.schema_versions,
            tables.runnel_changes,
            r,
        ):
            connection.execute(table.delete().where(table.c.table_id == row.table_id))


def _unseen(connection: sa.Connection, table: sa.Table, kept: _Kept) -> list[tuple[int, int]]:
    spans = connection.execute(
        sa.select(table.c.begin_snapshot, table.c.end_snapshot).where(table.c.end_snapshot.is_not(None)).distinct()
    )
    return [(begin, end) for begin, end in spans if not kept.sees(begin, end)]


def _delete_scheduled(lake: Lake, grace: float) -> tuple[int, int]:
    t = tables.scheduled
    before = datetime.now(UTC) - timedelta(seconds=grace)
    with lake.catalog.read() as connection:
        rows = connection.execute(sa.select(t)).all()
    due = [row for row in rows if _time(row.schedule_start) <= before]
    count = size = 0
    for row in due:
        path = f"{lake.data}/{row.path}" if row.path_is_relative else row.path
        system, inside = files.filesystem(path)
        length = system.get_file_info(inside).size or 0
        if files.delete(path):
            count, size = count + 1, size + length
        reach("expiry:file-deleted")

    def forget(connection: sa.Connection) -> None:
        for start in range(0, len(due), _BATCH):
            ids = [row.data_file_id for row in due[start : start + _BATCH]]
            connection.execute(t.delete().where(t.c.data_file_id.in_(ids)))

    if due:
        lake.catalog.transact(forget)
    return count, size


def _time(value: str | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _delete_orphans(lake: Lake) -> tuple[int, int]:
    """Delete files of this state that nobody can publish any more: a writer that crashed left them."""
    root = f"{lake.data}/state"
    system, inside = files.filesystem(root)
    # Listed before the catalog is asked: a file that is published in between is known then.
    found = system.get_file_info(fs.FileSelector(inside, recursive=True, allow_not_found=True))
    known, writers = _known(lake)
    count = size = 0
    for info in found:
        path = info.path.removeprefix(inside).lstrip("/")
        ids = writer_of(path)
        if info.type != fs.FileType.File or ids is None or ids[0] != lake.state or ids[1] in writers or path in known:
            continue
        if files.delete(info.path if files.is_local(root) else f"{root}/{path}"):
            count, size = count + 1, size + (info.size or 0)
    return count, size


def _known(lake: Lake) -> tuple[set[str], set[str]]:
    """List all paths below `state/` that the catalog names, and the writers that may still publish."""
    f, r, t = tables.data_file, tables.runnel_relation, tables.scheduled
    root = f"{lake.data}/state/"
    with lake.catalog.read() as connection:
        listed = connection.execute(
            sa.select(r.c.name, f.c.path, f.c.path_is_relative).join(r, r.c.table_id == f.c.table_id)
        ).all()
        scheduled = connection.execute(sa.select(t.c.path)).scalars().all()
        writers = live_writers(connection)
    known = {path.removeprefix("state/").removeprefix(root) for path in scheduled}
    for name, path, relative in listed:
        known.add(f"{encoding.folder_name(name)}/{path}" if relative else path.removeprefix(root))
    return known, writers
