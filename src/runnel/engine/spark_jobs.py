"""Finds out which jobs and tasks Spark ran for a call, by a tag on the thread that makes it.

A tag reaches every job that a statement starts, broadcasts and subqueries included, whichever of Java's threads starts it. Asked is what Spark
itself knows of jobs, a few milliseconds a call. Spark Connect does not say it.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from runnel.engine.counts import SPARK, Ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from runnel.engine.counts import Counted, Kind

SETTLING_MILLISECONDS = 2_000
"""How long Spark may take to note what has just ended."""
UNKNOWN = Ran(None, None)
log = logging.getLogger("runnel")


def is_connect(made: object) -> bool:
    """Say whether a session or DataFrame is one of Spark Connect."""
    return type(made).__module__.startswith("pyspark.sql.connect")


@contextmanager
def counting_jobs(counted: Counted, kind: Kind, session: SparkSession, number: int = 1) -> Iterator[None]:
    """Count the block as work on Spark, with the jobs that it ran, whether or not it fails."""
    if is_connect(session):
        counted.work(kind, SPARK, number, UNKNOWN)
        yield
        return
    context, tag = session.sparkContext, f"runnel-count-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    try:
        yield
    finally:
        ran = UNKNOWN
        with suppress(Exception):  # Spark may have ended in the block, and the block's own error says so
            context.removeJobTag(tag)
            ran = _ran(context, tag)
        counted.work(kind, SPARK, number, ran)


def _ran(context: Any, tag: str) -> Ran:
    """Ask for the jobs of a tag; what has not been noted yet is waited for."""
    java = context._jsc.sc()
    java.listenerBus().waitUntilEmpty(SETTLING_MILLISECONDS)
    store, tasks = java.statusStore(), 0
    jobs = list(java.statusTracker().getJobIdsForTag(tag))
    for number in jobs:
        job = store.job(number)
        tasks += job.numCompletedTasks() + job.numFailedTasks() + job.numKilledTasks()
    return Ran(len(jobs), tasks)
