"""The publication: which tables the server puts into the log for us, in which form; runnel's own is made and kept with the tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.connectors.postgres.server import quoted
from runnel.errors import RunnelError, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from runnel.connectors.postgres.definitions import Table
    from runnel.connectors.postgres.settings import SourceSettings

    Rows = Callable[..., list[tuple[Any, ...]]]

GENERATED_FROM = 180000
"""The version from which generated columns can be published."""
_PUBLICATION = """
SELECT p.oid::bigint, p.xmin::text, to_jsonb(p), pg_has_role(p.pubowner, 'USAGE') FROM pg_publication p WHERE p.pubname = %s"""
_TABLES = "SELECT r.prrelid::bigint, r.oid::bigint, to_jsonb(r) FROM pg_publication_rel r WHERE r.prpubid = %s"
_SCHEMAS = """
SELECT s.oid::bigint FROM pg_publication_namespace s JOIN pg_namespace n ON n.oid = s.pnnspid WHERE s.pnpubid = %s AND n.nspname = %s"""


@dataclass(frozen=True)
class Publication:
    """A publication as it is; `marks` are the entries of its tables, which are others once a table was taken out and put in again.

    `everything` is the mark of all tables of the schema, where they are published together; `partial` are tables of which only some
    rows or columns are.
    """

    name: str
    exists: bool = False
    owned: bool = True
    complete: bool = True
    by_root: bool = True
    generated: bool = False
    everything: str = ""
    marks: Mapping[int, str] = field(default_factory=dict)
    partial: Collection[int] = ()

    def mark(self, table: int) -> str:
        """Name the entry of a table; nothing where it is not published."""
        return self.marks.get(table, self.everything)


def read_publication(settings: SourceSettings, rows: Rows, version: int) -> Publication:
    """Read the publication of a source, which may not exist."""
    found = rows(_PUBLICATION, settings.publication)
    if not found:
        return Publication(settings.publication, generated=settings.managed and version >= GENERATED_FROM)
    oid, changed, plain, owned = found[0]
    here = f"{oid}.{changed}"
    schemas = rows(_SCHEMAS, oid, settings.schema) if version >= 150000 else []
    everything = here if plain["puballtables"] else f"{here}.s{schemas[0][0]}" if schemas else ""
    tables = rows(_TABLES, oid)
    return Publication(
        settings.publication,
        exists=True,
        owned=owned,
        complete=all(plain[f"pub{what}"] for what in ("insert", "update", "delete", "truncate")),
        by_root=plain["pubviaroot"],
        generated=plain.get("pubgencols") == "s",
        everything=everything,
        marks={table: f"{here}.{entry}" for table, entry, _ in tables},
        partial=[table for table, _, more in tables if more.get("prqual") or more.get("prattrs")],
    )


def command(settings: SourceSettings, publication: Publication, tables: Collection[Table]) -> str:
    """Write the statement that publishes these tables."""
    named = ", ".join(_named(settings, table) for table in tables)
    if publication.exists:
        return f"ALTER PUBLICATION {quoted(publication.name)} ADD TABLE {named}"
    options = "publish_via_partition_root = true" + (
        ", publish_generated_columns = stored" if publication.generated else ""
    )
    return f"CREATE PUBLICATION {quoted(publication.name)} FOR TABLE {named} WITH ({options})"


def _named(settings: SourceSettings, table: Table) -> str:
    name = quoted(settings.schema, table.definition.name)
    return name if table.partitioned else f"ONLY {name}"


def missing(settings: SourceSettings, publication: Publication) -> RunnelError:
    """Make the error for a publication that somebody named, or that positions rely on, and that does not exist."""
    return Terminal(
        "RUNNEL-POSTGRES-PUBLICATION",
        f"{settings.label}: the publication {publication.name} does not exist",
        hint=f"changes since it was dropped are lost: `runnel rebuild {settings.name}` makes it and reads all tables again"
        if settings.managed
        else f"CREATE PUBLICATION {quoted(publication.name)} FOR TABLE ... WITH (publish_via_partition_root = true)",
    )


def wrong(settings: SourceSettings, publication: Publication) -> RunnelError | None:
    """Give the error of a publication that leaves changes out."""
    if not publication.exists or publication.complete:
        return None
    return Terminal(
        "RUNNEL-POSTGRES-PUBLICATION",
        f"{settings.label}: the publication {publication.name} does not publish all kinds of changes",
        hint=f"ALTER PUBLICATION {quoted(publication.name)} SET (publish = 'insert, update, delete, truncate')",
    )
