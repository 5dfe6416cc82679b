"""Opens the logs of a source: the `cdc_raw` folders of its nodes, or files that were copied from somewhere."""

from __future__ import annotations

import glob
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.mirror import Mirror
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.log.segment import NAME, segment_files
from runnel.connectors.cassandra.log.tail import LogFolder
from runnel.connectors.cassandra.schema.text import parse_schema
from runnel.connectors.served.client import LogClient
from runnel.errors import Place, Terminal, UsageError

if TYPE_CHECKING:
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import SchemaRows, TableSchema
    from runnel.connectors.cassandra.settings import Settings


@dataclass(frozen=True)
class NodeLog:
    """The log of one node; `host` names it in positions."""

    host: str
    folder: LogFolder
    reader: LogReader


def open_live(settings: Settings, client: Client) -> list[NodeLog]:
    """Open the folders of running nodes, after the server's settings and tables were found fit for it."""
    told = client.server_settings()
    if told.get("cdc_enabled", "true") != "true":
        raise Terminal(
            "RUNNEL-CASSANDRA-CDC",
            f"sources.{settings.name}: the server keeps no log for readers",
            hint="set cdc_enabled: true in cassandra.yaml and restart the nodes",
        )
    tables = client.chosen_tables()
    check_cdc(tables)
    named = (told.get("cdc_raw_directory"),) if not settings.log_urls else ()
    folders = settings.cdc_raw or tuple(Path(path) for path in named if path)
    unseen = [str(folder) for folder in folders if not folder.is_dir()]
    if unseen or not (folders or settings.log_urls):
        raise UsageError(
            "RUNNEL-CASSANDRA-FOLDER",
            f"sources.{settings.name}: the folder of log segments {' '.join(unseen)} is not to be seen from here",
            hint="name the nodes' folders as they are reached from this machine: cdc_raw = ['...'], or serve them there: runnel serve-log",
        )
    _check_enough(settings, client, len(folders) + len(settings.log_urls))
    wanted = [(table.keyspace, table.name) for table in tables]
    definitions = client.all_definitions()
    opened = {str(folder): LogFolder(folder) for folder in folders}
    opened |= {url: _served(settings, url) for url in settings.log_urls}
    return [NodeLog(host, folder, LogReader(_catalog(definitions, wanted, client))) for host, folder in opened.items()]


def _served(settings: Settings, url: str) -> LogFolder:
    """Open the folder of a node that is served there."""
    assert settings.log_token is not None
    assert settings.copies is not None
    copy = settings.copies / hashlib.sha256(url.encode()).hexdigest()[:16]
    return LogFolder(copy, mirror=Mirror(LogClient(url, settings.log_token, settings.log_ca), copy))


def _catalog(definitions: SchemaRows, wanted: list[tuple[str, str]], client: Client) -> Catalog:
    return Catalog(definitions, wanted=wanted, ask=client.all_definitions)


def _check_enough(settings: Settings, client: Client, folders: int) -> None:
    """Refuse to read so few logs that a row could have all its copies in the others."""
    nodes = len(client.hosts())
    needed = max(1, nodes - client.replicas() + 1)
    if folders < needed:
        raise UsageError(
            "RUNNEL-CASSANDRA-NODES",
            f"sources.{settings.name}: {nodes} nodes keep {client.replicas()} copies of a row, so the logs of {needed} nodes are needed",
            hint=f"name their folders: cdc_raw = [...]; so far there {'is 1' if folders == 1 else f'are {folders}'}",
        )


def check_cdc(tables: list[TableSchema]) -> None:
    """Refuse a table whose changes are not kept for readers with `RUNNEL-CASSANDRA-CDC`."""
    for table in tables:
        if not table.cdc:
            raise Terminal(
                "RUNNEL-CASSANDRA-CDC",
                f"{table.keyspace}.{table.name}: its changes are not kept for readers of the log",
                hint=f"ALTER TABLE {table.keyspace}.{table.name} WITH cdc = true",
            )


def open_files(settings: Settings) -> list[NodeLog]:
    """Open copied files, the segments of one folder as those of one node."""
    found: dict[Path, set[Path]] = {}
    for pattern in settings.logs:
        for name in glob.glob(pattern):  # noqa: PTH207 - the pattern may be absolute
            if NAME.fullmatch(Path(name).name):
                found.setdefault(Path(name).parent, set()).add(Path(name))
    if not found:
        raise UsageError(
            "RUNNEL-CASSANDRA-FILES",
            f"sources.{settings.name}: no segment of a log matches {', '.join(settings.logs)}",
            hint="segments are called CommitLog-7-1699285478684.log, or .log.gz",
        )
    logs = []
    for folder, paths in sorted(found.items()):
        baseline = file_definitions(settings)
        wanted = None if settings.tables is None else [(settings.keyspace, name) for name in settings.tables]
        reader = LogReader(Catalog(baseline, read_at=0, wanted=wanted))
        logs.append(NodeLog(str(folder), LogFolder(_only(folder, paths), indexed=False), reader))
    return logs


def file_definitions(settings: Settings) -> SchemaRows | None:
    """Give the definitions that copied files are read with, if there are any but their own."""
    if settings.schema is None:
        return None
    return parse_schema(_text(settings), file=settings.schema.name, keyspace=settings.keyspace)


def _text(settings: Settings) -> str:
    path = settings.schema
    assert path is not None
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        what = f"sources.{settings.name}: the schema {path} cannot be read: {error.strerror}"
        raise UsageError("RUNNEL-CASSANDRA-SCHEMA", what, place=Place(path.name)) from error


def _only(folder: Path, paths: set[Path]) -> Path:
    """Give a folder that holds these segments and no others."""
    if {segment.path for segment in segment_files(folder)} == paths:
        return folder
    chosen = Path(tempfile.mkdtemp(prefix="runnel-log-"))
    for path in paths:
        (chosen / path.name).symlink_to(path.resolve())
    return chosen
