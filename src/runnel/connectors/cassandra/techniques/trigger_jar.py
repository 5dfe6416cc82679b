"""Builds the triggers from their source beside this file, with the Java compiler and the jars of the user's own Cassandra."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from runnel.errors import UsageError

SOURCES = Path(__file__).parent / "trigger" / "runnel"
OLDEST = "11"
"""The oldest Java that Cassandra 5 runs on."""
COMPILE_SECONDS = 300


def build_jar(libraries: Path, jar: Path) -> Path:
    """Compile the triggers against Cassandra's jars in `libraries` and write them to `jar`."""
    if not list(libraries.glob("apache-cassandra-*.jar")) and not list(libraries.glob("cassandra-all-*.jar")):
        raise UsageError(
            "RUNNEL-TRIGGER-LIBRARIES",
            f"there is no Cassandra in {libraries}",
            hint="name the folder of the server's own jars, which is mostly called lib",
        )
    compiler = find_compiler()
    if compiler is None:
        raise UsageError(
            "RUNNEL-TRIGGER-JAVAC",
            "building the triggers needs a Java compiler, and there is only a runtime here or no Java at all",
            hint="install a JDK 17, or build the jar on another machine: it is the same everywhere",
        )
    sources = sorted(map(str, SOURCES.glob("*.java")))
    with tempfile.TemporaryDirectory(prefix="runnel-trigger-") as work:
        command = [compiler, "--release", OLDEST, "-nowarn", "-Xlint:-options", "-cp", f"{libraries}/*", "-d", work]
        done = subprocess.run(
            [*command, *sources], capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
        if done.returncode != 0:
            raise UsageError(
                "RUNNEL-TRIGGER-COMPILE",
                f"the triggers do not compile against {libraries}: {_first_line(done.stderr)}",
                hint="they are made for Cassandra 5.0; use writer = 'application' with other releases",
            )
        jar.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(jar, "w") as archive:
            for path in sorted(Path(work).rglob("*.class")):
                archive.write(path, path.relative_to(work).as_posix())
    return jar


def find_compiler() -> str | None:
    """Give the `javac` of `JAVA_HOME`, else of the path."""
    home = os.environ.get("JAVA_HOME")
    there = Path(home, "bin", "javac") if home else None
    return str(there) if there is not None and there.is_file() else shutil.which("javac")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "error:" in line), text.strip()[:200])
