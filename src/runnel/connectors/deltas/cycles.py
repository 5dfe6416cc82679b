"""Runs cycles, and keeps where each technique has got to and what its last cycle found.

A cycle's deltas and its end are kept by one rename of `state.json`: a cycle that dies before it has never been, one that dies
after it is told again by the next run. So whoever throws away the output of a run that failed sees each delta once.

1. what the last cycle left undone is done: tidying up in the store, and telling its deltas if that was cut off;
2. the window up to now is read, its deltas are written down;
3. the state says so: this is the commit;
4. the store is tidied up; 5. the deltas are told.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connectors.deltas.forms import from_json, to_json
from runnel.connectors.deltas.technique import Cycle, Position
from runnel.errors import Transient
from runnel.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Technique

DELTAS = "deltas.jsonl"
STATE = "state.json"


@dataclass(frozen=True)
class State:
    """Which cycle was the last, from where to where it went, and what is still to be done for it."""

    number: int
    after: Position | None
    upto: Position
    settled: bool = False
    told: bool = False


class Cycles:
    """The cycles of one technique of one source, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        """Use this folder; it is made with the first cycle."""
        self.folder = folder

    def state(self) -> State | None:
        """Give the last cycle, or None before the first."""
        path = self.folder / STATE
        return State(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def begin_at(self, position: Position) -> None:
        """Let the first cycle begin here, unless there was one."""
        with self.alone():
            if self.state() is None:
                self._folder(0).mkdir(parents=True, exist_ok=True)
                (self._folder(0) / DELTAS).touch()
                self._save(State(0, None, position, settled=True, told=True))

    def forget(self) -> None:
        """Forget every cycle."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, technique: Technique, *, tell_first: bool = True) -> Iterator[Delta]:
        """Run a cycle and give its deltas; a first one tells everything there is, unless `tell_first` is false."""
        with self.alone():
            state = self.state()
            if state is not None:
                yield from self._complete(technique, state)
                state = replace(state, settled=True, told=True)
            done = self._read(technique, state, silent=state is None and not tell_first)
            yield from self._complete(technique, done)

    def _complete(self, technique: Technique, state: State) -> Iterator[Delta]:
        kept = self._folder(state.number)
        if not state.settled:
            technique.settle(Cycle(state.after, state.upto, kept))
            reach("capture:settled")
            state = replace(state, settled=True)
            self._save(state)
        if not state.told:
            with (kept / DELTAS).open(encoding="utf-8") as lines:
                yield from (from_json(line) for line in lines)
            self._save(replace(state, told=True))

    def _read(self, technique: Technique, state: State | None, *, silent: bool) -> State:
        number = 1 if state is None else state.number + 1
        kept, before = self._folder(number), None if state is None else self._folder(state.number)
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        cycle = Cycle(None if state is None else state.upto, technique.now(), kept, before)
        with (kept / DELTAS).open("w", encoding="utf-8") as out:
            for count, delta in enumerate(technique.read(cycle)):
                if not silent:
                    out.write(to_json(delta) + "\n")
                if count == 0:
                    reach("capture:reading")
            out.flush()
            os.fsync(out.fileno())
        reach("capture:read")
        done = State(number, cycle.after, cycle.upto)
        self._save(done)
        reach("capture:committed")
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)
        return done

    def _folder(self, number: int) -> Path:
        return self.folder / f"cycle-{number}"

    def _save(self, state: State) -> None:
        path = self.folder / f"{STATE}.new"
        with path.open("w", encoding="utf-8") as out:
            json.dump(asdict(state), out)
            out.flush()
            os.fsync(out.fileno())
        path.replace(self.folder / STATE)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second run of the same capture out."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Transient(
                    "RUNNEL-CAPTURE-BUSY", "this capture is running already", hint="wait until it has ended"
                ) from error
            yield


def read_once(technique: Technique, after: Position) -> Iterator[Delta]:
    """Give the deltas since a position and remember nothing: neither here nor in the store."""
    with tempfile.TemporaryDirectory(prefix="runnel-capture-") as folder:
        yield from technique.read(Cycle(after, technique.now(), Path(folder)))
