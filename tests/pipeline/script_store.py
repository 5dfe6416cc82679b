"""A store whose changes by key are a file of steps: each has change sets of the table `t`, which partitions or the driver read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.connectors.base import OP, ChangeSet, Partition, TableInfo
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from runnel import config
    from runnel.connectors.base import Offset

COLUMNS = {"a": "bigint", "b": "string", "x": "double", "y": "decimal(9,2)", "s": "string", "f": "boolean"}
KEY = ("a", "b")


def open_source(section: config.Source, folder: Path) -> ScriptSource:
    """Open the file `script.json` of a folder; `map` gives the table a column that cannot be compared."""
    further = {"m": "map<string,int>"} if section.settings.get("map") else {}
    return ScriptSource(folder / "script.json", COLUMNS | further)


@dataclass(frozen=True)
class Step:
    """One change set of the script."""

    given: dict[str, Any]
    columns: dict[str, str]

    def __call__(self) -> Iterator[ChangeSet]:
        keyed = self._table(self.given["rows"]).append_column(OP, pa.array(self.given["ops"], pa.string()))
        was = self._table(self.given["was"]) if self.given.get("was") else None
        yield ChangeSet("t", keyed=keyed, was=was)

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        kinds = {name: types.to_arrow(types.parse(self.columns[name])) for name in rows[0]}
        texts = {name: [row[name] for row in rows] for name in rows[0]}
        return pa.table(
            {
                name: pa.array(values, pa.string()).cast(kinds[name]) if name == "y" else pa.array(values, kinds[name])
                for name, values in texts.items()
            }
        )


class ScriptSource:
    """Reads the steps of a script; a position is a number of steps."""

    def __init__(self, path: Path, columns: dict[str, str]) -> None:
        self.path, self.columns = path, columns

    def _steps(self) -> list[list[dict[str, Any]]]:
        steps: list[list[dict[str, Any]]] = json.loads(self.path.read_text())
        return steps

    def tables(self) -> tuple[TableInfo, ...]:
        columns = tuple(Column(name, types.parse(kind)) for name, kind in self.columns.items())
        return (TableInfo("t", columns, KEY),)

    def problems(self) -> tuple[Any, ...]:
        return ()

    def advice(self) -> tuple[str, ...]:
        return ()

    def initial_offset(self) -> Offset:
        return {"steps": 0}

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        return {"steps": len(self._steps())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition]:
        steps = self._steps()[start["steps"] : end["steps"]]
        return [Partition("t", 1, Step(given, self.columns)) for step in steps for given in step]

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        for part in self.partitions(start, end):
            yield from part.read()

    def cells(self) -> None:
        return None

    def commit(self, end: Offset) -> None:
        pass

    def covers(self, have: Offset, wanted: Offset) -> bool:
        return bool(have["steps"] >= wanted["steps"])

    def end_offset(self) -> Offset:
        return {"steps": len(self._steps())}

    def lag(self, start: Offset) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass
