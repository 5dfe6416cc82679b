"""A slice of the kills and cuts that `make chaos` does at length; it prints its seed."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["sqlite", "postgres"])
def test_kills_and_cuts_lose_nothing_and_double_nothing(catalog: str, say: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--kills", "12", "--each", "12", "--catalog", catalog]
    done = subprocess.run([*command, "--seed", str(int(time.time()))], capture_output=True, text=True, check=False)
    say(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "nothing")
    assert done.returncode == 0, done.stdout + done.stderr
