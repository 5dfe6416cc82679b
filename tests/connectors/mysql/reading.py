"""Reads the logs of a test's server and its tables, so that they can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.connectors.mysql.client import Client
from runnel.connectors.mysql.definitions import read_definitions
from runnel.connectors.mysql.log.files import read_file
from runnel.connectors.mysql.log.row_events import RowBuffer, Rows
from runnel.connectors.mysql.log.transactions import Assembler, Committed
from runnel.connectors.mysql.settings import Settings
from runnel.connectors.mysql.snapshot import read_table
from runnel.connectors.mysql.types import described
from runnel.model import types
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.connectors.mysql.definitions import Definition
    from runnel.connectors.mysql.log.transactions import Item
    from tests.servers.mysql import SqlServer


def settings_of(server: SqlServer, database: str, **further: object) -> Settings:
    """Give the settings of a source that reads a database of a server."""
    made = {"host": "127.0.0.1", "port": server.port, "user": "root"} | further
    return Settings("shop", server.program.name.partition("-")[0], database, server.home, **made)  # type: ignore[arg-type]


def definition_of(settings: Settings, table: str) -> Definition:
    """Give the definition of a table as it is now."""
    client = Client(settings)
    try:
        return read_definitions(client)[table]
    finally:
        client.close()


def items(paths: list[Path], database: str) -> Iterator[Item]:
    """Give what the logs have of a database."""
    assembler = Assembler(lambda schema, _: schema == database)
    for path in paths:
        yield from assembler.items(read_file(path))


def logged(server: SqlServer, settings: Settings, definition: Definition) -> pa.Table:
    """Give the signed rows of a table out of the logs of a server."""
    buffer: RowBuffer | None = None
    for item in items(server.logs(settings.database), settings.database):
        if isinstance(item, Rows) and item.table.table == definition.name:
            columns = [described(one, two) for one, two in zip(item.table.columns, definition.columns, strict=True)]
            buffer = buffer or RowBuffer(columns, settings.zero_dates)
            assert item.whole
            buffer.add(item)
    assert buffer is not None, f"the logs have nothing of {definition.name}"
    return buffer.taken()


def transactions(paths: list[Path], database: str) -> list[Committed]:
    """Give the ends of the transactions of logs."""
    return [item for item in items(paths, database) if isinstance(item, Committed)]


def selected(settings: Settings, definition: Definition) -> pa.Table:
    """Give the rows of a table by SELECT."""
    shape = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in definition.info().columns])
    return pa.concat_tables([shape.empty_table(), *read_table(settings, definition)])


def state(signed: pa.Table, key: str = "k") -> pa.Table:
    """Give the rows that signed rows leave, in the order of a key; raise unless each row is there once at the end."""
    count: dict[bytes, int] = {}
    rows: dict[bytes, int] = {}
    plain = signed.drop_columns([WEIGHT])
    for at, weight in enumerate(signed.column(WEIGHT).to_pylist()):
        name = repr(plain.slice(at, 1).to_pylist()).encode()
        count[name], rows[name] = count.get(name, 0) + weight, at
    assert set(count.values()) <= {0, 1}, "a row is left that is not there once"
    return plain.take([rows[name] for name, n in count.items() if n]).sort_by(key)
