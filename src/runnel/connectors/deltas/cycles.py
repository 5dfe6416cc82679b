"""Runs cycles, and keeps where each technique has got to and what its last cycle found.

A cycle's deltas, what it leaves for the next one and its end are kept by one commit: a cycle that dies before it has never been, one that
dies after it is told again by the next run, wherever that is. So whoever throws away the output of a run that failed sees each delta once.

1. what the last cycle left undone is done: tidying up in the store, and telling its deltas if that was cut off;
2. the window up to now is read, its deltas are written down;
3. the state says so: this is the commit;
4. the store is tidied up; 5. the deltas are told.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from runnel.connectors.deltas.forms import from_json, to_json
from runnel.connectors.deltas.kept import Lines, lines_left
from runnel.connectors.deltas.technique import Cycle, Position
from runnel.connectors.skips import SourceState
from runnel.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from runnel.connectors.deltas.kept import Kept
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Technique

DELTAS = "deltas"


@dataclass(frozen=True)
class State:
    """Which cycle was the last, and from where to where it went."""

    id: str
    after: Position | None
    upto: Position


class CycleStore(Protocol):
    """Where the cycles of one technique of one source are kept."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep a second run of the same capture out, wherever it is; raise `RUNNEL-CAPTURE-BUSY` where there is one."""
        ...

    def state(self) -> State | None:
        """Give the last cycle, or None before the first."""
        ...

    def kept(self, *, once: bool = False) -> AbstractContextManager[Kept]:
        """Give what the last cycle left, and where a cycle leaves things; what is not committed is forgotten at the end.

        For a window that is read `once` there is no last cycle, and no next one.
        """
        ...

    def commit(self, kept: Kept, before: State | None, done: State) -> None:
        """Make a cycle the last one, with all that it left, if the one before still is `before`."""
        ...

    def is_told(self, state: State) -> bool:
        """Say whether nothing is left to be done for a cycle."""
        ...

    def told(self, state: State) -> None:
        """Note that a cycle's store is tidied up and its deltas are told."""
        ...

    def forget(self) -> None:
        """Forget every cycle."""
        ...


class CaptureState(SourceState, Protocol):
    """The state as captures of one source see it."""

    def cycles(self, technique: str) -> CycleStore:
        """Give where the cycles of a technique are kept."""
        ...


class Cycles:
    """The cycles of one technique of one source."""

    def __init__(self, store: CycleStore) -> None:
        """Keep them there."""
        self._store = store

    def state(self) -> State | None:
        """Give the last cycle, or None before the first."""
        return self._store.state()

    def begin_at(self, position: Position) -> None:
        """Let the first cycle begin here, unless there was one."""
        with self._store.alone():
            if self._store.state() is None:
                done = _ended(None, position)
                with self._store.kept() as kept:
                    self._store.commit(kept, None, done)
                self._store.told(done)

    def forget(self) -> None:
        """Forget every cycle."""
        with self._store.alone():
            self._store.forget()

    def run(self, technique: Technique, *, tell_first: bool = True) -> Iterator[Delta]:
        """Run a cycle and give its deltas; a first one tells everything there is, unless `tell_first` is false."""
        with self._store.alone():
            state = self._store.state()
            if state is not None:
                yield from self._complete(technique, state)
            done = self._read(technique, state, silent=state is None and not tell_first)
            yield from self._complete(technique, done)

    def _complete(self, technique: Technique, state: State) -> Iterator[Delta]:
        if self._store.is_told(state):
            return
        with self._store.kept() as kept:
            technique.settle(Cycle(state.after, state.upto, kept))
            reach("capture:settled")
            yield from map(from_json, lines_left(kept, DELTAS))
        self._store.told(state)

    def _read(self, technique: Technique, state: State | None, *, silent: bool) -> State:
        with self._store.kept() as kept:
            cycle = Cycle(None if state is None else state.upto, technique.now(), kept)
            lines = Lines(kept, DELTAS)
            for count, delta in enumerate(technique.read(cycle)):
                if not silent:
                    lines.write(to_json(delta))
                if count == 0:
                    reach("capture:reading")
            lines.close()
            reach("capture:read")
            done = _ended(cycle.after, cycle.upto)
            self._store.commit(kept, state, done)
            reach("capture:committed")
        return done

    def read_once(self, technique: Technique, after: Position) -> Iterator[Delta]:
        """Give the deltas since a position and remember nothing: neither here nor in the store."""
        with self._store.kept(once=True) as kept:
            yield from technique.read(Cycle(after, technique.now(), kept, once=True))


def _ended(after: Position | None, upto: Position) -> State:
    return State(uuid.uuid4().hex, after, upto)
