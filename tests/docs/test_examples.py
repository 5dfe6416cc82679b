"""The examples of the README and of docs/ are run, on the in-process engine, and print what the page says they print."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel import config
from runnel.engine.duckdb import DuckDbEngine
from scripts.error_reference import PAGE, ROOT, errors

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(language: str) -> list[object]:
    found = [(page, match) for page in PAGES for match in BLOCK.finditer(page.read_text()) if match[1] == language]
    return [
        pytest.param(m[2], m[3], id=f"{p.relative_to(ROOT)}:{p.read_text()[: m.start()].count(chr(10)) + 1}")
        for p, m in found
    ]


@pytest.mark.parametrize(("code", "output"), blocks("python"))
def test_python_examples_run_and_print_what_is_shown(
    code: str, output: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, open_project = runnel.memory, runnel.open
    monkeypatch.setattr(runnel, "memory", lambda: memory(engine=DuckDbEngine()))
    monkeypatch.setattr(runnel, "open", lambda folder: open_project(folder, engine=DuckDbEngine()))
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "example", "exec"), {})
    assert output is None or printed.getvalue() == output


@pytest.mark.parametrize(("text", "_"), blocks("toml"))
def test_settings_shown_are_settings_that_load(text: str, _: object, tmp_path: Path) -> None:
    (tmp_path / config.FILE).write_text(text)
    assert config.load(tmp_path, {}).warnings == ()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_every_error_code_is_in_the_reference() -> None:
    codes = {found.code for path in (ROOT / "src" / "runnel").rglob("*.py") for found in errors(path)}
    missing = sorted(code for code in codes if f"`{code}`" not in PAGE.read_text())
    assert not missing, f"run `make docs`: {', '.join(missing)}"
