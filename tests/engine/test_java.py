from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from runnel.engine import java
from runnel.errors import Unreachable

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(folder: Path, version: str) -> Path:
    """Write a `java` that tells a version and a home as the real one does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\ncat >&2 <<'END'\nProperty settings:\n    java.home = {folder}\n"
        f"    java.specification.version = {version}\nEND\n"
    )
    program.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_is_taken_when_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    assert java.find_java() == str(tmp_path / "jdk")


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_an_old_java_home_gives_way_to_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    new = fake_java(tmp_path / "new", "21")
    monkeypatch.setattr("shutil.which", lambda _: str(new / "bin" / "java"))
    assert java.ensure_java() == str(new)
    assert os.environ["JAVA_HOME"] == str(new)


def test_a_missing_java_home_gives_way_to_the_packaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    packaged = fake_java(tmp_path / "packaged", "21")
    monkeypatch.setattr(java, "_packaged_java", lambda: str(packaged / "bin" / "java"))
    assert java.find_java() == str(packaged)


def test_no_java_at_all_is_said_with_what_to_install() -> None:
    with pytest.raises(Unreachable, match="RUNNEL-SPARK-JAVA") as told:
        java.ensure_java()
    assert "runnel[java]" in str(told.value)
    assert told.value.exit_code == 3


def test_a_java_without_the_vector_module_is_started_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trimmed = fake_java(tmp_path / "trimmed jdk", "21")
    (trimmed / "release").write_text('MODULES="java.base java.sql"\n')
    monkeypatch.setenv("JAVA_HOME", str(trimmed))
    home = java.ensure_java()
    assert home.startswith(str(tmp_path / "cache"))
    (trimmed / "bin" / "java").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    command = [f"{home}/bin/java", "-a b", "--add-modules=jdk.incubator.vector", "-c"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "-a b|-c|"
