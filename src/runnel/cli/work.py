"""Commands that change the state, or targets: run, verify and fsck (with --repair), refresh, rebuild, deliver, compact."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.answers import check_exists
from runnel.cli.escapes import echo
from runnel.cli.opening import chosen_engine, opened
from runnel.cli.terminal import log, out, progress
from runnel.cli.values import json_text
from runnel.errors import NOT_FINE, UsageError
from runnel.project.project import open_project

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from runnel.pipeline.step import Taken
    from runnel.pipeline.target_check import Checked
    from runnel.project import Project
    from runnel.verify import Report

ABANDONED = 130
TERMINATED = 143
GRACE_SECONDS = 5.0
"""How long SIGTERM lets the epoch go on; whoever sends it kills soon after, and Spark may hang."""
LISTED = 20


def run(
    ctx: typer.Context,
    *,
    once: Annotated[bool, typer.Option("--once", help="Stop when everything that waits is taken in.")] = False,
) -> None:
    """Capture, maintain and deliver: the main job. Ctrl-C and SIGTERM end it after the epoch it is in, SIGTERM in 5 s at most."""
    job = Job(ctx.obj.folder, once=once)
    before = {number: signal.signal(number, job.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        job.work()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Job:
    """A run in a thread of its own, so that the main thread is free for signals whatever Spark does."""

    def __init__(self, folder: Path, *, once: bool) -> None:
        """Keep what is to be done."""
        self._folder, self._once = folder, once
        self._project: Project | None = None
        self._stopping = threading.Event()
        self._deadline: float | None = None
        self._failed: list[BaseException] = []

    def work(self) -> None:
        """Run until done or stopped; raise what the run raised."""
        thread = threading.Thread(target=self._run, name="runnel-run", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if self._stopping.is_set() and self._project is not None:
                self._project.stop()
            if self._deadline is not None and time.monotonic() > self._deadline:
                log.warning(
                    "the epoch did not end within %g s and is abandoned; nothing half-done is visible", GRACE_SECONDS
                )
                sys.stderr.flush()
                os._exit(TERMINATED)
        if self._failed:
            raise self._failed[0]

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop after the epoch; asked again, or when SIGTERM is not obeyed in time, leave: the next run takes what is not committed."""
        if self._stopping.is_set():
            log.warning("abandoned; nothing half-done is visible")
            sys.stderr.flush()
            os._exit(ABANDONED)
        self._stopping.set()
        if number == signal.SIGTERM:
            self._deadline = time.monotonic() + GRACE_SECONDS
        log.info("%s: ending after this epoch; once more to leave at once", signal.Signals(number).name)

    def _run(self) -> None:
        try:
            with open_project(self._folder, engine=chosen_engine(), sync=False) as project:
                for warning in project.config.warnings:
                    log.warning("%s", warning)
                if self._stopping.is_set():
                    return
                self._project = project
                with progress("starting") as say:
                    project.run(once=self._once, on_epoch=_teller(say))
                log.info("stopped at epoch %s", project.runtime.lake.head())
        except BaseException as error:
            self._failed.append(error)


def _teller(say: Callable[[str], None]) -> Callable[[Taken], None]:
    def tell(taken: Taken) -> None:
        slowest = max((view.milliseconds for view in taken.results), default=0.0)
        rows = sum(view.rows for view in taken.results if view.shown)
        say(f"epoch {taken.epoch}: {taken.rows_in} rows in, {rows} view rows out, slowest view {slowest:.0f} ms")
        for view in taken.results:
            if view.error and view.shown:
                log.error("view %s stopped at its frontier: %s", view.view, view.error)

    return tell


def verify(
    ctx: typer.Context,
    views: Annotated[list[str] | None, typer.Argument(help="All views where none is named.")] = None,
    sample: Annotated[int | None, typer.Option(help="Compare one row in N.", metavar="N", min=1)] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Compare the tables of this target with its views.", metavar="NAME")
    ] = None,
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Recompute a view that is wrong, or write a target's rows that differ, and verify again."
        ),
    ] = False,
) -> None:
    """Recompute views from their own SQL and compare as bags, or a target's tables with its views; exit 1 on any difference."""
    names = views or []
    if target is not None:
        if sample is not None:
            what = "--sample is for views; tables of a target are compared whole"
            raise UsageError("RUNNEL-VERIFY-SAMPLE", what, hint="name the views to compare fewer")
        _verify_target(ctx.obj.folder, target, names, repair=repair)
        return
    wrong = 0
    with opened(ctx.obj.folder) as project:
        check_exists(project, names)
        for name in names or list(project.runtime.lake.snapshot().views):
            report = _verified(project, name, sample)
            _print_report(report)
            if not report.ok and repair:
                report = _repaired(project, name, sample)
                _print_report(report)
            wrong += not report.ok
    if wrong:
        raise typer.Exit(NOT_FINE)


def _verify_target(folder: Path, target: str, views: list[str], *, repair: bool) -> None:
    with opened(folder) as project, progress(f"verifying {target}"):
        found = project.verify_target(target, views, repair=repair)
    for checked in found:
        _print_checked(checked)
        if checked.repaired is not None:
            echo("repaired:")
            _print_checked(checked.repaired)
    if not all(checked.ok for checked in found):
        raise typer.Exit(NOT_FINE)


def _print_checked(checked: Checked) -> None:
    out().print(str(checked), style=None if checked.difference and checked.difference.ok else "bold red")
    for kind, rows in checked.difference.rows.items() if checked.difference else ():
        for row in rows[:LISTED]:
            echo(f"  {kind} {json_text(row)}")
        left = checked.difference.counts[kind] - len(rows[:LISTED]) if checked.difference else 0
        if left:
            echo(f"  and {left} more {kind}")


def _verified(project: Project, name: str, sample: int | None) -> Report:
    with progress(f"verifying {name}"):
        return project.verify(name, sample=sample)


def _repaired(project: Project, name: str, sample: int | None) -> Report:
    epoch = project.refresh(name, full=True)
    echo(f"{name}: repaired by a full recompute at epoch {epoch}")
    return _verified(project, name, sample)


def _print_report(report: Report) -> None:
    out().print(str(report), style=None if report.ok else "bold red")
    for mark, what, rows in (("-", "missing", report.missing), ("+", "unexpected", report.unexpected)):
        for row in rows[:LISTED]:
            echo(f"  {mark} {what} {json_text(row)}")
        if len(rows) > LISTED:
            echo(f"  {mark} and {len(rows) - LISTED} more {what}")


def refresh(
    ctx: typer.Context,
    view: str,
    *,
    full: Annotated[bool, typer.Option("--full", help="Recompute from scratch.")] = False,
) -> None:
    """Bring a view (and the views it reads) up to date now."""
    with opened(ctx.obj.folder) as project, progress(f"refreshing {view}"):
        epoch = project.refresh(view, full=full)
        name = project.view(view).name
    echo(f"{name}: at epoch {epoch}" + (", recomputed in full" if full else ""))


def rebuild(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The table, or a source: all of its tables.", metavar="SOURCE[.TABLE]")],
    where: Annotated[
        str | None, typer.Option("--where", help="Only rows for which this holds, in Spark SQL.", metavar="COND")
    ] = None,
) -> None:
    """Read a table again from its store and write the rows that differ, while the log goes on; a source: all of its tables."""
    with opened(ctx.obj.folder, sync=False) as project, progress(f"rebuilding {name}"):
        done = project.rebuild(name, where)
    for table in done.tables:
        echo(f"{table.name}: {table.rows_read} rows read, {table.rows_changed} differed")
    if where is not None and done.ahead:
        echo("the log has not come to these rows yet: they were taken whole, not only where the condition holds")
    written = "written as" if done.published else "nothing to write at"
    echo(f"as of {done.place}, {written} epoch {done.epoch}")


def deliver(
    ctx: typer.Context,
    target: Annotated[str | None, typer.Argument(help="All targets where none is named.")] = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Write the tables whole, and remove what should not be there.")
    ] = False,
) -> None:
    """Bring targets up to date now."""
    with opened(ctx.obj.folder, sync=False) as project, progress("delivering"):
        done = project.deliver(target, full=full)
    for name, one in done.items():
        echo(f"{name}: at epoch {one.epoch}, {one.rows} rows written or removed")


def compact(ctx: typer.Context) -> None:
    """Fold each relation's signed rows into one sorted run, and forget epochs that are no longer kept."""
    with opened(ctx.obj.folder, sync=False) as project, progress("compacting"):
        done = project.compact()
    echo(f"folded {done.files_folded} files of {done.relations} relations, wrote {done.bytes_written} bytes")
    if done.expired is not None:
        gone = done.expired
        echo(f"forgot {gone.snapshots} epochs, deleted {gone.files} files of {gone.bytes} bytes")


def fsck(
    ctx: typer.Context,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild what can be rebuilt, and look again.")] = False,
) -> None:
    """Read the whole state and list what is damaged: files, statistics, catalog; exit 1 if anything is."""
    with opened(ctx.obj.folder, sync=False) as project, progress("reading the state") as say:
        found = project.fsck(repair=repair, progress=say)
    for damage in found.damages:
        out().print(str(damage), style="bold red")
    for line in (*found.rebuilt, *found.not_rebuilt):
        echo(line)
    echo(str(found.checked))
    if not found.ok:
        raise typer.Exit(NOT_FINE)
