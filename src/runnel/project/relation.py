"""What `project.view(name)` and `project.table(name)` give: rows now or then, as Arrow, pandas or a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel import query
from runnel.engine import contents
from runnel.errors import UsageError
from runnel.model import types
from runnel.project.freshness import check_fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.engine.base import Engine, Input
    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Column, ForeignKey, Relation


class Result:
    """Rows of a query: computed when asked for, in the form asked for."""

    def __init__(
        self,
        engine: Engine,
        make: Callable[[], tuple[str, dict[str, Input], tuple[Column, ...] | None]],
        *,
        closed: bool = False,
    ) -> None:
        """Keep how to compute the rows. `closed` says that the text leaves nothing open, so a small one needs no Spark job."""
        self._engine, self._make, self._closed = engine, make, closed

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        sql, inputs, columns = self._make()
        if self._closed and columns is not None:
            found = self._engine.in_driver(sql, inputs, columns, closed=True)
            if found is not None:
                return found
        return self._engine.rows(sql, inputs, columns)

    def to_pandas(self) -> Any:
        """Give the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Give the rows as a list of dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def df(self) -> Any:
        """Give the rows as a Spark DataFrame."""
        sql, inputs, _ = self._make()
        frame = getattr(self._engine, "frame", None)
        if frame is None:
            raise UsageError("RUNNEL-ENGINE-NOT-SPARK", "this project does not run on Spark", hint="use to_arrow()")
        return frame(sql, inputs)


class RelationHandle:
    """A table or a view of an open project."""

    def __init__(self, lake: Lake, engine: Engine, name: str) -> None:
        """Look the name up at once, so that a wrong one fails here."""
        self._lake, self._engine = lake, engine
        self.name = query.find(lake.snapshot(), name).name

    @property
    def relation(self) -> Relation:
        """The relation as it is defined now."""
        return self._lake.snapshot().relations[self.name]

    @property
    def frontier(self) -> int:
        """The epoch that the rows are of: of a view how far it has come, of a table the newest."""
        snapshot = self._lake.snapshot()
        view = snapshot.views.get(self.name)
        return snapshot.epoch if view is None else view.frontier

    @property
    def error(self) -> str | None:
        """Why a view could not be brought up to date, if it could not."""
        view = self._lake.snapshot().views.get(self.name)
        return None if view is None else view.error

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return pa.schema([pa.field(c.name, types.to_arrow(c.type)) for c in self.relation.rows])

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that are unique in the rows; empty where none are known."""
        return self.relation.unique

    @property
    def references(self) -> tuple[ForeignKey, ...]:
        """The foreign keys of a table."""
        return self.relation.references

    def result(self, at: int | None = None, *, strict: bool = False) -> Result:
        """Give the rows at an epoch, not yet computed.

        Of a view that failed they are those of its `frontier`, with a warning; `strict` raises for any view that is behind.
        """

        def make() -> tuple[str, dict[str, Input], tuple[Column, ...]]:
            snapshot: Snapshot = self._lake.snapshot(at)
            relation = query.find(snapshot, self.name)
            check_fresh(snapshot, [relation.name], strict=strict)
            return (*contents.rows_query(self._engine, snapshot, relation), relation.rows)

        return Result(self._engine, make, closed=True)

    def to_arrow(self, at: int | None = None, *, strict: bool = False) -> pa.Table:
        """Give the rows as an Arrow table."""
        return self.result(at, strict=strict).to_arrow()

    def to_pandas(self, at: int | None = None, *, strict: bool = False) -> Any:
        """Give the rows as a pandas DataFrame."""
        return self.result(at, strict=strict).to_pandas()

    def to_pylist(self, at: int | None = None, *, strict: bool = False) -> list[dict[str, Any]]:
        """Give the rows as a list of dicts."""
        return self.result(at, strict=strict).to_pylist()

    def df(self, at: int | None = None, *, strict: bool = False) -> Any:
        """Give the rows as a Spark DataFrame."""
        return self.result(at, strict=strict).df()
