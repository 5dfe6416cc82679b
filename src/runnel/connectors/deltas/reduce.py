"""What the options of `runnel capture` do with a list of deltas: equal ones once, the last one per place, coarse deletes expanded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runnel.connectors.deltas.model import Delta, Operation, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Place = tuple[Any, ...]


def merge_equal(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Give each delta once: of those that are equal the first."""
    seen: set[Delta] = set()
    for delta in deltas:
        if delta not in seen:
            seen.add(delta)
            yield delta


def last_per_key(deltas: Iterable[Delta]) -> list[Delta]:
    """Give the last operation of each place, in the order they happened.

    Last is what the store lets win: the newest time, of equal ones a delete, else the one told last. A coarse delete is the
    last operation of everything below it that is not newer. What has expired is gone, whatever the times say.

    >>> carol = ("School", "Grades", ("Carol",))
    >>> [str(d.operation) for d in last_per_key([Delta(Operation.INS, *carol, (), "a", "1"), Delta(Operation.DEL, *carol)])]
    ['del']
    """
    kept: dict[Place, Delta] = {}
    below: dict[Place, set[Place]] = {}
    for delta in deltas:
        places = _places(delta)
        own = places[-1]
        if any(at in kept and not _beats(delta, kept[at]) for at in (own, *_coarse(places, kept))):
            continue
        lower = below.get(own)
        if lower:
            gone = {at for at in lower if at not in kept or _beats(delta, kept[at])}
            for at in gone:
                kept.pop(at, None)
            lower -= gone
        kept.pop(own, None)
        kept[own] = delta
        for upper in places[:-1]:
            below.setdefault(upper, set()).add(own)
    return list(kept.values())


def _coarse(places: list[Place], kept: dict[Place, Delta]) -> Iterator[Place]:
    """Give the places above that a kept delete takes in."""
    return (at for at in places[:-1] if at in kept)


def _beats(later: Delta, earlier: Delta) -> bool:
    """Say whether an operation wins over one that was told before it."""
    if later.time is None or earlier.time is None or _expired(later) or _expired(earlier):
        return True
    if later.time != earlier.time:
        return later.time > earlier.time
    return later.operation is Operation.DEL or earlier.operation is not Operation.DEL


def _expired(delta: Delta) -> bool:
    """Say whether a delete is an expiry: it has the time of the clock, not one that was written."""
    return delta.operation is Operation.DEL and delta.ttl is not None


def _places(delta: Delta) -> list[Place]:
    """Give the places a delta is in, from its table to its own."""
    table: Place = (delta.keyspace, delta.table)
    if not delta.key:
        return [table] if delta.column is None else [table, (*table, None, delta.column)]
    key: Place = (*table, delta.key)
    places: list[Place] = [table, key]
    if isinstance(delta.cluster, Span):
        return [*places, (*key, delta.cluster)]
    if delta.cluster is None:
        return places
    places += [(*key, delta.cluster[:length]) for length in range(1, len(delta.cluster))]
    places.append((*key, delta.cluster))
    if delta.column is None:
        return places
    return [*places, (*table, None, delta.column), (*key, delta.cluster, delta.column)]


def expand_deletes(deltas: Iterable[Delta], live: Callable[[Delta], Iterable[Delta]]) -> Iterator[Delta]:
    """Replace each coarse delete by one delete per column that was alive below it.

    `live` is asked at the delete's turn and gives a delta for each such column; only its place and value are used.
    """
    for delta in deltas:
        if delta.operation is not Operation.DEL or delta.column is not None:
            yield delta
            continue
        for cell in live(delta):
            yield replace(
                cell, operation=Operation.DEL, value=None, previous=cell.value, time=delta.time, ttl=None, row=False
            )
