"""Damages the logs of real servers at random and reads them: an error with a place, or the right beginning; never a hang.

`make fuzz-binlog SECONDS=3600` goes on for an hour; the seed of a failure is printed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from runnel.connectors.mysql.log.files import read_file
from runnel.connectors.mysql.log.row_events import RowBuffer, Rows
from runnel.connectors.mysql.log.transactions import Assembler, Committed
from runnel.errors import RunnelError

SLOWEST = 20.0
"""Seconds that reading a small damaged file may take on a busy machine."""


def damage(data: bytes, chance: random.Random) -> bytes:
    """Cut, overwrite, repeat or remove some bytes."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(4, len(made))
        size = chance.choice([1, 1, 2, 4, 30, 300])
        match chance.randrange(5):
            case 0:
                del made[at:]
            case 1:
                made[at : at + size] = chance.randbytes(size)
            case 2:
                made[at] ^= 1 << chance.randrange(8)
            case 3:
                made[at : at + size] = b"\xff" * size
            case _:
                del made[at : at + size]
        if len(made) < 8:
            break
    return bytes(made)


def read(path: Path) -> tuple[list[Committed], list[tuple[object, ...]]]:
    """Read a file, all tables, all rows; what was read before an error comes with it."""
    ends: list[Committed] = []
    rows: list[tuple[object, ...]] = []
    waiting: list[tuple[object, ...]] = []
    for item in Assembler(lambda *_: True).items(read_file(path)):
        if isinstance(item, Committed):
            ends.append(item)
            rows, waiting = rows + waiting, []
        elif isinstance(item, Rows) and item.whole and item.table.described:
            buffer = RowBuffer(item.table.columns, "null")
            buffer.add(item)
            waiting += [tuple(row.values()) for row in buffer.taken().to_pylist()]
    return ends, rows


def check(data: bytes, expected: int, seed: int, folder: Path) -> str:
    """Read a damaged file; say what came of it."""
    path = folder / "binlog.000001"
    path.write_bytes(damage(data, random.Random(seed)))
    begin = time.monotonic()
    try:
        ends, _ = read(path)
        outcome = "read"
        assert len(ends) <= expected, f"seed {seed}: more transactions than were written"
    except RunnelError as error:
        outcome = error.code
        assert "binlog.000001" in str(error), f"seed {seed}: {error} has no place"
    assert time.monotonic() - begin < SLOWEST, f"seed {seed} took {time.monotonic() - begin:.1f} s"
    return outcome


def without_checksums(data: bytes) -> bytes:
    """Switch checksums off in a log, so that damage reaches the decoder: all events lose theirs."""
    from runnel.connectors.mysql.log.events import HEADER_SIZE, Kind, header

    made, at = bytearray(data[:4]), 4
    while at < len(data):
        _, kind, _, size, _, _ = header(data, at)
        event = bytearray(data[at : at + size])
        if kind == Kind.FORMAT_DESCRIPTION:
            event[-5] = 0
        else:
            del event[-4:]
            event[9:13] = len(event).to_bytes(4, "little")
        event[13:17] = (len(made) + len(event)).to_bytes(4, "little")
        assert len(event) >= HEADER_SIZE
        made += event
        at += size
    return bytes(made)


def run(data: bytes, seeds: range, seconds: float = 1e9) -> dict[str, int]:
    """Damage a log in many ways; count the outcomes."""
    outcomes: dict[str, int] = {}
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        whole = Path(folder, "binlog.000001")
        whole.write_bytes(data)
        expected = len(read(whole)[0])
        for seed in seeds:
            outcome = check(data, expected, seed, Path(folder))
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if time.monotonic() > until:
                break
    return outcomes


def main() -> None:
    """Fuzz for some time by hand."""
    from tests.connectors.mysql.test_fuzz import write_log
    from tests.servers.mariadb import mariadb_program
    from tests.servers.mysql import mysql_program, server

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    given = parser.parse_args()
    for program in (mariadb_program(), mysql_program()):
        with server(program) as running:
            log = write_log(running).read_bytes()
        for name, data in (("with checksums", log), ("without", without_checksums(log))):
            found = run(data, range(given.seed, given.seed + 10**9), given.seconds / 4)
            print(f"{program.name} {name}, from seed {given.seed}: {found}", flush=True)


if __name__ == "__main__":
    main()
