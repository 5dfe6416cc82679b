"""Positions in the logs of several nodes: `{host: [segment, position]}`, as they are stored with an epoch.

>>> later = advanced({"a": [7, 100]}, "a", Position(8, 20))
>>> later, covers(later, {"a": [7, 999]}), covers(later, {"b": [1, 0]})
({'a': [8, 20]}, True, False)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Position(NamedTuple):
    """A point in one node's log: segments in the order of their ids, bytes within."""

    segment: int
    position: int


START = Position(0, 0)
END_OF_SEGMENT = (1 << 31) - 1
"""The position behind everything in a segment; the server counts bytes with 31 bits."""


def position_of(offset: Mapping[str, Any], host: str) -> Position:
    """Give a host's position; a host that is not named stands before its first segment."""
    found = offset.get(host)
    if found is None:
        return START
    if (
        not isinstance(found, list | tuple)
        or len(found) != 2
        or not all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in found)
    ):
        raise UsageError(
            "RUNNEL-CASSANDRA-POSITION",
            f"{found!r} is no position of the log of {host!r}",
            hint="a position is [segment, position]",
        )
    return Position(*found)


def advanced(offset: Mapping[str, Any], host: str, position: Position) -> dict[str, list[int]]:
    """Give the offset with one host further on; a host never goes back."""
    moved = {name: list(position_of(offset, name)) for name in offset}
    moved[host] = list(max(position, position_of(offset, host)))
    return moved


def covers(have: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Say whether every host of `wanted` is at or behind its position there."""
    return all(host in have and position_of(have, host) >= position_of(wanted, host) for host in wanted)
