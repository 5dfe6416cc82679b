"""The server, for whoever reconciles cells and needs it: connected to only when it is asked, wherever that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.client import Client
from runnel.connectors.cassandra.schema.tables import name_of
from runnel.connectors.cassandra.schema.twins import where
from runnel.connectors.cassandra.values.types import quoted

if TYPE_CHECKING:
    from runnel.connectors.cassandra.cells import Clustering
    from runnel.connectors.cassandra.schema.tables import TableSchema
    from runnel.connectors.cassandra.settings import Settings


class Server:
    """A connection that others keep, or one of its own after it was taken to another process; none where there are only log files."""

    def __init__(self, settings: Settings, client: Client | None) -> None:
        """Ask by a connection that is closed by whoever opened it."""
        self._settings, self._client, self._own = settings, client, False

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_client": None, "_own": False}

    def connected(self) -> Client | None:
        """Give the connection; None where the logs are all there is."""
        if self._client is None and not self._settings.logs:
            self._client, self._own = Client(self._settings), True
        return self._client

    def disconnect(self) -> None:
        """Close the connection if it was opened here."""
        if self._own and self._client is not None:
            self._client.close()
            self._client, self._own = None, False

    def has_row(self, table: TableSchema, key: bytes, clustering: Clustering) -> bool:
        """Say whether a row is there without any value."""
        client = self.connected()
        if client is None:
            return False
        names = ", ".join(quoted(column.name) for column in table.regular) or quoted(table.partition_key[0].name)
        cql = f"SELECT {names} FROM {name_of(table)} WHERE {where(table, static=False)}"
        found = client.rows(cql, [*table.key_parts(key), *clustering])
        return any(not table.regular or all(value is None for value in row) for row in found)
