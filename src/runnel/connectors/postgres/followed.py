"""The tables of a source as the server has them, now or as of a snapshot: those that are followed, and those that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.connectors.postgres.checks import refused_tables
from runnel.connectors.postgres.client import told
from runnel.connectors.postgres.definitions import Catalog, check_names
from runnel.connectors.postgres.publication import command, missing, read_publication
from runnel.connectors.postgres.server import Server, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from psycopg import Connection

    from runnel.connectors.postgres.definitions import Definition, Table
    from runnel.connectors.postgres.publication import Publication
    from runnel.connectors.postgres.settings import SourceSettings
    from runnel.errors import RunnelError


@dataclass(frozen=True)
class Known:
    """The tables of a source at one moment."""

    publication: Publication
    tables: Mapping[str, Table]
    refused: Mapping[str, RunnelError]

    @property
    def definitions(self) -> dict[str, Definition]:
        """The definitions of the followed tables, by name."""
        return {name: table.definition for name, table in self.tables.items()}


class Followed:
    """Reads which tables are followed; with pickling, only the settings travel."""

    def __init__(self, settings: SourceSettings, server: Server | None = None) -> None:
        """Keep the settings; nothing is connected to yet."""
        self.settings = settings
        self._server = server
        self._catalog = Catalog(settings)
        self._version = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Followed, (self.settings,)

    def now(self) -> Known:
        """Read the tables as they are now."""
        if self._server is not None:
            return self._read(self._server.rows)
        server = Server(self.settings)
        try:
            return self._read(server.rows)
        finally:
            server.close()

    def seen_by(self, connection: Connection[tuple[Any, ...]]) -> Known:
        """Read the tables as a connection with a snapshot sees them."""
        with told(self.settings):
            return self._read(partial(rows_of, connection))

    def _read(self, rows: Callable[..., list[tuple[Any, ...]]]) -> Known:
        settings = self.settings
        self._version = self._version or int(rows("SELECT current_setting('server_version_num')")[0][0])
        publication = read_publication(settings, rows, self._version)
        if not settings.managed and not publication.exists:
            raise missing(settings, publication)
        tables = self._catalog.tables(rows, publication.mark, stored_generated=publication.generated)
        check_names(settings, tables)
        chosen = {name: table for name, table in tables.items() if self._is_chosen(name, table)}
        refused = refused_tables(settings, publication, chosen)
        return Known(publication, {name: one for name, one in chosen.items() if name not in refused}, refused)

    def _is_chosen(self, name: str, table: Table) -> bool:
        """Say whether a table is one of the source: one that is named, else one that is published, or all of them."""
        if self.settings.tables:
            return name in self.settings.tables
        return self.settings.managed or bool(table.definition.mark)

    def publish(self, server: Server, known: Known) -> bool:
        """Put tables into the publication that are not in it; say whether there were some."""
        missing_ones = [table for table in known.tables.values() if not table.definition.mark]
        if missing_ones:
            server.rows(command(self.settings, known.publication, missing_ones))
        return bool(missing_ones)
