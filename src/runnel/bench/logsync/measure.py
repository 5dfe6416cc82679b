"""Log sync: rows decoded per second of processor time, beside other readers of the same logs, and the lag of a target."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from runnel.bench.logsync import decode, lag, servers
from runnel.bench.machine import machine, peak_memory
from runnel.bench.peers import homes
from runnel.bench.report import MEGA, Sheet, machine_line, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMES = {
    decode.FILE: "runnel, from the file",
    decode.SERVER: "runnel, from the server",
    "mysql_replication": "mysql-replication",
    "debezium": "Debezium",
}
TITLES = {"mariadb": "MariaDB", "mysql": "MySQL", "postgres": "PostgreSQL"}


def measure(mysqls: Sequence[str], postgres: str | None, rows: int, load: lag.Load) -> dict[str, Any]:
    """Measure what the given servers allow; what is not given or not installed is left out and named."""
    found = [servers.mysql(url) for url in mysqls]
    logs = {server.family: decode.of_binlog(server, rows) for server in found}
    if postgres:
        logs["postgres"] = decode.of_pgoutput(postgres, rows)
    source = next((server for server in found if server.family == "mariadb"), next(iter(found), None))
    behind = lag.measure(source, postgres, load) if source and postgres else None
    whole = all(one["whole"] for log in logs.values() for one in log["readers"].values())
    engine = os.environ.get("RUNNEL_ENGINE", "spark")
    return {
        "benchmark": "logsync",
        "rows": rows,
        "load": os.getloadavg(),
        "logs": logs,
        "lag": behind,
        "packages": {peer: package for peer, package in homes.READERS.items() if homes.installed(peer)},
        "missing": [peer for peer in homes.READERS if not homes.installed(peer)],
        "verified": whole and (behind is None or behind["equal"]),
        "engine": "none" if engine == "spark" else engine,
        "machine": machine(None),
        "peak_memory": peak_memory(),
    }


def sheet(figures: Mapping[str, Any]) -> Sheet:
    """Show rows per second of each reader and log; the lag is said in a sentence."""
    rows = [
        (f"{TITLES[family]} {log['version'].partition('-')[0]}", NAMES[reader], *_cells(log["readers"], reader))
        for family, log in figures["logs"].items()
        for reader in log["readers"]
    ]
    best = {family: log["readers"][decode.SERVER]["rows_per_cpu_second"] for family, log in figures["logs"].items()}
    speeds = ", ".join(f"{speed:,.0f} of {TITLES[family]}'s" for family, speed in best.items())
    said = [f"rows per CPU second of a log read from its server: {speeds}"]
    behind = figures["lag"]
    if behind is not None:
        said.append(
            f"a transaction can be read in PostgreSQL {behind['p50']:.2f} s (p50), {behind['p95']:.2f} s (p95), "
            f"{behind['longest']:.2f} s (longest) after its commit, at {behind['rate']:,.0f} of {behind['wanted_rate']:,} "
            f"transactions wanted per second ({behind['transactions']:,} measured, epochs of {behind['epoch']})"
        )
    sizes = ", ".join(
        f"{log['bytes'] / MEGA:.0f} MiB of {TITLES[f]}'s log" for f, log in figures["logs"].items() if "bytes" in log
    )
    notes = [f"{figures['rows']:,} rows of eight columns; {sizes or 'no binary log'}."]
    notes += [f"{NAMES[p]} is not installed; `runnel bench logsync --install` installs it." for p in figures["missing"]]
    notes += [] if figures["verified"] else ["ROWS ARE MISSING OR DIFFER."]
    notes += [f"With {', '.join(figures['packages'].values()) or 'no other reader'}."]
    notes += [
        f"Load of the machine at the end: {figures['load'][0]:.1f}, {figures['load'][2]:.1f} over 15 minutes.",
        machine_line(figures),
    ]
    return Sheet(
        f"logsync: {figures['rows']:,} rows decoded",
        tuple(said),
        ("log", "reader", "rows/CPU s", "rows/s", "runnel from the server / reader"),
        tuple(rows),
        tuple(notes),
    )


def _cells(readers: Mapping[str, Any], reader: str) -> tuple[str, ...]:
    one, ours = readers[reader], readers[decode.SERVER]
    ratio = times(ours["rows_per_cpu_second"], one["rows_per_cpu_second"]) if reader in homes.READERS else ""
    return f"{one['rows_per_cpu_second']:,.0f}", f"{one['rows'] / one['seconds']:,.0f}", ratio
