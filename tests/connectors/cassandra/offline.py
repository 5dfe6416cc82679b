"""A log without a server: segments written as a server writes them, captured from their files.

Every mutation is a section, so that each has a position. Integers stand for keys, clusterings and values.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.capture import Capture
from runnel.connectors.cassandra.schema.tables import build_tables
from runnel.connectors.cassandra.schema.text import parse_schema
from runnel.engine.duckdb import DuckDbEngine
from runnel.pipeline.source_state import StateOfSource
from runnel.project.project import open_project
from tests.connectors.cassandra.conftest import short
from tests.connectors.cassandra.encoder import Cell, Deleted, Row, Updated, body, write_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from runnel.connectors.cassandra.cells import Range
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Position

MICRO = 1_000_000
TABLE_ID = "00000000-0000-0000-0000-0000000000aa"
COLUMNS = "k int, c int, v int, w int, m map<int, int>, PRIMARY KEY (k, c)"


def number(value: int) -> bytes:
    return struct.pack(">i", value)


class Archive:
    """The log of one node with one table, `s.t`, in a project that reads its files."""

    def __init__(self, folder: Path, columns: str = COLUMNS, options: str = "") -> None:
        self.folder, self.bodies = folder, list[bytes]()
        (folder / "logs").mkdir()
        self.define(columns, options)
        self.configure()

    def define(self, columns: str, options: str = "") -> None:
        """Write the table's definition."""
        definition = f"CREATE TABLE s.t ({columns}) WITH {options}ID = {TABLE_ID};"
        (self.folder / "schema.cql").write_text(definition)
        self.table = build_tables(parse_schema(definition))[0]

    def configure(self, **settings: Any) -> None:
        lines = ["[project]", 'name = "shop"', "[sources.shop]", 'type = "cassandra"', 'logs = "logs/*"']
        lines += ['schema = "schema.cql"', 'keyspace = "s"', 'tables = ["t"]']
        lines += [f'{name} = "{value}"' for name, value in settings.items()]
        (self.folder / "runnel.toml").write_text("\n".join(lines) + "\n")

    def write(self, update: Updated, segment: int = 1) -> None:
        """Add a mutation to the log."""
        self.bodies.append(body(update))
        write_segment(self.folder / "logs", [[made] for made in self.bodies], id_=segment)

    def row(
        self,
        k: int,
        c: int,
        time: int,
        *,
        insert: bool = False,
        ttl: int = 0,
        now: int = 0,
        deleted: tuple[int, int] | None = None,
        segment: int = 1,
        **values: int | None,
    ) -> None:
        """Write a row: `values` of None are NULLs; `now` is the server's clock where it notes it."""
        ldt = now + ttl if ttl else 0
        cells = tuple(
            Cell(name, None if value is None else number(value), time, 0 if value is None else ttl, now or ldt)
            if value is None
            else Cell(name, number(value), time, ttl, ldt)
            for name, value in sorted(values.items())
        )
        live = (time, ttl, ldt) if insert else None
        self.write(Updated(self.table, number(k), rows=(Row((number(c),), live, deleted, cells=cells),)), segment)

    def element(self, k: int, c: int, key: int, value: int, time: int, *, ttl: int = 0, now: int = 0) -> None:
        """Write an element of the map `m`."""
        cell = Cell("m", number(value), time, ttl, now + ttl if ttl else 0, number(key))
        self.write(Updated(self.table, number(k), rows=(Row((number(c),), cells=(cell,)),)))

    def delete_key(self, k: int, time: int, now: int, segment: int = 1) -> None:
        self.write(Updated(self.table, number(k), deletion=(time, now)), segment)

    def delete_range(self, k: int, range_: Range, time: int, now: int, segment: int = 1) -> None:
        self.write(Updated(self.table, number(k), rows=(Deleted(range_, (time, now)),)), segment)

    def insert_many(self, rows: Iterable[tuple[int, int, int]], value: Callable[[], int] = lambda: 1) -> None:
        """Write a segment that inserts rows (key, clustering, time) with values for all of their columns."""
        names = sorted(column.name for column in self.table.regular)
        updates = [
            Updated(
                self.table,
                number(k),
                rows=(Row((number(c),), (time, 0, 0), cells=tuple(Cell(n, number(value()), time) for n in names)),),
            )
            for k, c, time in rows
        ]
        write_segment(self.folder / "logs", [[body(update)] for update in updates], id_=1)

    def capture(
        self, technique: str, *, expand: bool = False, last: bool = False, since: Position | None = None
    ) -> list[Delta]:
        """Run a cycle, or read what happened since a position, and give its deltas."""
        with self.opened(technique, expand=expand) as capture:
            return list(capture.deltas(since, last=last))

    def position(self, technique: str) -> Position:
        """Give the end of the last cycle."""
        with self.opened(technique) as capture:
            return capture.position() or {}

    @contextmanager
    def opened(self, technique: str, *, expand: bool = False) -> Iterator[Capture]:
        with open_project(self.folder, engine=DuckDbEngine(), sync=False) as project:
            source = project.config.sources[0]
            state = StateOfSource(project.runtime, source.name)
            yield Capture(source, self.folder, state, technique, expand_deletes=expand)

    def told(self, technique: str, *, expand: bool = False, last: bool = False) -> list[str]:
        return [short(delta) for delta in self.capture(technique, expand=expand, last=last)]
