"""Commands about what a source has in its store, and change data capture alone: none of them starts Spark where there is little to read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel import config
from runnel.cli.escapes import echo, echo_exact
from runnel.cli.opening import opened
from runnel.cli.terminal import log
from runnel.connectors import build_triggers, prepare_source
from runnel.errors import UsageError, nearest
from runnel.project.capturing import capture_of

if TYPE_CHECKING:
    from runnel.config import Config, Source


class Form(str, Enum):
    """How deltas are printed."""

    TEXT = "text"
    JSON = "json"
    OPLOG = "oplog"


Named = Annotated[str, typer.Argument(metavar="SOURCE", help="A source of runnel.toml.")]


def prepare(
    ctx: typer.Context,
    source: Named,
    technique: Annotated[
        str | None, typer.Option(help="Of capture alone: audit or trigger. Without: what following needs.", metavar="T")
    ] = None,
    triggers: Annotated[
        Path | None,
        typer.Option(
            "--build-triggers", help="Only build the jar of triggers, with Cassandra's jars in DIR.", metavar="DIR"
        ),
    ] = None,
    jar: Annotated[Path | None, typer.Option(help="Where the jar goes.", metavar="FILE")] = None,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what was made.")] = False,
) -> None:
    """Make, fill and remove what a source, or a capture technique, needs in the store; doing it twice changes nothing."""
    found, settings = _source(ctx, source)
    if technique is None and triggers is None:
        for warning in settings.warnings:
            log.warning("%s", warning)
        prepare_source(found, settings.folder, echo, undo=undo)
        return
    if triggers is not None:
        echo(f"wrote {build_triggers(found, triggers, jar or settings.folder / 'runnel-triggers.jar')}")
        return
    with opened(ctx.obj.folder, sync=False, create=True) as project:
        capture_of(project, found, technique).prepare(echo, undo=undo)


def capture(
    ctx: typer.Context,
    source: Named,
    technique: Annotated[str | None, typer.Option(help="Another one than the source's own.", metavar="T")] = None,
    since: Annotated[
        str | None, typer.Option(help="What happened after this; nothing is remembered.", metavar="POS")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How deltas are printed.")] = Form.TEXT,
    *,
    last_per_key: Annotated[
        bool, typer.Option("--last-per-key", help="Only the last operation of each place.")
    ] = False,
    expand_deletes: Annotated[bool, typer.Option("--expand-deletes", help="Deletes column by column.")] = False,
) -> None:
    """Print what has changed since the last time, as deltas; output of a run that failed is to be thrown away."""
    found, _ = _source(ctx, source)
    with opened(ctx.obj.folder, sync=False, create=True) as project:
        of_source = capture_of(project, found, technique, expand_deletes=expand_deletes)
        for line in of_source.lines(_position(since), form.value, last=last_per_key):
            echo_exact(line)
        if since is None:
            log.info("%s: captured up to %s", source, json.dumps(of_source.position()))


def skip(
    ctx: typer.Context,
    source: Named,
    position: Annotated[
        str | None,
        typer.Option(help="The position that an error names; without it, lists what was skipped.", metavar="P"),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is kept with the decision.", metavar="TEXT")] = "",
) -> None:
    """Go past a change of a source's log that cannot be read or held, for views and captures; it is recorded with its reason."""
    found, _ = _source(ctx, source)
    with opened(ctx.obj.folder, sync=False, create=True) as project:
        of_source = capture_of(project, found)
        if position is not None:
            of_source.skip(_position(position) or {}, reason)
        for skipped in of_source.skipped():
            when = datetime.fromtimestamp(skipped.decided, UTC).strftime("%Y-%m-%d %H:%M:%S")
            echo(f"{json.dumps(skipped.position)}  {when}  {skipped.reason}")


def _source(ctx: typer.Context, name: str) -> tuple[Source, Config]:
    settings = config.load(ctx.obj.folder)
    by_name = {source.name: source for source in settings.sources}
    if name not in by_name:
        hint = nearest(name, by_name) or "see [sources] in runnel.toml"
        raise UsageError("RUNNEL-SOURCE-UNKNOWN", f"there is no source {name!r}", hint=hint)
    return by_name[name], settings


def _position(text: str | None) -> dict[str, Any] | None:
    """Read a position: JSON as it was printed, microseconds, or a time (without a zone it is UTC).

    >>> _position("2026-01-02 03:04:05")
    {'time': 1767323045000000}
    """
    if text is None:
        return None
    if text.lstrip("-").isdigit():
        return {"time": int(text)}
    try:
        if text.startswith("{"):
            return dict(json.loads(text))
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            "RUNNEL-CAPTURE-POSITION",
            f"{text!r} is no position",
            hint="give what a capture printed as its end, a time such as '2026-01-02 03:04:05', or microseconds since 1970",
        ) from error
    return {"time": int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)}
