"""Opens the project a command works on, with the engine it is to run on."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.cli.terminal import log
from runnel.engine.spark import SparkEngine
from runnel.errors import RunnelError, UsageError
from runnel.project.engine import spark_engine
from runnel.project.project import open_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.config import Config
    from runnel.engine.base import Engine
    from runnel.project import Project

ENGINE = "RUNNEL_ENGINE"


def chosen_engine() -> Engine | None:
    """Give the engine that the environment asks for; None leaves the choice to the project, which is Spark."""
    name = os.environ.get(ENGINE, "spark")
    if name == "spark":
        return None
    if name != "duckdb":
        raise UsageError("RUNNEL-ENGINE-UNKNOWN", f"{ENGINE} is {name!r}", hint="use spark, or duckdb for tests")
    from runnel.engine.duckdb import DuckDbEngine

    return DuckDbEngine()


def engine_of(settings: Config | None) -> Engine:
    """Give an engine for a project that is not opened; nothing is started yet."""
    chosen = chosen_engine()
    if chosen is not None:
        return chosen
    return SparkEngine() if settings is None else spark_engine(settings)


@contextmanager
def opened(folder: Path, *, sync: bool = True, create: bool | None = None) -> Iterator[Project]:
    """Open a project for one command; `sync` brings definitions in line with the files.

    The state is made where there was none if `create` says so, or is left out and `sync` does. What cannot be brought in line is told and does not stop a command from reading what is there.
    """
    project = open_project(folder, engine=chosen_engine(), sync=False, create=sync if create is None else create)
    try:
        for warning in project.config.warnings:
            log.warning("%s", warning)
        if sync:
            _bring_in_line(project)
        yield project
    finally:
        project.close()


def _bring_in_line(project: Project) -> None:
    try:
        project.sync(log.info)
    except RunnelError as error:
        if not project.runtime.lake.snapshot().relations:
            raise
        log.warning("the project's files and the state differ: %s", error)
