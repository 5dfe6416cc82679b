"""Labelled points where tests kill the process, to prove that a crash there loses nothing and doubles nothing.

`reach(label)` does nothing unless the environment variable `RUNNEL_KILL_AT` names that label; then the process dies at
once, as by `kill -9`. Every label is listed in `POINTS`, so that a test can visit them all.
"""

from __future__ import annotations

import os
import signal

KILL_AT = "RUNNEL_KILL_AT"
POINTS: tuple[str, ...] = (
    "epoch:planned",
    "epoch:captured",
    "epoch:base-written",
    "epoch:view-computed",
    "epoch:views-written",
    "publish:begun",
    "publish:files-listed",
    "publish:before-commit",
    "publish:after-commit",
    "epoch:before-release",
    "epoch:released",
    "view:hydrated",
    "compaction:planned",
    "compaction:written",
    "compaction:before-commit",
    "compaction:after-commit",
    "expiry:planned",
    "expiry:before-commit",
    "expiry:after-commit",
    "expiry:file-deleted",
    "expiry:done",
    "capture:reading",
    "capture:read",
    "capture:committed",
    "capture:settled",
    "deliver:table-made",
    "deliver:sent",
    "deliver:rows-written",
    "deliver:marked",
)


def reach(label: str) -> None:
    """Die here if a test asked for it."""
    assert label in POINTS, label
    if os.environ.get(KILL_AT) == label:
        os.kill(os.getpid(), signal.SIGKILL)
