"""The one transaction that makes an epoch visible: files, definitions, frontiers, positions and the epoch's record together.

It holds unless somebody else changed the state after `commit.base`; compaction in between changes no relation's rows and
is no hindrance.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.errors import Conflict, Terminal
from runnel.failpoints import reach
from runnel.lake import digests, duckdb_views, encoding, epochs, tables
from runnel.lake.catalog import MAIN_SCHEMA_ID, STATE_SCHEMA_ID, now
from runnel.lake.snapshot import encode_view, unknown_relation
from runnel.lake.writer import missing_writers, writer_of
from runnel.model.relation import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runnel.lake.entries import Commit, NewFile
    from runnel.lake.snapshot import Definitions, SnapshotReader
    from runnel.model.relation import Relation

COMPACTION = "compaction"
WRITER_LOST = "RUNNEL-WRITER-LOST"


@dataclass
class Draft:
    """A snapshot in the making, inside its transaction."""

    connection: sa.Connection
    head: int
    epoch: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    relations: dict[str, tuple[Relation, int]]
    frontiers: dict[str, list[Any]]
    added_up: int | None
    """The sum of all entries that this snapshot will show; None where an earlier version left no sum to begin with."""
    made: list[str] = field(default_factory=list)
    schema_changed: bool = False

    def known(self, name: str) -> tuple[Relation, int]:
        """Find a relation and its number, or raise."""
        if name not in self.relations:
            raise unknown_relation(name, self.relations)
        return self.relations[name]

    def show(self, *entries: int) -> None:
        """Count entries that this snapshot is the first to show."""
        self.added_up = None if self.added_up is None else digests.total(entries, self.added_up)

    def end(self, table: sa.Table, which: sa.ColumnElement[bool], entries: Sequence[int] | None = None) -> int:
        """End rows that are shown now, and say how many; `entries` are their hashes, where they are known."""
        ending = sa.and_(which, table.c.end_snapshot.is_(None))
        ended = entries if entries is not None else epochs.hashes(self.connection, table, ending)
        known = None if None in ended else [-entry for entry in ended if entry is not None]
        self.added_up = None if known is None or self.added_up is None else digests.total(known, self.added_up)
        done = self.connection.execute(table.update().where(ending).values(end_snapshot=self.epoch))
        return int(done.rowcount)


def begin(connection: sa.Connection, reader: SnapshotReader) -> Draft:
    """Start a snapshot on top of the newest one."""
    top = reader.epoch(connection, epochs.head_of(connection, reader.place))
    known: Definitions = reader.definitions(connection, top.schema_version, top.epoch)
    relations = {name: (relation, known.ids[name]) for name, relation in known.relations.items()}
    return Draft(
        connection,
        top.epoch,
        top.epoch + 1,
        top.schema_version,
        top.next_catalog_id,
        top.next_file_id,
        relations,
        {name: list(state) for name, state in top.frontiers.items()},
        top.added_up,
    )


def publish(
    connection: sa.Connection,
    reader: SnapshotReader,
    commit: Commit,
    stored_path: Callable[[NewFile], tuple[str, bool]],
) -> int:
    """Write a commit inside the transaction that is open; give its epoch."""
    draft = begin(connection, reader)
    check_base(draft, commit.base, exact=commit.moment is not None)
    check_writers(draft, commit.add)
    reach("publish:begun")
    for name in commit.drop:
        _drop(draft, name)
    for relation in commit.create:
        _create(draft, relation)
    add_files(draft, commit.add, stored_path, change=True)
    reach("publish:files-listed")
    _define(draft, commit, draft.frontiers)
    _move_positions(draft, commit.positions)
    finish(draft, commit.kind, commit.record, draft.frontiers, publish_id=commit.id, moment=commit.moment)
    return draft.epoch


def check_base(draft: Draft, base: int, *, exact: bool = False) -> None:
    """Raise `Conflict` if anything but compaction was published after `base`; with `exact`, if anything was."""
    e = tables.runnel_epoch.c
    if base == draft.head:
        return
    kinds = draft.connection.execute(sa.select(e.kind).where(e.epoch > base)).scalars().all()
    if not exact and base < draft.head and len(kinds) == draft.head - base and set(kinds) == {COMPACTION}:
        return
    raise Conflict(
        "RUNNEL-EPOCH-CONFLICT",
        f"the work was done on epoch {base}, and the newest is {draft.head}",
        hint="do it again on the newest epoch",
    )


def check_writers(draft: Draft, files: Sequence[NewFile]) -> None:
    """Raise `Conflict` if a file's writer lost its lease: the file may have been deleted as an orphan."""
    named = (writer_of(file.path) for file in files)
    if missing_writers(draft.connection, {found[1] for found in named if found is not None}):
        raise Conflict(
            WRITER_LOST,
            "this process was not heard of for so long that its unpublished files were given up",
            hint="do the work again",
        )


def add_files(
    draft: Draft, files: Sequence[NewFile], stored_path: Callable[[NewFile], tuple[str, bool]], *, change: bool
) -> None:
    """List files with their statistics under the draft's epoch."""
    if not files:
        return
    numbers = {draft.known(file.relation)[1] for file in files}
    totals, changes = _totals(draft, numbers)
    listed, marks, stats = [], [], []
    for file in files:
        relation, table_id = draft.known(file.relation)
        number, draft.next_file_id = draft.next_file_id, draft.next_file_id + 1
        path, relative = stored_path(file)
        total = totals[table_id]
        listed.append(
            {
                "data_file_id": number, "table_id": table_id, "begin_snapshot": draft.epoch, "path": path,
                "path_is_relative": relative, "file_format": "parquet", "record_count": file.rows,
                "file_size_bytes": file.bytes, "row_id_start": total["next_row_id"],
            }
        )  # fmt: skip
        of_file = _stats_rows(relation, table_id, number, file)
        sizes = (file.rows, file.bytes)
        entry = digests.file_entry(
            number, table_id, draft.epoch, (path, relative), sizes, change, file.digest, map(_said_of_column, of_file)
        )
        draft.show(entry)
        if change and table_id in changes:
            changes[table_id] = (
                changes[table_id][0],
                digests.total((digests.change(draft.epoch, entry),), changes[table_id][1]),
            )
        marks.append({"data_file_id": number, "change": change, "digest": file.digest, "entry": f"{entry:016x}"})
        stats.extend(of_file)
        total["record_count"] += file.rows
        total["next_row_id"] += file.rows
        total["file_size_bytes"] += file.bytes
    draft.connection.execute(tables.data_file.insert(), listed)
    draft.connection.execute(tables.runnel_file.insert(), marks)
    if stats:
        draft.connection.execute(tables.file_column_stats.insert(), stats)
    # Two statements, whatever the number of relations; an UPDATE per relation is slow over a network.
    draft.connection.execute(tables.table_stats.delete().where(tables.table_stats.c.table_id.in_(list(totals))))
    draft.connection.execute(tables.table_stats.insert(), [{"table_id": n, **total} for n, total in totals.items()])
    if change and changes:
        c = tables.runnel_changes
        draft.connection.execute(c.delete().where(c.c.table_id.in_(list(changes))))
        draft.connection.execute(c.insert(), [epochs.changes_row(n, *kept) for n, kept in changes.items()])
    draft.made.extend(f"inserted_into_table:{number}" for number in totals)


def _totals(draft: Draft, table_ids: set[int]) -> tuple[dict[int, dict[str, int]], dict[int, tuple[int, int]]]:
    """Give the totals of relations, and from where on their changes are kept with the sum of these.

    Relations that an earlier version made have no such sum.
    """
    t, c = tables.table_stats, tables.runnel_changes
    joined = sa.select(t, c.c.changes_from, c.c.added_up, c.c.entry).outerjoin(c, c.c.table_id == t.c.table_id)
    rows = draft.connection.execute(joined.where(t.c.table_id.in_(sorted(table_ids)))).mappings().all()
    names = ("record_count", "next_row_id", "file_size_bytes")
    totals = {row["table_id"]: {name: row[name] for name in names} for row in rows}
    changes = {}
    for row in rows:
        if row["entry"] is not None:
            number, since = row["table_id"], row["changes_from"]
            with epochs.understood("the catalog", "the sum of a relation's changes"):
                changes[number] = (since, int(row["added_up"], 16))
            if row["entry"] != epochs.changes_row(number, *changes[number])["entry"]:
                raise epochs.damaged("the catalog", f"the sum of the changes of relation {number} is another one")
    return totals, changes


def _stats_rows(relation: Relation, table_id: int, number: int, file: NewFile) -> list[dict[str, Any]]:
    ids = encoding.column_ids(relation)
    return [
        {
            "data_file_id": number, "table_id": table_id, "column_id": ids[name],
            "value_count": file.rows - stats.nulls, "null_count": stats.nulls,
            "min_value": encoding.encode_value(stats.minimum), "max_value": encoding.encode_value(stats.maximum),
            "contains_nan": stats.nan,
        }
        for name, stats in file.stats.items()
    ]  # fmt: skip


def _said_of_column(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("column_id", "null_count", "min_value", "max_value", "contains_nan")
    return tuple(row[name] for name in names)


def _create(draft: Draft, relation: Relation) -> None:
    if relation.name in draft.relations:
        raise Terminal("RUNNEL-RELATION-EXISTS", f"there is a relation {relation.name!r} already", hint="drop it first")
    number, view_number = draft.next_catalog_id, draft.next_catalog_id + 1
    draft.next_catalog_id += 2
    execute, epoch = draft.connection.execute, draft.epoch
    unique = str(uuid.uuid4())
    folder = f"{encoding.folder_name(relation.name)}/"
    execute(
        tables.table.insert(),
        [
            {
                "table_id": number, "table_uuid": unique, "begin_snapshot": epoch, "schema_id": STATE_SCHEMA_ID,
                "table_name": relation.name, "path": folder, "path_is_relative": True,
            }
        ],
    )  # fmt: skip
    execute(tables.column.insert(), [_column_row(field, number, epoch) for field in encoding.fields(relation)])
    definition = encoding.encode_relation(relation)
    row = {"table_id": number, "name": relation.name, "definition": definition, "begin_snapshot": epoch}
    execute(tables.runnel_relation.insert(), [{**row, "changes_from": -1}])
    execute(tables.runnel_changes.insert(), [epochs.changes_row(number, -1, 0)])
    draft.show(epochs.hash_of(tables.runnel_relation, row))
    execute(
        tables.table_stats.insert(), [{"table_id": number, "record_count": 0, "next_row_id": 0, "file_size_bytes": 0}]
    )
    if relation.kind is not Kind.STAGE:
        _create_duckdb_view(draft, relation, view_number)
    draft.relations[relation.name] = (relation, number)
    draft.schema_changed = True
    draft.made.append(f"created_table:{_in_schema('state', relation.name)}")
    execute(
        tables.schema_versions.insert(),
        [{"begin_snapshot": epoch, "schema_version": draft.schema_version + 1, "table_id": number}],
    )


def _create_duckdb_view(draft: Draft, relation: Relation, number: int) -> None:
    draft.connection.execute(
        tables.view.insert(),
        [
            {
                "view_id": number, "view_uuid": str(uuid.uuid4()), "begin_snapshot": draft.epoch,
                "schema_id": MAIN_SCHEMA_ID, "view_name": relation.name, "dialect": "duckdb",
                "sql": duckdb_views.view_sql(relation), "column_aliases": "",
            }
        ],
    )  # fmt: skip
    draft.made.append(f"created_view:{_in_schema('main', relation.name)}")


def _in_schema(schema: str, name: str) -> str:
    return f'"{schema}".{duckdb_views.quoted(name)}'


def _column_row(field: encoding.Field, table_id: int, epoch: int) -> dict[str, Any]:
    nested = field.type in ("list", "struct", "map")
    return {
        "column_id": field.id, "begin_snapshot": epoch, "table_id": table_id, "column_order": field.id,
        "column_name": field.name, "column_type": field.type, "default_value": "NULL", "nulls_allowed": True,
        "parent_column": field.parent, "default_value_type": "" if nested else "literal",
        "default_value_dialect": "duckdb",
    }  # fmt: skip


def _drop(draft: Draft, name: str) -> None:
    relation, number = draft.known(name)
    for table in (tables.table, tables.column, tables.data_file, tables.runnel_relation):
        draft.end(table, table.c.table_id == number)
    if relation.kind is not Kind.STAGE:
        draft.end(tables.view, tables.view.c.view_name == name)
    del draft.relations[name]
    draft.schema_changed = True
    draft.made.append(f"dropped_table:{number}")


def _define(draft: Draft, commit: Commit, frontiers: dict[str, list[Any]]) -> None:
    for name in [*commit.undefine, *(view.name for view in commit.define)]:
        frontiers.pop(name, None)
        draft.end(tables.runnel_view, tables.runnel_view.c.name == name)
        draft.schema_changed = True
    if commit.define:
        rows = [
            {"name": view.name, "begin_snapshot": draft.epoch, "definition": encode_view(view)}
            for view in commit.define
        ]
        draft.connection.execute(tables.runnel_view.insert(), rows)
        draft.show(*(epochs.hash_of(tables.runnel_view, row) for row in rows))
    frontiers.update((view.name, [view.frontier, view.error]) for view in commit.define)
    for name, frontier in commit.frontiers.items():
        _state_of(frontiers, name)[0] = draft.epoch if frontier is None else frontier
    for name, error in commit.errors.items():
        _state_of(frontiers, name)[1] = error


def _state_of(frontiers: dict[str, list[Any]], view: str) -> list[Any]:
    if view not in frontiers:
        raise Terminal("RUNNEL-VIEW-UNKNOWN", f"there is no view {view!r}")
    return frontiers[view]


def _move_positions(draft: Draft, positions: dict[str, dict[str, Any]]) -> None:
    if not positions:
        return
    p = tables.runnel_position
    draft.end(p, p.c.source.in_(list(positions)))
    rows = [
        {"source": source, "begin_snapshot": draft.epoch, "position": json.dumps(position)}
        for source, position in positions.items()
    ]
    draft.connection.execute(p.insert(), rows)
    draft.show(*(epochs.hash_of(p, row) for row in rows))


def finish(
    draft: Draft,
    kind: str,
    record: dict[str, Any],
    frontiers: dict[str, list[Any]],
    *,
    publish_id: str,
    moment: str | None = None,
) -> None:
    """Write the snapshot itself with the publish's id, and the epoch's record, as of now or of a given moment."""
    at = moment or now()
    execute = draft.connection.execute
    schema_version = draft.schema_version + int(draft.schema_changed)
    numbers = {"next_catalog_id": draft.next_catalog_id, "next_file_id": draft.next_file_id}
    row = {"snapshot_id": draft.epoch, "snapshot_time": at, "schema_version": schema_version, **numbers}
    execute(tables.snapshot.insert(), [row])
    execute(
        tables.snapshot_changes.insert(),
        [
            {
                "snapshot_id": draft.epoch,
                "changes_made": ",".join(draft.made),
                "author": "runnel",
                "commit_message": kind,
                "commit_extra_info": publish_id,
            }
        ],
    )
    if draft.added_up is None:
        draft.added_up = epochs.shown(draft.connection, draft.epoch)
    texts = (json.dumps(frontiers), json.dumps(record, default=str))
    facts = (kind, at, *texts, schema_version, *numbers.values())
    digest = digests.epoch_digest(draft.added_up, draft.epoch, facts)
    row = {"epoch": draft.epoch, "kind": kind, "time": at, "frontiers": texts[0], "record": texts[1], "digest": digest}
    execute(tables.runnel_epoch.insert(), [row])
