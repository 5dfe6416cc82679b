"""`runnel run` as a process of its own, which tests kill, stop and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STOP_SECONDS = 120


class Runnel:
    """`runnel run` as a process of its own."""

    def __init__(self, folder: Path, engine: str) -> None:
        """Nothing runs yet."""
        self._project = ["--project", str(folder)]
        self._environment = os.environ | {"RUNNEL_ENGINE": engine}
        self.said = folder / "said.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start without waiting."""
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command("run"), stdout=said, stderr=said, env=self._environment, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Fail where it has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, f"runnel ended: {self.said.read_text()[-3000:]}"

    def kill(self) -> None:
        """End it and the Java it started, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it as an operator does."""
        self.check()
        assert self._end(signal.SIGTERM) == 0, self.said.read_text()[-3000:]

    def verify(self) -> tuple[bool, str]:
        """Run `runnel verify`; say whether all is well, and what it printed."""
        done = subprocess.run(
            self._command("verify"), env=self._environment, capture_output=True, text=True, check=False
        )
        return done.returncode == 0, done.stdout.strip() + ("" if done.returncode == 0 else done.stderr[-3000:])

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", "from runnel.cli import main; main()", *self._project, *arguments]

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            (os.killpg if number == signal.SIGKILL else os.kill)(self._process.pid, number)
        return self._process.wait(timeout=STOP_SECONDS)
