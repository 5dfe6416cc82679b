"""The published benchmarks, a command each: `runnel bench dashboard`. Exit code 1 when a view was not right at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.cli.opening import chosen_engine
from runnel.errors import NOT_FINE, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.bench.report import Sheet
    from runnel.bench.workplace import Workplace

app = typer.Typer(help="Run a published benchmark.", no_args_is_help=True, rich_markup_mode=None)

Base = Annotated[int, typer.Option(help="Rows of events to begin with.", metavar="N", min=1)]
Changes = Annotated[int, typer.Option(help="Changes per epoch.", metavar="D", min=1)]
Epochs = Annotated[int, typer.Option(help="Measured epochs.", metavar="E", min=1)]
Warm = Annotated[int, typer.Option(help="Epochs before those, to warm up.", metavar="W", min=0)]
Report = Annotated[Path | None, typer.Option("--json", help="Write the figures here.", metavar="FILE")]


def _run(
    measure: Callable[[Workplace], dict[str, Any]], sheet: Callable[[Mapping[str, Any]], Sheet], report: Path | None
) -> None:
    from runnel.bench.report import keep, show
    from runnel.bench.workplace import Workplace

    engine = chosen_engine()
    with Workplace("spark" if engine is None else engine.name) as workplace:
        figures = {"command": _command(), **measure(workplace)}
    show(sheet(figures))
    if report is not None:
        keep(figures, report)
    if not figures["verified"]:
        raise typer.Exit(NOT_FINE)


def _command() -> str:
    """Give the command as it would be typed again, without where its figures go."""
    words = sys.argv[1:]
    if "--json" in words:
        at = words.index("--json")
        words = words[:at] + words[at + 2 :]
    return " ".join(["runnel", *(word for word in words if word != "--debug")])


@app.command()
def dashboard(
    base: Base = 10_000_000,
    changes: Changes = 1_000,
    epochs: Epochs = 10,
    warm: Warm = 40,
    dimension: Annotated[int, typer.Option(help="Changes of dimensions per epoch.", metavar="D", min=0)] = 0,
    recompute_rounds: Annotated[int, typer.Option(help="How often each recompute is timed.", min=1)] = 3,
    report: Report = None,
    *,
    recompute: Annotated[bool, typer.Option(help="Compare with recomputing.")] = True,
) -> None:
    """Seven views over a star: warm epochs beside Spark and DuckDB recomputing the same views."""
    from runnel.bench import dashboard
    from runnel.bench.dashboard import Load

    load = Load(base, changes, epochs, warm, dimension, recompute_rounds if recompute else 0)
    _run(lambda place: dashboard.measure(place, load), dashboard.sheet, report)


@app.command()
def growth(
    bases: Annotated[str, typer.Option(help="Rows of events, with commas.")] = "1000000,10000000,100000000",
    changes: Changes = 1_000,
    epochs: Epochs = 10,
    warm: Warm = 40,
    report: Report = None,
) -> None:
    """Epochs of the same change over larger and larger tables."""
    from runnel.bench import growth
    from runnel.bench.dashboard import Load

    sizes = [_whole("--bases", base) for base in bases.split(",")]
    load = Load(0, changes, epochs, warm)
    _run(lambda place: growth.measure(place, sizes, load), growth.sheet, report)


@app.command()
def minmax(base: Base = 1_000_000, epochs: Epochs = 10, warm: Warm = 12, report: Report = None) -> None:
    """Delete the extremum of a large group again and again, beside inserts into the same group."""
    from runnel.bench import minmax

    _run(lambda place: minmax.measure(place, base, epochs, warm), minmax.sheet, report)


@app.command()
def tpch(
    scale: Annotated[float, typer.Option(help="The scale of TPC-H; 1 is 6 million lines.", min=0.01)] = 1.0,
    share: Annotated[float, typer.Option(help="How many of the orders a refresh set replaces.")] = 0.001,
    epochs: Epochs = 10,
    warm: Warm = 20,
    recompute_rounds: Annotated[int, typer.Option(help="How often each recompute is timed.", min=1)] = 3,
    report: Report = None,
    *,
    each: Annotated[bool, typer.Option("--each", help="Measure each view alone too.")] = False,
) -> None:
    """Keep the 22 queries of TPC-H as views, all together (and each alone) beside recomputing them."""
    from runnel.bench import tpch
    from runnel.bench.tpch import Load

    load = Load(scale, share, epochs, warm, recompute_rounds, each)
    _run(lambda place: tpch.measure(place, load), tpch.sheet, report)


@app.command()
def sustained(
    base: Base = 10_000_000,
    rate: Annotated[str, typer.Option(help="Changes per second, or max.")] = "max",
    seconds: Annotated[float, typer.Option(help="For how long.", min=0)] = 300.0,
    batch: Annotated[int, typer.Option(help="Changes per batch.", min=1)] = 1_000_000,
    warm: Annotated[int, typer.Option(help="Batches before the clock starts, to warm up.", metavar="W", min=0)] = 3,
    report: Report = None,
) -> None:
    """Take batches for minutes: changes per second, lag, files and memory over time."""
    from runnel.bench import sustained
    from runnel.bench.sustained import Load

    load = Load(base, 0 if rate == "max" else _whole("--rate", rate), seconds, batch, warm)
    _run(lambda place: sustained.measure(place, load), sustained.sheet, report)


@app.command()
def latency(
    base: Base = 10_000_000,
    rate: Annotated[int, typer.Option(help="Changes per second.", min=1)] = 1_000,
    seconds: Annotated[float, typer.Option(help="For how long.", min=0)] = 60.0,
    warm: Warm = 40,
    report: Report = None,
) -> None:
    """Write change files at a steady rate and time how long until the views show them."""
    from runnel.bench import latency
    from runnel.bench.latency import Load

    _run(lambda place: latency.measure(place, Load(base, rate, seconds, warm)), latency.sheet, report)


@app.command()
def choice(
    base: Base = 1_000_000,
    shares: Annotated[str, typer.Option(help="Sizes of changes as shares of the table.")] = "0.001,0.01,0.1,0.3,1",
    rounds: Annotated[int, typer.Option(help="How often each case is run.", min=1)] = 3,
    warm: Warm = 5,
    report: Report = None,
) -> None:
    """Run many kinds of change in both ways and say how often the chosen way was the faster one."""
    from runnel.bench import choice
    from runnel.bench.choice import Load

    load = Load(base, tuple(_number("--shares", share) for share in shares.split(",")), rounds, warm)
    _run(lambda place: choice.measure(place, load), choice.sheet, report)


@app.command()
def peers(
    base: Base = 1_000_000,
    batches: Annotated[str, typer.Option(help="Changes per batch, with commas.")] = "10000,1000000",
    count: Annotated[int, typer.Option(help="Timed batches of each size; 0: half a million changes.", min=0)] = 0,
    rounds: Annotated[int, typer.Option(help="How often a peer's runs are repeated.", min=1)] = 2,
    report: Report = None,
    *,
    install: Annotated[
        bool, typer.Option("--install", help="Install the peers first, each in a folder of its own.")
    ] = False,
) -> None:
    """Keep the same seven views in Flink and in Pathway, over the same changes: changes per second of each."""
    from runnel.bench.peers import homes, measure
    from runnel.bench.peers.measure import Load

    for peer in homes.PACKAGES if install else ():
        homes.install(peer)
    load = Load(base, tuple(_whole("--batches", batch) for batch in batches.split(",")), count, rounds)
    _run(lambda place: measure.measure(place, load), measure.sheet, report)


@app.command()
def capture(
    hosts: Annotated[str, typer.Option(help="Cassandra's nodes, with commas.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port of its native protocol.")] = 9042,
    cdc_raw: Annotated[str, typer.Option(help="Its log folders as they are seen from here, with commas.")] = "",
    rows: Annotated[int, typer.Option(help="Rows N; 2N are measured too.", metavar="N", min=4)] = 1_000,
    rounds: Annotated[int, typer.Option(help="How often each cycle is run.", metavar="R", min=1)] = 5,
    width: Annotated[int, typer.Option(help="Characters of each of ten values.", min=2)] = 100,
    report: Report = None,
    *,
    triggers: Annotated[
        bool, typer.Option("--triggers", help="The server has runnel's triggers: measure them.")
    ] = False,
) -> None:
    """Time cycles of all capture techniques on a Cassandra: `make cassandra` starts one."""
    from runnel.bench.cassandra import capture, capture_sheet
    from runnel.bench.cassandra.ycsb import Server

    server = Server(tuple(hosts.split(",")), port, tuple(folder for folder in cdc_raw.split(",") if folder))
    size = capture.Size(rows, rounds, width=width, triggers=triggers)
    _run(lambda _: capture.measure(server, size), capture_sheet.sheet, report)


@app.command()
def decode(
    mutations: Annotated[int, typer.Option(help="Mutations of a segment.", metavar="N", min=1)] = 100_000,
    rounds: Annotated[int, typer.Option(help="How often each way is timed.", min=1)] = 5,
    report: Report = None,
) -> None:
    """Decode a segment of Cassandra's log: mutations per second of one core, and with one and two of Spark's tasks."""
    from runnel.bench.cassandra import decode

    _run(lambda place: decode.measure(place, decode.Load(mutations, rounds)), decode.sheet, report)


@app.command()
def logsync(
    mysql: Annotated[
        list[str] | None, typer.Option(help="A MariaDB or MySQL: mysql://USER@HOST:PORT; may be given twice.")
    ] = None,
    postgres: Annotated[str | None, typer.Option(help="A PostgreSQL: postgresql://USER@HOST:PORT/DATABASE.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of each log.", metavar="N", min=1)] = 200_000,
    rate: Annotated[int, typer.Option(help="Transactions per second, for the lag.", min=1)] = 1_000,
    seconds: Annotated[float, typer.Option(help="How long the lag is measured.", min=1)] = 60.0,
    warm: Annotated[float, typer.Option(help="Seconds of load before that.", min=0)] = 10.0,
    report: Report = None,
    *,
    install: Annotated[bool, typer.Option("--install", help="Install the other readers first.")] = False,
) -> None:
    """Decode logs of SQL databases, beside mysql-replication and Debezium, and time how far a target is behind."""
    from runnel.bench.logsync import measure
    from runnel.bench.logsync.lag import Load
    from runnel.bench.peers import homes

    if not mysql and not postgres:
        raise UsageError(
            "RUNNEL-USAGE",
            "no server is given",
            hint="make mariadb, make mysql and make postgres start throw-away ones",
        )
    for peer in homes.READERS if install else ():
        homes.install(peer)
    load = Load(rate, seconds, warm)
    _run(lambda _: measure.measure(mysql or [], postgres, rows, load), measure.sheet, report)


def _whole(option: str, text: str) -> int:
    return int(_number(option, text.replace("_", "")))


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UsageError("RUNNEL-USAGE", f"{option}: {text!r} is no number", hint="such as 1000") from error
