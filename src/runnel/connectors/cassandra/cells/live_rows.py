"""Shows a partition's state as the rows that `SELECT *` gives at one moment."""

from __future__ import annotations

from bisect import bisect_left
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.values.decode import decoder
from runnel.connectors.cassandra.values.order import list_path_key, sort_key
from runnel.connectors.cassandra.values.types import CqlType, ListOf, MapOf, SetOf, Udt

if TYPE_CHECKING:
    from runnel.connectors.cassandra.cells import Clustering, Range
    from runnel.connectors.cassandra.cells.reconcile import PartitionState, RowState, Version
    from runnel.connectors.cassandra.schema.tables import ColumnSchema, TableSchema

NEVER = -(1 << 63)
_PLAIN, _EXPIRING = 0, 1


def rows(state: PartitionState, table: TableSchema, now: int, *, static_alone: bool = True) -> list[dict[str, Any]]:
    """Give the live rows at a second `now`, in the table's order, as dictionaries of decoded values.

    A row is there while its liveness or one of its cells is. A partition without rows but with static values gives one
    row in which all but these is NULL, unless `static_alone` is false.
    """
    key = table.key_values(state.key)
    head = {column.name: value for column, value in zip(table.partition_key, key, strict=True)}
    static = _static(state, table, now)
    made = []
    order = _in_order(state, table)
    for clustering, deleted in zip(order, _deleted_in_order(state, table, order), strict=True):
        found = _live(state.rows[clustering], deleted, table.regular, table, now)
        if found is not None:
            values = table.clustering_values(clustering)
            place = {column.name: value for column, value in zip(table.clustering, values, strict=True)}
            made.append(head | place | static | found)
    if static_alone and not made and any(value is not None for value in static.values()):
        rest = {column.name: None for column in (*table.clustering, *table.regular)}
        made.append(head | rest | static)
    return made


def _in_order(state: PartitionState, table: TableSchema) -> list[Clustering]:
    def order(one: Clustering, other: Clustering) -> int:
        return compare(table, one, other)

    return sorted((clustering for clustering in state.rows if clustering is not None), key=cmp_to_key(order))


def _static(state: PartitionState, table: TableSchema, now: int) -> dict[str, Any]:
    nothing: dict[str, Any] = {column.name: None for column in table.static}
    row = state.rows.get(None)
    if row is None:
        return nothing
    deleted = state.deletion[0] if state.deletion else NEVER
    return _live(row, deleted, table.static, table, now) or nothing


def _deleted_in_order(state: PartitionState, table: TableSchema, order: list[Clustering]) -> list[int]:
    """Give `deleted_until` of all rows in their order; many ranges over many rows take no longer than sorting them."""
    whole = state.deletion[0] if state.deletion else NEVER
    found = [whole] * len(order)
    # Newest first, so that a row is told once; `after[n]` leads to the next row that is not told yet.
    after = list(range(len(order) + 1))
    for range_, (timestamp, _) in sorted(state.ranges.items(), key=lambda item: -item[1][0]):
        if timestamp <= whole:
            break
        at = _untold(after, _first_inside(table, order, range_))
        end = _first_behind(table, order, range_)
        while at < end:
            found[at] = timestamp
            after[at] = at + 1
            at = _untold(after, at)
    return found


def _untold(after: list[int], at: int) -> int:
    root = at
    while after[root] != root:
        root = after[root]
    while after[at] != root:
        after[at], at = root, after[at]
    return root


def _first_inside(table: TableSchema, order: list[Clustering], range_: Range) -> int:
    least = 0 if range_.start_inclusive else 1
    return bisect_left(order, least, key=lambda row: compare(table, row, range_.start))


def _first_behind(table: TableSchema, order: list[Clustering], range_: Range) -> int:
    least = 1 if range_.end_inclusive else 0
    return bisect_left(order, least, key=lambda row: compare(table, row, range_.end))


def deleted_until(state: PartitionState, table: TableSchema, clustering: Clustering) -> int:
    """Give the newest deletion of the partition or a range that takes a row in."""
    newest = state.deletion[0] if state.deletion else NEVER
    for (start, start_inclusive, end, end_inclusive), (timestamp, _) in state.ranges.items():
        if timestamp <= newest:
            continue
        after = compare(table, clustering, start)
        before = compare(table, clustering, end)
        if (after > 0 or (after == 0 and start_inclusive)) and (before < 0 or (before == 0 and end_inclusive)):
            newest = timestamp
    return newest


def compare(table: TableSchema, one: Clustering, other: Clustering) -> int:
    """Compare as the table orders its rows, by as many columns as both have."""
    for (key, descending), left, right in zip(table.clustering_keys, one, other, strict=False):
        if left == right:
            continue
        a, b = key(left), key(right)
        if a != b:
            return -1 if (a < b) != descending else 1
    return 0


def row_deleted_until(row: RowState) -> int:
    """Give the newest deletion of the row itself; one of a server's view counts until the row is inserted anew."""
    deleted = row.deletion[0] if row.deletion is not None else NEVER
    if row.shadowable is not None and not (row.liveness is not None and row.liveness[0] > row.shadowable[0]):
        deleted = max(deleted, row.shadowable[0])
    return deleted


def _live(
    row: RowState, deleted: int, columns: tuple[ColumnSchema, ...], table: TableSchema, now: int
) -> dict[str, Any] | None:
    deleted = max(deleted, row_deleted_until(row))
    found: dict[str, Any] = {column.name: None for column in columns}
    alive = row.liveness is not None and row.liveness[0] > deleted and _unexpired(row.liveness, now)
    if table.strict_liveness and not alive:
        return None
    elements: dict[str, list[tuple[bytes, bytes]]] = {}
    for (name, path), version in row.cells.items():
        if name not in found or not _unexpired(version, now):
            continue
        if version[0] <= max(deleted, table.dropped_at.get(name, NEVER), row.complex.get(name, (NEVER, 0))[0]):
            continue
        alive = True
        if path is None:
            found[name] = decoder(table.by_name[name].type)(version[4])
        else:
            elements.setdefault(name, []).append((path, version[4]))
    for name, parts in elements.items():
        found[name] = _assembled(table.by_name[name].type, parts)
    for name in row.counters:
        total = _counter(row, name, max(deleted, table.dropped_at.get(name, NEVER)))
        if name in found and total is not None:
            found[name] = total
            alive = True
    return found if alive else None


def _unexpired(version: Version | tuple[int, int, int, int], now: int) -> bool:
    return version[1] == _PLAIN or (version[1] == _EXPIRING and now < version[2])


def _counter(row: RowState, name: str, deleted: int) -> int | None:
    """Give the sum of a counter's shards, or None where it is deleted: a counter's tombstone beats later counts too."""
    tombstone = row.cells.get((name, None))
    if tombstone is not None and tombstone[0] > deleted:
        return None
    counts = [
        next((count for _, count, timestamp in versions if timestamp > deleted), None)
        for versions in row.counters[name].values()
    ]
    living = [count for count in counts if count is not None]
    return sum(living) if living else None


def _assembled(type_: CqlType, parts: list[tuple[bytes, bytes]]) -> Any:
    """Put the cells of a collection or user-defined type together, in the server's order."""
    match type_:
        case SetOf(_, _, element):
            each, order = decoder(element), sort_key(element)
            return [each(path) for path in sorted((path for path, _ in parts), key=order)]
        case ListOf(_, _, element):
            each = decoder(element)
            return [each(value) for _, value in sorted(parts, key=lambda part: list_path_key(part[0]))]
        case MapOf(_, _, key, item):
            each_key, each, order = decoder(key), decoder(item), sort_key(key)
            return [(each_key(path), each(value)) for path, value in sorted(parts, key=lambda part: order(part[0]))]
        case Udt(_, _, fields):
            known = {int.from_bytes(path, "big"): value for path, value in parts}
            return {name: decoder(field)(known[n]) if n in known else None for n, (name, field) in enumerate(fields)}
    return None
