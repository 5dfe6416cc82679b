"""Where benchmarks work: throw-away projects, one after the other, all on one warm Spark session; on DuckDB in tests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from runnel.engine.duckdb import DuckDbEngine
from runnel.lake.entries import Commit
from runnel.model.relation import WEIGHT
from runnel.project import memory
from runnel.project import open as open_project

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from runnel.engine.base import Engine
    from runnel.project import Project


class Workplace:
    """Gives projects that share a session; the session is started with the first and stopped with the workplace."""

    def __init__(self, engine: str = "spark", spark: Any = None) -> None:
        """Choose the engine by its name; nothing is started yet. A session that is given is used, and not stopped."""
        self.engine = engine
        self._given = spark
        self._owner: Any = None

    @property
    def spark(self) -> Any:
        """The warm session, or None where there is none."""
        if self.engine != "spark":
            return None
        if self._given is not None:
            return self._given
        if self._owner is None:
            from runnel.engine.spark import SparkEngine

            self._owner = SparkEngine()
        return self._owner.session

    @contextmanager
    def project(self, folder: Path | None = None) -> Iterator[Project]:
        """Give a throw-away project, or the one in a folder."""
        engine = self._engine()
        project = memory(engine=engine) if folder is None else open_project(folder, engine=engine)
        with project:
            yield project

    def _engine(self) -> Engine:
        if self.spark is None:
            return DuckDbEngine(threads=2)
        from runnel.engine.spark import SparkEngine

        key = "spark.sql.shuffle.partitions"  # a session beside another one does not inherit it
        return SparkEngine(self.spark, conf={key: self.spark.conf.get(key)})

    def close(self) -> None:
        """Stop the session."""
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(project: Project, tables: Mapping[str, str], rows: Mapping[str, Iterable[pa.Table]]) -> None:
    """Create tables and fill them, a piece at a time, so that a table need not fit into memory."""
    for name, columns in tables.items():
        project.create_table(name, columns)
        bulk_load(project, name, rows[name])


def bulk_load(project: Project, table: str, chunks: Iterable[pa.Table]) -> None:
    """Write rows that are known to be new as files of their own and publish them as one epoch, without a key look-up."""
    lake = project.runtime.lake
    head = lake.snapshot()
    relation = head.relations[table]
    ones = (chunk.append_column(WEIGHT, pa.array(np.ones(chunk.num_rows, dtype=np.int64))) for chunk in chunks)
    files = [lake.write(relation, chunk) for chunk in ones if chunk.num_rows]
    lake.publish(Commit(base=head.epoch, add=files, record={"rows_in": {table: sum(file.rows for file in files)}}))
