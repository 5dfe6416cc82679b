"""Names the process that holds a lease, so that others on the same host can tell when it is gone.

>>> is_dead(this_process())
False
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path


def this_process() -> str:
    """Give a name of its own to something this process does: `host:pid:started:unique`."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_started(pid) or 0}:{uuid.uuid4().hex[:12]}"


def is_dead(owner: str) -> bool:
    """Say whether an owner on this very host has no process any more; of one elsewhere nothing is known."""
    parts = owner.split(":")
    if len(parts) < 3 or parts[0] != _host() or not parts[1].isdigit():
        return False
    pid = int(parts[1])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    started = _started(pid)
    # A process that is killed and not yet waited for is dead too, and another may have got its number.
    return started is None or (parts[2].isdigit() and int(parts[2]) not in (0, started))


def _host() -> str:
    """Give the host's name and, as containers may share one, which processes it can see."""
    try:
        seen = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - the link's target cannot be opened
    except OSError:
        return socket.gethostname().replace(":", "_")
    return f"{socket.gethostname().replace(':', '_')}/{seen}"


def _started(pid: int) -> int | None:
    """Give when a process was started, in ticks since the machine was; None if it is a zombie, 0 where that is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return None if fields[0] in "ZX" else int(fields[19])
