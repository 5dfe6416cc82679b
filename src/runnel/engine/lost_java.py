"""Notices that the Java process below a Spark session has ended, and lets the next session start a new one.

PySpark keeps its Java process, context and session in class variables and uses them for ever, even when the process is gone.
"""

from __future__ import annotations

import logging
import subprocess
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from runnel.errors import Unreachable

ENDING_SECONDS = 2.0
"""A process that is killed closes its connections a moment before its parent sees it end."""


def gone() -> Unreachable:
    """Give the error of a Spark that we started and start again."""
    return Unreachable(
        "RUNNEL-SPARK-GONE",
        "Spark's Java process has ended",
        hint="it is started again; if this repeats, the system may have too little memory for [spark] spark.driver.memory",
    )


def given_stopped() -> Unreachable:
    """Give the error of a session that the user gave us and that runs no more; it is not ours to start."""
    return Unreachable(
        "RUNNEL-SPARK-STOPPED",
        "the Spark session that the project was opened with was stopped, or its Java process has ended",
        hint="open the project again with a session that runs",
    )


def java_ended(session: Any, patience: float = 0.0) -> bool:
    """Say whether a session's Java process, started by this process, has ended, or ends within `patience` seconds."""
    process = getattr(getattr(getattr(session, "_sc", None), "_gateway", None), "proc", None)
    return process is not None and _ended(process, patience)


def is_stopped(session: Any) -> bool:
    """Say whether somebody has stopped a session, or its Java process has ended; Java is not asked."""
    if getattr(session, "is_stopped", False) is True:  # Spark Connect
        return True
    context = getattr(session, "_sc", None)
    return context is not None and (getattr(context, "_jsc", None) is None or java_ended(session))


def broken_connection(error: BaseException) -> bool:
    """Say whether an error can come from a Java process that is gone, rather than be an answer of Java."""
    if isinstance(error, (OSError, EOFError)):
        return True
    name = type(error).__name__
    return name.startswith("Py4J") and name != "Py4JJavaError"


def hide_stacks_of_lost_connections(session: Any) -> None:
    """Keep Python's side of Spark from printing stacks when Java has ended; we report that in one sentence."""
    root = logging.getLogger()
    if _no_stack not in root.filters:
        root.addFilter(_no_stack)
    accumulators = getattr(getattr(session, "_sc", None), "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = lambda *_: None


def _no_stack(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."  # of py4j, which logs it as the root logger


def forget_ended_java() -> None:
    """Let go of a Java process that has ended, so that PySpark starts another one."""
    with SparkContext._lock:
        gateway: Any = SparkContext._gateway
        process = getattr(gateway, "proc", None)
        if process is None or not _ended(process, 0.0):
            return
        context: Any = SparkContext._active_spark_context
        classes: Any = (SparkContext, SparkSession, SQLContext)
        classes[0]._active_spark_context = classes[0]._gateway = classes[0]._jvm = None
        classes[1]._instantiatedSession = classes[1]._activeSession = None
        classes[2]._instantiatedContext = None
    if context is not None:
        context._jsc = None  # whoever still holds it is told that it was stopped
        accumulators, context._accumulatorServer = getattr(context, "_accumulatorServer", None), None
        if accumulators is not None:
            accumulators.shutdown()
    with suppress(Exception):  # its connections are broken already; objects that are collected later ask it no more
        gateway.shutdown()


def _ended(process: subprocess.Popen[bytes], patience: float) -> bool:
    if patience:
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    return process.poll() is not None
