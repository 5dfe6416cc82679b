"""Run rounds of kills and cuts and print what came out; ends with 1 if anything was lost, doubled, missing or wrong."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import runnel
from runnel.engine.duckdb import DuckDbEngine
from tests.chaos import check, roles
from tests.chaos.proxy import Proxy
from tests.servers.postgres import PostgresServer, postgres

ROLES = ("writer", "writer", "writer", "writer", "runner", "keeper", "deliverer")
LONGEST = 5.0
PIECES = (0, 0, 1, 1, 2, 4)
"""How many pieces of work a process gets done before it is hit in the next one."""
CONFIG = """
[project]
name = "chaos"
[state]
{catalog}
[run]
epoch = "20ms"
[sources.feed]
type = "files"
path = "feed"
schema = {{ orders = "id BIGINT, amount INT, PRIMARY KEY (id)" }}
{target}
"""
TARGET = '[targets.front]\ntype = "postgres"\nurl = "{url}"\nviews = {{ by_worker = "by_worker" }}\n'


@dataclass
class Slot:
    """One role's process at the moment: how many pieces of work it may do before it is hit, and when it is hit at the latest."""

    role: str
    child: int
    ready: int
    hit_at: float
    pieces: int
    begun: float = 0.0


@dataclass
class Round:
    """One project that is worked on until enough signals were sent."""

    folder: Path
    random: random.Random
    slots: list[Slot] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    fed: int = 0
    ids: int = 0

    def run(self, kills: int) -> None:
        """Kill until it is enough, then kill everybody."""
        self.slots = [self.begin(role) for role in ROLES]
        feed_at = 0.0
        while sum(self.sent.values()) < kills:
            now = time.monotonic()
            if now >= feed_at:
                self.feed()
                feed_at = now + 0.3
            for number, slot in enumerate(self.slots):
                self.slots[number] = self.look(slot, now)
            time.sleep(0.002)
        for slot in self.slots:
            self.hit(slot, signal.SIGKILL)
            os.waitpid(slot.child, 0)

    def begin(self, role: str) -> Slot:
        """Start a process; one in ten is hit while it starts."""
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self.ids += 1
        child = roles.start(role, self.ids * 10_000, self.folder, theirs, self.random.getrandbits(32))
        os.close(theirs)
        early = self.random.random() < 0.1
        return Slot(role, child, ours, time.monotonic() + (self.random.uniform(0, 2) if early else 60), -1)

    def look(self, slot: Slot, now: float) -> Slot:
        """See to one process: hit it when it is time, and replace it when it is gone."""
        try:
            done = len(os.read(slot.ready, 1000))
        except BlockingIOError:
            done = 0
        if done and slot.pieces < 0:
            self.aim(slot, now)
        elif done:
            slot.pieces -= done
            if slot.pieces <= 0:  # somewhere in the next piece, which will take about as long as this one
                slot.hit_at = min(slot.hit_at, now + self.random.uniform(0, now - slot.begun))
            slot.begun = now
        if now >= slot.hit_at:
            self.hit(slot, signal.SIGKILL if self.random.random() < 0.6 else signal.SIGINT)
            self.aim(slot, now)
        if os.waitpid(slot.child, os.WNOHANG)[0]:
            os.close(slot.ready)
            return self.begin(slot.role)
        return slot

    def aim(self, slot: Slot, now: float) -> None:
        """Choose how much a process may do before it is hit (again)."""
        slot.pieces, slot.begun = self.random.choice(PIECES), now
        slot.hit_at = now + self.random.uniform(0, LONGEST if slot.role == "runner" or not slot.pieces else 4 * LONGEST)

    def hit(self, slot: Slot, number: signal.Signals) -> None:
        """Send a signal and count it."""
        os.kill(slot.child, number)
        self.sent[number.name] += 1

    def feed(self) -> None:
        """Put a file with a few rows into the folder of the source, whole at once."""
        ids = range(self.fed, self.fed + 3)
        self.fed += 3
        hidden = self.folder / "feed" / ".next"
        hidden.write_text("".join(json.dumps({"id": i, "amount": 1}) + "\n" for i in ids))
        hidden.rename(self.folder / "feed" / "orders" / f"{self.fed:08d}.jsonl")


def in_a_child(folder: Path, *work: object) -> bool:
    """Call a function in a process of its own, so that this one stays fit to fork."""
    child = os.fork()
    if not child:
        try:
            fine = work[0](folder, *work[1:])  # type: ignore[operator]
        except BaseException:
            traceback.print_exc()
            fine = False
        sys.stdout.flush()
        os._exit(0 if fine else 1)
    return os.waitpid(child, 0)[1] == 0


def prepare(folder: Path) -> bool:
    """Create the project."""
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        for table in ("t", "l"):
            project.create_table(table, "id BIGINT, worker INT, v BIGINT", key=["id"] if table == "t" else None)
        project.create_view("by_worker", "SELECT worker, count(*) AS n, sum(v) AS total FROM t GROUP BY worker")
        project.create_view("busy", "SELECT worker FROM by_worker WHERE n > 10")
        project.create_view("fed", "SELECT count(*) AS n FROM feed.orders")
        project.create_view("extra", roles.EXTRA[0])
        project.run(once=True)
    return True


def report(folder: Path, fed: int, target: str | None) -> bool:
    """Check a round and print what is wrong with it."""
    wrong, codes, done = check.problems(folder, fed, target)
    errors = ", ".join(f"{code} {count}" for code, count in codes.most_common() if code)
    print(
        f"  {done['acknowledged']} writes acknowledged, {done['failed']} failed, {done['rows']} there; {fed} fed; errors: {errors or 'none'}"
    )
    for text in wrong[:20]:
        print("  WRONG", text)
    return not wrong


def one_round(
    home: Path, seed: int, kills: int, server: PostgresServer | None, *, shared: bool
) -> tuple[bool, Counter[str]]:
    """Work on one project, with its catalog in PostgreSQL if `shared`, and check it."""
    folder = home / f"{'postgres' if shared else 'sqlite'}-{seed}"
    for part in ("feed/orders", "journal"):
        (folder / part).mkdir(parents=True)
    calm = folder / "calm"
    calm.touch()
    proxy = Proxy(server.port, calm, seed) if server is not None else None
    catalog, target, inside = "", "", None
    if server is not None and proxy is not None:
        through = f"postgresql://postgres@127.0.0.1:{proxy.port}/"
        catalog = f'catalog = "{through}{server.database().rpartition("/")[2]}"' if shared else ""
        inside = server.database()
        target = TARGET.format(url=through + inside.rpartition("/")[2])
    (folder / "runnel.toml").write_text(CONFIG.format(catalog=catalog, target=target))
    fine = in_a_child(folder, prepare)
    calm.unlink()
    worked = Round(folder, random.Random(seed))
    begun = time.monotonic()
    worked.run(kills)
    took = time.monotonic() - begun
    calm.touch()
    print(f"round {folder.name}: {dict(worked.sent)} in {took:.0f} s", flush=True)
    fine = in_a_child(folder, report, worked.fed, inside) and fine
    if proxy is not None:
        worked.sent["cuts"] = proxy.close()
    if fine:
        shutil.rmtree(folder)
    return fine, worked.sent


def main() -> int:
    """Run the rounds."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=2000)
    arguments.add_argument("--each", type=int, default=100, help="signals per project")
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    arguments.add_argument("--catalog", choices=("both", "sqlite", "postgres"), default="both")
    arguments.add_argument("--seconds", type=float, default=1e9, help="begin no round after this long")
    said = arguments.parse_args()
    home, begun = Path(tempfile.mkdtemp(prefix="runnel-chaos-")), time.monotonic()
    print(f"seed {said.seed}, in {home}", flush=True)
    sent: Counter[str] = Counter()
    failed = rounds = 0
    with ExitStack() as stack:
        server = stack.enter_context(postgres("max_connections=300"))
        while sent["SIGKILL"] + sent["SIGINT"] < said.kills and time.monotonic() - begun < said.seconds:
            shared = said.catalog == "postgres" or (said.catalog == "both" and rounds % 2 == 1)
            fine, more = one_round(home, said.seed + rounds, min(said.each, said.kills), server, shared=shared)
            sent, failed, rounds = sent + more, failed + (not fine), rounds + 1
    took = time.monotonic() - begun
    print(f"seed {said.seed}: {rounds} rounds, {dict(sent)}, {failed} rounds wrong, {took:.0f} s")
    if not failed:
        shutil.rmtree(home)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
