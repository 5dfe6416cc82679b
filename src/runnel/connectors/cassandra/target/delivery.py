"""Delivers views to Cassandra: absolute rows and deletes, written with a time that grows with the epoch.

Writing the same again changes nothing, and a writer that comes late loses against what a newer epoch wrote. What is begun is noted
before the rows are written, and marked as done after them: a change that was cut off comes again, the very same, before the next
one. A whole load begins a new count of times at the clock's, above whatever others wrote into the table before.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from runnel.connectors.base import Delivered
from runnel.connectors.cassandra.client import MARKS, Client
from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.target.tables import fitting, ready, table_name
from runnel.connectors.cassandra.values.encode import encoder
from runnel.connectors.cassandra.values.equality import canonical
from runnel.connectors.cassandra.values.types import quoted
from runnel.connectors.marks import Mark, key_problem, value_problem, view_problem
from runnel.errors import RunnelError, Terminal
from runnel.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from runnel.connectors.base import Delivery
    from runnel.connectors.cassandra.schema.tables import ColumnSchema
    from runnel.connectors.cassandra.settings import Settings
    from runnel.connectors.cassandra.target.tables import Table
    from runnel.connectors.marks import Shape

    Statement = tuple[str, list[bytes | None]]
    Key = tuple[bytes | None, ...]

_LONG = struct.Struct(">q")


@dataclass(frozen=True)
class _Stored:
    """A table's row among the marks; rows of epoch e are written with the time `base` + e. No mark before the first whole load."""

    mark: Mark | None = None
    base: int = 0


class CassandraTarget:
    """Tables of one keyspace that follow views."""

    NEEDS_KEY: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        """Keep the settings; it is connected when it is first asked."""
        self._settings = settings
        self._connected: Client | None = None
        self._marks = f"{quoted(settings.keyspace)}.{MARKS}"

    def _client(self) -> Client:
        if self._connected is None:
            self._connected = Client(self._settings)
        return self._connected

    def close(self) -> None:
        """Let go of every connection."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def _name(self, shape: Shape) -> str:
        return table_name(shape.table, self._settings.keyspace, self._settings.label)

    def check(self, shape: Shape) -> None:
        """Raise if the view cannot be held by the table that is there."""
        there = self._client().tables().get(self._name(shape))
        if there is not None:
            fitting(there, shape)

    def marks(self, shapes: Sequence[Shape]) -> dict[str, Mark]:
        """Give the marks of those views whose table is there and has one."""
        there = self._client().tables()
        found: dict[str, Mark] = {}
        for shape in shapes if MARKS in there else ():
            name = self._name(shape)
            mark = self._stored(name).mark if name in there else None
            found |= {shape.view: mark} if mark is not None else {}
        return found

    def apply(self, deliveries: Sequence[Delivery]) -> Delivered:
        """Write deliveries one after the other, each with its mark behind its rows."""
        done = Delivered()
        for delivery in deliveries:
            try:
                done.rows += self._apply(delivery)
            except RunnelError as error:
                done.problems[delivery.shape.view] = view_problem(self._settings.label, error)
        return done

    def _apply(self, delivery: Delivery) -> int:
        client, shape, name = self._client(), delivery.shape, self._name(delivery.shape)
        if MARKS not in client.tables():
            client.execute(
                f"CREATE TABLE IF NOT EXISTS {self._marks} "
                "(table_name text PRIMARY KEY, epoch bigint, state text, begun bigint, begun_state text, base bigint, "
                "delivered_at timestamp)"
            )
        stored = self._stored(name)
        table = ready(client, shape, name, ours=stored.mark is not None)
        if delivery.whole:
            base = self._begin_whole(name, stored, delivery.mark.epoch)
            statements = _whole(client, delivery, table, base + delivery.mark.epoch)
        else:
            # All of it is encoded before it is begun: what cannot be held must not come again and again.
            base = stored.base
            statements = iter(list(_change(delivery, table, base + delivery.mark.epoch)))
            self._begin(name, delivery.mark, base)
        try:
            rows = client.write(statements)
        except Terminal:
            # It would be refused again as it is; by a whole load, what the view has become by then is written.
            self._begin_whole(name, stored, delivery.mark.epoch)
            raise
        reach("deliver:rows-written")
        self._finish(name, delivery.mark, base)
        reach("deliver:marked")
        return rows

    def _stored(self, name: str) -> _Stored:
        cql = f"SELECT epoch, state, begun, begun_state, base FROM {self._marks} WHERE table_name = ?"
        for row in self._client().records(cql, [name.encode()]):
            begun = None if row["begun"] is None else Mark(row["begun"], row["begun_state"])
            mark = None if row["epoch"] is None else Mark(row["epoch"], row["state"], begun)
            return _Stored(mark, row["base"] or 0)
        return _Stored()

    def _begin_whole(self, name: str, stored: _Stored, epoch: int) -> int:
        """Choose times above all that were used before, and keep the choice; no mark holds until the load is done."""
        used = stored.base + max(epoch, stored.mark.epoch if stored.mark else 0)
        at = max(time.time_ns() // 1000, used + 1)
        cql = f"INSERT INTO {self._marks} (table_name, base, epoch, begun) VALUES (?, ?, ?, ?) USING TIMESTAMP ?"
        self._client().write([(cql, [name.encode(), _LONG.pack(at - epoch), None, None, _LONG.pack(at - 1)])])
        return at - epoch

    def _begin(self, name: str, mark: Mark, base: int) -> None:
        cql = f"INSERT INTO {self._marks} (table_name, begun, begun_state) VALUES (?, ?, ?) USING TIMESTAMP ?"
        values = [name.encode(), _LONG.pack(mark.epoch), mark.state.encode()]
        self._client().write([(cql, [*values, _LONG.pack(base + mark.epoch)])])

    def _finish(self, name: str, mark: Mark, base: int) -> None:
        cql = (
            f"INSERT INTO {self._marks} (table_name, epoch, state, base, begun, delivered_at) "
            "VALUES (?, ?, ?, ?, ?, toTimestamp(now())) USING TIMESTAMP ?"
        )
        values = [name.encode(), _LONG.pack(mark.epoch), mark.state.encode(), _LONG.pack(base), None]
        self._client().write([(cql, [*values, _LONG.pack(base + mark.epoch)])])


def _change(delivery: Delivery, table: Table, at: int) -> Iterator[Statement]:
    if delivery.gone is not None:
        columns = [_encoded(delivery.shape, table, column, delivery.gone) for column in table.key]
        yield from (_removal(table, key, at) for key in zip(*columns, strict=True))
    for batch in delivery.rows:
        yield from _inserts(delivery.shape, table, batch, at)


def _whole(client: Client, delivery: Delivery, table: Table, at: int) -> Iterator[Statement]:
    """Write all rows, then remove those that are there beside them."""
    width = len(table.key)
    there: set[Key] = set()
    for batch in delivery.rows:
        for cql, values in _inserts(delivery.shape, table, batch, at):
            there.add(_equal(table, tuple(values[:width])))
            yield cql, values
    names = ", ".join(quoted(column.name) for column in table.key)
    for key in client.rows(f"SELECT {names} FROM {name_of(table.schema)}"):
        if _equal(table, key) not in there:
            yield _removal(table, key, at)


def _equal(table: Table, key: Key) -> Key:
    """Give a key in the one form of all that the server takes for equal."""
    split = len(table.schema.partition_key)
    forms = [canonical(column.type) for column in table.schema.clustering]
    rest = [part if form is None or part is None else form(part) for form, part in zip(forms, key[split:], strict=True)]
    return (*key[:split], *rest)


def _inserts(shape: Shape, table: Table, rows: pa.Table, at: int) -> Iterator[Statement]:
    """Write whole rows, NULLs included: what is there of an older epoch must not shine through."""
    others = [column for column in table.columns.values() if column not in table.key]
    columns = [*table.key, *others]
    names, marks = ", ".join(quoted(column.name) for column in columns), ", ".join("?" for _ in columns)
    cql = f"INSERT INTO {name_of(table.schema)} ({names}) VALUES ({marks}) USING TIMESTAMP ?"
    encoded = [_encoded(shape, table, column, rows) for column in columns]
    for values in zip(*encoded, strict=True):
        yield cql, [*values, _LONG.pack(at)]


def _removal(table: Table, key: Key, at: int) -> Statement:
    where = " AND ".join(f"{quoted(column.name)} = ?" for column in table.key)
    return f"DELETE FROM {name_of(table.schema)} USING TIMESTAMP ? WHERE {where}", [_LONG.pack(at), *key]


def _encoded(shape: Shape, table: Table, column: ColumnSchema, rows: pa.Table) -> list[bytes | None]:
    """Give the bytes of a column's values."""
    name, encode = table.source[column.name], encoder(column.type)
    try:
        found = [None if value is None else encode(value) for value in rows.column(name).to_pylist()]
    except (ValueError, OverflowError) as error:
        hint = "convert it in the view, for example by date_trunc('MILLISECOND', ...) or array_compact"
        raise value_problem(shape, name, str(error), hint) from error
    if column in table.key:
        _check_key(shape, table, name, found)
    return found


def _check_key(shape: Shape, table: Table, name: str, values: list[bytes | None]) -> None:
    alone = len(table.schema.partition_key) == 1 and table.columns[name] in table.schema.partition_key
    for value in values:
        if value is None or (alone and not value):
            what = f"{'NULL' if value is None else 'empty'}, and Cassandra allows none there"
            raise key_problem(shape, name, what, "use coalesce in the view, or leave such rows out")
