"""Commands that answer and change nothing: status, explain, query, show, history, watch."""

from __future__ import annotations

import sys
import time
from enum import Enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.cli import values
from runnel.cli.escapes import echo, echo_exact
from runnel.cli.opening import opened
from runnel.cli.terminal import facts_table, out, rows_table
from runnel.compiler import improved
from runnel.errors import Terminal, UsageError, places_named
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from runnel.project import Project
    from runnel.project.status import Status

POLL_SECONDS = 0.1
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail where a view is behind or has failed.")]
At = Annotated[int | None, typer.Option(help="Read as of this epoch.", metavar="EPOCH")]


class Format(str, Enum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def status(ctx: typer.Context, *, as_json: Json = False) -> None:
    """Show sources with position and lag, views with frontier, rows, mode and errors, targets with the epoch they hold."""
    with opened(ctx.obj.folder, sync=False) as project:
        found = project.status()
    if as_json:
        echo_exact(values.json_text(found.to_dict()))
    elif out().is_terminal:
        _print_status(found)
    else:
        echo(str(found))


def _print_status(found: Status) -> None:
    console = out()
    console.print(f"{found.project}: epoch {found.epoch}, runner {found.runner or 'none'}")
    if found.error:
        console.print(found.error, style="bold red")
    if found.sources:
        rows = [
            (s.name, values.json_text(dict(s.position)), values.json_text(dict(s.lag)), s.error) for s in found.sources
        ]
        console.print(facts_table("sources", ("source", "position", "waiting", "error"), rows), soft_wrap=False)
    tables = [(t.name, t.rows, t.files, t.bytes) for t in found.tables]
    console.print(facts_table("tables", ("table", "stored", "files", "bytes"), tables), soft_wrap=False)
    views = [
        (v.name, v.strategy, v.refresh, v.frontier, v.behind, v.rows, v.last, v.proved, v.error) for v in found.views
    ]
    names = ("view", "strategy", "refresh", "epoch", "behind", "stored", "last", "proof", "error")
    console.print(facts_table("views", names, views), soft_wrap=False)
    if found.targets:
        targets = [(t.target, t.view, t.table, t.epoch, t.behind, t.error) for t in found.targets]
        heads = ("target", "view", "table", "epoch", "behind", "error")
        console.print(facts_table("targets", heads, targets), soft_wrap=False)


def explain(ctx: typer.Context, view: str, *, as_json: Json = False) -> None:
    """Show how a view is kept and why, its delta program, what is read and what that cost lately."""
    with opened(ctx.obj.folder, sync=False) as project:
        explanation = project.explain(view)
    echo_exact(values.json_text(explanation.to_dict())) if as_json else echo(str(explanation))


def query(
    ctx: typer.Context,
    sql: str,
    at: At = None,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", metavar="FILE")] = None,
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask the stores themselves.")] = False,
    explained: Annotated[bool, typer.Option("--explain", help="Show the query as it would be run.")] = False,
    strict: Strict = False,
) -> None:
    """Run a SELECT over tables and views, all at one epoch."""
    if live:
        raise UsageError(
            "RUNNEL-QUERY-LIVE",
            "--live needs a store that can be asked itself, and none can yet",
            hint="leave --live away to ask the captured tables",
        )
    with opened(ctx.obj.folder) as project:
        if explained:
            echo(_explained(project, sql, at))
            return
        rows = _asked(project, sql, at, strict=strict)
    _print_rows(rows, form, output)


def _asked(project: Project, sql: str, at: int | None, *, strict: bool) -> pa.Table:
    try:
        return project.query(sql, at=at, strict=strict).to_arrow()
    except Terminal as error:
        raise improved(error, sql, project.runtime.lake.snapshot(at).shown) from error


def _explained(project: Project, sql: str, at: int | None) -> str:
    from runnel.query import bound

    snapshot = project.runtime.lake.snapshot(at)
    text, inputs = bound(project.runtime.engine, snapshot, sql)
    lines = [f"-- at epoch {snapshot.epoch}", text, "", "-- reads"]
    return "\n".join([*lines, *(f"--   {name}: {type(source).__name__.lower()}" for name, source in inputs.items())])


def show(
    ctx: typer.Context,
    view: str,
    at: At = None,
    form: Annotated[Format, typer.Option("--format", help="How rows are printed.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", metavar="FILE")] = None,
    *,
    strict: Strict = False,
) -> None:
    """Print the rows of a view or table, now or as of an epoch."""
    with opened(ctx.obj.folder) as project:
        rows = project.table(view).to_arrow(at=at, strict=strict)
    _print_rows(rows, form, output)


def _print_rows(rows: pa.Table, form: Format, output: Path | None) -> None:
    if form is Format.PARQUET:
        _write_bytes(values.to_parquet(rows), output)
    elif form is not Format.TABLE:
        text = values.to_csv(rows) if form is Format.CSV else values.to_json(rows)
        if output is None:
            echo_exact(text)
        else:
            _write_file((text + "\n").encode("utf-8"), output)
    elif output is not None:
        raise UsageError(
            "RUNNEL-USAGE", "a table is for eyes, not for a file", hint="choose --format csv, json or parquet"
        )
    else:
        out().print(rows_table(rows.column_names, rows.to_pylist()), soft_wrap=False)
        echo(f"{rows.num_rows} row{'' if rows.num_rows == 1 else 's'}")


def _write_file(content: bytes, output: Path) -> None:
    with places_named("the rows cannot be written", output, "name another file with --output"):
        output.write_bytes(content)


def _write_bytes(content: bytes, output: Path | None) -> None:
    if output is not None:
        _write_file(content, output)
    elif sys.stdout.isatty():
        raise UsageError("RUNNEL-USAGE", "Parquet is not for a terminal", hint="name a file with --output")
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def history(
    ctx: typer.Context,
    name: str,
    key: Annotated[list[str], typer.Option(help="The row's key: VALUE, or NAME=VALUE for each key column.")],
    column: Annotated[str | None, typer.Option(help="Only this column's changes.")] = None,
    since: Annotated[str | None, typer.Option(help="From this epoch or time on.", metavar="T")] = None,
    until: Annotated[str | None, typer.Option(help="Up to this epoch or time.", metavar="T")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Print every kept change of one row, or of one column of it, oldest first."""
    with opened(ctx.obj.folder, sync=False) as project:
        found = project.history(name, key_of(project, name, key), column, _moment(since), _moment(until))
    if as_json:
        for entry in found:
            echo_exact(values.json_text(entry))
        return
    out().print(rows_table(("epoch", "time", "op", "old", "new"), found), soft_wrap=False)


def key_of(project: Project, name: str, given: list[str]) -> dict[str, str]:
    """Read `--key` options: `NAME=VALUE`, or the bare value of a one-column key."""
    handle = project.table(name)
    columns = {column.name.lower(): column.name for column in handle.relation.rows}
    key: dict[str, str] = {}
    for text in given:
        left, sign, value = text.partition("=")
        if sign and left.strip().lower() in columns:
            key[columns[left.strip().lower()]] = value
        elif len(handle.key) == 1:
            key[handle.key[0]] = text
        else:
            known = ", ".join(handle.key or columns.values())
            raise UsageError(
                "RUNNEL-HISTORY-KEY",
                f"{handle.name} has no one-column key for {text!r}",
                hint=f"write NAME=VALUE with {known}",
            )
    return key


def _moment(text: str | None) -> int | str | None:
    """Read an epoch's number; anything else is a time."""
    return int(text) if text is not None and text.isdecimal() else text


def watch(
    ctx: typer.Context,
    view: str,
    count: Annotated[int | None, typer.Option(help="Stop after so many changed epochs.", metavar="N")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.", metavar="N")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Print a view's changes as they are committed; JSON lines where stdout is no terminal."""
    left = count if count is not None else sys.maxsize
    deadline = time.monotonic() + seconds if seconds is not None else None
    tell = _tell_line if out().is_terminal and not as_json else _tell_json
    with opened(ctx.obj.folder) as project:
        try:
            _follow(project, view, tell, left, deadline)
        except KeyboardInterrupt:
            return


def _follow(
    project: Project, view: str, tell: Callable[[dict[str, Any], int], None], left: int, deadline: float | None
) -> None:
    seen = 0

    def changed(rows: pa.Table, epoch: int) -> None:
        nonlocal seen
        if seen < left:
            seen += 1
            for row in rows.to_pylist():
                tell(row, epoch)

    subscription = project.subscribe(view, changed)
    while seen < left and (deadline is None or time.monotonic() < deadline):
        subscription.poll()
        if seen < left:
            time.sleep(POLL_SECONDS)


def _tell_json(row: dict[str, Any], epoch: int) -> None:
    weight = row.pop(WEIGHT)
    echo_exact(values.json_text({"_epoch": epoch, WEIGHT: weight, **row}))
    sys.stdout.flush()


def _tell_line(row: dict[str, Any], epoch: int) -> None:
    weight = row.pop(WEIGHT)
    shown = "  ".join(f"{name}={values.cell_text(value)}" for name, value in row.items())
    out().print(f"{epoch:>8}  {weight:+d}  {shown}", style="green" if weight > 0 else "red")


def check_exists(project: Project, names: list[str]) -> None:
    """Refuse a misspelt view before any work is done."""
    for name in names:
        project.view(name)
    if not names and not project.runtime.lake.snapshot().views:
        raise Terminal(
            "RUNNEL-VIEW-NONE", "the project has no views yet", hint="write one in views/, then: runnel run --once"
        )
