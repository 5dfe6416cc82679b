"""An engine that looks everything up: no relation is small enough to be read whole. What cannot be looked up is run as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.engine.driver import Driver
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from runnel.engine.base import Input
    from runnel.model.relation import Column


class LookingEngine(DuckDbEngine):
    """Runs steps as the driver of a Spark project does, with DuckDB in Spark's place."""

    def __init__(self) -> None:
        super().__init__(threads=2)
        self.driver = Driver(whole=0, threads=2)
        self.counted = self.driver.counted
        self.looked_up = 0

    def change(
        self, sql: str, inputs: Mapping[str, Input], columns: Sequence[Column], *, closed: bool = False
    ) -> pa.Table:
        small = self.driver.small(sql, inputs, closed=closed)
        if small is None:
            return self.rows(sql, inputs, columns)
        self.looked_up += 1
        found = self.driver.rows(small, columns)
        return found if found is not None else self.rows(small.sql, small.inputs, columns)
