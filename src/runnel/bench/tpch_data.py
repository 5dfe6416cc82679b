"""TPC-H as tests and benchmarks use it: its 22 queries, its tables by the generator, and refresh sets of orders and lines."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runnel.bench.star import weighted
from runnel.errors import UsageError
from runnel.model import types

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "customer": ("c_custkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
CHUNK = 1_000_000


def queries() -> dict[str, str]:
    """Give the queries by name, with ORDER BY and LIMIT."""
    text = Path(__file__).with_name("tpch.sql").read_text()
    parts = re.split(r"^-- (Q\d+)\n", text, flags=re.MULTILINE)[1:]
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def without_order(sql: str) -> str:
    """Cut off the ORDER BY and LIMIT of the whole query."""
    return re.split(r"^ORDER BY", sql, flags=re.MULTILINE)[0].rstrip()


def generate(folder: Path, scale: float) -> dict[str, Path]:
    """Write the tables as Parquet below a folder, one folder each; give the files. Orders and lines are sorted by order."""
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    if not generator.exists():
        raise UsageError(
            "RUNNEL-BENCH-EXTRA", "the generator of TPC-H is not installed", hint="pip install 'runnel[bench]'"
        )
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([generator, "parquet", "-s", str(scale), "--output-dir", folder], check=True, capture_output=True)
    files = {}
    for name in KEYS:
        (folder / name).mkdir()
        files[name] = (folder / f"{name}.parquet").rename(folder / name / f"{name}.parquet")
    return files


def columns(file: Path, key: tuple[str, ...]) -> str:
    """Describe a generated table as it is created."""
    fields = [f"{field.name} {types.from_arrow(field.type)}" for field in pq.read_schema(file)]
    return f"{', '.join(fields)}, PRIMARY KEY ({', '.join(key)})"


def chunks(file: Path) -> Iterator[pa.Table]:
    """Give a table's rows in pieces, as its columns are declared."""
    parquet = pq.ParquetFile(file)
    for batch in parquet.iter_batches(CHUNK):
        yield _plain(pa.Table.from_batches([batch]))


class Refreshes:
    """Refresh sets: each deletes the oldest orders that are left and inserts as many new ones, with their lines.

    New orders are the next ones to be deleted, under numbers of their own. Files are read on as sets are asked for.
    """

    def __init__(self, files: dict[str, Path], share: float = 0.001) -> None:
        """Read no rows yet; `share` is how many of all orders a set deletes, and inserts."""
        orders = pq.ParquetFile(files["orders"])
        self.count = max(1, round(orders.metadata.num_rows * share))
        self._orders = orders.iter_batches(self.count)
        self._lines = pq.ParquetFile(files["lineitem"]).iter_batches(self.count * 8)
        self._waiting: pa.Table | None = None
        self._shift = 1 + max(_largest(orders, group) for group in range(orders.num_row_groups))
        self._next = self._block()

    def change(self) -> dict[str, pa.Table]:
        """Give the signed rows of the next set."""
        old, self._next = self._next, self._block()
        renumbered = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
        return {
            name: pa.concat_tables([weighted(old[name], -1), weighted(_shifted(self._next[name], key, self._shift), 1)])
            for name, key in renumbered.items()
        }

    def _block(self) -> dict[str, pa.Table]:
        batch = next(self._orders, None)
        if batch is None:
            raise UsageError(
                "RUNNEL-BENCH-EXHAUSTED", "there are no orders left to delete", hint="ask for fewer epochs"
            )
        orders = _plain(pa.Table.from_batches([batch]))
        return {"orders": orders, "lineitem": self._lines_up_to(orders["o_orderkey"][-1].as_py())}

    def _lines_up_to(self, order: int) -> pa.Table:
        found = [self._waiting] if self._waiting is not None else []
        while not found or found[-1]["l_orderkey"][-1].as_py() <= order:
            batch = next(self._lines, None)
            if batch is None:
                break
            found.append(_plain(pa.Table.from_batches([batch])))
        lines = pa.concat_tables(found)
        end = pc.sum(pc.less_equal(lines["l_orderkey"], order)).as_py()
        self._waiting = lines.slice(end) if end < lines.num_rows else None
        return lines.slice(0, end)


def _largest(parquet: pq.ParquetFile, group: int) -> int:
    return int(parquet.metadata.row_group(group).column(0).statistics.max)


def _shifted(rows: pa.Table, key: str, shift: int) -> pa.Table:
    at = rows.column_names.index(key)
    return rows.set_column(at, rows.schema.field(at), pc.add(rows[key], shift))


def _plain(rows: pa.Table) -> pa.Table:
    """Give rows in the types that declared columns have."""
    return rows.cast(pa.schema([pa.field(f.name, types.to_arrow(types.from_arrow(f.type))) for f in rows.schema]))
