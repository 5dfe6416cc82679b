"""The log from the server: runnel asks as a subscriber does and gets transactions as they are committed.

A place of the log is a number of bytes. The server sends as fast as it is read: what waits is in the socket, not in memory. It keeps its
log from the slot on, which moves only by `confirm`.
"""

from __future__ import annotations

import select
import struct
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq

from runnel.connectors.postgres.client import told
from runnel.connectors.postgres.log.problems import lsn_text
from runnel.connectors.postgres.log.transactions import Assembler
from runnel.connectors.postgres.server import open_session, quoted, text
from runnel.errors import RunnelError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.connectors.postgres.log.transactions import Transaction
    from runnel.connectors.postgres.settings import SourceSettings

_DATA, _KEEP_ALIVE, _BEGIN = ord("w"), ord("k"), ord("B")
_HEADER = 25
_SILENT_SECONDS = 60.0
"""How long a server may say nothing at all: by default it says something every 30 seconds, also while it reads a large transaction."""
_SETTLED_SECONDS = 0.5
"""How long the server must stay at one place, asked again and again, until that place counts as the end of what it can send."""
_PAUSE_SECONDS = 0.02
_CLOSING_SECONDS = 2.0


class LogStream:
    """Transactions from a position on, as the server sends them."""

    def __init__(
        self,
        settings: SourceSettings,
        start: int,
        wanted: Callable[[str, str], bool],
        session: tuple[str, psycopg.Connection[tuple[Any, ...]]] | None = None,
    ) -> None:
        """Ask for the log from a position on; `at` is where the reader of this stream is.

        `session` is another slot than that of the settings, with the connection that has it.
        """
        self.settings, self.at = settings, start
        self.assembler = Assembler(wanted)
        self._received = start
        self._unread: deque[Transaction] = deque()
        self._slot, self._connection = session or (settings.slot, open_session(settings, replication=True))
        self._wire = self._connection.pgconn
        try:
            self._ask(start)
        except BaseException:
            self._connection.close()
            raise

    def _ask(self, start: int) -> None:
        published = text(quoted(self.settings.publication))
        command = (
            f"START_REPLICATION SLOT {quoted(self._slot)} LOGICAL {lsn_text(start)}"
            f" (proto_version '1', publication_names {published})"
        )
        with told(self.settings):
            result = self._wire.exec_(command.encode())
            if result.status != pq.ExecStatus.COPY_BOTH:
                raise psycopg.errors.error_from_result(result)

    def transactions(self, target: int) -> Iterator[Transaction]:
        """Give what was committed before a place that the log has reached already; `at` is that place afterwards."""
        while self.at < target:
            if self._unread and self._unread[0].commit >= target:
                self.at = target
                return
            with told(self.settings):
                found = self._unread.popleft() if self._unread else self._next(target)
            if found is None:
                return
            self.at = found.end
            yield found

    def put_back(self, transaction: Transaction, at: int) -> None:
        """Give the last transaction again the next time, from the place before it."""
        self._unread.appendleft(transaction)
        self.at = at

    def _next(self, target: int) -> Transaction | None:
        """Give the next transaction; None once the server has sent everything that was committed before `target`."""
        if self._begins_after(target):
            return None
        silence = _Silence()
        while True:
            data = self._received_now()
            if data is None:
                self._wait_for_more(silence)
            elif data[0] == _DATA:
                if silence.asked:
                    silence = _Silence()
                found = self._taken(data)
                if found is not None:
                    return found
                if data[_HEADER] == _BEGIN and self._begins_after(target):
                    return None
            elif self._received >= target or silence.heard_at(self._received) > _SETTLED_SECONDS:
                # What comes after that place is the beginning of a record whose rest is not on disk: no commit.
                self.at = max(self.at, min(self._received, target))
                return None

    def _begins_after(self, target: int) -> bool:
        """Say whether the transaction that has begun is committed after a place: then all before it was sent."""
        begun = self.assembler.begun
        if begun is None or begun < target:
            return False
        self.at = target
        return True

    def _taken(self, data: bytes) -> Transaction | None:
        return self.assembler.add(int.from_bytes(data[1:9], "big"), data[_HEADER:])

    def _wait_for_more(self, silence: _Silence) -> None:
        """Wait a little for data; ask the server for a sign of life, and raise where it has given none for long."""
        if not silence.asked:
            if silence.heard and self._wait(_PAUSE_SECONDS):
                return
            self._report(reply=True)
            silence.asked = True
        if not self._wait(_PAUSE_SECONDS) and time.monotonic() - silence.since > _SILENT_SECONDS:
            raise Unreachable(
                "RUNNEL-POSTGRES-DOWN",
                f"{self.settings.label}: the server sends nothing of its log after {lsn_text(self._received)}",
                hint="it is tried again",
            )

    def _wait(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._wire.socket], [], [], seconds)
        self._wire.consume_input()
        return bool(ready)

    def _received_now(self) -> bytes | None:
        """Give the next message that is here already; requests for a sign of life are answered."""
        size, found = self._wire.get_copy_data(1)
        if size == 0:
            return None
        if size < 0:
            raise self._ended()
        data = bytes(found)
        place = int.from_bytes(data[1:9], "big")
        if place > self._received:
            self._received = place
        if data[0] == _KEEP_ALIVE and data[17]:
            self._report()
        return data

    def _ended(self) -> Exception:
        """Give the error with which the server ended its log."""
        result = self._wire.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result)
        return psycopg.OperationalError("the server ended its log")

    def _report(self, flushed: int = 0, *, reply: bool = False) -> None:
        """Say what was received; the slot moves only where `flushed` is given."""
        self._wire.put_copy_data(b"r" + struct.pack(">QQQqB", self._received, flushed, flushed, 0, reply))
        self._wire.flush()

    def confirm(self, place: int) -> None:
        """Let the server forget its log up to a place."""
        with told(self.settings):
            self._report(place)
            # Afterwards nothing is promised again: a server that shuts down waits only for what was received.
            self._report()

    def answer(self) -> None:
        """Answer the server's requests for a sign of life while nobody reads."""
        with told(self.settings):
            if self._unread or not self._wait(0):
                return
            while (data := self._received_now()) is not None:
                if data[0] == _DATA and (found := self._taken(data)) is not None:
                    self._unread.append(found)
                    return

    def close(self) -> None:
        """End the stream: the server takes what it was told and lets go of the slot; one that is busy is left after a while."""
        with suppress(psycopg.Error, RunnelError, OSError):
            self._wire.put_copy_end()
            self._wire.flush()
            until = time.monotonic() + _CLOSING_SECONDS
            while time.monotonic() < until:
                size, _ = self._wire.get_copy_data(1)
                if size < 0:
                    self._wire.get_result()
                    break
                if size == 0:
                    self._wait(_PAUSE_SECONDS)
        self._connection.close()


class _Silence:
    """For how long the server has sent no data, and whether it was asked for a sign of life."""

    def __init__(self) -> None:
        self.since = self._place_since = time.monotonic()
        self.asked = False
        self._place = -1

    @property
    def heard(self) -> bool:
        """Whether there was a sign of life."""
        return self._place >= 0

    def heard_at(self, place: int) -> float:
        """Take a sign of life; give for how long the server has been at the same place."""
        self.since, self.asked = time.monotonic(), False
        if place != self._place:
            self._place, self._place_since = place, self.since
        return self.since - self._place_since
