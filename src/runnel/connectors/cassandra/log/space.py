"""Whether the nodes can go on keeping their logs for readers: the space these may take, and how late writes are seen.

A server whose log folder is full refuses writes to the captured tables (or, with `cdc_block_writes: false`, deletes what
was not read), so this is said before it happens.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.log.segment import segment_files
from runnel.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from runnel.errors import RunnelError

NEARLY_FULL = 0.8
"""The share of the space for logs from which on it is said."""
LATE_SECONDS = 1.0
"""The sync period from which on it is said: writes are seen, and safe, only after it."""
_MIB = 1 << 20
_SIZES = {"b": 1, "kib": 1 << 10, "mib": _MIB, "gib": 1 << 30, "": _MIB}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1e-3}
_QUANTITY = re.compile(r"(\d+)\s*([a-zµ]*)", re.IGNORECASE)


@dataclass(frozen=True)
class LogSettings:
    """What a server says of its log, in bytes and seconds; None where it does not say it."""

    total: int | None = None
    segment: int = 32 * _MIB
    sync: float | None = None
    blocks: bool = True


def log_settings(told: Mapping[str, str | None]) -> LogSettings:
    """Read a server's settings; those of releases before 4.1 have their unit in the name.

    >>> log_settings({"cdc_total_space": "1024MiB", "commitlog_sync_period": "10s"})
    LogSettings(total=1073741824, segment=33554432, sync=10.0, blocks=True)
    """
    total = _first(told, "cdc_total_space", "cdc_total_space_in_mb")
    segment = _first(told, "commitlog_segment_size", "commitlog_segment_size_in_mb")
    period = _first(told, "commitlog_sync_period", "commitlog_sync_period_in_ms")
    sync = _amount(period, _SECONDS) if (told.get("commitlog_sync") or "periodic") == "periodic" else 0.0
    size, room = _amount(segment, _SIZES), _amount(total, _SIZES)
    return LogSettings(
        int(room) if room else None, int(size or 32 * _MIB), sync, (told.get("cdc_block_writes") or "true") == "true"
    )


def _first(told: Mapping[str, str | None], *names: str) -> str | None:
    return next((told[name] for name in names if told.get(name)), None)


def _amount(text: str | None, units: Mapping[str, float]) -> float | None:
    found = _QUANTITY.fullmatch((text or "").strip())
    if found is None or found[2].lower() not in units:
        return None
    return int(found[1]) * units[found[2].lower()]


def space_problems(label: str, settings: LogSettings, folders: Iterable[Path]) -> Iterator[RunnelError]:
    """Give what is wrong with the space of the nodes' logs."""
    for folder in folders:
        # The server counts a segment that it still writes as a whole one, however little is in its file yet.
        used = sum(max(segment.path.stat().st_size, settings.segment) for segment in segment_files(folder))
        if settings.total is not None and used + settings.segment > settings.total:
            then = "refuses writes to captured tables" if settings.blocks else "deletes segments that were not read"
            yield _problem(label, folder, f"takes all of the {_shown(settings.total)} it may, and the server {then}")
        elif settings.total is not None and used > NEARLY_FULL * settings.total:
            yield _problem(label, folder, f"takes {_shown(used)} of the {_shown(settings.total)} it may")
        free = shutil.disk_usage(folder).free
        if free < 2 * settings.segment:
            yield _problem(label, folder, f"is on a disk with {_shown(free)} left")


def _problem(label: str, folder: Path, what: str) -> RunnelError:
    return Terminal(
        "RUNNEL-CASSANDRA-SPACE",
        f"{label}: the log in {folder} {what}",
        hint="see that it is read (runnel run) and released (status names whoever holds it), or give it more room: cdc_total_space",
    )


def _shown(size: int) -> str:
    return f"{size / _MIB:.0f} MiB"


def advice(label: str, settings: LogSettings) -> Iterator[str]:
    """Give what is worth knowing about a server's settings, though nothing is wrong."""
    if settings.sync is None or settings.total is None:
        yield f"{label}: the server does not say how its log is kept; grant SELECT on system_views.settings to have it checked"
    elif settings.sync > LATE_SECONDS:
        yield (
            f"{label}: commitlog_sync_period is {settings.sync:g} s: so late are changes seen, and so much may a crash of the "
            "server lose; 10ms is a good value"
        )
