"""Binary logs as files: a folder of archived ones, or the server's own. Events are read one by one, in bounded memory.

A last event that is not whole yet is the end of what can be read: a server may be writing it, or a copy was taken meanwhile.
"""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING

from runnel.connectors.mysql.log.events import HEADER_SIZE, MAGIC, Event, Kind, body_of, header, read_format
from runnel.connectors.mysql.log.problems import BadBytes, Spot, damaged, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FIRST = len(MAGIC)
"""The position of the first event of a file."""
_NUMBERED = re.compile(r"^(?P<name>.+)\.(?P<number>\d{4,})$")
_ENCRYPTED = b"\xfdbin"


def listed(paths: Iterable[Path]) -> list[Path]:
    """Give those of these files that are binary logs by their names, in the order of their numbers."""
    numbered = [(found["name"], int(found["number"]), path) for path in paths if (found := _NUMBERED.match(path.name))]
    return [path for *_, path in sorted(numbered)]


def read_file(path: Path, start: int = FIRST, end: int | None = None) -> Iterator[Event]:
    """Give the events of a file from a position on, the format description first; those before `start` are not read."""
    with path.open("rb") as stream:
        _check_magic(path, stream)
        at, checksums = FIRST, False
        while end is None or at < end:
            raw = _whole_event(path.name, stream, at)
            if raw is None:
                return
            timestamp, kind, server_id, size, next_position, flags = header(raw)
            spot = Spot(path.name, at)
            try:
                body = body_of(raw, kind, checksums=checksums)
                if kind == Kind.FORMAT_DESCRIPTION:
                    checksums = read_format(body).checksums
            except BadBytes as error:
                raise damaged(spot, error) from error
            if next_position and next_position != (at + size) & 0xFFFFFFFF:
                raise damaged(spot, f"an event says that it ends at {next_position}, not at {at + size}")
            yield Event(kind, flags, timestamp, server_id, body, path.name, at, at + size)
            at += size
            if kind == Kind.FORMAT_DESCRIPTION and at < start:
                at = start
                stream.seek(at)


def _check_magic(path: Path, stream: IO[bytes]) -> None:
    magic = stream.read(FIRST)
    if magic == _ENCRYPTED:
        raise refused(
            "RUNNEL-BINLOG-ENCRYPTED",
            Spot(path.name, 0),
            "the file is encrypted",
            "read it from the server, which decrypts it, or copy it with mysqlbinlog --read-from-remote-server --raw",
        )
    if magic != MAGIC:
        raise damaged(Spot(path.name, 0), "the file is not a binary log")


def _whole_event(name: str, stream: IO[bytes], at: int) -> bytes | None:
    """Read one event; None where the file ends within it."""
    head = stream.read(HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return None
    try:
        size = header(head)[3]
    except BadBytes as error:
        raise damaged(Spot(name, at), error) from error
    body = stream.read(size - HEADER_SIZE)
    return head + body if len(body) == size - HEADER_SIZE else None
