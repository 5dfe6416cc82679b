"""Every built-in function of Spark, used in views over one small table: read from `tests/fixtures/functions`."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.engine.common import common, shape
from tests.compiler.conftest import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent.parent / "fixtures" / "functions"
AT_ONCE = 40
"""So many expressions are in one view; where that view is wrong it is split until the expression is found."""

COLUMNS = (
    "id INT, k INT, i INT, n BIGINT, x DOUBLE, p DECIMAL(10,2), s STRING, w STRING, b BOOLEAN, d DATE, t TIMESTAMP, "
    "tn TIMESTAMP_NTZ, y BINARY, xs ARRAY<INT>, ws ARRAY<STRING>, m MAP<STRING, INT>, o STRUCT<a: INT, b: STRING>, "
    "j STRING, vec ARRAY<FLOAT>, sk STRUCT<hll: BINARY, kb: BINARY, kd: BINARY, kf: BINARY, theta: BINARY, td: BINARY, "
    "ti: BINARY>"
)
SKETCHES = """
SELECT hll_sketch_agg(v) AS hll, kll_sketch_agg_bigint(v) AS kb, kll_sketch_agg_double(double(v)) AS kd,
       kll_sketch_agg_float(float(v)) AS kf, theta_sketch_agg(v) AS theta, tuple_sketch_agg_double(v, double(v)) AS td,
       tuple_sketch_agg_integer(v, v) AS ti
FROM VALUES (0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (2, 4) AS made(g, v) GROUP BY g ORDER BY g
"""
RANKED = "PARTITION BY k ORDER BY i, id"
FRAMES = (
    "PARTITION BY k",
    "PARTITION BY k ORDER BY i, id",
    "PARTITION BY k ORDER BY i",
    "PARTITION BY k ORDER BY id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    "PARTITION BY k ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "PARTITION BY k ORDER BY i RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
)
FORMS_OF_KINDS = {"scalar": "select", "aggregate": "group", "window": RANKED, "rows": "rows", "unsteady": "select"}
"""The kinds of functions that are used in views, each with the form in which it is used first."""
BY_RANK_ONLY = ("cume_dist", "dense_rank", "ntile", "percent_rank", "rank", "row_number", "lag", "lead", "counter_diff")
"""Window functions that have a frame of their own."""
WHOLE = ("rows", "left_out", "recomputed")
"""Kinds of lines that are one text."""
OF_TIME = ("make_time", "time", "time_diff", "time_trunc", "to_time", "try_to_time")
OWN_ORDER = ("median", "listagg", "string_agg", "percentile_cont", "percentile_disc", "mode")
"""Aggregates with an order of their own, which are not written with another window here."""


THINGS = table("things", f"{COLUMNS}, PRIMARY KEY (id)")
FEW = table("few", "id INT, PRIMARY KEY (id)")
TABLES = tuple((relation.name, shape(relation.columns)) for relation in (THINGS, FEW))


@dataclass(frozen=True)
class Use:
    """One expression (or, of functions that make rows, one query) that uses a function."""

    function: str
    text: str


def uses(kind: str) -> list[Use]:
    """Read the uses of one kind of function, several of them where a line has several expressions."""
    lines = (FOLDER / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition(": ")[::2] for line in lines if line and not line.startswith("# ")]
    return [Use(name, text) for name, rest in pairs for text in ([rest] if kind in WHOLE else _split(rest))]


def _split(text: str) -> Iterator[str]:
    depth, quoted, begin = 0, False, 0
    for at, char in enumerate(text):
        quoted ^= char == "'"
        if not quoted:
            depth += (char in "([") - (char in ")]")
            if char == "," and depth == 0:
                yield text[begin:at].strip()
                begin = at + 1
    yield text[begin:].strip()


@dataclass(frozen=True)
class Views:
    """Views of one form: `sql` writes one view that uses all of these at once."""

    form: str
    uses: tuple[Use, ...]

    def sql(self) -> str:
        """Write the view."""
        texts = [use.text for use in self.uses]
        named = ", ".join(f"{text} AS c{at}" for at, text in enumerate(texts))
        match self.form:
            case "rows":
                return texts[0]
            case "select":
                return f"SELECT id, {named} FROM things"
            case "group":
                return f"SELECT k, {named} FROM things GROUP BY k"
            case "all":
                return f"SELECT {named} FROM things"
            case "nothing":
                inner = ", ".join(f"(SELECT {text} FROM things WHERE k > 99) AS c{at}" for at, text in enumerate(texts))
                return f"SELECT id, {inner} FROM few"
            case "correlated":
                inner = ", ".join(
                    f"(SELECT {text} FROM things WHERE k = few.id) AS c{at}" for at, text in enumerate(texts)
                )
                return f"SELECT few.id AS few_id, {inner} FROM few"
        windows = ", ".join(f"{text} OVER ({self.form}) AS c{at}" for at, text in enumerate(texts))
        return f"SELECT id, {windows} FROM things"

    @property
    def needs_time_type(self) -> bool:
        """Whether some function is of the type TIME, which Spark has only where a setting allows it."""
        return any(use.function in OF_TIME or use.function.startswith(("time_from_", "time_to_")) for use in self.uses)

    @property
    def portable(self) -> bool:
        """Whether the driver may run such a text."""
        return common(self.sql(), TABLES) is not None

    def halves(self) -> tuple[Views, ...]:
        """Split what is used, to find which of it is at fault."""
        middle = len(self.uses) // 2
        return (Views(self.form, self.uses[:middle]), Views(self.form, self.uses[middle:])) if middle else ()


def all_views(*, every_form: bool) -> Iterator[Views]:
    """Give views that use every deterministic function, in one form or in every form it has."""
    aggregates, windows = uses("aggregate"), uses("window")
    yield from _together("select", uses("scalar"))
    for form in ("group", "all", "nothing", "correlated") if every_form else ("group",):
        yield from _together(form, aggregates)
    yield from (Views("rows", (use,)) for use in uses("rows"))
    framed = [use for use in aggregates if use.function not in OWN_ORDER and use.text.startswith(f"{use.function}(")]
    framed = [use for use in framed if "DISTINCT" not in use.text]
    own = [use for use in windows if use.function in BY_RANK_ONLY]
    yield from _together(RANKED, windows)
    for frame in FRAMES if every_form else ():
        yield from _together(frame, [*framed, *([use for use in windows if use not in own] if "id" in frame else [])])


def _together(form: str, several: Sequence[Use]) -> Iterator[Views]:
    """Put uses of one form into few views; what the driver may run is not put together with what only Spark may."""
    parts: dict[str, list[Use]] = {"driver": [], "spark": [], "time": []}
    recomputed = {use.function for use in uses("recomputed")}
    for use in several:
        if use.function in recomputed:
            yield Views(form, (use,))
        else:
            alone = Views(form, (use,))
            parts["time" if alone.needs_time_type else "driver" if alone.portable else "spark"].append(use)
    for part in parts.values():
        for at in range(0, len(part), AT_ONCE):
            yield Views(form, tuple(part[at : at + AT_ONCE]))


def sketches(spark: SparkSession) -> list[dict[str, bytes]]:
    """Give three structs of sketches, as Spark makes them."""
    return [{name: bytes(value) for name, value in row.asDict().items()} for row in spark.sql(SKETCHES).collect()]


def row(number: int, made: Sequence[dict[str, bytes]]) -> dict[str, Any]:
    """Give the row of this number: every column has NULLs now and then, but `id`, `k` and `w`."""
    word = ("apple", "pear", "Plum", "fig")[number % 4]

    def some(value: Any, every: int) -> Any:
        return None if number % every == every - 1 else value

    return {
        "id": number,
        "k": number % 3,
        "i": some(number % 5, 7),
        "n": some(number * 10**6, 6),
        "x": some(number / 4 - 1, 5),
        "p": some(Decimal(number * 7) / 4 - 3, 8),
        "s": some(f" {word} {number} ", 9),
        "w": word,
        "b": some(number % 2 == 0, 5),
        "d": some(datetime.date(2024, 1 + number % 12, 1 + number % 28), 8),
        "t": some(datetime.datetime(2024, 3, 1, number % 24, 7 * number % 60, number % 60, 5, datetime.UTC), 9),
        "tn": some(datetime.datetime(2024, 3, 31, number % 24, 30), 10),
        "y": some(bytes([number, 255 - number]), 6),
        "xs": some([number % 4, None, 2][: number % 4], 7),
        "ws": some([word, None][: 1 + number % 2], 8),
        "m": some({"a": number % 4}, 6),
        "o": some({"a": number, "b": word}, 5),
        "j": some(f'{{"a": {number}, "b": ["{word}", null], "c": null}}', 9),
        "vec": some([float(number), 0.5], 6),
        "sk": some(made[number % 3], 7),
    }
