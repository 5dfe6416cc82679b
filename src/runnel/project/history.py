"""Every kept change of one row: when and in which epoch, what happened, the values before and after.

Where a source tells every version of its rows, each is an entry with its own time; else an epoch is one entry, at its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel import query
from runnel.errors import Terminal, UsageError
from runnel.lake.lookup import hashable
from runnel.model import types
from runnel.model.exact import exact_cast
from runnel.model.relation import WEIGHT
from runnel.pipeline.versions import SUFFIX, versions

if TYPE_CHECKING:
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime


def history(
    runtime: Runtime, name: str, key: Mapping[str, Any], column: str | None = None, since: Any = None, until: Any = None
) -> list[dict[str, Any]]:
    """Give the changes of the rows with this key, oldest first; epochs that are no longer kept are missing."""
    if not isinstance(key, Mapping):
        raise UsageError("RUNNEL-USAGE", f"{key!r} is no key", hint='give the key by column, such as {"id": 7}')
    head = runtime.lake.snapshot()
    relation = query.find(head, name)
    wanted = {relation.column(part).name: _typed(relation.column(part).type, value) for part, value in key.items()}
    shown = relation.column(column).name if column else None
    since, until = _bound(since), _bound(until)
    times = {record["epoch"]: record.get("time") for record in runtime.lake.epochs(1_000_000)}
    found: list[dict[str, Any]] = []
    for epoch in _epochs(head, relation):
        own = versions(runtime.lake, head, relation.name, epoch, wanted)
        if own:
            told = (_entry(old, new, shown, epoch, moment) for moment, old, new in own)
            found.extend(e for e in told if e is not None and _within(e["time"], epoch, since, until))
            continue
        moment = times.get(epoch)
        if not _within(moment, epoch, since, until):
            continue
        rows = _changed(runtime, relation.name, epoch)
        mine = [row for row in rows if all(hashable(row[part]) == hashable(value) for part, value in wanted.items())]
        for rows_of_one in _by_key(relation, mine):
            found.extend(_entries(rows_of_one, shown, epoch, moment))
    return found


def _by_key(relation: Relation, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Tell rows of different keys apart: what went of one and what came of another is no update."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(hashable(row[name]) for name in relation.key), []).append(row)
    return list(found.values())


def _epochs(head: Snapshot, relation: Relation) -> list[int]:
    """Give the kept epochs in which a relation changed, or its rows went through versions that came to nothing."""
    names = [relation.name, *(name for name in (relation.name + SUFFIX,) if name in head.relations)]
    return sorted({file.begin for name in names for file in head.kept_changes(name)})


def _entry(
    old: dict[str, Any] | None, new: dict[str, Any] | None, column: str | None, epoch: int, moment: Any
) -> dict[str, Any] | None:
    """Give one change, or None where the column that is asked for did not change by it."""
    before, after = (None if row is None else row[column] if column else row for row in (old, new))
    if column and hashable(before) == hashable(after):
        return None
    op = "insert" if old is None else "delete" if new is None else "update"
    return {"epoch": epoch, "time": moment, "op": op, "old": before, "new": after}


def _changed(runtime: Runtime, name: str, epoch: int) -> list[dict[str, Any]]:
    """Give the signed rows of one epoch; none where it, or the one before it, is no longer kept or had other columns."""
    try:
        rows: list[dict[str, Any]] = query.changes(runtime.lake, runtime.engine, name, epoch - 1, epoch).to_pylist()
    except Terminal as error:
        if error.code not in ("RUNNEL-EPOCH-EXPIRED", "RUNNEL-CHANGES-REPLACED"):
            raise
        return []
    return rows


def _entries(rows: list[dict[str, Any]], column: str | None, epoch: int, moment: Any) -> list[dict[str, Any]]:
    old = [row for row in rows if row[WEIGHT] < 0]
    new = [row for row in rows if row[WEIGHT] > 0]
    entries = []
    for at in range(max(len(old), len(new))):
        before = _shown(old[at], column) if at < len(old) else None
        after = _shown(new[at], column) if at < len(new) else None
        if column and hashable(before) == hashable(after):
            continue
        op = "update" if at < len(old) and at < len(new) else "insert" if at < len(new) else "delete"
        entries.append({"epoch": epoch, "time": moment, "op": op, "old": before, "new": after})
    return entries


def _shown(row: dict[str, Any], column: str | None) -> Any:
    return row[column] if column else {name: value for name, value in row.items() if name != WEIGHT}


def _typed(type_: types.Type, value: Any) -> Any:
    if isinstance(value, bytes) and type_.name == "binary":
        return value
    try:
        given = pa.chunked_array([pa.array([None if value is None else str(value)], pa.string())])
        return exact_cast(given, types.to_arrow(type_))[0].as_py()
    except pa.ArrowException as error:
        raise Terminal("RUNNEL-VALUE-TYPE", f"{value!r} is not {type_}", hint="give a key of that type") from error


def _bound(given: Any) -> int | datetime | None:
    """Read an epoch, or a time; one without a zone is UTC's, as times are shown."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    try:
        return _instant(given)
    except (TypeError, ValueError):
        raise UsageError(
            "RUNNEL-USAGE",
            f"{given!r} is no epoch and no time",
            hint="give a whole number, or a time such as '2026-01-02 03:04:05'",
        ) from None


def _instant(moment: Any) -> datetime:
    read: date = moment if isinstance(moment, date) else datetime.fromisoformat(moment)
    if not isinstance(read, datetime):
        return datetime(read.year, read.month, read.day, tzinfo=UTC)
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def _within(moment: Any, epoch: int, since: int | datetime | None, until: int | datetime | None) -> bool:
    """Say whether a change lies between two epochs or times; one whose time is not known lies before all."""
    known = _instant(moment) if moment else datetime.min.replace(tzinfo=UTC)
    for bound, after in ((since, True), (until, False)):
        if bound is None:
            continue
        if isinstance(bound, int):
            within = epoch >= bound if after else epoch <= bound
        else:
            within = known >= bound if after else known <= bound
        if not within:
            return False
    return True
