"""Names inputs in a Spark session: each becomes a temporary view, named after what it holds, so that nothing is done twice."""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from runnel.engine.base import Derived, Files, Rows
from runnel.lake import files as lake_files
from runnel.model import arrow, types
from runnel.model.program import quote
from runnel.model.tokens import quoted_names, replace_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from runnel.engine.base import Input
    from runnel.model.relation import Column

KEPT_INPUTS = 400
KEPT_TABLES = 50


class Registry:
    """The inputs one session knows by name; an input that did not change since the last epoch is not registered again."""

    def __init__(self, session: SparkSession) -> None:
        """Begin with nothing registered."""
        self.session = session
        self._registered: OrderedDict[str, None] = OrderedDict()
        self._tables: OrderedDict[int, tuple[pa.Table, str]] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.RLock()

    def resolved(self, sql: str, inputs: Mapping[str, Input]) -> str:
        """Give the SQL with the inputs it names registered, and named as the session knows them."""
        names = {name: self._register(inputs[name], inputs) for name in quoted_names(sql) if name in inputs}
        return replace_names(sql, names)

    def _register(self, source: Input, inputs: Mapping[str, Input]) -> str:
        match source:
            case Files(paths=()):
                return self.empty(source.columns)
            case Files(paths=paths, columns=columns):
                schema = _ddl(columns)
                return self._once("f", (schema, *paths), lambda: self._read(schema, paths, source))
            case Rows(table=table, columns=columns):
                if table.num_rows == 0:
                    return self.empty(columns)
                return self._once("m", (self._identity(table),), lambda: self._local(table, columns))
            case Derived(sql=sql):
                text = self.resolved(sql, inputs)
                return self._once("d", (text,), lambda: self.session.sql(text))
        raise TypeError(source)

    def _read(self, schema: str, paths: tuple[str, ...], source: Files) -> DataFrame:
        # Spark checks pages, and knows nothing of the digests of footers.
        lake_files.verify(source.relation.name if source.relation else "a relation", source.parts)
        options = {"parquet.page.verify-checksum.enabled": "true"}
        return self.session.read.schema(schema).options(**options).parquet(*map(_literal, paths))

    def empty(self, columns: tuple[Column, ...]) -> str:
        """Register a table of these columns without rows."""
        schema = _ddl(columns)
        return self._once("e", (schema,), lambda: self.session.createDataFrame([], schema))

    def _identity(self, table: pa.Table) -> str:
        """Give a name to rows in memory: the same rows are registered once, however many queries read them."""
        with self._lock:
            known = self._tables.get(id(table))
            if known is None:
                known = self._tables[id(table)] = (table, uuid.uuid4().hex)
                while len(self._tables) > KEPT_TABLES:
                    self._tables.popitem(last=False)
            return known[1]

    def _local(self, table: pa.Table, columns: tuple[Column, ...]) -> DataFrame:
        exact = arrow.contiguous(cast_table(table, columns))
        return self.session.createDataFrame(exact, schema=spark_schema(exact.schema))

    def _once(self, letter: str, identity: tuple[str, ...], make: Callable[[], Any]) -> str:
        digest = hashlib.sha1("\0".join(identity).encode(), usedforsecurity=False).hexdigest()
        name = f"runnel_{letter}_{digest}"
        with self._lock:
            making = self._making.setdefault(name, threading.Lock())
        with making:  # of several views that ask at once, one registers and the others wait
            with self._lock:
                if name in self._registered:
                    self._registered.move_to_end(name)
                    return name
            make().createOrReplaceTempView(name)
            with self._lock:
                self._registered[name] = None
                forgotten = [
                    self._registered.popitem(last=False)[0] for _ in range(len(self._registered) - KEPT_INPUTS)
                ]
                for old in [name, *forgotten]:
                    self._making.pop(old, None)
        for old in forgotten:
            self.session.catalog.dropTempView(old)
        return name


def _literal(path: str) -> str:
    r"""Write a path that is no pattern: a folder may be called `a[1]` or `{x}`.

    With Spark's own setting against patterns, several files of such a folder are read several times each.

    >>> _literal("/a[1]/b.parquet")
    '/a\\[1\\]/b.parquet'
    """
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quote(c.name)} {c.type}" for c in columns)


def cast_table(table: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Bring an Arrow table to just these columns, in order, with exactly these types."""
    names = {name.lower(): name for name in table.column_names}
    arrays = [table.column(names[c.name.lower()]).cast(types.to_arrow(c.type)) for c in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in columns]))


def spark_schema(schema: pa.Schema) -> StructType:
    """Give the Spark schema of an Arrow one, with Parquet field ids carried over at every level."""
    return StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> StructField:
    id_ = (field.metadata or {}).get(b"PARQUET:field_id")
    metadata = {"parquet.field.id": int(id_)} if id_ else None
    return StructField(field.name, _spark_type(field.type), nullable=True, metadata=metadata)


def _spark_type(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return StructType([_spark_field(field) for field in type_])
    return _parse_datatype_string(str(types.from_arrow(type_)))
