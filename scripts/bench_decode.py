"""How fast the Cassandra log is decoded: mutations and megabytes per second of processor time, on one core.

    python scripts/bench_decode.py [--mutations 100000] [--rounds 5]

The segment is always the same: inserts and updates of eight columns (boolean, bigint, double, int, text, text,
timestamp, uuid) next to a key, 32 to a section. Times are those of the process, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from typing import TYPE_CHECKING

from runnel.connectors.cassandra.cells import SET, Mutation
from runnel.connectors.cassandra.commitlog.catalog import Catalog
from runnel.connectors.cassandra.commitlog.log import LogReader
from runnel.connectors.cassandra.reconcile import PartitionState, merge
from runnel.connectors.cassandra.schema import SchemaRows, build_tables
from runnel.connectors.cassandra.schema_text import parse_schema
from runnel.connectors.cassandra.value_bytes import decoder
from tests.connectors.cassandra.encoder import Cell, Row, Updated, body, write_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TEXT = """CREATE TABLE shop.orders (id bigint PRIMARY KEY, active boolean, amount double, customer bigint, placed timestamp,
  product text, quantity int, remark text, shipment uuid) WITH ID = 6ba7b810-9dad-11d1-80b4-00c04fd430c8"""
PER_SECTION = 32


def segment(folder: Path, mutations: int) -> Path:
    made = random.Random(1)
    table = build_tables(parse_schema(TEXT))[0]
    bodies = []
    for n in range(mutations):
        now = 1_750_000_000_000_000 + n
        values = {
            "active": bytes([n % 2]),
            "amount": made.randbytes(8),
            "customer": made.randbytes(8),
            "placed": (1_750_000_000_000 + n).to_bytes(8, "big"),
            "product": f"product {n % 1000}".encode(),
            "quantity": made.randbytes(4),
            "remark": b"nothing to remark, " * (n % 3) + b"thanks",
            "shipment": uuid.UUID(int=made.getrandbits(128)).bytes,
        }
        cells = tuple(Cell(name, value, now) for name, value in values.items())
        row = Row((), (now, 0, 0) if n % 2 else None, cells=cells)
        bodies.append(body(Updated(table, (n % 50_000).to_bytes(8, "big"), rows=(row,))))
    sections = [bodies[at : at + PER_SECTION] for at in range(0, len(bodies), PER_SECTION)]
    return write_segment(folder, sections)


def count(mutations: Iterable[Mutation]) -> int:
    return sum(1 for _ in mutations)


def with_values(mutations: Iterable[Mutation], schema: SchemaRows) -> int:
    """Decode every key and value too."""
    table = build_tables(schema)[0]
    decoders = {column.name: decoder(column.type) for column in table.columns}
    found = 0
    for mutation in mutations:
        for kind, owner, key, _, column, _, value, _, _, _ in mutation.changes:
            if kind == SET:
                decoders[column or ""](value)
            else:
                owner.key_values(key)
        found += 1
    return found


def merged(mutations: Iterable[Mutation]) -> int:
    """Reconcile the changes into the states of their partitions."""
    states: dict[bytes, PartitionState] = {}
    found = 0
    for mutation in mutations:
        key = mutation.changes[0][2]
        state = states.get(key)
        if state is None:
            state = states[key] = PartitionState(key)
        merge(state, mutation.changes)
        found += 1
    return found


def measure(name: str, path: Path, rounds: int, run: Callable[[], int]) -> None:
    times = []
    found = 0
    for _ in range(rounds):
        start = time.process_time()
        found = run()
        times.append(time.process_time() - start)
    best, middle = min(times), statistics.median(times)
    megabytes = path.stat().st_size / 1e6
    print(
        f"{name:34} {found / middle:>10,.0f} mutations/s  {megabytes / middle:6.1f} MB/s   best {found / best:>10,.0f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    schema = parse_schema(TEXT)

    def reader(*, compiled: bool = True) -> LogReader:
        return LogReader(Catalog(schema), compile_readers=compiled)

    with tempfile.TemporaryDirectory() as folder:
        path = segment(Path(folder), given.mutations)
        size = path.stat().st_size
        print(
            f"{given.mutations:,} mutations of 8 columns, {size / 1e6:.1f} MB, {size // given.mutations} bytes each; per core second:"
        )
        measure("changes", path, given.rounds, lambda: count(reader().read(path)))
        measure(
            "changes, keys and values decoded", path, given.rounds, lambda: with_values(reader().read(path), schema)
        )
        measure("changes merged into states", path, given.rounds, lambda: merged(reader().read(path)))
        measure("changes, by the grammar alone", path, 1, lambda: count(reader(compiled=False).read(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
