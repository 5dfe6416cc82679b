"""No view may hold what changes although no row does: it is refused, however it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_view
from runnel.errors import Terminal
from tests.compiler.conftest import table
from tests.compiler.function_cases import COLUMNS, uses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.model.relation import Column

THINGS = table("things", COLUMNS)
OTHER_WAYS = [
    "CURRENT_DATE",
    "current_time",
    "user",
    "localtimestamp",
    "`rand`()",
    "system.builtin.rand()",
    "rand(5)",
    "DATE 'today'",
    "TIMESTAMP ' Now '",
    "TIMESTAMP_NTZ 'now'",
    "CAST('yesterday' AS DATE)",
    "'now UTC'::timestamp",
    "date('tomorrow')",
    "to_date('today')",
    "date_trunc('day', 'now')",
    "d > 'today'",
    "d BETWEEN 'yesterday' AND 'today'",
    "d IN ('today')",
    "coalesce(d, ('today'))",
    "CASE WHEN b THEN t ELSE 'now' END",
    "transform(xs, e -> rand())",
    "(SELECT rand())",
    "count(*) FILTER (WHERE rand() > 0.5)",
    "aes_encrypt(w, '0000111122223333')",
    "aes_encrypt(w, '0000111122223333', 'CBC')",
]
WHOLE = [
    "SELECT id FROM (SELECT id, d AS day FROM things) WHERE day > 'today'",
    "FROM things |> SELECT rand() AS c",
    "FROM things |> SELECT current_date AS c",
    "FROM things |> WHERE d > 'today' |> SELECT id",
    "SELECT id, j:a::INT AS c, unix_timestamp() AS u FROM things",
]
STEADY = [
    "w = 'today'",
    "lower(w) IN ('now', 'then')",
    "CASE WHEN d > DATE '2024-01-01' THEN 'today' ELSE 'later' END",
    "if(d > DATE '2024-01-01', 'now', 'then')",
    "concat(d, ' now')",
    "unix_timestamp(t)",
    "DATE 'epoch'",
    "transform(xs, user -> user + 1)",
    "aes_encrypt(w, '0000111122223333', 'ECB')",
    "aes_encrypt(w, '0000111122223333', 'CBC', 'DEFAULT', unhex('00112233445566778899001122334455'))",
]


class Asked(Exception):
    """The engine is asked for types, so nothing was refused before."""


def analyse(sql: str, tables: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    raise Asked(sql, tables)


@pytest.mark.parametrize("use", [*(use.text for use in uses("unsteady")), *OTHER_WAYS])
@pytest.mark.parametrize("mode", ["auto", "full"])
def test_an_unsteady_value_is_refused_in_every_mode(use: str, mode: str) -> None:
    with pytest.raises(Terminal) as caught:
        compile_view("v", f"SELECT id, {use} AS c FROM things", {"things": THINGS}, analyse, mode)
    assert caught.value.code == "RUNNEL-VIEW-REFUSED"


@pytest.mark.parametrize("sql", WHOLE)
def test_an_unsteady_value_is_refused_through_aliases_and_in_texts_that_only_spark_reads(sql: str) -> None:
    with pytest.raises(Terminal) as caught:
        compile_view("v", sql, {"things": THINGS}, analyse)
    assert caught.value.code == "RUNNEL-VIEW-REFUSED"


@pytest.mark.parametrize("use", STEADY)
def test_what_only_looks_unsteady_is_accepted(use: str) -> None:
    with pytest.raises(Asked):
        compile_view("v", f"SELECT id, {use} AS c FROM things", {"things": THINGS}, analyse)


def test_a_column_may_have_the_name_of_a_function_without_brackets() -> None:
    mine = table("mine", "user STRING, current_time INT")
    for sql in ("SELECT user, current_time FROM mine", "SELECT user FROM (SELECT w AS user FROM things) AS made"):
        with pytest.raises(Asked):
            compile_view("v", sql, {"things": THINGS, "mine": mine}, analyse)
