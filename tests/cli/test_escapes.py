"""What stands in values, names and errors never commands the terminal; programs get it exactly."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli.app import app
from runnel.cli.escapes import escaped
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\r"
COMMANDS = """
import sys
from runnel.cli.app import app
folder = sys.argv[1]
for words in (
    ["show", "t"], ["show", "t", "--format", "csv"], ["show", "t", "--format", "json"], ["status"], ["status", "--json"],
    ["query", "SELECT s AS `\\x1b[2J` FROM t"], ["query", "SELECT '\\x1b[2J' FROM nowhere"], ["explain", "v"],
    ["history", "t", "--key", "1"], ["run", "--once"], ["watch", "t", "--seconds", "0"], ["show", "\\x1b[2J"],
):
    app([*words, "--project", folder], standalone_mode=False)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a project whose values, file names and errors hold commands for terminals."""
    (tmp_path / "feed" / "u").mkdir(parents=True)
    (tmp_path / "feed" / "u" / "1\x1b[2J.jsonl").write_text(json.dumps({"id": HOSTILE}) + "\n")
    (tmp_path / "runnel.toml").write_text(
        '[project]\nname = "e"\n[sources.f]\ntype = "files"\npath = "feed"\nschema = { u = "id BIGINT" }\n'
    )
    with runnel.open(tmp_path, engine=DuckDbEngine()) as project:
        project.create_table("t", "id BIGINT, s STRING", key=["id"])
        project.create_view("v", f"SELECT id, '{HOSTILE}' AS c FROM t")
        with project.transaction() as tx:
            tx.insert("t", [{"id": 1, "s": HOSTILE}])
    return tmp_path


def test_no_command_for_the_terminal_reaches_it(folder: Path) -> None:
    ours, theirs = pty.openpty()
    said = {**os.environ, "RUNNEL_ENGINE": "duckdb", "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS, str(folder)], stdin=theirs, stdout=theirs, stderr=theirs, env=said
    ) as child:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # the other end is closed
            pass
        child.wait()
    os.close(ours)
    text = shown.decode()
    assert "owned" in text
    for command in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e"):
        assert command not in text, text


def test_programs_get_values_exactly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNEL_ENGINE", "duckdb")
    told = CliRunner().invoke(app, ["show", "t", "--format", "json", "--project", str(folder)])
    assert json.loads(told.stdout) == [{"id": 1, "s": HOSTILE}]
    told = CliRunner().invoke(app, ["show", "t", "--format", "csv", "--project", str(folder)])
    assert HOSTILE.encode() in told.stdout_bytes


def test_all_control_characters_are_escaped_but_tabs_and_line_ends() -> None:
    kept = {chr(n) for n in range(0x110000) if not 0xD800 <= n < 0xE000 and escaped(chr(n)) == chr(n)}
    assert {"\t", "\n", "a", "é", "漢"} <= kept
    assert not kept & {*map(chr, range(9)), *map(chr, range(11, 32)), *map(chr, range(127, 160)), "\u202e", "\u2066"}
