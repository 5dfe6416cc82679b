"""Debezium-style envelopes: `{"before": row, "after": row, "op": "c" | "u" | "d" | "r"}`, bare or below `payload`.

With the old row at hand a change becomes signed rows. Without it, the change is an upsert or a delete by key, and the
state completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from runnel.connectors.base import DELETE, UPSERT
from runnel.errors import Place, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runnel.connectors.base import TableInfo
    from runnel.connectors.files.listing import File

    Row = Mapping[str, Any]


class Change(NamedTuple):
    """One row of a change set; `weight` for signed rows, `op` for keyed ones."""

    row: Row
    line: int
    weight: int | None = None
    op: str | None = None


def unwrapped(record: Any) -> Any:
    """Give what stands below `payload`, where something does."""
    inside = isinstance(record, dict) and "payload" in record and set(record) <= {"schema", "payload"}
    return record["payload"] if inside else record


def is_envelope(record: Any, table: TableInfo) -> bool:
    """Say whether a record is an envelope and no plain row of this table."""
    if not isinstance(record, dict) or "op" not in record or not ("before" in record or "after" in record):
        return False
    return not {"op", "before", "after"} & {column.name.lower() for column in table.columns}


def changes(file: File, table: TableInfo, line: int, envelope: Row, *, whole_before: bool) -> Iterator[Change]:
    """Turn an envelope into signed or keyed rows."""
    op, before, after = envelope.get("op"), envelope.get("before"), envelope.get("after")
    if op == "m":
        return
    if op not in ("c", "r", "u", "d"):
        hint = "an emptied table must come as deletes" if op == "t" else "known are c, r, u, d"
        raise _error(file, line, f"op {op!r} cannot be followed", hint)
    if op != "d" and not isinstance(after, dict):
        raise _error(file, line, f"op {op!r} needs the row 'after'", "write the whole new row")
    if op == "c" or (op == "r" and not table.key):
        yield Change(after or {}, line, weight=1)
    elif op == "r":
        # A snapshot's row may be one that is known already, from an earlier snapshot or the log.
        yield Change(after or {}, line, op=UPSERT)
    elif whole_before and _is_whole(before, table):
        yield Change(before or {}, line, weight=-1)
        if op == "u":
            yield Change(after or {}, line, weight=1)
    else:
        yield from _keyed(file, table, line, before, None if op == "d" else after)


def _keyed(file: File, table: TableInfo, line: int, before: Row | None, after: Row | None) -> Iterator[Change]:
    if not table.key:
        hint = f'declare its key: key = {{ {table.name} = ["..."] }}, or have the log write whole old rows'
        raise _error(file, line, f"the old row is missing and {table.name} has no key", hint)
    old = _key(table, before)
    new = _key(table, after)
    if after is None and old is None:
        raise _error(file, line, "the delete does not tell the row's key", "write at least the key into 'before'")
    if old is not None and (new is None or list(old.values()) != list(new.values())):
        yield Change(old, line, op=DELETE)
    if after is not None:
        yield Change(after, line, op=UPSERT)


def _is_whole(row: Row | None, table: TableInfo) -> bool:
    return isinstance(row, dict) and {c.name.lower() for c in table.columns} <= {name.lower() for name in row}


def _key(table: TableInfo, row: Row | None) -> dict[str, Any] | None:
    given = {name.lower(): value for name, value in row.items()} if isinstance(row, dict) else {}
    key = {name: given.get(name.lower()) for name in table.key}
    return None if any(value is None for value in key.values()) else key


def _error(file: File, line: int, message: str, hint: str) -> Terminal:
    text = f"{file.shown}, line {line}: {message}"
    return Terminal("RUNNEL-FILES-ENVELOPE", text, place=Place(file.shown, line), hint=hint)
