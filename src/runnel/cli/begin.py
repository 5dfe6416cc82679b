"""Commands to begin with: demo, init, check."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from runnel.cli.check import check_project
from runnel.cli.escapes import echo
from runnel.cli.invocation import tell
from runnel.cli.opening import chosen_engine
from runnel.cli.skeleton import README, write_project
from runnel.cli.terminal import log, progress
from runnel.errors import NOT_FINE, UsageError


def demo(
    seconds: Annotated[float, typer.Option(help="How long the shop changes.", metavar="N", min=0)] = 20.0,
    engine: Annotated[str, typer.Option(help="What computes the views.")] = "spark",
    seed: Annotated[int, typer.Option(help="Another seed makes other changes.")] = 7,
) -> None:
    """Make a shop that changes all the time, keep 5 views of it, and verify them at the end."""
    if engine != "spark":
        raise UsageError("RUNNEL-ENGINE-UNKNOWN", f"there is no engine {engine!r}", hint="use --engine spark")
    from runnel.demo import run_demo

    if not run_demo(seconds, engine=chosen_engine(), seed=seed):
        raise typer.Exit(NOT_FINE)


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    example: Annotated[
        str | None, typer.Option(help="Another project than the first one: sync.", metavar="NAME")
    ] = None,
) -> None:
    """Write a commented project that runs; `--example sync` one between two SQL databases."""
    for name in write_project(folder, example):
        echo(f"wrote {folder / name}")
    echo(f"try: runnel run --once --project {folder}" if example is None else f"read: {folder / README}")


def check(ctx: typer.Context) -> None:
    """Parse, compile and connect; tell every problem at once, with file, line and hint."""
    with progress("checking"):
        found = check_project(ctx.obj.folder)
    for problem in found.problems:
        tell(problem, debug=ctx.obj.debug)
    for said in found.advice:
        log.warning("%s", said)
    for name in found.unchecked:
        log.warning("view %s is not checked: what it reads has a problem", name)
    for name, strategy in found.strategies.items():
        echo(f"view {name}: {strategy}")
    if found.problems:
        count = len(found.problems)
        echo(f"{count} problem{'' if count == 1 else 's'}", err=True)
        raise typer.Exit(NOT_FINE)
    echo("no problems")
