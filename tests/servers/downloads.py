"""Programs that tests need and pip does not have: fetched once from Debian or Maven by name, unpacked into the user's cache.

Whoever comes second finds the finished folder: it is built under another name and renamed, so nobody sees half of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from runnel.engine.java import find_java

FETCH_SECONDS = 900
Fill = Callable[[Path], None]


def cached(name: str, fill: Fill) -> Path:
    """Give a folder of the user's cache, filled by `fill` when it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "runnel"
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as work:
        made = Path(work, "made")
        made.mkdir()
        fill(made)
        try:
            made.rename(folder)
        except OSError:
            assert folder.is_dir()
    return folder


def from_debian(folder: Path, *packages: str) -> None:
    """Unpack packages of this Debian below a folder; needs neither root nor an installation."""
    with tempfile.TemporaryDirectory(prefix="debs-") as work:
        run(["apt-get", "download", *packages], cwd=Path(work))
        for package in Path(work).glob("*.deb"):
            run(["dpkg", "-x", str(package), str(folder)])


def from_maven(folder: Path, organisation: str, name: str, version: str) -> None:
    """Unpack one jar, without what it depends on, into a folder; the Ivy inside PySpark fetches it."""
    spec, home = find_spec("pyspark"), find_java()
    assert spec is not None
    assert spec.origin is not None
    assert home is not None, "Maven's packages are fetched with Java, and none was found"
    ivy = next((Path(spec.origin).parent / "jars").glob("ivy-2*.jar"))
    with tempfile.TemporaryDirectory(prefix="ivy-") as work:
        command = [str(Path(home, "bin", "java")), "-jar", str(ivy), "-cache", f"{work}/cache", "-notransitive"]
        command += ["-confs", "default", "-dependency", organisation, name, version]
        run([*command, "-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"])
        shutil.unpack_archive(Path(work, "jars", f"{name}-{version}.jar"), folder, "zip")


def run(command: list[str], cwd: Path | None = None, environment: dict[str, str] | None = None) -> None:
    """Run a command to its end; what it said is the failure's message."""
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
