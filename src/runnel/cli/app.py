"""The commands by name; each one's work stands in `answers`, `begin`, `bench`, `capturing`, `serving` or `work`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli import answers, begin, bench, capturing, serving, work
from runnel.cli.context import Context
from runnel.cli.invocation import RunnelGroup
from runnel.cli.terminal import set_up_logging

EVERYWHERE = "--project DIR and --debug may stand anywhere, before or after the command."
COMMANDS = (
    begin.demo,
    begin.init,
    begin.check,
    work.run,
    answers.status,
    answers.explain,
    answers.query,
    answers.show,
    answers.history,
    answers.watch,
    work.verify,
    capturing.prepare,
    capturing.capture,
    capturing.skip,
    serving.serve_log,
    work.refresh,
    work.rebuild,
    work.deliver,
    work.compact,
    work.fsck,
)

app = typer.Typer(
    cls=RunnelGroup,
    name="runnel",
    help="Keeps materialized views of changing tables right and fresh, incrementally, on Apache Spark.",
    epilog=EVERYWHERE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in COMMANDS:
    app.command(command.__name__.replace("_", "-"), epilog=EVERYWHERE)(command)
app.add_typer(bench.app, name="bench")


def _version(*, asked: bool) -> None:
    if asked:
        from runnel import __version__

        typer.echo(f"runnel {__version__}")
        raise typer.Exit


@app.callback()
def begin_command(
    ctx: typer.Context,
    project: Annotated[Path, typer.Option(help="The project's folder.", metavar="DIR")] = Path(),
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Log more, and show tracebacks.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Keep materialized views of changing tables right and fresh, incrementally, on Apache Spark."""
    _version(asked=version)
    set_up_logging(debug=debug)
    ctx.obj = Context(project, debug)
