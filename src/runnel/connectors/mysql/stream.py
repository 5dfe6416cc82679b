"""The log from the server: runnel asks as a replica does and gets events as they are committed.

A position is a file and a number of bytes. The server sends as fast as it is read: what waits is in the socket, not in memory.
"""

from __future__ import annotations

import secrets
import struct
import time
from typing import TYPE_CHECKING, Any

import pymysql

from runnel.connectors.mysql.client import connect, log_error, translate_errors, translated
from runnel.connectors.mysql.log.events import (
    ARTIFICIAL,
    HEADER_SIZE,
    LARGEST_EVENT,
    Event,
    Kind,
    body_of,
    header,
    read_format,
)
from runnel.connectors.mysql.log.problems import BadBytes, Spot, damaged, refused
from runnel.errors import RunnelError, Unreachable

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from runnel.connectors.mysql.settings import Settings

_REGISTER, _DUMP = 0x15, 0x12
_NO_WAITING, _WITH_STATEMENTS = 0x1, 0x2
_LARGEST_PACKET = 0xFFFFFF
_CHUNK = 1 << 18
HEARTBEAT_SECONDS = 10
"""How often a server with nothing to send says that it is there."""


class Packets:
    """Cuts what comes out of a socket into the packets of the protocol."""

    def __init__(self, connection: Any) -> None:
        """Take over the socket of a connection whose last answer was read."""
        self._socket: socket.socket = connection._sock
        self._data = bytearray()
        self._at = 0

    def next(self, seconds: float) -> bytes | None:
        """Give the next packet; None where none begins within so many seconds."""
        parts: list[bytes] = []
        while True:
            head = self._take(4, seconds if not parts else None)
            if head is None:
                return None
            size = int.from_bytes(head[:3], "little")
            part = self._take(size, None)
            parts.append(part or b"")
            if sum(map(len, parts)) > LARGEST_EVENT + 1:
                raise BadBytes("an event of the server is longer than any can be")
            if size < _LARGEST_PACKET:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, size: int, seconds: float | None) -> bytes | None:
        """Give so many bytes; None where nothing at all came in time. What has begun is waited for as long as heartbeats are."""
        limit = 3 * HEARTBEAT_SECONDS if seconds is None else seconds
        while len(self._data) - self._at < size:
            if self._at:
                del self._data[: self._at]
                self._at = 0
            self._socket.settimeout(max(limit, 0.001))
            try:
                found = self._socket.recv(_CHUNK)
            except TimeoutError:
                if seconds is None or len(self._data) > self._at:
                    raise
                return None
            if not found:
                raise EOFError("the server closed the connection")
            self._data += found
        begin, self._at = self._at, self._at + size
        return bytes(self._data[begin : self._at])


class LogStream:
    """Events from a position on, as the server sends them.

    MariaDB leaves out the texts of statements unless they are asked for (`every`). From version 11 on it does not say either where an
    event inside a transaction is: only a stream of every event counts that right.
    """

    def __init__(
        self, settings: Settings, start: Spot, *, number: int = 0, every: bool = False, bounded: bool = False
    ) -> None:
        """Ask for the log from a position on, as the replica of that number, else of a random one.

        A `bounded` one ends where the log ends now: the server would keep a connection that waits for more long after it is closed.
        """
        self.settings = settings
        self._file, self._at = start
        self._number = number or secrets.randbelow((1 << 31) - 1_000_000) + 1_000_000
        self._every, self._counted, self._bounded = every, False, bounded
        self._checksums = False
        with translate_errors(settings):
            self._connection = connect(settings)
            try:
                self._ask(start)
            except BaseException:
                self.close()
                raise
        self._packets = Packets(self._connection)

    def close(self) -> None:
        """Close the connection at once; the server notices."""
        # `close` would wait for an answer to a farewell, and the server is sending events.
        self._connection._force_close()

    def _ask(self, start: Spot) -> None:
        if start.position >= 1 << 32:
            raise refused(
                "RUNNEL-BINLOG-POSITION",
                start,
                f"{self.settings.label}: the protocol cannot name a position after 4 GiB of a file",
                "write smaller transactions, set max_binlog_size to 1 GiB, then `runnel rebuild SOURCE`",
            )
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT @@global.binlog_checksum")
            self._checksums = cursor.fetchall()[0][0] == "CRC32"
            for name in ("master_binlog_checksum", "source_binlog_checksum"):
                cursor.execute(f"SET @{name} = @@global.binlog_checksum")
            for name in ("master_heartbeat_period", "source_heartbeat_period"):
                cursor.execute(f"SET @{name} = {HEARTBEAT_SECONDS * 10**9}")
            cursor.execute("SET @mariadb_slave_capability = 4")
            cursor.execute(f"SET @slave_uuid = 'runnel-{secrets.token_hex(8)}'")
        self._send(_REGISTER, struct.pack("<I", self._number) + b"\0\0\0" + struct.pack("<HII", 0, 0, 0))
        self._connection._read_packet()
        mariadb = "mariadb" in self._connection.get_server_info().lower()
        flags = (_WITH_STATEMENTS if self._every and mariadb else 0) | (_NO_WAITING if self._bounded else 0)
        self._send(_DUMP, struct.pack("<IHI", start.position, flags, self._number) + start.file.encode())

    def _send(self, command: int, payload: bytes) -> None:
        self._connection._execute_command(command, payload)

    def events(self, seconds: float) -> Iterator[Event]:
        """Give events until none comes for so many seconds; heartbeats are not given."""
        while True:
            with translate_errors(self.settings):
                packet = self._packets.next(seconds)
            if packet is None:
                return
            event = self._event(packet)
            if event is not None:
                yield event

    def until(self, end: Spot, seconds: float) -> Iterator[Event]:
        """Give events up to a position that the log has reached already; raise where the server stops sending before."""
        last = time.monotonic()
        while self.spot.order < end.order:
            for event in self.events(min(seconds, 1.0)):
                last = time.monotonic()
                yield event
                if self.spot.order >= end.order:
                    return
            if time.monotonic() - last > seconds:
                raise Unreachable(
                    "RUNNEL-MYSQL-UNREACHABLE",
                    f"{self.settings.label}: the server does not send its log up to {end}",
                    hint="it is tried again",
                )

    @property
    def spot(self) -> Spot:
        """Where the next event begins."""
        return Spot(self._file, self._at)

    def _event(self, packet: bytes) -> Event | None:
        spot = self.spot
        if packet[:1] != b"\0":
            raise self._refusal(packet)
        try:
            raw = packet[1:]
            if len(raw) < HEADER_SIZE:
                raise BadBytes("an event of the server is too short")
            timestamp, kind, server_id, size, next_position, flags = header(raw)
            if size != len(raw):
                raise BadBytes("an event of the server is not as long as it says")
            body = body_of(raw, kind, checksums=self._checksums)
            if kind == Kind.FORMAT_DESCRIPTION:
                self._checksums = read_format(body).checksums
        except BadBytes as error:
            raise damaged(spot, error) from error
        if kind in (Kind.HEARTBEAT, Kind.HEARTBEAT_V2):
            return None
        made_up = bool(flags & ARTIFICIAL) or (next_position == 0 and kind == Kind.FORMAT_DESCRIPTION)
        displaced = self._go_on(kind, body, size, next_position, made_up=made_up)
        return Event(kind, flags, timestamp, server_id, body, spot.file, spot.position, self._at, displaced)

    def _go_on(self, kind: int, body: bytes, size: int, next_position: int, *, made_up: bool) -> bool:
        """Go to the end of an event; say whether those before it were not where they were counted to be."""
        displaced = False
        if kind == Kind.ROTATE:
            self._file, self._at = body[8:].decode("utf-8", "replace"), int.from_bytes(body[:8], "little")
        elif not made_up:
            # The header has the lower half of the position. The server may leave events out, and MariaDB 11 gives positions
            # only to the first and the last event of a transaction: the last one sets right what is counted here.
            reached = self._at + size
            self._at = reached + ((next_position - reached) & 0xFFFFFFFF) if next_position else reached
            displaced = self._counted and self._at != reached
            self._counted = not next_position
        return displaced

    def _refusal(self, packet: bytes) -> RunnelError:
        if packet[:1] == b"\xfe":
            return Unreachable(
                "RUNNEL-MYSQL-UNREACHABLE", f"{self.settings.label}: the server ended its log", hint="it is tried again"
            )
        code, said = int.from_bytes(packet[1:3], "little"), packet[3:].decode("utf-8", "replace").removeprefix("#HY000")
        if code == 1236:
            return log_error(self.settings, said)
        return translated(self.settings, pymysql.OperationalError(code, said))
