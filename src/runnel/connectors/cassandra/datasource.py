"""`format("runnel.cassandra")`: Cassandra's tables and logs as Spark DataFrames, in batch and as a stream.

Rows of a table are read by token ranges, changes by segments of the log; each is a partition. A stream's offsets are
`{host: [segment, position]}`. Tasks connect by themselves; what the log is read with comes from the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from runnel.config import Source
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.nodes import file_definitions, open_files, open_live
from runnel.connectors.cassandra.log.positions import position_of
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.readers import Readers
from runnel.connectors.cassandra.log.tail import Stretch, read_stretch
from runnel.connectors.cassandra.settings import KINDS, LISTS, Settings, read_settings
from runnel.connectors.cassandra.techniques.log_rows import SCHEMA, log_rows
from runnel.connectors.cassandra.values.held import held_type
from runnel.errors import Place
from runnel.model import types as model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import SchemaRows

READER = "a stream"
"""What a stream is called among the readers of a log; where it is, Spark knows, and leaves no note there."""
PARTITIONS = 8
"""Tasks that read a table, unless the option `partitions` says otherwise."""
OWN = ("path", "table", "read", "partitions", "startingoffsets")


class CassandraDataSource(DataSource):
    """Register with `spark.dataSource.register(CassandraDataSource)`.

    Options are the settings of a source (lists with commas), and: `table` or the path, whose rows are read; `read`, which is
    `rows` or `log`; `partitions` of a table; `startingOffsets` of a stream, `earliest` or `latest`.
    """

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return "runnel.cassandra"

    def schema(self) -> str:
        """Give the columns as DDL: those of the table, or those of deltas."""
        if self._of_log():
            return ", ".join(_ddl(field.name, model.from_arrow(field.type)) for field in SCHEMA)
        from runnel.connectors.cassandra.client import Client

        settings = self._settings()
        with Client(settings) as client:
            table = client.chosen_tables()[0]
        policy = settings.unrepresentable
        return ", ".join(_ddl(column.name, held_type(column.type, policy)) for column in table.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        """Give a reader of a table, or of what the logs hold now."""
        if self._of_log():
            return LogBatchReader(self._settings())
        return TableReader(self._settings(), int(self.options.get("partitions", PARTITIONS)))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Give a reader that follows the logs."""
        return LogStreamReader(self._settings(), latest=self.options.get("startingOffsets") == "latest")

    def _of_log(self) -> bool:
        table = self.options.get("path") or self.options.get("table")
        return self.options.get("read", "rows" if table else "log") == "log"

    def _settings(self) -> Settings:
        given = {name.lower(): value for name, value in self.options.items()}
        settings = {name: _value(name, value) for name, value in given.items() if name not in OWN}
        table = given.get("path") or given.get("table")
        if table:
            settings["tables"] = [table]
        settings.setdefault("release", False)
        return read_settings(Source("spark", "cassandra", settings, Place("options")), Path.cwd())


def _value(name: str, text: str) -> Any:
    if name in LISTS:
        return [part.strip() for part in text.split(",")]
    if name in KINDS.numbers and text.isdigit():
        return int(text)
    return text == "true" if name in KINDS.flags and text in ("true", "false") else text


def _ddl(name: str, type_: model.Type) -> str:
    return f"{model.quoted(name)} {type_}"


@dataclass
class Ranges(InputPartition):
    """Token ranges of a table."""

    ranges: list[tuple[int, int]]


class TableReader(DataSourceReader):
    """Reads the rows of a table, some token ranges in each task."""

    def __init__(self, settings: Settings, pieces: int) -> None:
        """Read with this many tasks at most."""
        self._settings, self._pieces = settings, pieces

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the ring into ranges, and these into tasks."""
        from runnel.connectors.cassandra.client import Client
        from runnel.connectors.cassandra.snapshot import ranges_of

        with Client(self._settings) as client:
            ranges = ranges_of(client, client.chosen_tables()[0])
        each = -(-len(ranges) // max(1, self._pieces))
        return [Ranges(ranges[at : at + each]) for at in range(0, len(ranges), each)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of some ranges."""
        from runnel.connectors.cassandra.client import Client
        from runnel.connectors.cassandra.snapshot import read_arrow

        assert isinstance(partition, Ranges)
        with Client(self._settings) as client:
            yield from read_arrow(client, client.chosen_tables()[0], partition.ranges)


@dataclass
class Part(InputPartition):
    """A stretch of a segment, and the definitions it is read with."""

    host: str
    stretch: Stretch
    definitions: SchemaRows | None
    read_at: int | None
    wanted: list[tuple[str, str]] | None


class LogBatchReader(DataSourceReader):
    """Reads what the logs hold now, a segment in each task."""

    def __init__(self, settings: Settings) -> None:
        """Read these logs."""
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """Give the segments that can be read now."""
        with OpenLogs(self._settings) as logs:
            return logs.parts({}, logs.latest({}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the deltas of a segment."""
        return _read(partition, self._settings.keyspace)


class LogStreamReader(DataSourceStreamReader):
    """Follows the logs; segments are given back after their batch is committed where `release` is set."""

    def __init__(self, settings: Settings, *, latest: bool) -> None:
        """Begin at the first segment that is there, or at the end."""
        self._settings, self._latest = settings, latest
        self._opened: OpenLogs | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def _logs(self) -> OpenLogs:
        self._opened = self._opened or OpenLogs(self._settings)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        """Give where a new query begins."""
        return self._logs.latest({}) if self._latest else {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Give how far each log can be read now; Spark before 4.2 does not say from where."""
        return self._logs.latest(start or {})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Give the parts of segments between two offsets."""
        return self._logs.parts(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the deltas of a part."""
        return _read(partition, self._settings.keyspace)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the server forget what was read."""
        self._logs.release(end)

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()


class OpenLogs:
    """The logs on the driver's side, with the connection that tells their definitions."""

    def __init__(self, settings: Settings) -> None:
        """Open the folders of running nodes, or copied files."""
        self._settings = settings
        self._client: Client | None = None
        if settings.logs:
            self._nodes = open_files(settings)
            return
        from runnel.connectors.cassandra.client import Client

        self._client = Client(settings)
        self._nodes = open_live(settings, self._client)

    def latest(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Give how far each log can be read now."""
        return {node.host: list(node.folder.latest(position_of(start, node.host))) for node in self._nodes}

    def parts(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Give the parts of segments between two offsets, with the definitions as they are now."""
        definitions, read_at, wanted = self._definitions()
        found: list[InputPartition] = []
        for node in self._nodes:
            after, until = position_of(start, node.host), position_of(end, node.host)
            for segment in node.folder.between(after, until):
                found.append(Part(node.host, segment, definitions, read_at, wanted))
        return found

    def _definitions(self) -> tuple[SchemaRows | None, int | None, list[tuple[str, str]] | None]:
        settings = self._settings
        if self._client is not None:
            tables = self._client.chosen_tables()
            return self._client.all_definitions(), None, [(table.keyspace, table.name) for table in tables]
        wanted = None if settings.tables is None else [(settings.keyspace, name) for name in settings.tables]
        return file_definitions(settings), 0, wanted

    def release(self, upto: Mapping[str, Any]) -> None:
        """Let the server forget its segments before an offset, if that is wanted."""
        if self._settings.release and self._client is not None:
            for node in self._nodes:
                needed = Readers(node.folder.folder, READER).released(position_of(upto, node.host))
                node.folder.release(needed)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> OpenLogs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(partition: InputPartition, keyspace: str) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, Part)
    catalog = Catalog(partition.definitions, read_at=partition.read_at, wanted=partition.wanted)
    yield from log_rows(partition.host, keyspace, read_stretch(LogReader(catalog), partition.stretch))
