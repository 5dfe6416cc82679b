"""Reading the state as of an epoch. A `Snapshot` never changes; loading the next one costs by what has changed since."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.errors import Place, Terminal, nearest
from runnel.lake import digests, encoding, epochs, tables
from runnel.lake.entries import ColumnStats, DataFile, ViewEntry
from runnel.lake.epochs import head_of
from runnel.model.relation import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runnel.lake.catalog import Catalog
    from runnel.lake.epochs import Epoch
    from runnel.model.relation import Relation

_KEPT_SNAPSHOTS = 8
_KEPT_SCHEMAS = 4
_KEPT_STATS = 10_000
_BATCH = 500


@dataclass(frozen=True)
class Definitions:
    """The relations, and the views with the stages below them, of one schema version; `ids` are the relations' table ids.

    `added_up` is the sum of the hashes of their rows.
    """

    relations: Mapping[str, Relation]
    ids: Mapping[str, int]
    names: Mapping[int, str]
    entries: Mapping[str, ViewEntry]
    added_up: int


class Snapshot:
    """The state as of one epoch. `entries` are all that is maintained: the users' `views`, and the stages below them."""

    def __init__(
        self,
        epoch: int,
        definitions: Definitions,
        entries: Mapping[str, ViewEntry],
        positions: Mapping[str, dict[str, Any]],
        files: Mapping[int, tuple[DataFile, ...]],
        files_added_up: int,
        reader: SnapshotReader,
    ) -> None:
        """Hold what was loaded; `files` are by table id, `files_added_up` is the sum of the hashes of their entries."""
        self.epoch = epoch
        self.relations: Mapping[str, Relation] = definitions.relations
        self.entries = entries
        self.views = {name: entry for name, entry in entries.items() if not _is_stage(definitions, name)}
        self.positions = positions
        self.definitions = definitions
        self.live = files
        self.files_added_up = files_added_up
        self._reader = reader

    @property
    def shown(self) -> Mapping[str, Relation]:
        """What users know of: the tables and views, without the stages below them."""
        return {name: relation for name, relation in self.relations.items() if relation.kind is not Kind.STAGE}

    def table_id(self, relation: str | Relation) -> int:
        """Give the catalog's number of a relation."""
        name = relation if isinstance(relation, str) else relation.name
        if name not in self.definitions.ids:
            raise unknown_relation(name, self.definitions.ids)
        return self.definitions.ids[name]

    def files(self, relation: str | Relation) -> tuple[DataFile, ...]:
        """Give the files whose signed rows add up to the relation, oldest first."""
        return self.live.get(self.table_id(relation), ())

    def changes(self, relation: str | Relation, since: int) -> tuple[DataFile, ...]:
        """Give the files of what the relation changed by in (since, epoch], folded away or not, oldest first."""
        if since >= self.epoch:
            return ()
        return self._reader.changes(self, self.table_id(relation), since)

    def kept_changes(self, relation: str | Relation) -> tuple[DataFile, ...]:
        """Give the files of all changes up to this epoch that have not been forgotten, oldest first."""
        return self._reader.changes(self, self.table_id(relation), None)


def _is_kept(connection: sa.Connection, epoch: int) -> bool:
    s = tables.snapshot.c.snapshot_id
    return connection.scalar(sa.select(s).where(s == epoch)) is not None


def unknown_relation(name: str, names: Iterable[str]) -> Terminal:
    """Give the error for a relation that is not there."""
    return Terminal("RUNNEL-RELATION-UNKNOWN", f"there is no relation {name!r}", hint=nearest(name, names))


class SnapshotReader:
    """Loads snapshots and keeps the last few; may be used by several threads."""

    def __init__(self, catalog: Catalog, path_of: Callable[[str, str, bool], str]) -> None:
        """Read from `catalog`; `path_of(relation, path, relative)` gives a file's full path."""
        self._catalog = catalog
        self._path_of = path_of
        self._lock = RLock()
        self._snapshots: OrderedDict[int, Snapshot] = OrderedDict()
        self._definitions: OrderedDict[int, Definitions] = OrderedDict()
        self._stats: dict[int, tuple[Mapping[str, ColumnStats], list[tuple[Any, ...]]]] = {}

    @property
    def place(self) -> str:
        """The catalog's name, for errors."""
        return self._catalog.name

    def head(self) -> int:
        """Give the newest epoch."""
        with self._catalog.read() as connection:
            return head_of(connection, self.place)

    def at(self, epoch: int | None) -> Snapshot:
        """Give the state as of an epoch, or the newest one."""
        with self._lock, self._catalog.read() as connection:
            wanted = head_of(connection, self.place) if epoch is None else epoch
            if wanted not in self._snapshots:
                self._snapshots[wanted] = self._loaded(connection, wanted)
            elif epoch is not None and not _is_kept(connection, epoch):
                raise self._unknown(connection, epoch)
            self._snapshots.move_to_end(wanted)
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
            return self._snapshots[wanted]

    def definitions(self, connection: sa.Connection, schema_version: int, epoch: int) -> Definitions:
        """Give the relations and views of a schema version, which `epoch` has."""
        with self._lock:
            if schema_version not in self._definitions:
                self._definitions[schema_version] = _load_definitions(connection, epoch)
                while len(self._definitions) > _KEPT_SCHEMAS:
                    self._definitions.popitem(last=False)
            return self._definitions[schema_version]

    def epoch(self, connection: sa.Connection, epoch: int) -> Epoch:
        """Give an epoch's own row; raise if it is not there, or not as it was published."""
        catalog = self._catalog
        how = {"has_digests": catalog.has_digests, "needs_digests": catalog.needs_digests}
        with epochs.understood(self.place, f"the row of epoch {epoch}"):
            found = epochs.load(connection, epoch, self.place, **how)
        if found is None:
            raise self._unknown(connection, epoch)
        return found

    def _unknown(self, connection: sa.Connection, epoch: int) -> Terminal:
        head = head_of(connection, self.place)
        if 0 <= epoch < head:
            return expired(epoch, self.place)
        hint = f"the newest is {head}"
        return Terminal("RUNNEL-EPOCH-UNKNOWN", f"there is no epoch {epoch}", place=Place(self.place), hint=hint)

    def _loaded(self, connection: sa.Connection, epoch: int) -> Snapshot:
        own = self.epoch(connection, epoch)
        with epochs.understood(self.place, f"an entry of epoch {epoch}"):
            return self._load(connection, own)

    def _load(self, connection: sa.Connection, own: Epoch) -> Snapshot:
        definitions = self.definitions(connection, own.schema_version, own.epoch)
        rows = connection.execute(_visible(tables.runnel_position, own.epoch)).mappings().all()
        positions = digests.total(epochs.hash_of(tables.runnel_position, row) for row in rows)
        files, files_added_up = self._load_files(connection, definitions, own.epoch)
        found = digests.total((definitions.added_up, positions, files_added_up))
        if own.added_up not in (None, found):
            self._definitions.clear()
            raise epochs.damaged(self.place, f"what epoch {own.epoch} shows is not what was published with it")
        entries = {
            name: replace(entry, frontier=own.frontiers[name][0], error=own.frontiers[name][1])
            for name, entry in definitions.entries.items()
        }
        at = {row["source"]: json.loads(row["position"]) for row in rows}
        return Snapshot(own.epoch, definitions, entries, at, files, files_added_up, self)

    def _load_files(
        self, connection: sa.Connection, definitions: Definitions, epoch: int
    ) -> tuple[Mapping[int, tuple[DataFile, ...]], int]:
        f = tables.data_file
        before = max((e for e in self._snapshots if e < epoch), default=None)
        # Of an epoch that has expired it is no longer known which of its files ended since.
        if before is None or not _is_kept(connection, before):
            rows = connection.execute(self._files(epochs.seen(f, epoch))).all()
            return self._grouped(connection, definitions, rows, {}, 0)
        live = self._snapshots[before].live
        ended = connection.execute(
            sa.select(f.c.data_file_id, f.c.table_id).where(f.c.end_snapshot > before, f.c.end_snapshot <= epoch)
        ).all()
        gone = {row.data_file_id for row in ended}
        kept = dict(live)
        added_up = self._snapshots[before].files_added_up
        for number in {row.table_id for row in ended} & set(kept):
            added_up = digests.total((-file.entry for file in kept[number] if file.id in gone), added_up)
            kept[number] = tuple(file for file in kept[number] if file.id not in gone)
        kept = {number: files for number, files in kept.items() if number in definitions.names}
        rows = connection.execute(self._files(sa.and_(f.c.begin_snapshot > before, epochs.seen(f, epoch)))).all()
        return self._grouped(connection, definitions, rows, kept, added_up)

    def _grouped(
        self,
        connection: sa.Connection,
        definitions: Definitions,
        rows: Sequence[sa.Row[Any]],
        into: dict[int, tuple[DataFile, ...]],
        added_up: int,
    ) -> tuple[dict[int, tuple[DataFile, ...]], int]:
        added: dict[int, list[DataFile]] = {}
        for file, number in self._made(connection, definitions, rows):
            added.setdefault(number, []).append(file)
        for number, files in added.items():
            into[number] = (*into.get(number, ()), *files)
            added_up = digests.total((file.entry for file in files), added_up)
        return into, added_up

    def changes(self, snapshot: Snapshot, table_id: int, since: int | None) -> tuple[DataFile, ...]:
        """Load the change files of a relation in (since, the snapshot's epoch]; None = from the oldest that are all kept."""
        f, r = tables.data_file, tables.runnel_relation
        with self._lock, self._catalog.read() as connection:
            forgotten = connection.scalar(sa.select(r.c.changes_from).where(r.c.table_id == table_id))
            after = forgotten if since is None else since
            catalog = self._catalog
            kept = None
            if catalog.has_digests and forgotten is not None:
                kept = epochs.kept_changes(connection, table_id, self.place, needed=catalog.needs_digests)
            if kept is not None and kept[0] != forgotten:
                raise epochs.damaged(self.place, f"changes of relation {table_id} are kept since two epochs")
            if forgotten is None or after is None or after < forgotten:
                raise expired(snapshot.epoch if since is None else since, self._catalog.name)
            in_range = sa.and_(
                f.c.table_id == table_id, f.c.begin_snapshot > after, f.c.begin_snapshot <= snapshot.epoch
            )
            rows = connection.execute(self._files(sa.and_(in_range, tables.runnel_file.c.change == sa.true()))).all()
            if kept is not None and len(rows) != sum(after < begin <= snapshot.epoch for begin, _ in kept[1]):
                raise epochs.damaged(
                    self.place, f"the changes of relation {table_id} are not those that were published"
                )
            with epochs.understood(self.place, f"a change up to epoch {snapshot.epoch}"):
                return tuple(file for file, _ in self._made(connection, snapshot.definitions, rows))

    def _made(
        self, connection: sa.Connection, definitions: Definitions, rows: Sequence[sa.Row[Any]]
    ) -> list[tuple[DataFile, int]]:
        rows = [row for row in rows if row.table_id in definitions.names]
        self._load_stats(connection, definitions, rows)
        made = []
        for row in rows:
            name = definitions.names[row.table_id]
            path = self._path_of(name, row.path, bool(row.path_is_relative))
            stats, said = self._stats.get(row.data_file_id, ({}, []))
            entry = epochs.hash_of_file(row, said)
            if row.entry is not None and row.entry != f"{entry:016x}":
                raise epochs.damaged(self.place, f"what it says of {path}, a file of {name}, is not what was published")
            file = DataFile(
                row.data_file_id, name, path, row.record_count, row.file_size_bytes,
                row.begin_snapshot, row.end_snapshot, bool(row.change), stats, row.digest, entry,
            )  # fmt: skip
            made.append((file, row.table_id))
        return made

    def _load_stats(self, connection: sa.Connection, definitions: Definitions, rows: Sequence[sa.Row[Any]]) -> None:
        if len(self._stats) > max(_KEPT_STATS, 4 * len(rows)):  # most are of files that are gone
            self._stats.clear()
        wanted = {row.data_file_id: row.table_id for row in rows if row.data_file_id not in self._stats}
        ids = list(wanted)
        decoders: dict[int, dict[int, tuple[str, Callable[[str], Any]]]] = {}
        for start in range(0, len(ids), _BATCH):
            loaded: dict[int, tuple[dict[str, ColumnStats], list[tuple[Any, ...]]]] = {
                number: ({}, []) for number in ids[start : start + _BATCH]
            }
            for row in connection.execute(_STATS, {"ids": list(loaded)}):
                stats, said = loaded[row.data_file_id]
                told = epochs.said_of_column(row)
                said.append(told)
                # The file's own entry says whose columns these are: it has a hash.
                number = wanted[row.data_file_id]
                if number not in decoders:
                    decoders[number] = _decoders(definitions.relations[definitions.names[number]])
                name, decode = decoders[number][row.column_id]
                _, nulls, low, high, nan = told
                low, high = (None if value is None else decode(value) for value in (low, high))
                stats[name] = ColumnStats(low, high, nulls, nan)
            self._stats.update(loaded)

    def _files(self, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
        f, r = tables.data_file, tables.runnel_file
        added = (r.c.digest, r.c.entry) if self._catalog.has_digests else epochs.NO_DIGESTS
        return (
            sa.select(
                f.c.data_file_id, f.c.table_id, f.c.path, f.c.path_is_relative, f.c.record_count, f.c.file_size_bytes,
                f.c.begin_snapshot, f.c.end_snapshot, r.c.change, *added,
            )
            .join(r, r.c.data_file_id == f.c.data_file_id)
            .where(condition)
            .order_by(f.c.begin_snapshot, f.c.data_file_id)
        )  # fmt: skip


_S = tables.file_column_stats.c
_STATS = sa.select(_S.data_file_id, _S.column_id, _S.null_count, _S.min_value, _S.max_value, _S.contains_nan).where(
    _S.data_file_id.in_(sa.bindparam("ids", expanding=True))
)


def _decoders(relation: Relation) -> dict[int, tuple[str, Callable[[str], Any]]]:
    ids = encoding.column_ids(relation)
    return {ids[c.name]: (c.name, encoding.decoder(c.type)) for c in encoding.stored_columns(relation)}


def expired(epoch: int, where: str) -> Terminal:
    """Give the error for an epoch that is no longer kept."""
    return Terminal(
        "RUNNEL-EPOCH-EXPIRED",
        f"epoch {epoch} is no longer kept",
        place=Place(where),
        hint="read a newer epoch, or keep more of them",
    )


def _visible(table: sa.Table, epoch: int) -> sa.Select[Any]:
    return sa.select(table).where(epochs.seen(table, epoch))


def _load_definitions(connection: sa.Connection, epoch: int) -> Definitions:
    relations: dict[str, Relation] = {}
    ids: dict[str, int] = {}
    order = tables.runnel_relation.c.table_id
    rows = connection.execute(_visible(tables.runnel_relation, epoch).order_by(order)).mappings().all()
    for row in rows:
        relations[row["name"]] = encoding.decode_relation(row["name"], row["definition"])
        ids[row["name"]] = row["table_id"]
    views = connection.execute(_visible(tables.runnel_view, epoch)).mappings().all()
    entries = {row["name"]: decode_view(row["name"], row["definition"]) for row in views}
    hashes = [epochs.hash_of(tables.runnel_relation, row) for row in rows]
    hashes += [epochs.hash_of(tables.runnel_view, row) for row in views]
    names = {number: name for name, number in ids.items()}
    return Definitions(relations, ids, names, entries, digests.total(hashes))


def _is_stage(definitions: Definitions, name: str) -> bool:
    return name in definitions.relations and definitions.relations[name].kind is Kind.STAGE


def encode_view(view: ViewEntry) -> str:
    """Write a view's definition, without its frontier, as JSON."""
    return json.dumps(
        {
            "sql": view.sql,
            "properties": dict(view.properties),
            "program": view.program,
            "inputs": list(view.inputs),
            "stages": list(view.stages),
            "seen": {table: list(columns) for table, columns in view.seen.items()},
            **({"events": list(view.events), "since": view.since} if view.events else {}),
            **({"functions": dict(view.functions)} if view.functions else {}),
            **({"settings": dict(view.settings)} if view.settings else {}),
        }
    )


def decode_view(name: str, text: str) -> ViewEntry:
    """Read what `encode_view` wrote; the frontier is not in it."""
    facts = json.loads(text)
    seen = {table: tuple(columns) for table, columns in facts.get("seen", {}).items()}
    inputs, stages = tuple(facts["inputs"]), tuple(facts["stages"])
    return ViewEntry(
        name,
        facts["sql"],
        facts["properties"],
        facts["program"],
        inputs,
        stages,
        0,
        seen=seen,
        events=tuple(facts.get("events", ())),
        since=facts.get("since", 0),
        functions=facts.get("functions", {}),
        settings=facts.get("settings", {}),
    )
