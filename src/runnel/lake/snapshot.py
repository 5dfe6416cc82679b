"""Reading the state as of an epoch. A `Snapshot` never changes; loading the next one costs by what has changed since."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.errors import Place, Terminal, nearest
from runnel.lake import encoding, tables
from runnel.lake.entries import ColumnStats, DataFile, ViewEntry
from runnel.model.relation import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runnel.lake.catalog import Catalog
    from runnel.model.relation import Relation

_KEPT_SNAPSHOTS = 8
_KEPT_SCHEMAS = 4
_KEPT_STATS = 50_000
_BATCH = 500


@dataclass(frozen=True)
class Definitions:
    """The relations, and the views with the stages below them, of one schema version; `ids` are the relations' table ids."""

    relations: Mapping[str, Relation]
    ids: Mapping[str, int]
    names: Mapping[int, str]
    entries: Mapping[str, ViewEntry]


class Snapshot:
    """The state as of one epoch. `entries` are all that is maintained: the users' `views`, and the stages below them."""

    def __init__(
        self,
        epoch: int,
        definitions: Definitions,
        entries: Mapping[str, ViewEntry],
        positions: Mapping[str, dict[str, Any]],
        files: Mapping[int, tuple[DataFile, ...]],
        reader: SnapshotReader,
    ) -> None:
        """Hold what was loaded; `files` are by table id."""
        self.epoch = epoch
        self.relations: Mapping[str, Relation] = definitions.relations
        self.entries = entries
        self.views = {name: entry for name, entry in entries.items() if not _is_stage(definitions, name)}
        self.positions = positions
        self.definitions = definitions
        self.live = files
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
        self._stats: dict[int, Mapping[str, ColumnStats]] = {}

    def head(self) -> int:
        """Give the newest epoch."""
        with self._catalog.read() as connection:
            return head_of(connection)

    def at(self, epoch: int | None) -> Snapshot:
        """Give the state as of an epoch, or the newest one."""
        with self._lock, self._catalog.read() as connection:
            wanted = head_of(connection) if epoch is None else epoch
            if wanted not in self._snapshots:
                self._snapshots[wanted] = self._load(connection, wanted)
            elif epoch is not None:
                self._schema_version(connection, epoch)  # raises if it has expired meanwhile
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

    def _schema_version(self, connection: sa.Connection, epoch: int) -> int:
        found = connection.execute(
            sa.select(tables.snapshot.c.schema_version).where(tables.snapshot.c.snapshot_id == epoch)
        ).scalar_one_or_none()
        if found is not None:
            return int(found)
        if 0 <= epoch < head_of(connection):
            raise expired(epoch, self._catalog.name)
        raise Terminal(
            "RUNNEL-EPOCH-UNKNOWN",
            f"there is no epoch {epoch}",
            place=Place(self._catalog.name),
            hint=f"the newest is {head_of(connection)}",
        )

    def _load(self, connection: sa.Connection, epoch: int) -> Snapshot:
        definitions = self.definitions(connection, self._schema_version(connection, epoch), epoch)
        frontiers = frontiers_of(connection, epoch)
        entries = {
            name: replace(entry, frontier=frontiers[name][0], error=frontiers[name][1])
            for name, entry in definitions.entries.items()
        }
        positions = {
            row.source: json.loads(row.position)
            for row in connection.execute(_visible(tables.runnel_position, epoch)).all()
        }
        return Snapshot(epoch, definitions, entries, positions, self._load_files(connection, definitions, epoch), self)

    def _load_files(
        self, connection: sa.Connection, definitions: Definitions, epoch: int
    ) -> Mapping[int, tuple[DataFile, ...]]:
        f = tables.data_file
        before = max((e for e in self._snapshots if e < epoch), default=None)
        # Of an epoch that has expired it is no longer known which of its files ended since.
        if before is None or not _is_kept(connection, before):
            rows = connection.execute(_files(_seen(f, epoch))).all()
            return self._grouped(connection, definitions, rows, {})
        live = self._snapshots[before].live
        ended = connection.execute(
            sa.select(f.c.data_file_id, f.c.table_id).where(f.c.end_snapshot > before, f.c.end_snapshot <= epoch)
        ).all()
        gone = {row.data_file_id for row in ended}
        kept = {number: files for number, files in live.items() if number in definitions.names}
        for number in {row.table_id for row in ended} & set(kept):
            kept[number] = tuple(file for file in kept[number] if file.id not in gone)
        rows = connection.execute(_files(sa.and_(f.c.begin_snapshot > before, _seen(f, epoch)))).all()
        return self._grouped(connection, definitions, rows, kept)

    def _grouped(
        self,
        connection: sa.Connection,
        definitions: Definitions,
        rows: Sequence[sa.Row[Any]],
        into: dict[int, tuple[DataFile, ...]],
    ) -> dict[int, tuple[DataFile, ...]]:
        added: dict[int, list[DataFile]] = {}
        for file, number in self._made(connection, definitions, rows):
            added.setdefault(number, []).append(file)
        for number, files in added.items():
            into[number] = (*into.get(number, ()), *files)
        return into

    def changes(self, snapshot: Snapshot, table_id: int, since: int | None) -> tuple[DataFile, ...]:
        """Load the change files of a relation in (since, the snapshot's epoch]; None = from the oldest that are all kept."""
        f, r = tables.data_file, tables.runnel_relation
        with self._lock, self._catalog.read() as connection:
            forgotten = connection.scalar(sa.select(r.c.changes_from).where(r.c.table_id == table_id))
            after = forgotten if since is None else since
            if forgotten is None or after is None or after < forgotten:
                raise expired(snapshot.epoch if since is None else since, self._catalog.name)
            in_range = sa.and_(
                f.c.table_id == table_id, f.c.begin_snapshot > after, f.c.begin_snapshot <= snapshot.epoch
            )
            rows = connection.execute(_files(sa.and_(in_range, tables.runnel_file.c.change == sa.true()))).all()
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
            file = DataFile(
                row.data_file_id, name, path, row.record_count, row.file_size_bytes,
                row.begin_snapshot, row.end_snapshot, bool(row.change), self._stats.get(row.data_file_id, {}),
            )  # fmt: skip
            made.append((file, row.table_id))
        return made

    def _load_stats(self, connection: sa.Connection, definitions: Definitions, rows: Sequence[sa.Row[Any]]) -> None:
        if len(self._stats) > _KEPT_STATS:
            self._stats.clear()
        wanted = [row.data_file_id for row in rows if row.data_file_id not in self._stats]
        decoders: dict[int, dict[int, tuple[str, Callable[[str], Any]]]] = {}
        for start in range(0, len(wanted), _BATCH):
            loaded: dict[int, dict[str, ColumnStats]] = {number: {} for number in wanted[start : start + _BATCH]}
            for table_id, number, column_id, nulls, low, high, nan in connection.execute(_STATS, {"ids": list(loaded)}):
                if table_id not in decoders:
                    decoders[table_id] = _decoders(definitions.relations[definitions.names[table_id]])
                name, decode = decoders[table_id][column_id]
                loaded[number][name] = ColumnStats(
                    None if low is None else decode(low),
                    None if high is None else decode(high),
                    nulls,
                    None if nan is None else bool(nan),
                )
            self._stats.update(loaded)


_S = tables.file_column_stats.c
_STATS = sa.select(
    _S.table_id, _S.data_file_id, _S.column_id, _S.null_count, _S.min_value, _S.max_value, _S.contains_nan
).where(_S.data_file_id.in_(sa.bindparam("ids", expanding=True)))


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


def head_of(connection: sa.Connection) -> int:
    """Give the newest epoch that this transaction sees."""
    return int(connection.execute(_HEAD).scalar_one())


_HEAD = sa.select(sa.func.max(tables.snapshot.c.snapshot_id))


def frontiers_of(connection: sa.Connection, epoch: int) -> dict[str, tuple[int, str | None]]:
    """Give each view's frontier and error as of an epoch."""
    text = connection.execute(
        sa.select(tables.runnel_epoch.c.frontiers).where(tables.runnel_epoch.c.epoch == epoch)
    ).scalar_one()
    return {name: (frontier, error) for name, (frontier, error) in json.loads(text).items()}


def _seen(table: sa.Table, epoch: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        table.c.begin_snapshot <= epoch, sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > epoch)
    )


def _visible(table: sa.Table, epoch: int) -> sa.Select[Any]:
    return sa.select(table).where(_seen(table, epoch))


def _files(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    f, r = tables.data_file, tables.runnel_file
    return (
        sa.select(
            f.c.data_file_id, f.c.table_id, f.c.path, f.c.path_is_relative, f.c.record_count, f.c.file_size_bytes,
            f.c.begin_snapshot, f.c.end_snapshot, r.c.change,
        )
        .join(r, r.c.data_file_id == f.c.data_file_id)
        .where(condition)
        .order_by(f.c.begin_snapshot, f.c.data_file_id)
    )  # fmt: skip


def _load_definitions(connection: sa.Connection, epoch: int) -> Definitions:
    relations: dict[str, Relation] = {}
    ids: dict[str, int] = {}
    for row in connection.execute(_visible(tables.runnel_relation, epoch).order_by(tables.runnel_relation.c.table_id)):
        relations[row.name] = encoding.decode_relation(row.name, row.definition)
        ids[row.name] = row.table_id
    entries = {
        row.name: decode_view(row.name, row.definition)
        for row in connection.execute(_visible(tables.runnel_view, epoch))
    }
    return Definitions(relations, ids, {number: name for name, number in ids.items()}, entries)


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
