"""Every kept change of one row: which epoch, what happened, the values before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel import query
from runnel.errors import Terminal, UsageError
from runnel.model import types
from runnel.model.exact import exact_cast
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from runnel.pipeline.runtime import Runtime


def history(
    runtime: Runtime, name: str, key: Mapping[str, Any], column: str | None = None, since: Any = None, until: Any = None
) -> list[dict[str, Any]]:
    """Give the changes of the rows with this key, oldest first; epochs that are no longer kept are not there."""
    if not isinstance(key, Mapping):
        raise UsageError("RUNNEL-USAGE", f"{key!r} is no key", hint='give the key by column, such as {"id": 7}')
    head = runtime.lake.snapshot()
    relation = query.find(head, name)
    wanted = {relation.column(part).name: _typed(relation.column(part).type, value) for part, value in key.items()}
    shown = relation.column(column).name if column else None
    times = {record["epoch"]: record.get("time") for record in runtime.lake.epochs(1_000_000)}
    found: list[dict[str, Any]] = []
    for epoch in sorted({file.begin for file in head.kept_changes(relation)}):
        moment = times.get(epoch)
        if not _within(moment, epoch, since, until):
            continue
        rows = _changed(runtime, relation.name, epoch)
        mine = [row for row in rows if all(row[part] == value for part, value in wanted.items())]
        found.extend(_entries(mine, shown, epoch, moment))
    return found


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
        if column and before == after:
            continue
        op = "update" if at < len(old) and at < len(new) else "insert" if at < len(new) else "delete"
        entries.append({"epoch": epoch, "time": moment, "op": op, "old": before, "new": after})
    return entries


def _shown(row: dict[str, Any], column: str | None) -> Any:
    return row[column] if column else {name: value for name, value in row.items() if name != WEIGHT}


def _typed(type_: types.Type, value: Any) -> Any:
    try:
        given = pa.chunked_array([pa.array([None if value is None else str(value)], pa.string())])
        return exact_cast(given, types.to_arrow(type_))[0].as_py()
    except pa.ArrowException as error:
        raise Terminal("RUNNEL-VALUE-TYPE", f"{value!r} is not {type_}", hint="give a key of that type") from error


def _within(moment: Any, epoch: int, since: Any, until: Any) -> bool:
    """Compare with epochs given as whole numbers, or with times given as text."""
    for bound, after in ((since, True), (until, False)):
        if bound is None:
            continue
        at: Any = epoch if isinstance(bound, int) else str(moment or "")
        limit: Any = bound if isinstance(bound, int) else str(bound)
        if (after and at < limit) or (not after and at > limit):
            return False
    return True
