"""A text is split by Spark's lexical rules, and names are exchanged in names alone."""

from __future__ import annotations

import pytest

from runnel.model.tokens import quoted_names, replace_names, tokens

CASES = {
    "'`a`' `b`": {"b"},
    '"`a`" `b`': {"b"},
    r"'it\'s `a`' `b`": {"b"},
    "'it''s `a`' `b`": {"b"},
    '"x""`a`" `b`': {"b"},
    r"r'\' `b`": {"b"},
    r'R"\" `b`': {"b"},
    r"xr'\' `a`' `b`": {"b"},
    "$$ ' `a` $$ `b`": {"b"},
    "$x$ $$ `a` $x$ `b`": {"b"},
    "-- `a`\n`b`": {"b"},
    "-- ' \n`b`": {"b"},
    "-- x \\\n `a`\n`b`": {"b"},
    "/* `a` */ `b`": {"b"},
    "/* /* ` */ `a` */ `b`": {"b"},
    "/* ' */ `b` /* ' */": {"b"},
    "/*+ BROADCAST(`b`) */": {"b"},
    "/* /*+ */ `b`": {"b"},
    "`x``y`.`b`": {"x`y", "b"},
    "`'a`, `b`, `c'`": {"'a", "b", "c'"},
    "`--a` `b`": {"--a", "b"},
    "a - -`b` / *": {"b"},
}


@pytest.mark.parametrize("sql", CASES)
def test_only_what_spark_reads_as_a_quoted_name_is_one(sql: str) -> None:
    assert quoted_names(sql) == CASES[sql]


@pytest.mark.parametrize("sql", CASES)
def test_tokens_are_the_text_without_white_space_and_names_go_in_and_out_unchanged(sql: str) -> None:
    assert "".join("".join(t.text for t in tokens(sql)).split()) == "".join(sql.split())
    assert all(sql[t.start : t.end] == t.text for t in tokens(sql))
    assert replace_names(sql, {}) == sql
    assert replace_names(replace_names(sql, {"b": "q`q"}), {"q`q": "b"}) == sql


@pytest.mark.spark
def test_spark_reads_the_same_names_and_strings() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    for text in (
        "'`b`'",
        '"`b`"',
        r"'it\'s `b`'",
        "'it''s `b`'",
        r"r'\`b`'",
        "/* /* ` */ */ '`b`'",
        "-- `\n'`b`'",
    ):
        value = spark.sql(f"SELECT {text} AS x").collect()[0][0]
        assert "`b`" in value, text
        assert not quoted_names(text), text
