"""On what a benchmark ran, and how much memory it took at most."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.bench.workplace import Workplace

PACKAGES = ("runnel", "pyspark", "duckdb", "pyarrow", "sqlglot", "SQLAlchemy")
PROC = Path("/proc")


def facts(workplace: Workplace) -> dict[str, Any]:
    """Give what every benchmark's figures end with: engine, machine, and the most memory it took so far."""
    return {"engine": workplace.engine, "machine": machine(workplace.spark), "peak_memory": peak_memory()}


def machine(spark: Any) -> dict[str, Any]:
    """Give processor, memory and versions; Java's and Spark's settings where there is a session."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        **(_of_session(spark) if spark is not None else {}),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _of_session(spark: Any) -> dict[str, Any]:
    asked = "SELECT java_method('java.lang.System', 'getProperty', 'java.version')"
    return {
        "java": spark.sql(asked).head()[0],
        "master": spark.conf.get("spark.master"),
        "driver_memory": spark.conf.get("spark.driver.memory"),
    }


def held_memory() -> dict[str, int]:
    """Give the memory this process and its children hold now, in bytes; nothing where the system does not tell."""
    return {
        "driver": _status(os.getpid(), "VmRSS:"),
        "spark": sum(_status(pid, "VmRSS:") for pid in _descendants(os.getpid())),
    }


def bytes_written() -> int:
    """Give the bytes this process and its children have sent to the disk so far; 0 where the system does not tell."""
    return sum(_sent(pid) for pid in (os.getpid(), *_descendants(os.getpid())))


def _sent(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), 0)


def peak_memory() -> dict[str, int]:
    """Give the most memory this process, and its children (Spark) where the system tells, ever held, in bytes."""
    unit = 1 if platform.system() == "Darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"driver": own, "spark": sum(_status(pid, "VmHWM:") for pid in _descendants(os.getpid()))}


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


def _status(pid: int, field: str) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)
