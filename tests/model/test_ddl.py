from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.errors import Place, Terminal, UsageError
from runnel.model import types
from runnel.model.ddl import parse_columns
from runnel.model.relation import Column, check_columns


def test_types_with_commas_and_quoted_names_are_read() -> None:
    columns, key = parse_columns(
        "id BIGINT NOT NULL, `a b` array<struct<x:int,y:decimal(3,2)>> COMMENT 'x, y', -- d, e\n"
        "d DECIMAL(12, 2), m map<string,int>, CONSTRAINT pk PRIMARY KEY (ID, d)"
    )
    assert [str(column) for column in columns] == [
        "id bigint",
        "`a b` array<struct<x:int,y:decimal(3,2)>>",
        "d decimal(12,2)",
        "m map<string,int>",
    ]
    assert key == ("id", "d")


def test_a_key_may_stand_at_its_column() -> None:
    assert parse_columns("id INT PRIMARY KEY NOT NULL, v STRING")[1] == ("id",)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "RUNNEL-SCHEMA-EMPTY"),
        ("id", "RUNNEL-SCHEMA-SYNTAX"),
        ("id bigit", "RUNNEL-TYPE-UNSUPPORTED"),
        ("id int, ID int", "RUNNEL-COLUMN-TWICE"),
        ("_weight int", "RUNNEL-COLUMN-RESERVED"),
        ("a int, PRIMARY KEY (b)", "RUNNEL-KEY-UNKNOWN"),
    ],
)
def test_what_cannot_be_read_is_refused_at_its_place(text: str, code: str) -> None:
    with pytest.raises(UsageError) as told:
        parse_columns(text, owner="orders", place=Place("runnel.toml", 3))
    assert told.value.code == code
    assert "orders" in told.value.message
    assert told.value.place == Place("runnel.toml", 3)


def allowed(name: str) -> bool:
    try:
        check_columns("t", (Column(name, types.BIGINT),))
    except Terminal as error:
        return error.code not in ("RUNNEL-NAME-EMPTY", "RUNNEL-NAME-CHARACTER", "RUNNEL-COLUMN-RESERVED")
    return True


@given(st.lists(st.text(min_size=1).filter(allowed), min_size=1, unique_by=str.lower))
def test_any_name_survives_in_backquotes(names: list[str]) -> None:
    text = ", ".join("`" + name.replace("`", "``") + "` int" for name in names)
    assert [column.name for column in parse_columns(text)[0]] == names
