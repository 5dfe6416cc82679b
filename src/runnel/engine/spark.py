"""The Spark engine: one tuned, warm session that runs delta programs as SQL over explicit file lists and schemas.

Only the DataFrame API and SQL are used, so a classic session, Spark Connect and a cluster all serve. Temporary views are
named after what they hold, so an input that did not change since the last epoch is not registered again.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
import time
import uuid
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Observation, SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.pandas.functions import PandasUDFType, pandas_udf

from runnel.engine.analyses import Analyses
from runnel.engine.base import Bound, Derived, Files, TooLarge, TooSlow, Written
from runnel.engine.driver import Driver
from runnel.engine.java import ensure_java
from runnel.engine.keyed import BUCKET, WRITTEN, bucket_sql, buckets_of, task
from runnel.engine.launch import REDACTION, launch, redaction
from runnel.engine.lost_java import (
    ENDING_SECONDS,
    broken_connection,
    forget_ended_java,
    given_stopped,
    gone,
    hide_stacks_of_lost_connections,
    is_stopped,
    java_ended,
)
from runnel.engine.meaning import decides, meaning
from runnel.engine.registry import Registry, cast_table, spark_schema
from runnel.engine.spark_jobs import counting_jobs, is_connect
from runnel.engine.tasks import batches, unpacked
from runnel.errors import RunnelError, Terminal, Unreachable
from runnel.lake.files import HINT, ROW_GROUP
from runnel.model import types
from runnel.model.program import quote
from runnel.model.relation import Column
from runnel.model.tokens import replace_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from runnel.engine.base import Input, Task
    from runnel.engine.counts import Kind
    from runnel.engine.functions import UserFunction
    from runnel.engine.keyed import Keyed

SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.driver.maxResultSize": "1g",
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "runnel-warehouse"),
    "spark.cleaner.periodicGC.interval": "10min",
    # Nobody looks at them, and thousands of small jobs fill the driver's memory with their histories.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}
LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Where a driver listens that has its executors inside; those of a cluster reach it from other machines."""
SHUFFLES = "spark.sql.shuffle.partitions"
ROUNDING = "spark.sql.decimalOperations.allowPrecisionLoss"
"""Says how many digits quotients have; the driver knows one way of it."""
TUNING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "4m",
    "spark.sql.autoBroadcastJoinThreshold": "32m",
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.caseSensitive": "false",
    ROUNDING: "true",
}
CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
"""What Spark infers about columns. It saves nothing on few rows, and over a correlated subquery in a union it fails."""
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    CONSTRAINTS: "false",
}
WRITING = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "parquet.block.size": str(16 << 20),
    "parquet.page.write-checksum.enabled": "true",
    "parquet.block.row.count.limit": str(ROW_GROUP),
}
SPREAD = 4
"""Parts of a shuffle for each range of keys: Spark hashes the ranges' numbers, and of two ranges in two parts both may be in one."""
STOP_AGAIN = 0.2
"""Seconds after which what was stopped is stopped again."""
FILE_ROWS = 5_000_000
QUICK_ROWS = 100_000
LIMITED_FROM = 500_000
LOCAL_ROWS = 100_000
"""Rows that are handed to Spark from the driver's memory; more are better read from their files."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two starts of a Spark that has ended, if nothing needs it; they double."""

# Spark's Python side prints whole Java stacks of errors that we catch and say in one sentence.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
warnings.filterwarnings("ignore", message=".*PySpark does not yet fully support pandas.*")


log = logging.getLogger("runnel")
T = TypeVar("T")


class SparkEngine:
    """Runs programs on Spark; starts a local session on first use unless one is given."""

    name = "spark"

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        master: str = "local[*]",
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        secret: Collection[str] = (),
        driver: Driver | None = None,
    ) -> None:
        """Keep the settings; nothing is started yet. `driver` is the lane for queries too small for a job.

        The settings named in `secret` are shown to nobody.
        """
        self._given = spark
        self._secret = frozenset(secret)
        self._master, self._remote, self._conf = master, remote, dict(conf or {})
        self.driver = driver or Driver()
        self.meaning = meaning(self._conf, self._secret)
        if self.meaning:  # the driver knows the usual meaning only
            self.driver = Driver(changes=0)
        self.counted = self.driver.counted
        self.light = self.driver.changes
        self._session: SparkSession | None = None
        self._warming = threading.Thread()  # not started
        self._lost: RunnelError | None = None
        self._restart_pause, self._restart_at = FIRST_PAUSE, 0.0
        self._registries: dict[bool, Registry] = {}
        self.functions: dict[str, UserFunction] = {}
        self._analyses = Analyses()
        self._lock = threading.RLock()
        self._closed = False

    @property
    def session(self) -> SparkSession:
        """The session, started on first use, and again after it was stopped or its Java process has ended."""
        with self._lock:
            if self._given is not None and is_stopped(self._given):
                raise given_stopped()
            if self._session is not None and is_stopped(self._session):
                log.warning("%s", gone())
                self._session, self._registries = None, {}
                _left()
            if self._session is None:
                self._session = self._isolated(self._given) if self._given else self._start()
                self._lost = None
            return self._session

    def lost(self) -> RunnelError | None:
        """Give the error of a session that has ended, until there is another one; that is started beside other work."""
        if self._given is not None:
            return given_stopped() if is_stopped(self._given) else None
        if self._lost is None and self._session is not None and is_stopped(self._session):
            self._lost, self._restart_pause, self._restart_at = gone(), FIRST_PAUSE, 0.0
        if self._lost is not None and time.monotonic() >= self._restart_at and not self._warming.is_alive():
            self._restart_at = time.monotonic() + self._restart_pause
            self._restart_pause = min(LONGEST_PAUSE, 2 * self._restart_pause)
            self.warm()
        return self._lost

    def warm(self) -> None:
        """Start the session in a thread: most epochs do not need it, and the first that does finds it ready."""
        if not self.ready and not self._closed:
            self._warming = threading.Thread(target=self._warm, name="runnel-warm", daemon=True)
            self._warming.start()

    @property
    def ready(self) -> bool:
        """Whether the session is there, and runs."""
        return self._session is not None and not is_stopped(self._session)

    def _warm(self) -> None:
        # Whoever needs Spark and does not get it is told then.
        with self._lock, suppress(RunnelError), self._translated_errors():
            if not self._closed:
                self._frame("SELECT 1", {}).collect()

    def _start(self) -> SparkSession:
        builder: Any = SparkSession.builder.appName("runnel")
        if self._remote:
            builder = builder.remote(self._remote)
        else:
            ensure_java()
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python workers must find runnel too
            builder = builder.master(self._master)
            quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
            for key, value in {**session_settings(self._master), "spark.driver.extraJavaOptions": quiet}.items():
                builder = builder.config(key, value)
        for key, value in {**TUNING, **self._conf}.items():
            builder = builder.config(key, value)
        try:
            forget_ended_java()
            if self._secret and not self._remote:
                builder = builder.config(REDACTION, redaction(self._conf, self._secret))
                launch({str(k): str(v) for k, v in builder._options.items()}, self._secret)
            spark: SparkSession = builder.getOrCreate()
            self._settle(spark)
            self._follow_cores(spark)
        except Exception as error:
            raise Unreachable(
                "RUNNEL-SPARK-UNREACHABLE",
                f"Spark did not start: {_first_line(error)}",
                hint="check [spark] in runnel.toml, and that Java 17 or newer is there",
            ) from error
        hide_stacks_of_lost_connections(spark)
        _joined()
        return spark

    def _isolated(self, spark: SparkSession) -> SparkSession:
        """Give a session of our own beside the user's, so that neither sees the other's settings and views."""
        try:
            own = spark.newSession()
        except (NotImplementedError, AttributeError, PySparkException):
            own = spark
        for key, value in {**TUNING, **self._conf}.items():
            if key.startswith("spark.sql.") and own.conf.isModifiable(key):
                own.conf.set(key, value)
        self._settle(own)
        return own

    def _settle(self, session: SparkSession) -> None:
        """Leave no setting that decides what views mean to where the session comes from, such as spark-defaults.conf."""
        ours = {key.lower() for key in (*TUNING, *SESSION, *self._conf)}
        for key, value in session.sql("SET").collect():
            if decides(key) and key.lower() not in ours and session.conf.isModifiable(key):
                session.conf.unset(key)
                if str(session.conf.get(key, None)) != value:
                    log.warning("%s = %s is not used: only [spark] conf decides what views mean", key, value)

    def register(self, function: UserFunction) -> None:
        """Let SQL call a user's function; one of the same name gives way to it."""
        with self._lock:
            self.functions[function.name] = function
            for registry in self._registries.values():
                _register(registry.session, function)
            self._analyses.forget()

    def analyse(self, sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        """Give the columns of a query's result without running it."""
        return self._analyses.get(sql, tables, lambda: self._analyse(sql, tables))

    def _analyse(self, sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        with self._translated_errors():
            registry = self._registry(quick=True)
            names = {name: registry.empty(columns) for name, columns in tables.items()}
            schema = registry.session.sql(replace_names(sql, names)).schema
        return tuple(Column(field.name, types.parse(field.dataType.simpleString())) for field in schema.fields)

    def rows(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column] | None = None) -> pa.Table:
        """Run a query and bring its result to the driver."""
        with self._translated_errors(), self._counting("step", inputs):
            quick = _rows_read(inputs) <= QUICK_ROWS
            table = self._planned(lambda: self._frame(sql, inputs, quick=quick).toArrow())
        return cast_table(table, columns) if columns is not None else table

    def change(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table:
        """Run a step of a delta program: in the driver where it is small, else as a job."""
        small = self.driver.small(sql, inputs, closed=closed)
        if small is None:
            return self._collected(sql, inputs, columns)
        found = self.driver.rows(small, columns)
        if found is not None:
            return found
        few = small.rows <= LOCAL_ROWS
        return self._collected(*(small.sql, small.inputs) if few else (sql, inputs), columns)

    def _collected(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column]) -> pa.Table:
        """Bring a result to the driver, unless it is too large for it.

        Where many rows are read, one row more than is allowed is asked for; few rows seldom become many, and where they do
        Spark itself stops at `spark.driver.maxResultSize`.
        """
        read, bound = _rows_read(inputs), self.driver.bound
        most = min(bound.rows, bound.bytes // _least_width(columns))
        with self._translated_errors(), _too_large(), self._counting("step", inputs):

            def collected() -> pa.Table:
                frame = self._frame(sql, inputs, quick=read <= QUICK_ROWS)
                return (frame.limit(most + 1) if read > LIMITED_FROM else frame).toArrow()

            table = self._planned(collected)
        Bound(most, bound.bytes).check(table.num_rows, table.nbytes)
        return cast_table(table, columns)

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Stop this thread's jobs after so many seconds; the driver's own queries are small and are not stopped."""
        session, tag = self.session, f"runnel-{uuid.uuid4().hex}"
        expired, done = threading.Event(), threading.Event()
        # A session's tags do not reach the thread of Java that collects rows as Arrow; its context's tags do.
        of_context = not is_connect(session)
        tags: Any = session.sparkContext if of_context else session
        add, remove, cancel = (
            (tags.addJobTag, tags.removeJobTag, tags.cancelJobsWithTag)
            if of_context
            else (tags.addTag, tags.removeTag, tags.interruptTag)
        )

        def stop() -> None:
            pause = seconds
            while not done.wait(pause):  # a job may begin after the time is over
                expired.set()
                with suppress(Exception):  # Spark may end at the same moment
                    cancel(tag)
                pause = STOP_AGAIN

        add(tag)
        threading.Thread(target=stop, name="runnel-limit", daemon=True).start()
        try:
            yield
        except Exception as error:
            if expired.is_set():
                raise TooSlow from error
            raise
        finally:
            done.set()
            with suppress(Exception):
                remove(tag)

    def in_driver(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table | None:
        """Run a query in the driver, if that is the place for it and for its result; else None."""
        small = self.driver.small(sql, inputs, closed=closed)
        try:
            return self.driver.rows(small, columns) if small is not None else None
        except TooLarge:
            return None

    def frame(self, sql: str, inputs: Mapping[str, Input]) -> DataFrame:
        """Give a query as a DataFrame, for callers who go on in Spark."""
        with self._translated_errors():
            return self._frame(sql, inputs)

    def write(
        self, sql: str, inputs: Mapping[str, Input], schema: pa.Schema, folder: str, order: Sequence[str] = ()
    ) -> Written:
        """Run a query and write its result as Parquet, clustered by `order`; rows are counted on their way into the writer."""
        target = f"{folder.rstrip('/')}/{uuid.uuid4().hex}"

        def written() -> int:
            frame = self._frame(sql, inputs).to(spark_schema(schema))
            if order:
                by = [quote(c) for c in order]
                # Each file is sorted and holds every range of keys: look-ups skip row groups, not files, and nothing is computed
                # twice, as it would be to find ranges.
                files = max(self._parallelism(), _rows_read(inputs) // FILE_ROWS)
                frame = frame.repartition(files, by[0]).sortWithinPartitions(*by)
            plain = {f"parquet.enable.dictionary#{f.name}": "false" for f in schema if not pa.types.is_string(f.type)}
            # Counted in the writing stage itself: a task that is tried again, or runs twice, counts once.
            counting = _observation(frame)
            frame = frame.observe(counting, count(lit(1)).alias("rows"))
            frame.write.options(**WRITING, **plain).parquet(target)
            return int(counting.get["rows"])

        with self._translated_errors(), self._counting("step", inputs):
            rows = self._planned(written)
        return Written(tuple(_parquet_files(target)), rows)

    def reads(self, rows: int) -> bool:
        """Say whether so many changes are more than the driver works out itself."""
        return rows > self.driver.changes

    def read(self, tasks: Sequence[Task], columns: Sequence[Column], folder: str) -> Written:
        """Run the tasks on the executors, which write what they give."""
        target = f"{folder.rstrip('/')}/{uuid.uuid4().hex}"
        schema = ", ".join(f"{quote(c.name)} {c.type}" for c in columns)
        with self._translated_errors(), counting_jobs(self.counted, "read", self.session, len(tasks)):
            numbers = self.session.range(0, len(tasks), 1, len(tasks))
            frame = numbers.mapInArrow(batches(tasks), schema)
            counting = _observation(frame)
            frame = frame.observe(counting, count(lit(1)).alias("rows"))
            frame.write.options(**WRITING).parquet(target)
            rows = int(counting.get["rows"])
        return Written(tuple(_parquet_files(target)), rows)

    @contextmanager
    def _counting(self, kind: Kind, inputs: Mapping[str, Input]) -> Iterator[None]:
        """Count a statement on Spark, the bytes it reads and the jobs it takes."""
        self.counted.read(_bytes_read(inputs))
        with counting_jobs(self.counted, kind, self.session):
            yield

    def keyed(self, work: Keyed, stored: str, changed: str, inputs: Mapping[str, Input]) -> dict[str, Written]:
        """Call the function in tasks, each over a range of hashes; the tasks write what it gives."""
        with self._translated_errors(), self._counting("keyed", inputs):
            buckets = buckets_of(_rows_read(inputs), self._parallelism())
            number = bucket_sql(quote(work.by), buckets)
            frames = [
                self._frame(f"SELECT *, {number} AS {quote(BUCKET)} FROM (\n{sql}\n) AS side", inputs)
                for sql in (stored, changed)
            ]
            sides = [frame.repartition(SPREAD * buckets, quote(BUCKET)).groupBy(quote(BUCKET)) for frame in frames]
            found = sides[0].cogroup(sides[1]).applyInArrow(task(work), WRITTEN).collect()
        made = {name: [(row["path"], row["rows"]) for row in found if row["output"] == name] for name in work.outputs}
        return {
            name: Written(tuple(path for path, _ in files), sum(rows for _, rows in files))
            for name, files in made.items()
        }

    def close(self) -> None:
        """Stop the session if this engine started it."""
        with self._lock:
            self._closed = True
            if self._session is not None and self._given is None and _left():
                if is_stopped(self._session):
                    forget_ended_java()
                else:
                    self._session.stop()
            self._session = None
            self._registries = {}
            self.driver.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn Spark's exceptions into ours; without Java any call may fail in any way, and what counts is that Java is gone."""
        before = self._session
        try:
            with _translated():
                yield
        except Exception as error:
            session = before or self._session
            if session is None or isinstance(error, TooLarge):
                raise
            cause = error.__cause__ or error
            own = self._given is None and not is_stopped(session)
            if own and isinstance(error, Unreachable) and _context_stopped(cause):
                with suppress(Exception):  # Java lives, its context does not: the next use starts another one
                    session.stop()
            if java_ended(session, ENDING_SECONDS if broken_connection(cause) else 0.0):
                raise (gone() if self._given is None else given_stopped()) from error
            raise

    def _planned(self, run: Callable[[], T]) -> T:
        """Run a job; one that Spark's optimizer itself fails on is planned again without what it infers from constraints."""
        try:
            return run()
        except Exception as error:
            if "key not found: " not in str(error) or "rewriteConstraints" not in str(error):
                raise
        conf = self.session.conf
        conf.set(CONSTRAINTS, "false")
        try:
            return run()
        finally:
            conf.unset(CONSTRAINTS)

    def _frame(self, sql: str, inputs: Mapping[str, Input], *, quick: bool = False) -> DataFrame:
        registry = self._registry(quick=quick)
        return registry.session.sql(registry.resolved(sql, inputs))

    def _registry(self, *, quick: bool) -> Registry:
        """Give the session for the size of the work: for a few rows, generating code costs more than it saves."""
        main = self.session
        if not quick:
            self._follow_cores(main)
        with self._lock:
            if not self._registries:
                self._registries = {False: Registry(main), True: Registry(self._quick(main))}
                for registry in self._registries.values():
                    for function in self.functions.values():
                        _register(registry.session, function)
            return self._registries[quick]

    def _parallelism(self) -> int:
        self._follow_cores(self.session)
        return int(str(self.session.conf.get(SHUFFLES, "2")))

    def _follow_cores(self, session: SparkSession) -> None:
        """Cut shuffles of a session that is ours into as many parts as there are cores now: executors come and go."""
        if self._given is None and not self._remote and SHUFFLES not in self._conf:
            session.conf.set(SHUFFLES, str(max(2, session.sparkContext.defaultParallelism)))

    def _quick(self, main: SparkSession) -> SparkSession:
        own = self._isolated(main)
        if own is not main:
            for key, value in {**self._sql_settings(main), **QUICK}.items():
                own.conf.set(key, value)
        return own

    def _sql_settings(self, main: SparkSession) -> dict[str, str]:
        keys = [key for key in {**TUNING, **self._conf} if key.startswith("spark.sql.") and main.conf.isModifiable(key)]
        return {key: str(main.conf.get(key)) for key in keys}


_using = 0
_using_lock = threading.Lock()


def _joined() -> None:
    """Count an engine of this process that uses the session: there is one for all of them."""
    global _using
    with _using_lock:
        _using += 1


def _left() -> bool:
    """Count it out; say whether it was the last one, which puts out the light."""
    global _using
    with _using_lock:
        _using -= 1
        return _using == 0


def session_settings(master: str) -> dict[str, str]:
    """Give what a session is started with; where executors run elsewhere, the driver listens where they reach it."""
    return SESSION | (LOOPBACK if master.startswith("local") else {})


def _register(session: SparkSession, function: UserFunction) -> None:
    returns = str(function.returns)
    if function.pandas:
        with warnings.catch_warnings():  # hints would say what `pandas=True` says already
            warnings.simplefilter("ignore")
            whole: Any = pandas_udf(function.call, returns, PandasUDFType.SCALAR)
        session.udf.register(function.name, whole)
    else:
        session.udf.register(function.name, function.call, returns)


def _observation(frame: DataFrame) -> Any:
    """Give something that counts rows, of the kind of session a DataFrame is of."""
    if is_connect(frame):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation()
    return Observation()


@contextmanager
def _too_large() -> Iterator[None]:
    """Tell a result that Spark does not collect because of its size from other failures."""
    try:
        yield
    except Exception as error:
        if "maxResultSize" in str(error):
            raise TooLarge from error
        raise


def _least_width(columns: Sequence[Column]) -> int:
    """Give the bytes that a row takes at least; text and nested values may take more."""
    return sum(32 if types.nested(c.type) or c.type.name in ("string", "binary") else 8 for c in columns) or 8


def _rows_read(inputs: Mapping[str, Input]) -> int:
    return sum(
        s.rows if isinstance(s, Files) else s.table.num_rows for s in inputs.values() if not isinstance(s, Derived)
    )


def _bytes_read(inputs: Mapping[str, Input]) -> int:
    return sum(source.bytes for source in inputs.values() if isinstance(source, Files))


def _parquet_files(folder: str) -> list[str]:
    filesystem, path = pafs.FileSystem.from_uri(folder) if "://" in folder else (pafs.LocalFileSystem(), folder)
    prefix = folder.split("://", 1)[0] + "://" if "://" in folder else ""
    found = filesystem.get_file_info(pafs.FileSelector(path, recursive=False))
    return sorted(prefix + info.path for info in found if info.path.endswith(".parquet"))


@contextmanager
def _translated() -> Iterator[None]:
    """Turn Spark's exceptions into ours: the query is wrong, a row made it fail, or Spark is gone."""
    try:
        yield
    except (RunnelError, TooLarge):
        raise
    except Exception as error:
        told = unpacked(str(error))
        if told is None:
            with _translated_text():
                raise
        raise told from error


@contextmanager
def _translated_text() -> Iterator[None]:
    """Tell Spark's exceptions apart by their kinds and texts."""
    try:
        yield
    except AnalysisException as error:
        raise Terminal("RUNNEL-SQL-WRONG", f"Spark cannot read this query: {_first_line(error)}") from error
    except PySparkException as error:
        if _context_stopped(error):
            raise Unreachable("RUNNEL-SPARK-GONE", "Spark was stopped", hint="it is started again") from error
        raise Terminal("RUNNEL-SQL-FAILED", f"the query failed: {_first_line(error)}") from error
    except (ConnectionError, EOFError) as error:
        raise Unreachable("RUNNEL-SPARK-GONE", f"Spark went away: {_first_line(error)}", hint="start again") from error
    except Exception as error:
        text = str(error)
        if "Py4J" in type(error).__name__ and ("Network" in type(error).__name__ or _context_stopped(error)):
            raise Unreachable("RUNNEL-SPARK-GONE", "Spark went away", hint="start again") from error
        missing = "FileNotFoundException" in text or "FILE_NOT_EXIST" in text
        # A damaged page, a block that Hadoop's own checksums refuse, or a header that makes no sense.
        if "CRC checksum verification failed" in text or ("FAILED_READ_FILE" in text and not missing):
            raise Terminal(
                "RUNNEL-FILE-BROKEN",
                f"a data file is not as it was written: {_file_read(text)}",
                hint=HINT,
            ) from error
        if missing:
            raise Terminal("RUNNEL-FILE-MISSING", f"a data file cannot be read: {_first_line(error)}") from error
        if "No space left" in text:
            raise Unreachable(
                "RUNNEL-DISK-FULL", "no space is left on the disk", hint="free some space and start again"
            ) from error
        if "Py4J" in type(error).__name__:
            raise Terminal("RUNNEL-SQL-FAILED", f"the query failed: {_cause(text)}") from error
        raise


def _context_stopped(error: BaseException) -> bool:
    text = str(error)
    return "SparkContext was shut down" in text or "stopped SparkContext" in text


def _file_read(text: str) -> str:
    found = re.search(r"reading file (?:file:/+)?(\S+\.parquet)", text)
    return f"/{found[1]}" if found and "file:/" in found[0] else found[1] if found else "a page's checksum differs"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _cause(text: str) -> str:
    found = re.findall(r"Caused by: \S+: (.*)", text) or re.findall(r": (\[[A-Z_.]+\].*)", text)
    return found[-1].strip() if found else text.strip().splitlines()[0]
