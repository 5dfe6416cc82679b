"""Rows on their way into a table: copied into a temporary one, then compared with what is there.

The comparison is by equality, part by part, so that the server can join by index or hash; keys with NULLs are gone through
apart, one round for each choice of key columns that are NULL.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from psycopg import sql

from runnel.connectors.sqltarget.difference import DIFFERENT, LISTED, MISSING, UNEXPECTED, Difference
from runnel.connectors.sqltarget.tables import COPY, ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.connectors.postgres.tables import Connection, Table

SIGN, NUMBER = "_runnel_weight", "_runnel_number"
_ANALYSED = 10_000


class Stage:
    """The temporary table of one table; it is empty again after the transaction."""

    def __init__(self, connection: Connection, table: Table) -> None:
        """Make it, unless an earlier delivery over this connection has."""
        self._connection, self._table = connection, table
        self._columns = [*table.columns.values(), *([] if table.keyed else [ROW])]
        named = hashlib.sha256(repr((table.name, self._columns)).encode()).hexdigest()[:16]
        self._name = sql.Identifier(f"_runnel_stage_{named}")
        self._run(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {s} ON COMMIT DELETE ROWS AS SELECT {columns}, 0::bigint AS {sign} FROM {t} "
            "WITH NO DATA"
        )

    def fill(self, rows: Iterable[list[Any]]) -> None:
        """Take rows: values in the order of the columns, and the weight."""
        count = 0
        names = sql.SQL(", ").join(map(sql.Identifier, [*self._columns, SIGN]))
        copying = sql.SQL("COPY {} ({}) FROM STDIN").format(self._name, names)
        with self._connection.cursor() as cursor, cursor.copy(copying) as copy:
            for row in rows:
                copy.write_row(row)
                count += 1
        if count > _ANALYSED:
            self._run("ANALYZE {s}")

    def apply(self, *, whole: bool) -> int:
        """Bring the table to what was taken; give how many rows were written and removed."""
        if not self._table.keyed:
            return self._apply_copies(whole=whole)
        rounds = self._rounds(whole=whole)
        changed = 0
        for nulls in rounds:
            # Rows are locked in the order of their keys before any is written, so that two writers cannot cross.
            self._run(
                "SELECT count(*) FROM (SELECT 1 FROM {t} AS t JOIN {s} AS s ON {equal} WHERE s.{sign} < 0 OR {differs} "
                "ORDER BY {order} FOR UPDATE OF t) AS locked",
                nulls,
            )
            changed += self._run("DELETE FROM {t} AS t USING {s} AS s WHERE s.{sign} < 0 AND {equal}", nulls)
            if whole:
                changed += self._run(
                    "DELETE FROM {t} AS t WHERE {nulls} AND NOT EXISTS (SELECT 1 FROM {s} AS s WHERE {equal})", nulls
                )
        return changed + self._run(
            "INSERT INTO {t} AS t ({columns}) SELECT {columns} FROM {s} WHERE {sign} > 0 ORDER BY {keys} "
            "ON CONFLICT ({keys}) DO {update}"
        )

    def _apply_copies(self, *, whole: bool) -> int:
        """Add and take away copies; they are numbered from 1."""
        if whole:
            gone = (
                "DELETE FROM {t} AS t WHERE NOT EXISTS "
                "(SELECT 1 FROM {s} AS s WHERE s.{row} = t.{row} AND t.{copy} BETWEEN 1 AND s.{sign})"
            )
            before = "0"
        else:
            gone = (
                "DELETE FROM {t} AS t USING (SELECT s.{row}, count(*) + s.{sign} AS left FROM {s} AS s "
                "JOIN {t} AS h ON h.{row} = s.{row} WHERE s.{sign} < 0 GROUP BY s.{row}, s.{sign}) AS g "
                "WHERE t.{row} = g.{row} AND t.{copy} > g.left"
            )
            before = "(SELECT coalesce(max(h.{copy}), 0) FROM {t} AS h WHERE h.{row} = s.{row})"
        return self._run(gone) + self._run(
            "INSERT INTO {t} AS t ({columns}, {copy}) SELECT {columns}, " + before + " + {number} FROM {s} AS s, "
            "generate_series(1, s.{sign}) AS n ({number}) WHERE s.{sign} > 0 ORDER BY s.{row}, {number} "
            "ON CONFLICT ({keys}) DO {update}"
        )

    def compare(self) -> Difference:
        """Say how the table differs from what was taken, which is all it should have; nothing is changed."""
        ((checked,),) = self._rows("SELECT coalesce(sum({sign}), 0)::bigint FROM {s}")
        found = Difference(checked)
        for kind, text, nulls in self._comparisons():
            counted = "SELECT coalesce(sum({number}), 0)::bigint FROM (" + text + ") AS found"
            ((count,),) = self._rows(counted, nulls)
            rows = self._rows(f"{text} LIMIT {LISTED}", nulls) if count else []
            found.add(kind, count, [dict(zip(self._table.shown, row, strict=False)) for row in rows])
        return found

    def _comparisons(self) -> Iterator[tuple[str, str, tuple[bool, ...] | None]]:
        """Give a kind of difference, the query for its rows, and which key columns are NULL in it."""
        rounds: list[tuple[bool, ...] | None] = list(self._rounds(whole=True)) if self._table.keyed else [None]
        sent, there = "SELECT {shown_s}, 1 AS {number} FROM {s} AS s ", "SELECT {shown_t}, 1 AS {number} FROM {t} AS t "
        for nulls in rounds:
            if nulls is None:
                same = "t.{row} = s.{row} AND t.{copy} BETWEEN 1 AND s.{sign}"
                copies = "SELECT s.{sign} - count(*) AS {number} FROM {t} AS t WHERE " + same
                lacking = "CROSS JOIN LATERAL (" + copies + ") AS m WHERE m.{number} > 0"
                yield MISSING, "SELECT {shown_s}, m.{number} FROM {s} AS s " + lacking, None
                where = "WHERE "
            else:
                same, where = "{equal}", "WHERE {nulls} AND "
                yield MISSING, sent + "WHERE {nulls_s} AND " + _without("t", same), nulls
            yield DIFFERENT, sent + "JOIN {t} AS t ON " + same + " WHERE {differs}", nulls
            yield UNEXPECTED, there + where + _without("s", same), nulls

    def _rows(self, text: str, nulls: tuple[bool, ...] | None = None) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._composed(text, nulls)).fetchall()

    def _rounds(self, *, whole: bool) -> list[tuple[bool, ...]]:
        """Give which key columns are NULL together, in any row that matters."""
        if not self._table.null_keys and not whole:
            return [(False,) * len(self._table.key)]
        nulls = sql.SQL(", ").join(sql.SQL("{} IS NULL").format(sql.Identifier(part)) for part in self._table.key)
        found = sql.SQL("SELECT DISTINCT {} FROM {}").format(nulls, self._name)
        if whole:
            found += sql.SQL(" UNION SELECT DISTINCT {} FROM {}").format(nulls, self._table.name.quoted)
        return sorted(self._connection.execute(found).fetchall())

    def _run(self, text: str, nulls: tuple[bool, ...] | None = None) -> int:
        """Run a statement and give how many rows it changed."""
        return max(0, self._connection.execute(self._composed(text, nulls)).rowcount)

    def _composed(self, text: str, nulls: tuple[bool, ...] | None = None) -> sql.Composed:
        """Complete a statement over `{t}`, the table, and `{s}`, what was taken."""
        table, known = self._table, {"row": ROW, "copy": COPY, "sign": SIGN, "number": NUMBER}
        keys = list(map(sql.Identifier, table.key))
        others = list(map(sql.Identifier, table.others))
        parts: dict[str, sql.Composable] = {name: sql.Identifier(value) for name, value in known.items()}
        parts |= {"t": table.name.quoted, "s": self._name, "keys": sql.SQL(", ").join(keys)}
        parts["columns"] = sql.SQL(", ").join(map(sql.Identifier, self._columns))
        parts["update"] = _update(others)
        parts["differs"] = _differs(others, "s")
        for name, side in (("shown_s", "s"), ("shown_t", "t")):
            shown = [sql.Identifier(side, table.columns[column]) for column in table.shown]
            parts[name] = sql.SQL(", ").join(shown)
        parts["order"] = sql.SQL(", ").join(sql.SQL("t.{}").format(part) for part in keys)
        if nulls is not None:
            parts["equal"] = sql.SQL(" AND ").join(
                sql.SQL("t.{0} IS NULL AND s.{0} IS NULL" if null else "t.{0} = s.{0}").format(part)
                for part, null in zip(keys, nulls, strict=True)
            )
            for name, side in (("nulls", "t"), ("nulls_s", "s")):
                parts[name] = sql.SQL(" AND ").join(
                    sql.SQL("{}.{} IS NULL" if null else "{}.{} IS NOT NULL").format(sql.SQL(side), part)
                    for part, null in zip(keys, nulls, strict=True)
                )
        return sql.SQL(text).format(**parts)


def _without(side: str, same: str) -> str:
    """Write the condition that the other side has no such row."""
    return f"NOT EXISTS (SELECT 1 FROM {{{side}}} AS {side} WHERE {same})"


def _update(others: list[sql.Identifier]) -> sql.Composable:
    if not others:
        return sql.SQL("NOTHING")
    sets = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(column) for column in others)
    return sql.SQL("UPDATE SET {} WHERE {}").format(sets, _differs(others, "excluded"))


def _differs(others: list[sql.Identifier], other: str) -> sql.Composable:
    if not others:
        return sql.SQL("false")
    return sql.SQL(" OR ").join(sql.SQL("t.{0} IS DISTINCT FROM {1}.{0}").format(c, sql.SQL(other)) for c in others)
