"""The boundary between runnel and a store: whatever a source raises leaves here as one of runnel's errors.

A source is opened when it is first asked, and again after an opening that failed, so that a store that is away when a run
starts is followed as soon as it is back.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from runnel.errors import Place, RunnelError, Terminal, Transient, Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from runnel.connectors.base import (
        ChangeSet,
        Offset,
        Partition,
        Reread,
        RereadableSource,
        Source,
        TableInfo,
    )
    from runnel.connectors.cells import CellSource

SHOWN = 200
log = logging.getLogger("runnel")


@contextmanager
def translate_errors(label: str) -> Iterator[None]:
    """Turn whatever the block raises into one of runnel's errors that names `label`.

    >>> with translate_errors("sources.feed"):
    ...     open("/nowhere/at/all")
    Traceback (most recent call last):
    runnel.errors.Unreachable: RUNNEL-SOURCE-UNREADABLE: sources.feed: No such file or directory (/nowhere/at/all); it is tried again; see that it exists and may be read
    """
    try:
        yield
    except RunnelError:
        raise
    except Exception as error:
        raise translated(label, error) from error


def translated(label: str, error: Exception) -> RunnelError:
    """Give runnel's error for an exception of a store, a driver or a library: what may pass by itself is `Transient`."""
    if isinstance(error, RunnelError):
        return error
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:SHOWN]
    if isinstance(error, RecursionError):
        return Terminal("RUNNEL-SOURCE-VALUE", f"{label}: a value is nested too deeply", hint="correct the value")
    if isinstance(error, MemoryError):
        return Transient(
            "RUNNEL-SOURCE-MEMORY",
            f"{label}: there is not enough memory to read what is waiting",
            hint="lower [run] max_rows, or give the process more memory",
        )
    # Arrow's errors of the file system are OSErrors too.
    if isinstance(error, OSError):
        place = Place(str(error.filename)) if error.filename is not None else None
        return Unreachable(
            "RUNNEL-SOURCE-UNREADABLE",
            f"{label}: {error.strerror or said}",
            place=place,
            hint="it is tried again; see that it exists and may be read",
        )
    if isinstance(error, pa.ArrowException | UnicodeError):
        return Terminal(
            "RUNNEL-SOURCE-VALUE", f"{label}: what is stored there cannot be read: {said}", hint="correct the value"
        )
    log.debug("%s", label, exc_info=error)
    return Terminal(
        "RUNNEL-SOURCE-FAULT",
        f"{label}: unexpected {type(error).__name__}: {said}",
        hint="it is tried again; run with --debug for the traceback, and report it",
    )


def rereadable(label: str, source: Source) -> RereadableSource:
    """Give a source as one whose tables can be read again at any time; raise for one that has no such store."""
    if hasattr(source, "reread"):
        return cast("RereadableSource", source)
    raise cannot_reread(label)


def cannot_reread(label: str) -> UsageError:
    """Make the error for a source that has no store to be read from at any time."""
    return UsageError(
        "RUNNEL-REBUILD-SOURCE",
        f"{label}: tables of this source cannot be read again",
        hint="those of a running mariadb, mysql or postgres server can",
    )


class GuardedSource:
    """A source that raises nothing but runnel's errors, each with the source's name."""

    def __init__(self, label: str, opening: Callable[[], Source]) -> None:
        """Keep how it is opened; nothing is opened yet."""
        self.label = label
        self._opening = opening
        self._source: Source | None = None

    def open(self) -> Source:
        """Give the source itself, opened now if it is not open."""
        with translate_errors(self.label):
            if self._source is None:
                self._source = self._opening()
            return self._source

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables that can be read now."""
        with translate_errors(self.label):
            return self.open().tables()

    def problems(self) -> tuple[RunnelError, ...]:
        """Give what is wrong with some of the tables."""
        with translate_errors(self.label):
            return self.open().problems()

    def advice(self) -> tuple[str, ...]:
        """Give what is worth knowing about the store."""
        with translate_errors(self.label):
            return self.open().advice()

    def initial_offset(self) -> Offset:
        """Give the position before the first change."""
        with translate_errors(self.label):
            return self.open().initial_offset()

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the end of the next range after `start`."""
        with translate_errors(self.label):
            return self.open().latest_offset(start, max_rows, single=single)

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes in (start, end]."""
        with translate_errors(self.label):
            yield from self.open().read(start, end)

    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition] | None:
        """Cut (start, end] into stretches that can be read anywhere."""
        with translate_errors(self.label):
            return self.open().partitions(start, end)

    def cells(self) -> CellSource | None:
        """Give how cells become rows, where changes are cells."""
        return self.open().cells()

    def commit(self, end: Offset) -> None:
        """Let the store forget its log up to `end`."""
        with translate_errors(self.label):
            self.open().commit(end)

    def can_reread(self) -> RereadableSource:
        """Give the source where its tables can be read again at any time; else refuse."""
        return rereadable(self.label, self.open())

    def reread(self, start: Offset, tables: frozenset[str] | None = None) -> Reread:
        """Begin to read tables again."""
        with translate_errors(self.label):
            return self.can_reread().reread(start, tables)

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether a position is at or after another one."""
        with translate_errors(self.label):
            return self.open().covers(have, wanted)

    def end_offset(self) -> Offset:
        """Give a position after everything that was written so far."""
        with translate_errors(self.label):
            return self.open().end_offset()

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say what waits after `start`."""
        with translate_errors(self.label):
            return self.open().lag(start)

    def close(self) -> None:
        """Let go of connections and files; a store that is away cannot prevent it."""
        source, self._source = self._source, None
        if source is None:
            return
        try:
            with translate_errors(self.label):
                source.close()
        except RunnelError as error:
            log.debug("%s could not be closed: %s", self.label, error)
