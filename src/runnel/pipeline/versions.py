"""Every version of a source's rows with its own time, where the source tells them: what `history` shows inside an epoch.

An epoch publishes the net change of a row. The versions it went through are kept in a hidden relation beside the table,
`shop.orders#history`, which holds those of the last epoch that had any; those of earlier epochs are in its kept changes, and are
forgotten with them. A version of kind `before` is the row as the epoch found it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.base import AT, BEFORE, CHANGE, DELETE, SEQUENCE
from runnel.lake.entries import Commit
from runnel.lake.lookup import hashable
from runnel.model import types
from runnel.model.relation import WEIGHT, Column, Kind, Relation
from runnel.pipeline.signed_rows import version_rows
from runnel.pipeline.step import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.connectors.base import TableInfo
    from runnel.lake.entries import DataFile
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime

SUFFIX = "#history"
OWN = (Column(SEQUENCE, types.BIGINT), Column(CHANGE, types.STRING), Column(AT, types.BIGINT))
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def is_versions(name: str) -> bool:
    """Say whether a relation is one that keeps versions."""
    return name.endswith(SUFFIX)


def keep_versions(runtime: Runtime, name: str, table: TableInfo) -> None:
    """Make the relation for the versions of a table's rows, or make it again where the table has other columns now."""
    wanted = Relation(name + SUFFIX, Kind.STAGE, (*table.columns, *OWN))

    def attempt() -> int:
        head = runtime.lake.snapshot()
        there = head.relations.get(wanted.name)
        if there == wanted:
            return head.epoch
        drop = [] if there is None else [there.name]
        return runtime.lake.publish(Commit(base=head.epoch, drop=drop, create=[wanted], kind="define"))

    if runtime.lake.snapshot().relations.get(wanted.name) != wanted:
        in_turn(runtime, attempt)


def new_versions(relation: Relation, told: Sequence[pa.Table]) -> pa.Table:
    """Give versions as signed rows that come."""
    return pa.concat_tables([version_rows(relation, part) for part in told])


def files_in_force(head: Snapshot, relation: Relation) -> tuple[list[DataFile], bool]:
    """Give the files that hold the versions of the last epoch that had any.

    They are those of its change, if these are still as it wrote them: then what it has added is in force (True), else the net of all files.
    """
    files = list(head.files(relation))
    last = [file for file in files if file.begin == max(one.begin for one in files)]
    return (last, True) if last and all(file.change for file in last) else (files, False)


def versions(
    lake: Lake, head: Snapshot, name: str, epoch: int, key: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    """Give the changes of the row with a key in one epoch, oldest first: when, the row before and the row after it."""
    relation = head.relations.get(name + SUFFIX)
    if relation is None:
        return []
    files = [file for file in head.kept_changes(relation) if file.begin == epoch]
    rows = lake.read(relation, files).to_pylist() if files else []
    mine = [
        row
        for row in rows
        if row[WEIGHT] > 0 and all(hashable(row[part]) == hashable(value) for part, value in key.items())
    ]
    return list(_pairs(sorted(mine, key=lambda row: row[SEQUENCE])))


def _pairs(
    rows: Iterable[dict[str, Any]],
) -> Iterable[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    own = {WEIGHT, *(column.name for column in OWN)}
    last: dict[str, Any] | None = None
    for row in rows:
        plain = {name: value for name, value in row.items() if name not in own}
        if row[CHANGE] == BEFORE:
            last = plain
            continue
        now = None if row[CHANGE] == DELETE else plain
        yield time_text(row[AT]), last, now
        last = now


def time_text(microseconds: int) -> str:
    """Write a time as the times of epochs are written; one beyond the calendar as its number.

    >>> time_text(1767323045000001)
    '2026-01-02 03:04:05.000001+00:00'
    """
    try:
        moment = _1970 + timedelta(microseconds=microseconds)
    except OverflowError:
        return str(microseconds)
    return moment.isoformat(sep=" ", timespec="microseconds")
