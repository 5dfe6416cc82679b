"""The lake: one object through which everything else reads and writes the state. Several threads may share it."""

from __future__ import annotations

import json
import logging
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.errors import Conflict, RunnelError, UsageError
from runnel.failpoints import reach
from runnel.lake import compaction, encoding, files, lease, lookup, marker, settle, tables
from runnel.lake.catalog import Catalog
from runnel.lake.entries import DataFile, NewFile
from runnel.lake.publish import WRITER_LOST, publish
from runnel.lake.snapshot import SnapshotReader, expired
from runnel.lake.uninterrupted import uninterrupted
from runnel.lake.writer import LEASE_SECONDS, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from runnel.lake.entries import Commit
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation


_LARGEST_EPOCH = 2**62
_BATCH = 500
log = logging.getLogger("runnel")


class Lake:
    """A catalog and the folder (or URI) its files lie below."""

    def __init__(self, catalog: Catalog, data: str, *, durable: bool) -> None:
        """Use `create` or `open` instead."""
        self.catalog = catalog
        self.data = _absolute(data)
        self.durable = durable
        catalog.upgrade()
        self.reader = SnapshotReader(catalog, self._full_path)
        self.state = catalog.state()
        self.writer = Writer(catalog, self.state)
        self._doubtful: set[str] = set()
        self._refused: set[str] = set()

    @classmethod
    def create(cls, catalog: str, data: str, *, durable: bool = True) -> Lake:
        """Make a new state; `durable=False` is for throw-away ones: faster, and lost when the machine stops."""
        made, folder = Catalog(catalog, durable=durable), _absolute(data)
        try:
            made.create(folder + "/", lambda: marker.refuse_lost(folder, made.name))
            lake = cls(made, data, durable=durable)
            # After the catalog: a crash in between leaves a state that says where its files are when it is opened.
            marker.claim(folder, lake.state, made.name)
        except RunnelError:
            made.close()
            raise
        return lake

    @classmethod
    def open(cls, catalog: str, data: str, *, durable: bool = True) -> Lake:
        """Open a state that exists; raise `RUNNEL-CATALOG-MISSING`, `-LOST`, `-NEWER` or `-LOCKED`."""
        opened, folder = Catalog(catalog, durable=durable), _absolute(data)
        try:
            try:
                opened.check()
            except RunnelError as error:
                if error.code == "RUNNEL-CATALOG-MISSING":
                    marker.refuse_lost(folder, opened.name)
                raise
            lake = cls(opened, data, durable=durable)
            marker.claim(folder, lake.state, opened.name)
            lake._tell_where_files_lie()
        except RunnelError:
            opened.close()
            raise
        return lake

    def _tell_where_files_lie(self) -> None:
        """Correct the path DuckDB looks below, after a project's folder was moved."""
        m = tables.ducklake_metadata
        here = self.data + "/"
        with self.catalog.read() as connection:
            there = connection.scalar(sa.select(m.c.value).where(m.c.key == "data_path"))
        if there != here and self.catalog.path is not None and not self.catalog.read_only:
            with self.catalog.write() as connection:
                connection.execute(m.update().where(m.c.key == "data_path").values(value=here))

    def head(self) -> int:
        """Give the newest epoch."""
        return self.reader.head()

    def snapshot(self, at: int | None = None) -> Snapshot:
        """Give the state as of an epoch, the newest by default; raise `RUNNEL-EPOCH-UNKNOWN` or `-EXPIRED`."""
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or abs(at) > _LARGEST_EPOCH):
            raise UsageError(
                "RUNNEL-EPOCH-UNKNOWN", f"{at!r} is no epoch", hint="give a whole number, such as tx.epoch"
            )
        return self.reader.at(at)

    def publish(self, commit: Commit) -> int:
        """Make a commit visible in one transaction and give its epoch; raise `Conflict` if the state has moved on."""
        self.sync(commit.add)

        def work(connection: sa.Connection) -> int:
            epoch = publish(connection, self.reader, commit, self.stored_path)
            reach("publish:before-commit")
            return epoch

        epoch = self.commit(commit.add, commit.id, work)
        commit.epoch = epoch
        reach("publish:after-commit")
        return epoch

    def commit(self, new: Sequence[NewFile], publish_id: str, work: Callable[[sa.Connection], int]) -> int:
        """Do the transaction that publishes files, and find out what became of it before anything may be deleted."""
        paths = {file.path for file in new}
        # Before it begins, and whatever happens to this thread: see `discard`.
        self._doubtful |= paths
        self._refused -= paths

        def run() -> int:
            try:
                epoch = settle.commit(self.catalog, publish_id, work)
            except settle.Unsettled:
                raise
            except Exception as error:
                self._refused |= paths
                self._doubtful -= paths
                if isinstance(error, Conflict) and error.code == WRITER_LOST:
                    self.writer.forget()
                raise
            self._doubtful -= paths
            return epoch

        return uninterrupted(run)

    def sync(self, new: Sequence[NewFile]) -> None:
        """Bring written files safely to the disk, unless this state is a throw-away one."""
        if self.durable:
            files.sync(new)

    def arrow_schema(self, relation: Relation) -> pa.Schema:
        """Give the schema of a relation's files: stored columns and `_weight`, with field ids."""
        return encoding.arrow_schema(relation)

    def folder(self, relation: str) -> str:
        """Say where a relation's files lie."""
        return f"{self.data}/state/{encoding.folder_name(relation)}"

    def unpublished(self, relation: str) -> str:
        """Give a place of a relation for a file or folder that is about to be written; its name says whose it is."""
        return f"{self.folder(relation)}/{self.writer.new_name()}"

    def stored_path(self, file: NewFile) -> tuple[str, bool]:
        """Give a file's path as the catalog keeps it, and whether it is relative to the relation's folder."""
        folder = self.folder(file.relation) + "/"
        return (file.path.removeprefix(folder), True) if file.path.startswith(folder) else (file.path, False)

    def full_path(self, relation: str, path: str, *, relative: bool) -> str:
        """Give the path of a file that the catalog keeps, perhaps `relative` to the relation's folder."""
        return f"{self.folder(relation)}/{path}" if relative else path

    def _full_path(self, relation: str, path: str, relative: bool) -> str:  # noqa: FBT001
        return self.full_path(relation, path, relative=relative)

    def write(self, relation: Relation, table: pa.Table, *, remembered: bool = True) -> NewFile:
        """Write signed rows as one Parquet file, not yet published; they stay in memory for a while if they will be asked for."""
        shaped = files.shape(relation, table)
        written = files.write(relation, f"{self.unpublished(relation.name)}.parquet", shaped)
        if remembered and shaped.num_rows <= lookup.KEPT_ROWS:
            lookup.remember(written.path, shaped)
        return written

    def adopt(self, relation: Relation, paths: Sequence[str], rows: int | None = None) -> list[NewFile]:
        """Take over files an engine wrote, which hold so many `rows`, or it is an error; empty ones are left out."""
        return files.adopt(relation, [_absolute(path) for path in paths], rows)

    def read(
        self, relation: Relation, wanted: Sequence[DataFile | NewFile], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read stored rows on the driver; raise if a file is missing, broken, or let go with its epoch."""
        try:
            return files.read(relation, wanted, columns)
        except RunnelError as error:
            raise self._explained(error, wanted) from error

    def lookup(self, relation: Relation, wanted: Sequence[DataFile | NewFile], keys: pa.Table) -> pa.Table:
        """Give the netted stored rows whose columns equal a row of `keys`; NULL equals NULL."""
        try:
            return compaction.fold(relation, lookup.find(relation, wanted, keys))
        except RunnelError as error:
            raise self._explained(error, wanted) from error

    def _explained(self, error: RunnelError, wanted: Sequence[DataFile | NewFile]) -> RunnelError:
        """Tell a file that expiry let go from one that is lost."""
        lost = next((f for f in wanted if error.place and f.path == error.place.file and isinstance(f, DataFile)), None)
        if error.code != "RUNNEL-FILE-MISSING" or lost is None:
            return error
        f = tables.data_file
        with self.catalog.read() as connection:
            listed = connection.scalar(sa.select(f.c.data_file_id).where(f.c.data_file_id == lost.id))
        return error if listed is not None else expired(lost.begin, self.catalog.name)

    def discard(self, unpublished: Sequence[NewFile]) -> None:
        """Delete those of these files that are known not to be published; what is in doubt is left for expiry to find out."""
        certain = [file for file in unpublished if file.path in self._refused]
        asked = [file for file in unpublished if file.path not in self._refused and file.path not in self._doubtful]
        try:
            listed = self._listed(asked)
        except RunnelError as error:
            log.warning("files that may not be published are kept: %s", error)
            asked, listed = [], set()
        for file in [*certain, *(file for file in asked if file.path not in listed)]:
            files.delete(file.path)
            self._refused.discard(file.path)

    def _listed(self, wanted: Sequence[NewFile]) -> set[str]:
        """Give the paths of those of these files that the catalog names."""
        f = tables.data_file
        stored = {self.stored_path(file)[0]: file.path for file in wanted}
        names, found = list(stored), set()
        for start in range(0, len(names), _BATCH):
            with self.catalog.read() as connection:
                batch = f.c.path.in_(names[start : start + _BATCH])
                found |= {stored[path] for path in connection.execute(sa.select(f.c.path).where(batch)).scalars()}
        return found

    def epochs(self, limit: int = 100) -> list[dict[str, Any]]:
        """Give the records of the last epochs, newest last, each with `epoch`, `kind` and `time`."""
        e = tables.runnel_epoch
        with self.catalog.read() as connection:
            wanted = sa.select(e.c.epoch, e.c.kind, e.c.time, e.c.record)
            rows = connection.execute(wanted.order_by(e.c.epoch.desc()).limit(limit)).all()
        return [
            {**json.loads(row.record), "epoch": row.epoch, "kind": row.kind, "time": row.time} for row in reversed(rows)
        ]

    def times(self, epochs: Sequence[int]) -> dict[int, str]:
        """Give the times of epochs; raise `RUNNEL-EPOCH-EXPIRED` for one that is no longer kept."""
        e = tables.runnel_epoch.c
        found: dict[int, str] = {}
        with self.catalog.read() as connection:
            for start in range(0, len(epochs), _BATCH):
                wanted = list(epochs[start : start + _BATCH])
                rows = connection.execute(sa.select(e.epoch, e.time).where(e.epoch.in_(wanted)))
                found.update({row.epoch: str(row.time) for row in rows})
        for epoch in epochs:
            if epoch not in found:
                raise expired(epoch, self.catalog.name)
        return found

    def acquire(self, name: str, owner: str, seconds: float) -> bool:
        """Take a lease that is free, run out or ours; say whether we hold it now."""
        return lease.acquire(self.catalog, name, owner, seconds)

    @contextmanager
    def pinned(self, epoch: int) -> Iterator[None]:
        """Keep an epoch, and the changes since, from being forgotten while something is computed as of it."""
        owner = self.writer.owner  # whose leases are renewed for as long as this process lives
        name = lease.pin_name(epoch, uuid.uuid4().hex)
        lease.acquire(self.catalog, name, owner, LEASE_SECONDS)
        try:
            yield
        finally:
            lease.release(self.catalog, name, owner)

    def renew(self, name: str, owner: str, seconds: float) -> bool:
        """Lengthen a lease; False if somebody took it over."""
        return lease.renew(self.catalog, name, owner, seconds)

    def release(self, name: str, owner: str) -> None:
        """Give a lease back, if it is ours."""
        lease.release(self.catalog, name, owner)

    def holder(self, name: str) -> str | None:
        """Say who holds a lease that has not run out."""
        return lease.holder(self.catalog, name)

    def deliver(self, target: str, view: str, epoch: int) -> None:
        """Remember that a target has a view as of an epoch."""
        d = tables.runnel_delivery
        with self.catalog.write(d) as connection:
            connection.execute(d.delete().where(d.c.target == target, d.c.view == view))
            connection.execute(d.insert().values(target=target, view=view, epoch=epoch))

    def delivered(self, target: str, view: str) -> int | None:
        """Give the epoch of a view that a target has."""
        d = tables.runnel_delivery
        with self.catalog.read() as connection:
            return connection.scalar(sa.select(d.c.epoch).where(d.c.target == target, d.c.view == view))

    def note(self, key: str, value: dict[str, Any]) -> None:
        """Keep a small fact beside the epochs, for every process to see."""
        m = tables.runnel_metadata
        with self.catalog.write(m) as connection:
            connection.execute(m.delete().where(m.c.key == key))
            connection.execute(m.insert().values(key=key, value=json.dumps(value)))

    def noted(self, key: str) -> dict[str, Any]:
        """Give the fact that was kept last under a key; empty where there is none."""
        m = tables.runnel_metadata
        with self.catalog.read() as connection:
            found = connection.scalar(sa.select(m.c.value).where(m.c.key == key))
        return dict(json.loads(found)) if found is not None else {}

    def notes(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Give all facts whose keys begin like this, by the rest of the key."""
        m = tables.runnel_metadata
        with self.catalog.read() as connection:
            found = connection.execute(sa.select(m.c.key, m.c.value).where(m.c.key.startswith(prefix, autoescape=True)))
            return {key.removeprefix(prefix): dict(json.loads(value)) for key, value in found}

    def incarnation(self, snapshot: Snapshot, relation: str) -> str:
        """Name a relation so that no other ever has that name: made anew, or in another state, it has another one."""
        t = tables.table
        number = snapshot.table_id(relation)
        with self.catalog.read() as connection:
            return str(connection.scalar(sa.select(t.c.table_uuid).where(t.c.table_id == number)))

    def close(self) -> None:
        """Let go of the catalog."""
        self.writer.close()
        self.catalog.close()


def _absolute(path: str) -> str:
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return os.path.normpath(Path(path).absolute()) if files.is_local(path) else path.rstrip("/")
