"""What the processes that are killed do, over and over; what they saw goes line by line into a journal."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, NoReturn

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from runnel.project import Project

KEEP, GRACE = 20, 3.0
EXTRA = (
    "SELECT worker, v, count(*) AS n FROM t GROUP BY worker, v",
    "SELECT worker, max(id) AS newest, count(DISTINCT v) AS kinds FROM t GROUP BY worker",
)


class Journal:
    """Lines that survive the death of their writer: B begun, A acknowledged, F failed, U not known; E and X are errors."""

    def __init__(self, path: Path) -> None:
        """Open it for appending."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, *words: object) -> None:
        """Write one line at once."""
        os.write(self._file, (" ".join(map(str, words)).replace("\n", " ") + "\n").encode())


_interrupted: list[bool] = []


def _on_interrupt(_: int, __: FrameType | None) -> None:
    _interrupted.append(True)
    raise KeyboardInterrupt


def start(role: str, number: int, folder: Path, ready: int, seed: int) -> int:
    """Fork a process in a role; a byte on `ready` says when it has begun, and each further one that a piece of work is done."""
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGINT, _on_interrupt)
    random.seed(seed)
    journal = Journal(folder / "journal" / f"{role}-{number}")
    try:
        _run(role, number, folder, journal, ready)
    except KeyboardInterrupt:
        pass
    except RunnelError as error:
        journal.note("E", error.code, error)
    except BaseException:
        journal.note("I" if _interrupted else "X", traceback.format_exc()[-1500:])
    os._exit(0)


def _run(role: str, number: int, folder: Path, journal: Journal, ready: int) -> NoReturn:
    sys.stderr = sys.stdout = (folder / "journal" / "said").open("a")
    project = runnel.open(folder, engine=DuckDbEngine(threads=1), sync=False, create=False)
    project.runtime.keep, project.runtime.grace = KEEP, GRACE
    os.write(ready, b"r")
    act: dict[str, Callable[[], object]] = {
        "runner": project.run,
        "keeper": lambda: keep(project),
        "deliverer": project.deliver,
    }
    ids = itertools.count(number)
    while True:
        try:
            if role == "writer":
                write(project, journal, next(ids))
            else:
                once(journal, act[role])
            os.write(ready, b".")
        except KeyboardInterrupt:
            if random.random() < 0.5:
                project.close()
                os._exit(0)


def once(journal: Journal, act: Callable[[], object]) -> None:
    """Do a piece of work; what fails is noted and tried again."""
    try:
        act()
    except RunnelError as error:
        journal.note("E", error.code, error)
        time.sleep(0.05)


def keep(project: Project) -> None:
    """Compact, expire, and replace a view by another one."""
    project.compact()
    project.create_view("extra", random.choice(EXTRA), replace=True)


def write(project: Project, journal: Journal, id_: int) -> None:
    """Insert a row into two tables in one transaction."""
    row = {"id": id_, "worker": id_ % 5, "v": id_ % 7}
    journal.note("B", id_)
    try:
        with project.transaction() as tx:
            tx.insert("t", [row])
            tx.insert("l", [row])
    except RunnelError as error:
        journal.note("U" if error.code == "RUNNEL-COMMIT-UNKNOWN" else "F", id_, error.code, error)
        time.sleep(0.02)
    else:
        journal.note("A", id_)
