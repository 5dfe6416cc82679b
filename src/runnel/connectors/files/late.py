"""Which files before a position were never read.

A position keeps how many files were done and a fingerprint of their names (a sum of hashes), so that it stays small however many
there are. Where no done file was deleted since, the files that came late are exactly those without which the fingerprint fits;
they are looked for among the newest. Where that finds nothing, files may be late, or done ones may have been deleted: these are
`unsure`, for one that is read twice is worse than one that has to be looked at.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel.connectors.files.listing import Listing

MOST_TRIED = 20_000
_MODULUS = 1 << 64


def fingerprint(names: Iterable[str]) -> str:
    """Give a number for a set of names, whatever their order.

    >>> fingerprint(["a", "b"]) == fingerprint(["b", "a"]) != fingerprint(["a"])
    True
    """
    return f"{sum(map(_hash, names)) % _MODULUS:016x}"


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest())


def late_names(at: Mapping[str, Any], found: Listing) -> tuple[list[str], list[str]]:
    """Give the names before a position that are late for certain, and those that may be."""
    passed = found.upto(str(at.get("file", "")))
    known = {*at.get("late", ()), *at.get("unsure", ())}
    others = [name for name in passed if name not in known]
    late = [name for name in passed if name in at.get("late", ())]
    unsure = [name for name in passed if name in at.get("unsure", ())]
    extra = len(others) - int(at.get("files", 0))
    if "names" in at and extra == 0 and fingerprint(others) == at["names"]:
        return late, unsure
    if extra <= 0 and ("names" not in at or not others):
        return late, unsure
    newest = [file.name for file in sorted(found.files(others), key=lambda file: file.changed, reverse=True)]
    if "names" in at and extra > 0:
        more = _without(newest, extra, (sum(map(_hash, others)) - int(at["names"], 16)) % _MODULUS)
        if more is not None:
            return sorted([*late, *more]), unsure
    return late, sorted([*unsure, *newest[: max(0, extra)]])


def _without(newest: list[str], count: int, wanted: int) -> tuple[str, ...] | None:
    """Find `count` names, the newest first, whose hashes add up to `wanted`."""
    hashes = {name: _hash(name) for name in newest}
    size = count
    while size < len(newest) and math.comb(size + 1, count) <= MOST_TRIED:
        size += 1
    for names in itertools.combinations(newest[:size], count):
        if sum(hashes[name] for name in names) % _MODULUS == wanted:
            return names
    return None
