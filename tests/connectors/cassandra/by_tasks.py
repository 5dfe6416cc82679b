"""An engine that does everything by tasks, each taken apart and put together again as on its way to another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyspark import cloudpickle

from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runnel.engine.base import Input, Task, Written
    from runnel.engine.keyed import Keyed
    from runnel.model.relation import Column

T = TypeVar("T")


def sent(work: T) -> T:
    """Give what arrives of something that is sent to an executor."""
    arrived: T = cloudpickle.loads(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    return arrived


class ByTasks(DuckDbEngine):
    """The second engine, which reads and reconciles every range by tasks."""

    def reads(self, rows: int) -> bool:
        return rows > 0

    def read(self, tasks: Sequence[Task], columns: Sequence[Column], folder: str) -> Written:
        return super().read([sent(task) for task in tasks], columns, folder)

    def keyed(self, work: Keyed, stored: str, changed: str, inputs: Mapping[str, Input]) -> dict[str, Written]:
        return super().keyed(sent(work), stored, changed, inputs)
