"""Answers a view's own text over the tables' rows, without the compiler, the lake or anything kept: what a view must equal.

On Spark that is a session of its own over DataFrames made from the rows. DuckDB needs the text in its own dialect, so there the
oracle shares the translation of one text, and nothing else.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from runnel.compiler.forms import readable
from runnel.engine.base import Rows
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import Terminal
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from runnel.engine.base import Engine
    from runnel.engine.spark import SparkEngine
    from runnel.model.relation import Column, Relation

Row = tuple[object, ...]


class Refused(Exception):
    """The engine does not accept the text."""


class Failed(Exception):
    """The text is fine, and some row makes it fail: an overflow, a cast."""


class Oracle(Protocol):
    """Holds the rows of tables and the texts of views over them."""

    def apply(self, batch: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Change the tables by signed rows."""

    def define(self, name: str, sql: str) -> None:
        """Take the text of a view, which later views may read; raise `Refused` where it is not accepted."""

    def ask(self, name: str, columns: Sequence[Column]) -> pa.Table:
        """Give the rows of a view; `columns` are those that the view is kept with."""


class Bags:
    """The rows of tables as they are now."""

    def __init__(self, tables: Sequence[Relation]) -> None:
        self.tables = {table.name: table for table in tables}
        self.rows: dict[str, Counter[str]] = {table.name: Counter() for table in tables}
        self.values: dict[str, Row] = {}

    def apply(self, batch: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Add signed rows up."""
        for name, rows in batch.items():
            for row, weight in rows:
                self.values[repr(row)] = row
                self.rows[name][repr(row)] += weight

    def plain(self, name: str) -> list[Row]:
        """Give a table's rows, each as often as it is there."""
        return [self.values[text] for text, count in self.rows[name].items() for _ in range(count)]

    def table(self, name: str) -> pa.Table:
        """Give a table's rows in one chunk."""
        rows, columns = self.plain(name), self.tables[name].columns
        arrays = [pa.array([row[at] for row in rows], types.to_arrow(c.type)) for at, c in enumerate(columns)]
        return pa.Table.from_arrays(arrays, names=[c.name for c in columns])


class SparkOracle:
    """Asks a session that knows nothing but the rows."""

    def __init__(self, spark: SparkSession, tables: Sequence[Relation]) -> None:
        self.session = _quick(spark)
        self.bags, self.views = Bags(tables), dict[str, str]()
        self.frames: dict[str, DataFrame] = {}
        self.answers: dict[str, pa.Table] = {}
        self.apply({name: [] for name in self.bags.tables})

    def apply(self, batch: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Change the tables by signed rows, and make their DataFrames again."""
        self.bags.apply(batch)
        self.answers = {}
        for name in batch:
            frame = self.session.createDataFrame(self.bags.table(name)).coalesce(1)
            frame.createOrReplaceTempView(_quoted(name))
        for name, sql in self.views.items():
            self._show(name, sql)

    def define(self, name: str, sql: str) -> None:
        """Let later texts read the view."""
        try:
            self._show(name, sql)
        except (AnalysisException, PySparkException) as error:
            raise Refused(str(error).partition("\n")[0]) from error
        self.views[name] = sql

    def _show(self, name: str, sql: str) -> None:
        self.frames[name] = self.session.sql(sql)
        self.frames[name].createOrReplaceTempView(_quoted(name))

    def ask(self, name: str, columns: Sequence[Column]) -> pa.Table:
        """Run the text as it was written."""
        del columns
        if name not in self.answers:
            self.answers[name] = _answered(self.frames[name])
        return self.answers[name]

    def answer(self, sql: str) -> pa.Table:
        """Run a text over the tables as it was written."""
        try:
            frame = self.session.sql(sql)
        except Exception as error:
            raise Failed(str(error).partition("\n")[0]) from error
        return _answered(frame)


def _answered(frame: DataFrame) -> pa.Table:
    try:
        return frame.toArrow()
    except Exception as error:
        raise Failed(str(error).partition("\n")[0]) from error


class DuckDbOracle:
    """Asks another DuckDB, whose tables are the rows themselves."""

    def __init__(self, tables: Sequence[Relation]) -> None:
        self.engine = _second_duckdb()
        self.bags, self.views = Bags(tables), dict[str, str]()
        self.found: dict[str, Any] = {}
        self.shown: dict[str, tuple[Column, ...]] = {table.name: table.columns for table in tables}

    def apply(self, batch: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Change the tables by signed rows."""
        self.bags.apply(batch)
        self.found = {}

    def define(self, name: str, sql: str) -> None:
        """Let later texts read the view."""
        sql = readable(sql)
        try:
            self.shown[name] = self.engine.analyse(sql, self.shown)
        except Terminal as error:
            raise Refused(str(error)) from error
        self.views[name] = sql

    def ask(self, name: str, columns: Sequence[Column]) -> pa.Table:
        """Run the text, and those of the views before it, which it may read."""
        found = self.found = self.found or {n: Rows(self.bags.table(n), t.columns) for n, t in self.bags.tables.items()}
        try:
            for view, sql in self.views.items():
                if view == name and tuple(columns) != self.shown[name]:
                    return self.engine.rows(sql, {n: rows for n, rows in found.items() if n != name}, columns)
                if view not in found:
                    found[view] = Rows(self.engine.rows(sql, found, self.shown[view]), self.shown[view])
                if view == name:
                    return found[view].table
        except Terminal as error:
            raise Failed(str(error)) from error
        raise KeyError(name)


def answer(engine: Engine, sql: str, inputs: Mapping[str, Rows], columns: Sequence[Column]) -> pa.Table:
    """Answer one text over these rows, in a session or database that knows nothing else."""
    try:
        if engine.name != "spark":
            return _second_duckdb().rows(readable(sql), inputs, columns)
        own: SparkEngine = engine  # type: ignore[assignment]
        session = _quick(own.session)
        for name, rows in inputs.items():
            session.createDataFrame(rows.table.combine_chunks()).coalesce(1).createOrReplaceTempView(_quoted(name))
        return session.sql(sql).toArrow()
    except Exception as error:
        raise Failed(str(error).partition("\n")[0]) from error


def _quick(spark: SparkSession) -> SparkSession:
    """Give a session of its own that is quick over few rows, which are all in one partition."""
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    for setting in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
        session.conf.set(setting, "false")
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def oracle_for(engine: Engine, tables: Sequence[Relation]) -> Oracle:
    """Give the oracle for views that are kept on this engine."""
    if engine.name != "spark":
        return DuckDbOracle(tables)
    own: SparkEngine = engine  # type: ignore[assignment]
    return SparkOracle(own.session, tables)


@functools.cache
def _second_duckdb() -> DuckDbEngine:
    """Give the one database of all oracles: each query brings its own tables."""
    return DuckDbEngine(threads=1)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
