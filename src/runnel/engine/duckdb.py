"""The second engine: the same programs on DuckDB, for tests that want thousands of runs a minute.

Spark's SQL is transpiled; where the two disagree on types (sums of integers, averages of decimals) the wider number is cast to
what the caller asked for. Each call works on a cursor of its own, so that threads do not see each other's inputs.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from runnel.engine.analyses import Analyses
from runnel.engine.base import Derived, Files, Rows, TooLarge, Written
from runnel.engine.counts import SPARK, Counted
from runnel.engine.dialect import to_duckdb
from runnel.engine.keyed import buckets_of, split
from runnel.engine.quotients import MACROS
from runnel.errors import Terminal, UsageError
from runnel.lake import files as lake_files
from runnel.model import arrow, types
from runnel.model.relation import WEIGHT, Column
from runnel.model.types import Array, Decimal, Map, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from runnel.engine.base import Bound, Input, Task
    from runnel.engine.functions import UserFunction
    from runnel.engine.keyed import Keyed

_NAMES = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
    "int": "INTEGER",
}
_BACK = {
    "VARCHAR": "string",
    "BLOB": "binary",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMP_S": "timestamp_ntz",
    "TIMESTAMP_MS": "timestamp_ntz",
    "TIMESTAMP_NS": "timestamp_ntz",
    "INTEGER": "int",
    "HUGEINT": "bigint",
    "UBIGINT": "bigint",
    "UINTEGER": "bigint",
    "USMALLINT": "int",
    "UTINYINT": "smallint",
    "FLOAT": "float",
    '"NULL"': "int",
    "NULL": "int",
}

_CHECKED = pads.ParquetFileFormat(
    default_fragment_scan_options=pads.ParquetFragmentScanOptions(page_checksum_verification=True)
)
MANY_INPUTS = 6
COPIED_AT_MOST = 1_000_000
FETCHED_AT_ONCE = 100_000
RESULT = "~result"


def _return_large_buffers() -> None:
    """Have the C library give large buffers back to the system as soon as they are freed.

    By default it learns to keep them, DuckDB's leave holes, and the address space grows with every query: until the system
    refuses to start another process from such a large one. Other C libraries do not do that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 1 << 20)  # M_MMAP_THRESHOLD


class DuckDbEngine:
    """Runs programs in this process. `memory_limit` is DuckDB's, such as "1GB"."""

    name = "duckdb"
    light = 0

    def __init__(self, memory_limit: str | None = None, threads: int | None = None) -> None:
        """Start an in-memory database."""
        _return_large_buffers()
        self.functions: dict[str, UserFunction] = {}
        self.meaning: dict[str, str] = {}
        self.counted = Counted()
        self._analyses = Analyses()
        self._lock = threading.Lock()
        self._set = {"memory_limit": memory_limit, "threads": threads}
        self._connection = self._opened()

    def _opened(self) -> duckdb.DuckDBPyConnection:
        database = duckdb.connect()
        database.execute("SET GLOBAL TimeZone = 'UTC'")
        database.execute("SET temp_directory = ''")
        for macro in MACROS:
            database.execute(macro)
        for name, value in self._set.items():
            if value is not None:
                database.execute(f"SET {name} = '{value}'")
        for function in self.functions.values():
            _create(database, function)
        return database

    def lost(self) -> None:
        """Give nothing: it lives in this process and cannot end alone."""

    def warm(self) -> None:
        """Nothing to do: it is ready."""

    def register(self, function: UserFunction) -> None:
        """Let SQL call a user's function; one of the same name gives way to it."""
        if function.arguments is None:
            raise UsageError(
                "RUNNEL-FUNCTION-ARGUMENTS",
                f"DuckDB must know the types of the arguments of {function.name}()",
                hint='say arguments="a INT, b STRING", or annotate the function',
            )
        with self._lock:
            if function.name in self.functions:
                self._connection.remove_function(function.name)
            _create(self._connection, function)
            self.functions[function.name] = function
        self._analyses.forget()

    def analyse(self, sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        """Give the columns of a query's result without running it; raise `Terminal` if the query is wrong."""
        return self._analyses.get(sql, tables, lambda: self._analyse(sql, tables))

    def _analyse(self, sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        cursor = self._cursor()
        try:
            for name, columns in tables.items():
                _register_empty(cursor, name, columns)
            return _describe(cursor, to_duckdb(sql))
        except duckdb.Error as error:
            raise self._wrong(error) from error
        finally:
            cursor.close()

    def rows(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column] | None = None) -> pa.Table:
        """Run a query and bring its result to the driver, cast to `columns` where given."""
        return self.rows_within(None, sql, inputs, columns)

    def rows_within(
        self, bound: Bound | None, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column] | None = None
    ) -> pa.Table:
        """Run a query and bring its result to the driver; raise `TooLarge` beyond a bound."""
        try:
            return self._run(sql, inputs, columns, bound, copied=False)
        except (duckdb.NotImplementedException, duckdb.InternalException):
            # DuckDB plans comparisons into scans of Arrow data that such scans cannot do, or get wrong; its own tables can.
            self._renewed()
            try:
                return self._run(sql, inputs, columns, bound, copied=True)
            except duckdb.Error as error:
                raise self._wrong(error, inputs) from error
        except duckdb.Error as error:
            raise self._wrong(error, inputs) from error
        except RuntimeError as error:
            # Ctrl-C during a query: DuckDB takes the interrupt and raises this in its place.
            if "interrupted" in str(error):
                raise KeyboardInterrupt from error
            raise

    def limited(self, seconds: float) -> AbstractContextManager[None]:
        """Let queries end: they are those of tests, and small."""
        del seconds
        return nullcontext()

    def change(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table:
        """Run a step of a delta program, like any query."""
        del closed
        return self.rows(sql, inputs, columns)

    def in_driver(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table | None:
        """Leave it to `write` and `rows`: here everything runs in the driver."""
        del sql, inputs, columns, closed
        return None

    def _run(
        self,
        sql: str,
        inputs: Mapping[str, Input],
        columns: Sequence[Column] | None,
        bound: Bound | None,
        *,
        copied: bool,
    ) -> pa.Table:
        cursor = self._cursor()
        sized = _sizes_matter(inputs)
        try:
            for name in _in_order(inputs):
                _register(cursor, name, inputs[name])
                # Filters that DuckDB pushes into scans of Arrow data drop NaN, which is greater than any number.
                if copied or _floating(inputs[name]) or (sized and not isinstance(inputs[name], Derived)):
                    cursor.execute(f"CREATE TEMP TABLE {_quoted(name + ' (copy)')} AS SELECT * FROM {_quoted(name)}")
                    cursor.execute(f"DROP VIEW IF EXISTS {_quoted(name)}")
                    cursor.execute(f"ALTER TABLE {_quoted(name + ' (copy)')} RENAME TO {_quoted(name)}")
            return _fetch(cursor, to_duckdb(sql), columns, bound, many=_rows(inputs) > FETCHED_AT_ONCE)
        finally:
            cursor.close()

    def write(
        self, sql: str, inputs: Mapping[str, Input], schema: pa.Schema, folder: str, order: Sequence[str] = ()
    ) -> Written:
        """Run a query and write its result as one Parquet file below `folder`, or none for no rows."""
        columns = [Column(field.name, types.from_arrow(field.type)) for field in schema]
        table = self.rows(sql, inputs, columns)
        if not table.num_rows:
            return Written((), 0)
        if order:
            table = arrow.in_order(table, order)
        path = Path(folder) / f"part-{uuid.uuid4().hex}.parquet"
        with lake_files.disk_errors("a query's result", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_arrays(table.columns, schema=schema), path, write_page_checksum=True)
        return Written((str(path),), table.num_rows)

    def reads(self, rows: int) -> bool:
        """Leave reading to the driver, which is where this engine is."""
        del rows
        return False

    def read(self, tasks: Sequence[Task], columns: Sequence[Column], folder: str) -> Written:
        """Run the tasks one after the other, in Spark's place."""
        self.counted.work("read", SPARK, len(tasks))
        schema = pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns])
        path, rows = Path(folder) / f"part-{uuid.uuid4().hex}.parquet", 0
        with lake_files.disk_errors("a source's changes", str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
                for task in tasks:
                    for batch in task():
                        writer.write_batch(batch)
                        rows += batch.num_rows
        return Written((str(path),), rows)

    def keyed(self, work: Keyed, stored: str, changed: str, inputs: Mapping[str, Input]) -> dict[str, Written]:
        """Call the function over one range of hashes after the other, in Spark's place."""
        self.counted.work("keyed", SPARK)
        sides = (
            self.rows(stored, inputs, (*work.stored.columns, Column(WEIGHT, types.BIGINT))),
            self.rows(changed, inputs, work.changed),
        )
        buckets = buckets_of(sum(side.num_rows for side in sides))
        found = [one for pair in split(work, sides, buckets) for one in work.write(*pair)]
        return {
            output: Written(
                tuple(path for name, path, _ in found if name == output),
                sum(rows for name, _, rows in found if name == output),
            )
            for output in work.outputs
        }

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            return self._connection.cursor()

    def _wrong(self, error: duckdb.Error, inputs: Mapping[str, Input] | None = None) -> Terminal:
        if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
            self._renewed()
        return _wrong(error, inputs)

    def _renewed(self) -> None:
        """Begin a new database where this one answers nothing more, as it does after a fault of its own."""
        with self._lock:
            try:
                self._connection.execute("SELECT 1")
            except duckdb.Error:
                self._connection = self._opened()


def _create(database: Any, function: UserFunction) -> None:
    """Let a database call a user's function, whose arguments are known."""
    parameters = [type_name(type_) for type_ in function.arguments or ()]
    kind: dict[str, Any] = {"type": "arrow"} if function.pandas else {}
    call = _of_columns(function) if function.pandas else function.call
    returns = type_name(function.returns)
    database.create_function(function.name, call, parameters, returns, null_handling="special", **kind)


def _of_columns(function: UserFunction) -> Callable[..., pa.Array]:
    """Let a function of pandas Series take and give Arrow's columns."""
    wanted = types.to_arrow(function.returns)

    def call(*columns: pa.ChunkedArray) -> pa.Array:
        return pa.Array.from_pandas(function.call(*(column.to_pandas() for column in columns)), type=wanted)

    return call


def type_name(type_: Type) -> str:
    """Write a type as DuckDB calls it."""
    match type_:
        case Decimal(_, precision, scale):
            return f"DECIMAL({precision},{scale})"
        case Array(_, element):
            return f"{type_name(element)}[]"
        case Map(_, key, value):
            return f"MAP({type_name(key)}, {type_name(value)})"
        case Struct(_, fields):
            return "STRUCT(" + ", ".join(f"{_quoted(name)} {type_name(field)}" for name, field in fields) + ")"
        case _:
            return _NAMES.get(type_.name, type_.name.upper())


def _describe(cursor: duckdb.DuckDBPyConnection, sql: str) -> tuple[Column, ...]:
    empty = cursor.execute(f"SELECT * FROM ({sql}) LIMIT 0")
    described = empty.description or []
    return tuple(Column(str(name), _type(str(kind))) for name, kind, *_ in described)


def _type(text: str) -> Type:
    if text.endswith("[]"):
        return Array("array", _type(text[:-2]))
    if text.startswith("STRUCT("):
        return Struct("struct", tuple((name, _type(kind)) for name, kind in _fields(text[7:-1])))
    if text.startswith("MAP("):
        key, value = _split(text[4:-1])
        return Map("map", _type(key), _type(value))
    return types.parse(_BACK.get(text, text))


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for part in _split(text):
        if part.startswith('"'):
            name, _, kind = part[1:].partition('" ')
        else:
            name, _, kind = part.partition(" ")
        yield name, kind


def _split(text: str) -> list[str]:
    """Split at the commas outside of any bracket."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _in_order(inputs: Mapping[str, Input]) -> list[str]:
    """Put inputs behind those they are derived from."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        item = inputs[name]
        for other in item.reads if isinstance(item, Derived) else ():
            if other not in done:
                visit(other)
        done[name] = None

    for name in inputs:
        if name not in done:
            visit(name)
    return list(done)


def _rows(inputs: Mapping[str, Input]) -> int:
    found = [item for item in inputs.values() if not isinstance(item, Derived)]
    return sum(item.table.num_rows if isinstance(item, Rows) else item.rows for item in found)


def _sizes_matter(inputs: Mapping[str, Input]) -> bool:
    """Say whether to copy inputs so that DuckDB knows their sizes: it takes Arrow data for one row, and joins at random."""
    stored = sum(not isinstance(item, Derived) for item in inputs.values())
    return stored > MANY_INPUTS and _rows(inputs) < COPIED_AT_MOST


def _floating(item: Input) -> bool:
    return not isinstance(item, Derived) and any(types.floating(column.type) for column in item.columns)


def _register(cursor: duckdb.DuckDBPyConnection, name: str, item: Input) -> None:
    match item:
        case Derived(sql, _):
            cursor.execute(f"CREATE TEMP VIEW {_quoted(name)} AS {to_duckdb(sql)}")
        case Rows(table, columns):
            _register_arrow(cursor, name, table, columns)
        case Files(paths, columns, relation=relation, parts=parts) if paths:
            lake_files.verify(relation.name if relation else "a relation", parts)
            _register_arrow(cursor, name, pads.dataset(list(paths), schema=_schema(columns), format=_CHECKED), columns)
        case Files(_, columns):
            _register_empty(cursor, name, columns)


def _register_arrow(
    cursor: duckdb.DuckDBPyConnection, name: str, source: pa.Table | pads.Dataset, columns: tuple[Column, ...]
) -> None:
    if source.schema.equals(_schema(columns)):
        cursor.register(name, source)
        return
    cursor.register(f"{name} (arrow)", source)
    cursor.execute(f"CREATE TEMP VIEW {_quoted(name)} AS SELECT {_casts(columns)} FROM {_quoted(name + ' (arrow)')}")


def _register_empty(cursor: duckdb.DuckDBPyConnection, name: str, columns: tuple[Column, ...]) -> None:
    cursor.register(name, _schema(columns).empty_table())


def _fetch(
    cursor: duckdb.DuckDBPyConnection, sql: str, columns: Sequence[Column] | None, bound: Bound | None, *, many: bool
) -> pa.Table:
    wanted = tuple(columns) if columns is not None else _describe(cursor, sql)
    given = ", ".join(_quoted(f"c{i}") for i in range(len(wanted)))
    casts = ", ".join(
        f"CAST({_quoted(f'c{i}')} AS {type_name(c.type)}) AS {_quoted(c.name)}" for i, c in enumerate(wanted)
    )
    query = f"SELECT {casts} FROM ({sql}) AS result({given})"
    if bound is None:
        return cursor.sql(query).to_arrow_table().cast(_schema(wanted))
    try:
        return _within(cursor, query, bound, many=many).cast(_schema(wanted))
    except duckdb.OutOfMemoryException:
        raise TooLarge from None


def _within(cursor: duckdb.DuckDBPyConnection, query: str, bound: Bound, *, many: bool) -> pa.Table:
    """Take a result that may be too large to be held: what is made of `many` rows, or has many, is made in memory that DuckDB bounds.

    A query is never read while it runs: DuckDB waits for ever where a branch of a UNION ALL has more for its reader than
    its buffer holds, and the next branch was not begun.
    """
    few = min(FETCHED_AT_ONCE, bound.rows + 1)
    if not many:
        found = cursor.sql(f"{query} LIMIT {few}").to_arrow_table()
        if found.num_rows < few:
            bound.check(found.num_rows, found.nbytes)
            return found
    cursor.execute(f"CREATE TEMP TABLE {_quoted(RESULT)} AS {query} LIMIT {bound.rows + 1}")
    return _held(cursor.execute(f"FROM {_quoted(RESULT)}").to_arrow_reader(FETCHED_AT_ONCE), bound)


def _held(reader: pa.RecordBatchReader, bound: Bound) -> pa.Table:
    """Read rows piece by piece, as long as they are within a bound."""
    found, rows, size = [], 0, 0
    try:
        for batch in reader:
            found.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            bound.check(rows, size)
    except (pa.ArrowException, OSError) as error:  # so Arrow passes on what DuckDB says of a row
        text = str(error)
        raise (duckdb.NotImplementedException if "Not implemented" in text else duckdb.Error)(text) from error
    return pa.Table.from_batches(found, reader.schema)


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns])


def _casts(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"CAST({_quoted(c.name)} AS {type_name(c.type)}) AS {_quoted(c.name)}" for c in columns)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _wrong(error: duckdb.Error, inputs: Mapping[str, Input] | None = None) -> Terminal:
    # Ctrl-C while DuckDB reads rows of Python comes back inside an error of its own.
    if isinstance(error, duckdb.InterruptException) or "KeyboardInterrupt: <EMPTY MESSAGE>" in str(error):
        raise KeyboardInterrupt from error
    if "CRC" in str(error):  # Arrow does not say in which file
        for source in (inputs or {}).values():
            if isinstance(source, Files):
                for path in source.paths:
                    lake_files.check(source.relation.name if source.relation else "a relation", path)
    return Terminal(
        "RUNNEL-ENGINE-SQL", str(error).splitlines()[0], hint="the query itself is wrong, or a row breaks it"
    )
