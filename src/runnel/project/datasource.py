"""`spark.read.format("runnel")`: a view or table of a project as a Spark DataFrame, from any session.

The reader plans on the driver which rows there are; the rows themselves come from the project's own reading of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource as SparkDataSource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from runnel.errors import UsageError
from runnel.model import arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class DataSource(SparkDataSource):
    """Register with `spark.dataSource.register(runnel.DataSource)`; options: `project`, and `at` for an earlier epoch."""

    @classmethod
    def name(cls) -> str:
        """Give the format's name."""
        return "runnel"

    def _target(self) -> tuple[str, str, int | None]:
        relation = self.options.get("path") or self.options.get("relation")
        project = self.options.get("project")
        if not project or not relation:
            raise UsageError(
                "RUNNEL-DATASOURCE-OPTIONS",
                "the project and the view are needed",
                hint='.option("project", path).load("view")',
            )
        at = self.options.get("at")
        return project, relation, int(at) if at else None

    def schema(self) -> str:
        """Give the relation's columns as DDL."""
        from runnel.project.driverless import describe

        project, relation, at = self._target()
        return describe(project, relation, at)

    def reader(self, schema: Any) -> DataSourceReader:
        """Give a reader of the relation at its epoch."""
        return _Reader(*self._target())


class _Reader(DataSourceReader):
    """Reads the relation's rows in one task; final rows are computed by the small in-process engine."""

    def __init__(self, project: str, relation: str, at: int | None) -> None:
        self._project, self._relation, self._at = project, relation, at

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from runnel.project.driverless import read

        rows = arrow.contiguous(read(self._project, self._relation, self._at))
        yield from (batch for batch in rows.to_batches() if batch.num_rows)
