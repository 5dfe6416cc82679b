"""What an engine is: something that runs Spark-dialect SQL over named inputs. It returns rows or files and publishes nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from runnel.engine.functions import UserFunction
    from runnel.errors import RunnelError
    from runnel.lake.entries import DataFile, NewFile
    from runnel.model.relation import Column, Relation


@dataclass(frozen=True)
class Files:
    """Parquet files with these columns (`_weight` included where they hold signed rows); no files: no rows.

    Where they are files of a relation, `relation` and `parts` say so: rows can then be looked up in them by key. A `change`
    is read whole by whoever reads it.
    """

    paths: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: int = 0
    bytes: int = 0
    relation: Relation | None = field(default=None, repr=False)
    parts: tuple[DataFile | NewFile, ...] = field(default=(), repr=False)
    change: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows in the driver's memory; small by contract."""

    table: pa.Table
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Derived:
    """An input defined by SQL over other inputs of the same run."""

    sql: str
    reads: tuple[str, ...]


Input = Files | Rows | Derived

RESULT_ROWS = 4_000_000
RESULT_BYTES = 256 << 20
"""A result beyond either is not brought to the driver: to sort and write it there takes about three times its size."""


class TooLarge(Exception):
    """A result is larger than belongs into the driver's memory: it is to be written where it is computed."""


@dataclass(frozen=True)
class Bound:
    """How much of a result may come to the driver."""

    rows: int = RESULT_ROWS
    bytes: int = RESULT_BYTES

    def check(self, rows: int, bytes: int) -> None:
        """Raise `TooLarge` where a result is beyond it."""
        if rows > self.rows or bytes > self.bytes:
            raise TooLarge


@dataclass(frozen=True)
class Written:
    """Files that an engine wrote, and how many rows it gave its writer: the files have to hold as many."""

    paths: tuple[str, ...]
    rows: int


@dataclass
class Counted:
    """What an engine did since it was made: bytes of state it had to read, queries run in the driver, jobs started."""

    bytes_read: int = 0
    in_driver: int = 0
    jobs: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, bytes_read: int = 0, in_driver: int = 0, jobs: int = 0) -> None:
        """Count something."""
        with self._lock:
            self.bytes_read += bytes_read
            self.in_driver += in_driver
            self.jobs += jobs

    def to_dict(self) -> dict[str, int]:
        """Give the counts, for an epoch's record."""
        with self._lock:
            return {"bytes_read": self.bytes_read, "in_driver": self.in_driver, "jobs": self.jobs}


class Engine(Protocol):
    """Runs programs. `inputs` maps each backquoted name of the SQL (without its backquotes) to where its rows are."""

    name: str
    functions: dict[str, UserFunction]
    counted: Counted
    meaning: dict[str, str]
    """The settings that decide what queries mean, as far as they are not the usual ones."""
    light: int
    """Rows of change up to which a step mostly needs no job; 0 where every query costs alike."""

    def lost(self) -> RunnelError | None:
        """Give the error of an engine whose process has ended, until it works again; getting it back is begun by this call."""

    def warm(self) -> None:
        """Get ready beside other work, so that the first query that needs it need not wait as long."""
        ...

    def register(self, function: UserFunction) -> None:
        """Let SQL call a user's function; one of the same name gives way to it."""
        ...

    def analyse(self, sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
        """Give the columns of a query's result without running it; raise `Terminal` if the query is wrong."""
        ...

    def rows(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column] | None = None) -> pa.Table:
        """Run a query whose result is small and bring it to the driver, cast to `columns` where given."""
        ...

    def change(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column]) -> pa.Table:
        """Run a step of a delta program, wherever that is cheapest, and bring its result to the driver.

        Raises `TooLarge` where the result does not belong there, however small the change: `write` it then.
        """
        ...

    def in_driver(self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column]) -> pa.Table | None:
        """Run a step of a delta program in the driver, if that is the place for it and for its result; else None."""
        ...

    def write(
        self, sql: str, inputs: Mapping[str, Input], schema: pa.Schema, folder: str, order: Sequence[str] = ()
    ) -> Written:
        """Run a query and write its result as Parquet files below `folder`, clustered by `order`."""
        ...

    def close(self) -> None:
        """Let go of what this engine started."""
        ...
