"""Rows on their way into a table: sent to a temporary one, then compared with what exists.

They are sent before the transaction, which so holds its locks no longer than the server needs to write. Keys are compared by an
index and then byte by byte, because collations take different texts for equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel.connectors.mysql.client import quoted
from runnel.connectors.mysql.target.tables import Name
from runnel.connectors.mysql.target.values import bytes_literal
from runnel.connectors.sqltarget.difference import DIFFERENT, LISTED, MISSING, UNEXPECTED, Difference
from runnel.connectors.sqltarget.tables import COPY, ROW
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.mysql.target.session import Session
    from runnel.connectors.mysql.target.tables import Table
    from runnel.connectors.sqltarget.rows import Row

SIGN, NUMBER, COUNT = "_runnel_weight", "_runnel_number", "_runnel_count"
_COMPARISONS = {
    MISSING: "SELECT {shown_s}, s.{sign} - count(t.{first}) AS {count} FROM {s} AS s LEFT JOIN {t} AS t ON {same} "
    "GROUP BY s.{number} HAVING {count} > 0",
    DIFFERENT: "SELECT {shown_s}, 1 AS {count} FROM {s} AS s JOIN {t} AS t ON {same} WHERE {differs}",
    UNEXPECTED: "SELECT {shown_t}, 1 AS {count} FROM {t} AS t LEFT JOIN {s} AS s ON {same} WHERE s.{number} IS NULL",
}
BATCH_BYTES = 1 << 20
"""How long a statement with rows may grow: 1 MiB is sent as fast per row as 16 MiB, and fits any server."""
_SPARE = 1024
"""Bytes of a packet that are not the statement's."""


class Stage:
    """The temporary table of one table."""

    def __init__(self, session: Session, table: Table, number: int) -> None:
        """Create it."""
        self._session, self._table = session, table
        self.name = Name(table.name.database, f"_runnel_stage_{number}").quoted
        columns = [f"{quoted(column)} {table.found[column].sql}" for column in table.staged]
        columns += [f"{SIGN} bigint NOT NULL", f"{NUMBER} bigint NOT NULL AUTO_INCREMENT PRIMARY KEY"]
        self._keys = [part for part in table.key if part != COPY]
        index = f"KEY ({', '.join(map(table.indexed, self._keys))})"
        session.run(f"CREATE TEMPORARY TABLE {self.name} ({', '.join([*columns, index])}) ENGINE = InnoDB")

    def fill(self, rows: Iterable[Row]) -> None:
        """Send rows, many in a statement."""
        names = ", ".join(quoted(column) for column in [*self._table.staged, SIGN])
        head = f"INSERT INTO {self.name} ({names}) VALUES ".encode()
        most = min(self._session.packet - _SPARE, BATCH_BYTES)
        for part in _parts(map(self._written, rows), most - len(head)):
            statement = head + part
            if len(statement) > self._session.packet - _SPARE:
                raise Terminal(
                    "RUNNEL-MYSQL-PACKET",
                    f"{self._table.name}: a row is {len(part)} bytes long, and the server takes {self._session.packet} at once",
                    hint="raise max_allowed_packet on the server, or shorten the values in the view",
                )
            self._session.run(statement)

    def _written(self, row: Row) -> bytes:
        values, hashed, weight = row
        own = [bytes_literal(hashed)] if self._table.hashed or not self._table.keyed else []
        return b"(" + b",".join([*(b"NULL" if v is None else v for v in values), *own, b"%d" % weight]) + b")"

    def apply(self, *, whole: bool) -> int:
        """Bring the table to what was sent; give how many rows were written and deleted."""
        self._session.run(f"USE {quoted(self._table.name.database)}")  # in which DELETE looks for its alias
        if not self._table.keyed:
            return self._apply_copies(whole=whole)
        # Rows are locked in the order of their keys before any is written, so that two writers cannot cross.
        self._session.pass_over(
            self._text(
                "SELECT 1 FROM {s} AS s STRAIGHT_JOIN {t} AS t ON {equal} WHERE s.{sign} < 0 OR {differs} "
                "ORDER BY {order} FOR UPDATE"
            )
        )
        changed = self._run("DELETE t FROM {s} AS s STRAIGHT_JOIN {t} AS t ON {equal} WHERE s.{sign} < 0")
        if whole:
            changed += self._run("DELETE t FROM {t} AS t LEFT JOIN {s} AS s ON {equal} WHERE s.{number} IS NULL")
        changed += self._update("{equal}")
        return changed + self._run(
            "INSERT INTO {t} ({columns}) SELECT {sent} FROM {s} AS s LEFT JOIN {t} AS t ON {equal} "
            "WHERE s.{sign} > 0 AND t.{first} IS NULL ORDER BY {order}"
        )

    def _update(self, equal: str) -> int:
        if not self._table.others:
            return 0
        return self._run(
            "UPDATE {s} AS s STRAIGHT_JOIN {t} AS t ON " + equal + " SET {sets} WHERE s.{sign} > 0 AND ({differs})"
        )

    def _apply_copies(self, *, whole: bool) -> int:
        """Add and delete copies of rows; they are numbered from 1."""
        kept = "t.{row} = s.{row} AND t.{copy} BETWEEN 1 AND s.{sign}"
        if whole:
            changed = self._run("DELETE t FROM {t} AS t LEFT JOIN {s} AS s ON " + kept + " WHERE s.{number} IS NULL")
            changed += self._update(kept)
        else:
            changed = self._run(
                "DELETE t FROM (SELECT s.{row}, count(*) + s.{sign} AS remaining FROM {s} AS s JOIN {t} AS h ON h.{row} = s.{row} "
                "WHERE s.{sign} < 0 GROUP BY s.{row}, s.{sign}) AS g "
                "JOIN {t} AS t ON t.{row} = g.{row} AND t.{copy} > g.remaining"
            )
        return changed + self._insert_copies(whole=whole)

    def _insert_copies(self, *, whole: bool) -> int:
        ((most,),) = self._session.rows(self._text("SELECT coalesce(max({sign}), 0) FROM {s}"))
        if int(most) < 1:
            return 0
        self._session.allow_recursion(int(most))
        before = "0" if whole else "(SELECT coalesce(max(h.{copy}), 0) FROM {t} AS h WHERE h.{row} = c.{row})"
        missing = (
            "LEFT JOIN {t} AS t ON t.{row} = c.{row} AND t.{copy} = c.{number} WHERE t.{row} IS NULL " if whole else ""
        )
        return self._run(
            "INSERT INTO {t} ({columns}, {copy}) WITH RECURSIVE c ({columns}, {sign}, {number}) AS ("
            "SELECT {columns}, {sign}, 1 FROM {s} WHERE {sign} > 0 UNION ALL "
            "SELECT {columns}, {sign}, {number} + 1 FROM c WHERE {number} < {sign}) "
            "SELECT {copied}, " + before + " + c.{number} FROM c " + missing + "ORDER BY c.{row}, c.{number}"
        )

    def compare(self) -> Difference:
        """Say how the table differs from what was sent, which is all it should have; nothing is changed."""
        ((checked,),) = self._session.rows(self._text("SELECT coalesce(sum({sign}), 0) FROM {s}"))
        found = Difference(int(checked))
        same = "{equal}" if self._table.keyed else "t.{row} = s.{row} AND t.{copy} BETWEEN 1 AND s.{sign}"
        for kind, text in _COMPARISONS.items():
            sql = self._text(text.replace("{same}", same))
            ((count,),) = self._session.rows(f"SELECT coalesce(sum({COUNT}), 0) FROM ({sql}) AS found")
            rows = self._session.rows(f"{sql} LIMIT {LISTED}") if int(count) else []
            found.add(kind, int(count), [self._named(row) for row in rows])
        return found

    @property
    def _shown(self) -> list[str]:
        """The columns by which a row is named: the key's, or all."""
        return list(self._table.view_key or self._table.columns)

    def _named(self, row: tuple[Any, ...]) -> dict[str, Any]:
        return {
            column: int(value) if value is not None and self._table.whole_number(self._table.columns[column]) else value
            for column, value in zip(self._shown, row, strict=False)
        }

    def _run(self, text: str) -> int:
        return self._session.run(self._text(text))

    def _text(self, text: str) -> str:
        """Complete a statement over `{t}`, the table, and `{s}`, what was sent."""
        table = self._table
        columns = [quoted(column) for column in table.staged]
        parts = {"row": ROW, "copy": COPY, "sign": SIGN, "number": NUMBER, "count": COUNT}
        return text.format_map(
            parts
            | {
                "t": table.name.quoted,
                "s": self.name,
                "columns": ", ".join(columns),
                "sent": ", ".join(f"s.{column}" for column in columns),
                "copied": ", ".join(f"c.{column}" for column in columns),
                "shown_s": ", ".join(f"s.{quoted(table.columns[column])}" for column in self._shown),
                "shown_t": ", ".join(f"t.{quoted(table.columns[column])}" for column in self._shown),
                "first": quoted(table.key[0]),
                "order": ", ".join(f"s.{quoted(part)}" for part in self._keys),
                "equal": " AND ".join(self._equal(part) for part in self._keys),
                "differs": " OR ".join(f"NOT ({self._same(part, '<=>')})" for part in table.others) or "FALSE",
                "sets": ", ".join(f"t.{quoted(part)} = s.{quoted(part)}" for part in table.others),
            }
        )

    def _equal(self, column: str) -> str:
        name = quoted(column)
        found_by_index = f"t.{name} = s.{name}"
        return f"{found_by_index} AND {self._same(column, '=')}" if self._table.text(column) else found_by_index

    def _same(self, column: str, by: str) -> str:
        """Compare a column on both sides, byte by byte where it is text."""
        name = quoted(column)
        if self._table.text(column):
            return f"CAST(t.{name} AS BINARY) {by} CAST(s.{name} AS BINARY)"
        return f"t.{name} {by} s.{name}"


def _parts(rows: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Join rows with commas, so many that a part is not longer than asked where that can be."""
    part: list[bytes] = []
    length = 0
    for row in rows:
        if part and length + len(row) > most:
            yield b",".join(part)
            part, length = [], 0
        part.append(row)
        length += len(row) + 1
    if part:
        yield b",".join(part)
