"""Digests by which damage is noticed: of a data file's bytes, and of the entries that the catalog publishes with an epoch.

Page checksums of Parquet cover the values only. The digest of a file covers its *tail* (all that follows its last page: page
indexes and footer, so schema, statistics and offsets) and, up to a size, all of its bytes. CRC-32 notices every single flipped
bit. Entries are hashed one by one and added up: the sum of what an epoch shows follows from that of the epoch before it, what was
added and what was ended, and a row that is changed, missing or too many makes another sum.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

WHOLE_BYTES = 8 << 20
"""Files up to this size are checked whole when they are first read: 5 ms of reading and adding up; of larger ones, the tail."""
_SUMS = 2**64


@dataclass(frozen=True)
class Digest:
    """The checksums of a file's bytes from `tail_from` on, and of all its bytes where they were at hand."""

    tail_from: int
    tail: int
    whole: int | None

    def __str__(self) -> str:
        """Write it as the catalog keeps it.

        >>> str(Digest(100, 255, None)), Digest.parse("100:000000ff:0000000a")
        ('100:000000ff:', Digest(tail_from=100, tail=255, whole=10))
        """
        return f"{self.tail_from}:{self.tail:08x}:{'' if self.whole is None else f'{self.whole:08x}'}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read what `str` wrote."""
        tail_from, tail, whole = text.split(":")
        return cls(int(tail_from), int(tail, 16), int(whole, 16) if whole else None)


def of_whole(data: pa.Buffer, tail_from: int | None = None) -> Digest:
    """Give the digest of a Parquet file in memory; its tail is its footer where nothing else is said."""
    view = memoryview(data)
    if tail_from is None:
        tail_from = len(view) - 8 - int.from_bytes(view[-8:-4], "little")
    before = zlib.crc32(view[:tail_from])
    return Digest(tail_from, zlib.crc32(view[tail_from:]), zlib.crc32(view[tail_from:], before))


def of_tail(source: pa.NativeFile, size: int, tail_from: int) -> Digest:
    """Give the digest of the tail of an open file."""
    return Digest(tail_from, zlib.crc32(source.read_at(size - tail_from, tail_from)), None)


def pages_end(footer: pq.FileMetaData, size: int) -> int:
    """Say where the last page of a file ends: what follows has no checksums of its own."""
    end = size - 8 - footer.serialized_size
    if not footer.num_row_groups:
        return int(min(4, end))
    group = footer.row_group(footer.num_row_groups - 1)
    ends = []
    for at in range(group.num_columns):
        column = group.column(at)
        offsets = [column.data_page_offset, column.dictionary_page_offset if column.has_dictionary_page else None]
        ends.append(min(offset for offset in offsets if offset) + column.total_compressed_size)
    return int(max(0, min(end, max(ends))))


def entry(*values: Any) -> int:
    """Hash one row of the catalog.

    >>> entry("position", "shop", 3) == entry("position", "shop", 3) != entry("position", "shop", 7)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def file_entry(
    number: int, table_id: int, begin: int, stored: tuple[str, bool], sizes: tuple[int, int], change: bool,  # noqa: FBT001
    digest: str | None, stats: Iterable[Sequence[Any]],
) -> int:  # fmt: skip
    """Hash what the catalog says of a data file: path, rows and bytes, and (column, nulls, minimum, maximum, nan) of its columns."""
    return entry("file", number, table_id, begin, stored, sizes, change, digest, sorted(map(tuple, stats)))


def change(epoch: int, file: int) -> int:
    """Hash a change of a relation: the hash of its file, and its epoch, so that a list of changes lacks none and has none elsewhere."""
    return entry("change", epoch, file)


def total(entries: Iterable[int], start: int = 0) -> int:
    """Add hashes up."""
    return (start + sum(entries)) % _SUMS


def epoch_digest(added_up: int, epoch: int, facts: Sequence[Any]) -> str:
    """Write the digest of an epoch: the sum of all entries that it shows, and the hash of its own row with that sum."""
    return f"{added_up:016x}:{entry('epoch', epoch, added_up, tuple(facts)):016x}"


def added_up(text: str, epoch: int, facts: Sequence[Any]) -> int | None:
    """Take the sum from an epoch's digest; None where its row is not the one that the digest was made of."""
    try:
        found = int(text.partition(":")[0], 16)
    except ValueError:
        return None
    return found if text == epoch_digest(found, epoch, facts) else None
