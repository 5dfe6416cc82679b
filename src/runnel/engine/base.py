"""What an engine is: something that runs Spark-dialect SQL over named inputs. It returns rows or files and publishes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from runnel.engine.counts import Counted
    from runnel.engine.functions import UserFunction
    from runnel.engine.keyed import Keyed
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
Task = Callable[[], Iterator["pa.RecordBatch"]]
"""Something that can be pickled, and gives rows wherever it is called."""

RESULT_ROWS = 4_000_000
RESULT_BYTES = 256 << 20
"""A result beyond either is not brought to the driver: to sort and write it there takes about three times its size."""


class TooLarge(Exception):
    """A result is larger than belongs into the driver's memory: it is to be written where it is computed."""


class TooSlow(Exception):
    """A query was stopped because it took longer than its caller allowed."""


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

    def change(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table:
        """Run a step of a delta program, wherever that is cheapest, and bring its result to the driver.

        `closed` says that it is a user's own text which leaves nothing open: otherwise such texts are Spark's alone.
        Raises `TooLarge` where the result does not belong there, however small the change: `write` it then.
        """
        ...

    def limited(self, seconds: float) -> AbstractContextManager[None]:
        """Stop this thread's queries after so many seconds; the block then ends with `TooSlow`."""
        ...

    def in_driver(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table | None:
        """Run a query in the driver, if that is the place for it and for its result; else None. `closed` as in `change`."""
        ...

    def write(
        self, sql: str, inputs: Mapping[str, Input], schema: pa.Schema, folder: str, order: Sequence[str] = ()
    ) -> Written:
        """Run a query and write its result as Parquet files below `folder`, clustered by `order`."""
        ...

    def reads(self, rows: int) -> bool:
        """Say whether a range of about so many changes is read by tasks of this engine, not by the driver."""
        ...

    def read(self, tasks: Sequence[Task], columns: Sequence[Column], folder: str) -> Written:
        """Run each task somewhere and write the rows that they give, which have these columns, as Parquet files below `folder`."""
        ...

    def keyed(self, work: Keyed, stored: str, changed: str, inputs: Mapping[str, Input]) -> dict[str, Written]:
        """Call a function over whole keys, in as many places as the keys are cut into; give the files of each of its outputs.

        `stored` and `changed` are queries for the two sides. The files are of the outputs' relations, each sorted as the function gave it.
        """
        ...

    def close(self) -> None:
        """Let go of what this engine started."""
        ...
