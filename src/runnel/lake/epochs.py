"""The rows of epochs in the catalog, and the hashes of the entries that they show: what was changed outside of a publish is noticed.

An epoch's digest holds the sum of the hashes of all files, relations, views and positions that it shows. Whoever loads an epoch adds
up what was loaded. PostgreSQL notices damaged pages by itself where its data checksums are on; SQLite does not.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from runnel.errors import Place, Terminal
from runnel.lake import digests, tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HASHED = {
    tables.runnel_relation: ("table_id", "name", "definition", "begin_snapshot"),
    tables.runnel_view: ("name", "begin_snapshot", "definition"),
    tables.runnel_position: ("source", "begin_snapshot", "position"),
}
NO_DIGESTS = (sa.null().label("digest"), sa.null().label("entry"))
_E, _S = tables.runnel_epoch.c, tables.snapshot.c
_HEAD = sa.select(sa.func.max(_S.snapshot_id), sa.select(sa.func.max(_E.epoch)).scalar_subquery())
_FACTS = (_E.kind, _E.time, _E.frontiers, _E.record, _S.schema_version, _S.next_catalog_id, _S.next_file_id)
_EPOCH = (
    sa.select(*_FACTS)
    .select_from(tables.runnel_epoch.join(tables.snapshot, _S.snapshot_id == _E.epoch))
    .where(_E.epoch == sa.bindparam("epoch"))
)


@dataclass(frozen=True)
class Epoch:
    """An epoch's own row. `added_up` is the sum of the entries it shows; None where an earlier version published it."""

    epoch: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    frontiers: Mapping[str, tuple[int, str | None]]
    added_up: int | None


def damaged(place: str, what: str) -> Terminal:
    """Give the error for a catalog whose rows are not those that were published."""
    return Terminal(
        "RUNNEL-CATALOG-DAMAGED",
        f"the catalog was changed by something else than runnel: {what}",
        place=Place(place),
        hint="restore the catalog from a copy; `runnel fsck` lists what is damaged",
    )


@contextmanager
def understood(place: str, what: str) -> Iterator[None]:
    """Say that an entry is damaged where it cannot be made sense of: nothing but runnel writes the catalog."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise damaged(place, f"{what} cannot be read ({type(error).__name__}: {error})") from error


def head_of(connection: sa.Connection, place: str = "the catalog") -> int:
    """Give the newest epoch that this transaction sees; two tables have to agree on it."""
    newest, recorded = connection.execute(_HEAD).one()
    if newest != recorded or not isinstance(newest, int):
        raise damaged(place, f"the newest epoch is {newest} by one table and {recorded} by another")
    return newest


def load(connection: sa.Connection, epoch: int, place: str, *, has_digests: bool, needs_digests: bool) -> Epoch | None:
    """Read an epoch's row and hold it against its digest; None if there is no such epoch."""
    query = _EPOCH.add_columns(_E.digest) if has_digests else _EPOCH.add_columns(sa.null().label("digest"))
    row = connection.execute(query, {"epoch": epoch}).one_or_none()
    if row is None:
        return None
    *facts, digest = row
    added_up = None if digest is None else digests.added_up(digest, epoch, facts)
    if added_up is None and (digest is not None or needs_digests):
        raise damaged(place, f"the row of epoch {epoch} is not the one that was published")
    frontiers = {name: (frontier, error) for name, (frontier, error) in json.loads(row.frontiers).items()}
    return Epoch(epoch, row.schema_version, row.next_catalog_id, row.next_file_id, frontiers, added_up)


def frontiers_of(connection: sa.Connection, epoch: int) -> dict[str, tuple[int, str | None]]:
    """Give each view's frontier and error as of an epoch."""
    text = connection.execute(sa.select(_E.frontiers).where(_E.epoch == epoch)).scalar_one()
    return {name: (frontier, error) for name, (frontier, error) in json.loads(text).items()}


def hash_of(table: sa.Table, row: Mapping[Any, Any]) -> int:
    """Hash a row of relations, views or positions."""
    return digests.entry(table.name, *(row[name] for name in HASHED[table]))


def hashes(connection: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool]) -> list[int | None]:
    """Hash the rows of a table that an epoch's sum counts; None for a file of which an earlier version left no hash."""
    if table is tables.data_file:
        f, r = tables.data_file, tables.runnel_file
        found = connection.execute(
            sa.select(r.c.entry).join(f, f.c.data_file_id == r.c.data_file_id).where(which)
        ).scalars()
        return [None if entry is None else int(entry, 16) for entry in found]
    if table not in HASHED:
        return []
    return [hash_of(table, row) for row in connection.execute(sa.select(table).where(which)).mappings()]


def seen(table: sa.Table, epoch: int) -> sa.ColumnElement[bool]:
    """Give the condition that an epoch shows a row."""
    return sa.and_(
        table.c.begin_snapshot <= epoch, sa.or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > epoch)
    )


def shown(connection: sa.Connection, epoch: int) -> int:
    """Add up all entries that an epoch shows, as they are in the catalog now."""
    entries = [hash_ for _, hash_ in file_hashes(connection, seen(tables.data_file, epoch))]
    for table in HASHED:
        entries += [found for found in hashes(connection, table, seen(table, epoch)) if found is not None]
    return digests.total(entries)


def file_hashes(
    connection: sa.Connection, which: sa.ColumnElement[bool], *, has_digests: bool = True
) -> list[tuple[sa.Row[Any], int]]:
    """Read the entries of files with their statistics, and hash what is there."""
    f, r, s = tables.data_file, tables.runnel_file, tables.file_column_stats
    added = (r.c.digest, r.c.entry) if has_digests else NO_DIGESTS
    with_marks = sa.select(f, r.c.change, *added).join(r, r.c.data_file_id == f.c.data_file_id)
    rows = connection.execute(with_marks.where(which)).all()
    of_files: dict[int, list[tuple[Any, ...]]] = {}
    joined = sa.select(s).join(f, f.c.data_file_id == s.c.data_file_id).where(which)
    for row in connection.execute(joined).all():
        of_files.setdefault(row.data_file_id, []).append(said_of_column(row))
    return [(row, hash_of_file(row, of_files.get(row.data_file_id, []))) for row in rows]


def said_of_column(row: Any) -> tuple[Any, ...]:
    """Take what counts of a row of column statistics."""
    nan = None if row.contains_nan is None else bool(row.contains_nan)
    return row.column_id, row.null_count, row.min_value, row.max_value, nan


def hash_of_file(row: sa.Row[Any], stats: list[tuple[Any, ...]]) -> int:
    """Hash what the catalog says of a file."""
    return digests.file_entry(
        row.data_file_id, row.table_id, row.begin_snapshot, (row.path, bool(row.path_is_relative)),
        (row.record_count, row.file_size_bytes), bool(row.change), row.digest, stats,
    )  # fmt: skip


def changes_row(table_id: int, changes_from: int, added_up: int) -> dict[str, Any]:
    """Write the sum of a relation's kept changes as a row of `runnel_changes`."""
    entry = digests.entry("changes", table_id, changes_from, added_up)
    return {
        "table_id": table_id,
        "changes_from": changes_from,
        "added_up": f"{added_up:016x}",
        "entry": f"{entry:016x}",
    }


def _changes_after(connection: sa.Connection, table_id: int, since: int) -> list[tuple[int, int]]:
    """List the (epoch, hash) of the files of a relation's changes after an epoch."""
    f, r = tables.data_file, tables.runnel_file
    listed = connection.execute(
        sa.select(f.c.begin_snapshot, r.c.entry)
        .join(r, r.c.data_file_id == f.c.data_file_id)
        .where(f.c.table_id == table_id, f.c.begin_snapshot > since, r.c.change == sa.true())
    )
    return [(begin, int(entry, 16)) for begin, entry in listed]


def put_epochs_into_sums(connection: sa.Connection, place: str) -> None:
    """Write the sums of changes anew that version 3 wrote, which were of files alone."""
    c = tables.runnel_changes
    for row in connection.execute(sa.select(c)).mappings().all():
        number, since = row["table_id"], row["changes_from"]
        with understood(place, f"a change of relation {number}"):
            found = _changes_after(connection, number, since)
        if dict(row) != changes_row(number, since, digests.total(file for _, file in found)):
            raise damaged(place, f"the changes of relation {number} are not those that were published")
        left = changes_row(number, since, digests.total(digests.change(*one) for one in found))
        connection.execute(c.update().where(c.c.table_id == number).values(**left))


def kept_changes(
    connection: sa.Connection, table_id: int, place: str, *, needed: bool
) -> tuple[int, list[tuple[int, int]]] | None:
    """Give from where on a relation's changes are kept, and the (epoch, hash) of each, held against their sum.

    None where an earlier version made the relation, unless that is damage because a sum is `needed`.
    """
    c = tables.runnel_changes
    row = connection.execute(sa.select(c).where(c.c.table_id == table_id)).mappings().one_or_none()
    if row is None:
        if needed:
            raise damaged(place, f"the sum of the changes of relation {table_id} is missing")
        return None
    since = row["changes_from"]
    with understood(place, f"a change of relation {table_id}"):
        found = [(begin, digests.change(begin, file)) for begin, file in _changes_after(connection, table_id, since)]
    if dict(row) != changes_row(table_id, since, digests.total(entry for _, entry in found)):
        raise damaged(place, f"the changes of relation {table_id} are not those that were published")
    return since, found
