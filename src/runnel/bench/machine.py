"""On what a benchmark ran, and how much memory it took at most."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
from pathlib import Path
from typing import Any

PACKAGES = ("runnel", "pyspark", "pyarrow", "sqlglot", "SQLAlchemy")
PROC = Path("/proc")


def machine(engine: Any) -> dict[str, Any]:
    """Give processor, memory and versions."""
    spark = engine.session
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "java": spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").head()[0],
        "master": spark.conf.get("spark.master"),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def peak_memory() -> dict[str, int]:
    """Give the most memory this process, and its children (Spark) where the system tells, ever held, in bytes."""
    unit = 1 if platform.system() == "Darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"driver": own, "spark": sum(_peak(pid) for pid in _descendants(os.getpid()))}


def _processor() -> str:
    try:
        lines = (PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _descendants(pid: int) -> list[int]:
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
        below = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [*below, *(far for child in below for far in _descendants(child))]


def _peak(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
