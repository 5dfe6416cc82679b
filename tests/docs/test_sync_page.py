"""The walk-through of docs/sync.md: its commands are run against real servers, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from scripts.error_reference import ROOT
from tests.servers.mariadb import mariadb_server
from tests.servers.postgres import binaries, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.mysql import SqlServer
    from tests.servers.postgres import PostgresServer

__all__ = ["mariadb_server", "postgres_server"]
pytestmark = [pytest.mark.mariadb, pytest.mark.postgres, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "sync.md"
WRITE = "RUNNEL_WRITE_DOCS"
"""Set to 1, the page gets what its commands print now."""
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
VARYING = [
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"), "TIME"),
    (re.compile(r"\d[\d,.]* (ms|s)\b"), "DURATION"),
]


def commands(block: str) -> list[tuple[str, str]]:
    """Give each command of a block, and what is shown below it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture
def ports(mariadb_server: SqlServer, postgres_server: PostgresServer) -> Iterator[dict[str, str]]:
    """Give the ports of both servers in place of those of the page; what it makes there is removed afterwards."""
    yield {"3306": str(mariadb_server.port), "5432": str(postgres_server.port)}
    mariadb_server.sql("DROP DATABASE IF EXISTS shop")
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS front WITH (FORCE)")


def test_the_walk_through_prints_what_it_shows(
    ports: dict[str, str], mariadb_server: SqlServer, tmp_path: Path
) -> None:
    programs = [Path(sys.executable).parent, Path(mariadb_server.program.command[0]).parents[1] / "bin", binaries()]
    environment = mariadb_server.program.environment | {"RUNNEL_ENGINE": "duckdb", "NO_COLOR": "1", "PAGER": "cat"}
    environment["PATH"] = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    page = PAGE.read_text()
    for block in BLOCK.findall(page):
        seen = ""
        for command, shown in commands(block):
            printed = _run(_with_ports(command, ports), environment, tmp_path)
            printed = _with_ports(printed, {there: here for here, there in ports.items()})
            seen += f"$ {command}\n{printed}"
            if os.environ.get(WRITE) != "1":
                assert _steady(printed) == _steady(shown), command
            for path in tmp_path.glob("front/*.toml"):
                path.write_text(_with_ports(path.read_text(), ports))
        page = page.replace(f"```console\n{block}```", f"```console\n{seen}```")
    if os.environ.get(WRITE) == "1":
        PAGE.write_text(page)


def _run(command: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    return "".join(f"{line}\n" for line in lines)


def _with_ports(text: str, ports: dict[str, str]) -> str:
    for one, other in ports.items():
        text = re.sub(rf"\b{one}\b", other, text)
    return text


def _steady(text: str) -> str:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text
