"""The DuckDB engine runs Spark's SQL over rows, files and derived inputs, and gives Spark's types."""

from __future__ import annotations

import datetime
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runnel.engine.base import Derived, Files, Rows, Written
from runnel.engine.dialect import to_duckdb
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.functions import UserFunction
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.relation import Column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.engine.base import Input

EVERY_TYPE = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(38,10)",
    "array<int>",
    "map<string,bigint>",
    "struct<a:int,b:array<struct<c:string>>>",
]


@pytest.fixture
def engine() -> Iterator[DuckDbEngine]:
    """Give a fresh engine."""
    engine = DuckDbEngine(threads=2)
    yield engine
    engine.close()


def columns(**named: str) -> tuple[Column, ...]:
    """Write columns as keyword arguments."""
    return tuple(Column(name, types.parse(type_)) for name, type_ in named.items())


def test_every_type_is_analysed_as_itself(engine: DuckDbEngine) -> None:
    given = tuple(Column(f"c{i}", types.parse(t)) for i, t in enumerate(EVERY_TYPE))
    assert engine.analyse("SELECT * FROM `t`", {"t": given}) == given


def test_results_are_cast_to_the_columns_asked_for(engine: DuckDbEngine) -> None:
    table = pa.table({"a": pa.array([1, 2], pa.int64())})
    rows = engine.rows(
        "SELECT sum(a) AS s FROM `t`", {"t": Rows(table, columns(a="bigint"))}, columns(s="decimal(20,2)")
    )
    assert rows.to_pylist() == [{"s": Decimal("3.00")}]
    assert engine.rows("SELECT sum(a) AS s FROM `t`", {"t": Rows(table, columns(a="bigint"))}).schema.types == [
        pa.int64()
    ]


def test_derived_inputs_may_come_in_any_order(engine: DuckDbEngine) -> None:
    inputs: dict[str, Input] = {
        "b": Derived("SELECT a + 1 AS b FROM `a`", ("a",)),
        "a": Derived("SELECT a * 2 AS a FROM `t`", ("t",)),
        "t": Rows(pa.table({"a": [3]}), columns(a="bigint")),
    }
    assert engine.rows("SELECT b FROM `b`", inputs).to_pylist() == [{"b": 7}]


def test_written_files_are_read_back_with_field_ids_and_missing_columns_as_null(
    engine: DuckDbEngine, tmp_path: Path
) -> None:
    source = {"t": Rows(pa.table({"a": [2, 1], "w": [1, -1]}), columns(a="bigint", w="bigint"))}
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"}), pa.field("w", pa.int64())])
    (path,) = engine.write("SELECT a, w FROM `t`", source, schema, str(tmp_path / "new"), order=["a"]).paths
    stored = pq.ParquetFile(path)
    assert stored.read().column("a").to_pylist() == [1, 2]
    assert (stored.schema_arrow.field("a").metadata or {})[b"PARQUET:field_id"] == b"7"
    files = {"f": Files((path,), columns(a="bigint", w="bigint", later="string"))}
    assert engine.rows("SELECT a, later FROM `f` WHERE w > 0", files).to_pylist() == [{"a": 2, "later": None}]


def test_no_files_are_an_empty_table_and_no_rows_make_no_file(engine: DuckDbEngine, tmp_path: Path) -> None:
    files = {"f": Files((), columns(a="bigint"))}
    assert engine.rows("SELECT count(*) AS n FROM `f`", files).to_pylist() == [{"n": 0}]
    assert engine.write("SELECT a FROM `f`", files, pa.schema([("a", pa.int64())]), str(tmp_path)) == Written((), 0)


def test_a_wrong_query_is_a_terminal_error_of_one_line(engine: DuckDbEngine) -> None:
    with pytest.raises(Terminal) as caught:
        engine.analyse("SELECT nothing FROM `t`", {"t": columns(a="int")})
    assert caught.value.code == "RUNNEL-ENGINE-SQL"
    assert "\n" not in str(caught.value)
    with pytest.raises(Terminal):
        engine.rows("SELECT CAST('x' AS INT) AS a FROM `t`", {"t": Rows(pa.table({"a": [1]}), columns(a="int"))})


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT /*+ BROADCAST(o) */ o.a FROM `t` AS o LEFT SEMI JOIN `t` AS d ON o.a <=> d.a", [(1,), (2,), (None,)]),
        ("SELECT o.a FROM `t` AS o LEFT ANTI JOIN `t` AS d ON o.a = d.a", [(None,)]),
        ("SELECT a, n FROM `t` LATERAL VIEW explode(sequence(1, a)) c AS n", [(1, 1), (2, 1), (2, 2)]),
        ("SELECT s FROM (SELECT 1 AS a) LATERAL VIEW explode(array(-1, 1)) c AS s", [(-1,), (1,)]),
        ("SELECT 7 div 2 AS q, -7 div 2 AS r, 7 / 2 AS s", [(3, -3, 3.5)]),
        ("SELECT count_if(a > 9) AS n, count(a, a) AS m, std(a) AS d FROM `t` WHERE a IS NOT NULL", [(0, 2, 0.5**0.5)]),
        ("SELECT try_cast('x' AS INT) AS a, CAST(2.5 AS INT) AS b, 'it''s' AS c", [(None, 3, "it's")]),
        ("SELECT date_add(DATE'2024-01-31', 1) AS d", [(datetime.date(2024, 2, 1),)]),
    ],
)
def test_spark_sql_means_the_same_here(engine: DuckDbEngine, sql: str, rows: list[tuple[object, ...]]) -> None:
    result = engine.rows(sql, {"t": Rows(pa.table({"a": pa.array([1, 2, None], pa.int64())}), columns(a="bigint"))})
    found = [tuple(row.values()) for row in result.to_pylist()]
    assert sorted(found, key=repr) == sorted(rows, key=repr)


def test_casts_inside_casts_are_all_strict() -> None:
    assert "TRY_CAST" not in to_duckdb("SELECT CAST(CAST(a AS INT) + CAST('1' AS INT) AS BIGINT) AS b FROM `t`")


def test_a_fault_of_duckdb_itself_does_not_end_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an internal error DuckDB refuses whatever it is asked next, and the user's functions must be there again, too."""
    engine = DuckDbEngine(threads=1)
    engine.register(UserFunction("twice", lambda v: 2 * v, types.BIGINT, (types.BIGINT,), pandas=False, fingerprint=""))
    columns = tuple(Column(name, types.parse(kind)) for name, kind in (("a", "int"), ("d", "decimal(12,2)")))
    table = pa.table({"a": pa.array([1], pa.int32()), "d": pa.array([Decimal("3.64")], pa.decimal128(12, 2))})
    sql = "SELECT 1 AS c FROM t l WHERE NOT EXISTS (SELECT * FROM t r WHERE r.a <=> l.a AND r.d >= 1.50) AND l.a <> 2"
    real = engine._run
    monkeypatch.setattr(engine, "_run", lambda *given, copied: real(*given, copied=False))
    with pytest.raises(Terminal, match="INTERNAL Error"):
        engine.rows(sql, {"t": Rows(table, columns)})
    monkeypatch.undo()
    assert engine.rows("SELECT twice(CAST(a AS BIGINT)) AS c FROM t", {"t": Rows(table, columns)}).to_pydict() == {
        "c": [2]
    }
    assert engine.rows(sql, {"t": Rows(table, columns)}).num_rows == 0, "its own tables have no such fault"


def test_threads_do_not_see_each_others_inputs(engine: DuckDbEngine) -> None:
    def run(value: int) -> object:
        table = pa.table({"a": pa.array([value], pa.int64())})
        return engine.rows("SELECT a FROM `t`", {"t": Rows(table, columns(a="bigint"))}).to_pylist()[0]["a"]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(40))) == list(range(40))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("SELECT id FROM `t` WHERE f > 1", [2, 3]),
        ("SELECT id FROM `t` WHERE s.g > 1", [2, 3]),
        ("SELECT id FROM `d` WHERE f > 1", [2, 3]),
        ("SELECT a.id FROM `t` a JOIN `t` b ON a.f = b.f", [1, 2, 3]),
        ("SELECT a.id FROM `t` a JOIN `t` b ON a.f = b.f WHERE b.f >= 2", [2, 3]),
    ],
)
def test_nan_equals_itself_and_is_greater_than_any_number(
    engine: DuckDbEngine, tmp_path: Path, sql: str, ids: list[int], *, stored: bool
) -> None:
    given = columns(id="bigint", f="double", s="struct<g:float>")
    numbers = [0.5, 2.0, float("nan"), None]
    table = pa.Table.from_pylist(
        [{"id": n, "f": f, "s": {"g": f}} for n, f in enumerate(numbers, 1)],
        pa.schema([(c.name, types.to_arrow(c.type)) for c in given]),
    )
    pq.write_table(table, tmp_path / "t.parquet")
    source: Input = Files((str(tmp_path / "t.parquet"),), given) if stored else Rows(table, given)
    rows = engine.rows(sql, {"t": source, "d": Derived("SELECT id, f FROM `t`", ("t",))})
    assert sorted(rows.column("id").to_pylist()) == ids


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Query interrupted"),
        duckdb.InterruptException("INTERRUPT Error: Interrupted!"),
        duckdb.InvalidInputException("Invalid Input Error: KeyboardInterrupt: <EMPTY MESSAGE>"),
    ],
    ids=["while it computes", "while it is asked to stop", "while it reads rows of Python"],
)
def test_an_interrupt_during_a_query_stays_an_interrupt(
    engine: DuckDbEngine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """DuckDB raises an error of its own for Ctrl-C, which must not pass for a fault of the view."""

    def interrupted(*_: object, **__: object) -> pa.Table:
        raise error

    monkeypatch.setattr("runnel.engine.duckdb._fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.rows("SELECT 1 AS n", {})
