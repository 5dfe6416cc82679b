"""Runs Python functions as Spark tasks; an error that one of them raises comes back as the error it was, with code, place and hint."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from runnel.errors import Place, RunnelError, Terminal, Transient, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from runnel.engine.base import Task

_KINDS: dict[str, type[RunnelError]] = {kind.__name__: kind for kind in (Terminal, Transient, Unreachable, UsageError)}
_MARK = re.compile(r"runnel-task-error:([A-Za-z0-9+/=]+)")


class TaskFailed(Exception):
    """What a task raises in place of one of our errors: its text survives the way through Java."""


def batches(tasks: Sequence[Task]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Give the function that Spark runs over the numbers of tasks."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some.column(0).to_pylist():
                try:
                    yield from tasks[number]()
                except RunnelError as error:
                    raise TaskFailed(packed(error)) from error

    return run


def packed(error: RunnelError) -> str:
    """Write an error so that it can be found in any text around it.

    >>> str(unpacked("Job aborted: " + packed(Terminal("RUNNEL-X", "wrong", place=Place("a.csv", 3), hint="mend it")) + " at ..."))
    'RUNNEL-X: wrong (a.csv:3); mend it'
    """
    place = error.place
    said = {
        "kind": next((name for name, kind in _KINDS.items() if type(error) is kind), "Terminal"),
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "place": [place.file, place.line] if place is not None else None,
    }
    return "runnel-task-error:" + base64.b64encode(json.dumps(said).encode()).decode()


def unpacked(text: str) -> RunnelError | None:
    """Find the error of a task in what Spark says about it."""
    found = _MARK.search(text)
    if found is None:
        return None
    said = json.loads(base64.b64decode(found[1]))
    place = Place(*said["place"]) if said["place"] else None
    return _KINDS[said["kind"]](said["code"], said["message"], place=place, hint=said["hint"])
