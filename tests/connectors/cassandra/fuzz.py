"""Random damage to segments, for as long as one likes: `make fuzz SECONDS=3600`.

Two kinds: bytes of a file changed at random, where the checksums have to find it; and bodies changed with their checksums
made anew, where nothing may happen but an error or changes that the same bytes give by the grammar too.
"""

from __future__ import annotations

import argparse
import functools
import random
import resource
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.schema.system_tables import system_tables
from tests.connectors.cassandra.encoder import Cell, Row, Updated, body, write_segment
from tests.connectors.cassandra.random_updates import RandomUpdates, schema

if TYPE_CHECKING:
    from runnel.connectors.cassandra.cells import Mutation

MEMORY = 2 << 30
"""Bytes of address space the process may have: what takes more ends it."""
SLOWEST_SECONDS = 5.0

KINDS = [None, None, None, "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor"]


@functools.cache
def catalog() -> Catalog:
    """Give the definitions; no segment made here has any of its own."""
    return Catalog(schema())


def outcome(path: Path, *, compile_readers: bool = True) -> tuple[list[Mutation], LogError | None]:
    """Give what a segment yields, and the error it ends with."""
    found: list[Mutation] = []
    try:
        for mutation in LogReader(catalog(), compile_readers=compile_readers).read(path):
            found.append(mutation)
    except LogError as error:
        return found, error
    return found, None


def crafted(generator: random.Random) -> bytes:
    """Give a body that was right, and is not any more in a few places."""
    made = RandomUpdates(generator.randrange(1 << 32))
    return damage(generator, body(*(made.update() for _ in range(generator.choice([1, 1, 2])))))


def damage(generator: random.Random, whole: bytes) -> bytes:
    """Change, insert or take away a few bytes."""
    data = bytearray(whole)
    for _ in range(generator.choice([1, 1, 2, 5])):
        at = generator.randrange(len(data))
        match generator.randrange(4):
            case 0:
                data[at] = generator.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, generator.randrange(256)])
            case 1:
                del data[at : at + generator.randrange(1, 9)]
            case 2:
                data[at:at] = generator.randbytes(generator.randrange(1, 9))
            case 3:
                data[at:at] = data[generator.randrange(len(data)) :][: generator.randrange(40)]
        if not data:
            data = bytearray(b"\x01")
    return bytes(data)


def crafted_case(folder: Path, generator: random.Random) -> str:
    """Check bodies with right checksums: both ways of reading agree."""
    usual = body(RandomUpdates(generator.randrange(4)).update())
    path = write_segment(folder, [[usual] * generator.choice([1, 10]) + [crafted(generator)] + [usual]])
    found, error = outcome(path)
    by_grammar, other = outcome(path, compile_readers=False)
    assert found == by_grammar
    assert (error is None) == (other is None)
    return "read" if error is None else "refused"


def defined_case(folder: Path, generator: random.Random) -> str:
    """Check definitions with random damage behind right checksums, and a mutation that is read with them."""
    definitions = [defined(generator) for _ in range(generator.randrange(1, 5))]
    if generator.random() < 0.5:
        definitions.append(damage(generator, definitions.pop()))
    usual = body(RandomUpdates(generator.randrange(4)).update())
    path = write_segment(folder, [[*definitions, usual]])
    try:
        list(LogReader(Catalog(schema(), read_at=1)).read(path))
    except LogError:
        return "refused"
    return "read"


def defined(generator: random.Random) -> bytes:
    """Give a mutation of `system_schema`: a type, a table of it, columns, a dropped one."""
    own = {table.name: table for table in system_tables()}
    keyspace, at = generator.choice([b"r", b"new"]), (generator.randrange(1, 9), 0, 0)
    values: dict[str, tuple[tuple[bytes, ...], dict[str, bytes]]] = {
        "tables": ((b"fixed",), {"id": uuid.UUID(int=generator.randrange(1, 9)).bytes}),
        "columns": (
            (b"fixed", generator.choice([b"id", b"a"])),
            {
                "kind": generator.choice([b"partition_key", b"regular", b"clustering", b"static"]),
                "type": generator.choice([b"int", b"frozen<map<text, list<int>>>", b"person", b"vector<float, 3>"]),
                "position": generator.choice([bytes(4), b"\xff" * 4]),
                "clustering_order": b"desc",
            },
        ),
        "types": (
            (b"person",),
            {
                "field_names": bytes.fromhex("00000001 00000001 61"),
                "field_types": bytes.fromhex("00000001 00000003") + b"int",
            },
        ),
        "dropped_columns": ((b"fixed", b"a"), {"type": b"int", "dropped_time": bytes(8)}),
    }
    updates = []
    for name in generator.sample(sorted(values), generator.randrange(1, 5)):
        clustering, found = values[name]
        cells = tuple(Cell(column, value, at[0]) for column, value in found.items() if generator.random() < 0.9)
        deletion = (generator.randrange(9), 5) if generator.random() < 0.2 else None
        updates.append(Updated(own[name], keyspace, rows=(Row(clustering, at, deletion, cells=cells),)))
    return body(*updates)


def damaged_case(folder: Path, generator: random.Random) -> str:
    """Check a file with random bytes in it: an error, or all that was there."""
    made = RandomUpdates(generator.randrange(1 << 32))
    sections = [[body(made.update()) for _ in range(generator.randrange(5))] for _ in range(generator.randrange(1, 4))]
    path = write_segment(folder, sections, compression=generator.choice(KINDS))
    truth, nothing = outcome(path)
    assert nothing is None, nothing
    data = bytearray(path.read_bytes())
    for _ in range(generator.choice([1, 1, 2, 8])):
        at = generator.randrange(len(data))
        if generator.random() < 0.7:
            data[at] ^= generator.randrange(1, 256)
        else:
            del data[at:]
            break
    path.write_bytes(data)
    found, error = outcome(path)
    assert found == truth[: len(found)]
    return "whole" if error is None else "damaged"


def fuzz(folder: Path, generator: random.Random, *, cases: int | None = None, seconds: float = 0) -> Counter[str]:
    """Run cases until there were enough, or the time is over; give how they ended."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while (counts.total() < cases) if cases is not None else (time.monotonic() < end):
        case = generator.choice([crafted_case, crafted_case, damaged_case, damaged_case, defined_case])
        before = time.process_time()
        counts[case(folder, generator)] += 1
        assert time.process_time() - before < SLOWEST_SECONDS
    return counts


def main() -> int:
    """Fuzz from a seed that is printed, with bounded memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 32))
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        counts = fuzz(Path(folder), random.Random(arguments.seed), seconds=arguments.seconds)
    print(f"{counts.total()} cases: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
