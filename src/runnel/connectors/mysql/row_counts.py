"""How many rows events have, without decoding them: small ones are gone through, of large ones the first rows of one in some."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.mysql.log.row_events import UPDATED
from runnel.connectors.mysql.log.row_walker import walker, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.connectors.mysql.log.row_events import Rows
    from runnel.connectors.mysql.log.row_walker import Walk
    from runnel.connectors.mysql.log.table_map import TableMap

SMALL = 1 << 10
"""Bytes of an event whose rows are counted one by one."""
SAMPLED = 16
"""Rows of a large event that are gone through."""
EVENTS = 8
"""Large events that are taken to have rows as long as those of the last one that was looked at."""


@dataclass
class _Known:
    """What is known of the rows of a table that are logged with the same columns; `walks` go through an old and a new row by turns."""

    table: TableMap
    walks: Sequence[Walk]
    each: float
    left: int = 0


class RowCounter:
    """Counts row images; an update has two."""

    def __init__(self) -> None:
        """Begin without knowing any table."""
        self._known: dict[tuple[object, ...], _Known] = {}

    def images(self, rows: Rows, size: int) -> int:
        """Say how many images an event of so many bytes of rows has, about."""
        form = id(rows.table), rows.change, rows.present, rows.present_after
        known = self._known.get(form)
        if known is None or known.table is not rows.table:
            known = self._known[form] = _Known(rows.table, _walks(rows), 0.0)
        if rows.partial or not known.walks:
            return size // _least(rows.table) + 1  # differences of JSON values are logged in another form
        if size > SMALL and known.left:
            known.left -= 1
            return max(1, round(size / known.each))
        count, gone_through = _gone_through(rows.data, known.walks, size if size <= SMALL else SAMPLED)
        if not count:
            return size // _least(rows.table) + 1
        if size > SMALL:
            known.each, known.left = gone_through / count, EVENTS
        return count if gone_through >= size else max(1, round(size * count / gone_through))


def _walks(rows: Rows) -> Sequence[Walk]:
    presents = (rows.present, rows.present_after) if rows.change == UPDATED else (rows.present,)
    made = []
    for present in presents:
        bits = int.from_bytes(present, "little")
        widths = tuple(width_of(column) for at, column in enumerate(rows.table.columns) if bits >> at & 1)
        if not widths:
            return ()
        made.append(walker(widths))
    return made


def _gone_through(data: bytes, walks: Sequence[Walk], most: int) -> tuple[int, int]:
    """Go through the first rows; give how many these are and how long. Whoever decodes them says what is wrong with them."""
    marks, count, at = array("q"), 0, 0
    try:
        while at < len(data) and count < most:
            for walk in walks:
                at = walk(data, at, at + 1, marks)
                count += 1
    except IndexError:
        return 0, 0
    return count, at


def _least(table: TableMap) -> int:
    return sum(width.fixed or 8 for width in map(width_of, table.columns)) + 1
