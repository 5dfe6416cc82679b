"""Every type of column: the row of the log, the row of a snapshot and what SELECT shows are the same value."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from runnel.connectors.mysql.types import type_logged, type_of
from runnel.model import types
from runnel.model.relation import WEIGHT
from tests.connectors.mysql.reading import definition_of, items, logged, selected, settings_of, state

if TYPE_CHECKING:
    from tests.servers.mysql import SqlServer

NUMBERS = {
    "TINYINT": ["-128", "127", "0"],
    "TINYINT UNSIGNED": ["0", "255", "128"],
    "SMALLINT": ["-32768", "32767"],
    "SMALLINT UNSIGNED": ["65535", "0"],
    "MEDIUMINT": ["-8388608", "8388607", "-1"],
    "MEDIUMINT UNSIGNED": ["16777215", "0"],
    "INT": ["-2147483648", "2147483647", "-1"],
    "INT UNSIGNED": ["4294967295", "0"],
    "INT ZEROFILL": ["5"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "BIGINT UNSIGNED": ["18446744073709551615", "0"],
    "BOOLEAN": ["TRUE", "FALSE"],
    "DECIMAL(1,0)": ["-9", "9", "0"],
    "DECIMAL(12,2)": ["-9999999999.99", "9999999999.99", "0.01", "-0.01"],
    "DECIMAL(18,9)": ["-999999999.999999999", "0.000000001"],
    "DECIMAL(38,10)": ["-9999999999999999999999999999.9999999999", "1"],
    "DECIMAL(30,30)": ["0.999999999999999999999999999999", "-0.000000000000000000000000000001"],
    "DECIMAL(65,30)": ["-" + "9" * 35 + "." + "9" * 30, "0", "1.5"],
    "DECIMAL(10,3) UNSIGNED": ["9999999.999", "0"],
    "FLOAT": ["-3.4028234e38", "3.4028234e38", "0.1", "1.17549435e-38", "16777217", "-0.0"],
    "DOUBLE": ["-1.7976931348623157e308", "2.2250738585072014e-308", "0.1", "1e22", "123456789.123456789", "-0.0"],
    "DOUBLE(10,2)": ["12345678.91", "0.1"],
    "BIT(1)": ["b'0'", "b'1'"],
    "BIT(9)": ["b'100000001'", "b'0'"],
    "BIT(64)": ["b'" + "1" * 64 + "'", "b'1'"],
}
TIMES = {
    "DATE": ["'1000-01-01'", "'9999-12-31'", "'2024-02-29'", "'0001-01-01'"],
    "DATETIME": ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'1969-12-31 23:59:59'"],
    "DATETIME(1)": ["'2024-02-29 12:34:56.7'"],
    "DATETIME(3)": ["'2024-02-29 12:34:56.789'", "'1900-03-01 00:00:00.001'"],
    "DATETIME(6)": ["'9999-12-31 23:59:59.999999'", "'2000-01-01 00:00:00.000001'"],
    "TIMESTAMP NULL": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"],
    "TIMESTAMP(2) NULL": ["'2024-06-01 11:22:33.44'"],
    "TIMESTAMP(6) NULL": ["'2038-01-19 03:14:07.999999'"],
    "TIME": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"],
    "TIME(1)": ["'-12:34:56.7'", "'-00:00:00.1'", "'00:00:00.9'"],
    "TIME(3)": ["'-12:34:56.789'", "'100:00:00.001'"],
    "TIME(6)": ["'-838:59:58.999999'", "'-00:00:00.000001'", "'12:00:00.5'"],
    "YEAR": ["1901", "2155", "0"],
}
TEXTS = {
    "CHAR(5)": ["''", "'ab  '", "'äöü😀x'"],
    "CHAR(255)": ["REPEAT('😀', 255)", "''"],
    "CHAR(100) CHARACTER SET utf8mb3": ["REPEAT('ü', 100)", "''"],
    "VARCHAR(10)": ["''", "'ab  '", "'\\0\\n''\"\\\\'", "'日本語😀'"],
    "VARCHAR(300)": ["REPEAT('x', 300)", "''"],
    "VARCHAR(20) CHARACTER SET latin1": ["'äöü€'", "''"],
    "VARCHAR(20) CHARACTER SET cp1251": ["'Привет'"],
    "VARCHAR(20) CHARACTER SET koi8r": ["'Привет'"],
    "VARCHAR(20) CHARACTER SET latin2": ["'Łódź'"],
    "CHAR(20) CHARACTER SET ucs2": ["'日本'"],
    "CHAR(20) CHARACTER SET utf16": ["'日本😀'"],
    "VARCHAR(20) CHARACTER SET utf16le": ["'日本😀'"],
    "CHAR(20) CHARACTER SET utf32": ["'日本😀'"],
    "VARCHAR(20) CHARACTER SET ascii": ["'plain'"],
    "TINYTEXT": ["''", "REPEAT('a', 255)"],
    "TEXT": ["''", "REPEAT('ä', 30000)"],
    "MEDIUMTEXT": ["REPEAT('a', 70000)"],
    "LONGTEXT": ["'x'"],
    "BINARY(5)": ["''", "'ab'", "X'0000000000'", "X'FF00FF0000'", "'ab  '"],
    "VARBINARY(10)": ["''", "X'00FF00'", "'a '"],
    "VARBINARY(300)": ["REPEAT(X'FF', 300)"],
    "TINYBLOB": ["X'00'", "''"],
    "BLOB": ["REPEAT(X'FE', 60000)", "''"],
    "MEDIUMBLOB": ["REPEAT(X'FE', 70000)"],
    "LONGBLOB": ["X'01'"],
    "ENUM('a','b','it''s, so','ü')": ["'a'", "'it''s, so'", "'ü'", "''"],
    "SET('a','b','c','ü')": ["''", "'a,c'", "'ü,b'"],
    "GEOMETRY": ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0, 1.5 -2)')"],
    "POINT": ["ST_GeomFromText('POINT(-1.5 2)', 4326)"],
}
MARIADB = {
    "UUID": [
        "'123e4567-e89b-12d3-a456-426655440000'",
        "'00000000-0000-0000-0000-000000000000'",
        "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "'01890a5d-ac96-774b-bcce-b302099a8057'",
        "'f47ac10b-58cc-4372-a567-0e02b2c3d479'",
    ],
    "INET6": ["'::'", "'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:192.168.0.1'", "'fe80::'", "'::192.168.0.1'"],
    "INET4": ["'0.0.0.0'", "'255.255.255.255'", "'10.0.0.0'"],
    "JSON": ["'{\"a\": [1, 2]}'"],
}


def _fill(server: SqlServer, columns: dict[str, list[str]]) -> str:
    """Make a table `t` with a column per type; row after row has their values in turn, then NULLs, then each is updated."""
    database = server.database()
    names = [f"c{at}" for at in range(len(columns))]
    defined = ", ".join(f"{name} {type_}" for name, type_ in zip(names, columns, strict=True))
    server.sql(f"CREATE TABLE t (k INT PRIMARY KEY, {defined})", database=database)
    most = max(map(len, columns.values()))
    rows = [", ".join(values[at % len(values)] for values in columns.values()) for at in range(most)]
    nulls = ", ".join(["NULL"] * len(columns))
    inserts = [f"INSERT INTO t VALUES ({at}, {row})" for at, row in enumerate([*rows, nulls])]
    swapped = ", ".join(f"{name} = NULL" for name in names[::2])
    server.sql(
        "SET sql_mode = '', time_zone = '+00:00'", *inserts, f"UPDATE t SET {swapped} WHERE k = 1", database=database
    )
    return database


@pytest.mark.parametrize("columns", [NUMBERS, TIMES, TEXTS], ids=["numbers", "times", "texts"])
def test_a_row_of_the_log_is_the_row_that_select_gives(sql_server: SqlServer, columns: dict[str, list[str]]) -> None:
    _compare(sql_server, columns)


@pytest.mark.mariadb
def test_types_of_mariadb_alone_are_the_same_in_log_and_select(mariadb_server: SqlServer) -> None:
    _compare(mariadb_server, MARIADB)


def _compare(server: SqlServer, columns: dict[str, list[str]]) -> None:
    settings = settings_of(server, _fill(server, columns))
    definition = definition_of(settings, "t")
    from_log = state(logged(server, settings, definition))
    by_select = selected(settings, definition).sort_by("k")
    for name, type_ in zip(by_select.column_names, ["key", *columns], strict=True):
        one, other = from_log.column(name).to_pylist(), by_select.column(name).to_pylist()
        assert list(map(repr, one)) == list(map(repr, other)), type_  # -0.0 is not 0.0
        assert from_log.column(name).type == by_select.column(name).type, type_


def test_the_log_alone_gives_the_types_that_the_definitions_give(sql_server: SqlServer) -> None:
    columns = NUMBERS | TIMES | {name: values for name, values in TEXTS.items() if "CHAR(255)" not in name}
    settings = settings_of(sql_server, _fill(sql_server, columns))
    definition = definition_of(settings, "t")
    table = next(
        item for item in items(sql_server.logs(settings.database), settings.database) if hasattr(item, "table")
    ).table
    assert table.described
    assert [c.name for c in table.columns] == [c.name for c in definition.columns]
    assert [type_logged(c) for c in table.columns] == [type_of(c) for c in definition.columns]
    assert [table.columns[at].name for at in table.key] == ["k"]


def test_selected_values_are_what_a_plain_select_shows(sql_server: SqlServer) -> None:
    columns = {name: NUMBERS[name] for name in ("BIGINT UNSIGNED", "DECIMAL(12,2)", "DOUBLE", "DECIMAL(65,30)")}
    columns |= {name: TIMES[name] for name in ("DATE", "DATETIME(6)")} | {"VARCHAR(10)": TEXTS["VARCHAR(10)"]}
    settings = settings_of(sql_server, _fill(sql_server, columns))
    by_select = selected(settings, definition_of(settings, "t")).sort_by("k")
    plain = sql_server.sql("SELECT * FROM t ORDER BY k", database=settings.database)
    for row, shown in zip(by_select.to_pylist(), plain, strict=True):
        for value, other in zip(row.values(), shown, strict=True):
            assert str(value) == (f"{other:f}" if isinstance(other, Decimal) else str(other))


@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL"])
def test_kept_definitions_stand_in_for_metadata_that_the_log_does_not_have(
    sql_server: SqlServer, metadata: str
) -> None:
    least = "MINIMAL" if "mysql" in sql_server.program.name else metadata  # NO_LOG is of MariaDB alone
    sql_server.sql(f"SET GLOBAL binlog_row_metadata = '{least}'")
    try:
        _compare(sql_server, NUMBERS if metadata == "MINIMAL" else NUMBERS | TEXTS)
    finally:
        sql_server.sql("SET GLOBAL binlog_row_metadata = 'FULL'")


def test_computed_and_hidden_columns_are_the_same_in_log_and_select(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, a INT, v INT GENERATED ALWAYS AS (a * 2) VIRTUAL,"
        " s INT GENERATED ALWAYS AS (a + 1) STORED, h INT INVISIBLE DEFAULT 5, INDEX (v))",
        "INSERT INTO t (k, a) VALUES (1, 1), (2, NULL)",
        "UPDATE t SET a = 7 WHERE k = 2",
        database=database,
    )
    settings = settings_of(sql_server, database)
    definition = definition_of(settings, "t")
    assert [column.name for column in definition.columns] == ["k", "a", "v", "s", "h"]
    assert state(logged(sql_server, settings, definition)).equals(selected(settings, definition).sort_by("k"))


def test_weights_say_what_came_and_what_went(sql_server: SqlServer) -> None:
    database = sql_server.database()
    sql_server.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "UPDATE t SET v = v + 10",
        "DELETE FROM t WHERE k = 1",
        database=database,
    )
    settings = settings_of(sql_server, database)
    signed = logged(sql_server, settings, definition_of(settings, "t"))
    expected = [(1, 1, 1), (2, 2, 1), (1, 1, -1), (1, 11, 1), (2, 2, -1), (2, 12, 1), (1, 11, -1)]
    assert list(zip(*(signed.column(name).to_pylist() for name in ("k", "v", WEIGHT)), strict=True)) == expected
    assert types.from_arrow(signed.column("k").type) == types.parse("int")


JSON = [
    "null",
    "true",
    "[]",
    "{}",
    '""',
    '"a\\u0000b\\"\\\\\\n\\u001f/ü😀"',
    "-32768",
    "65535",
    "-2147483648",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "-9223372036854775808",
    "0.1",
    "1.0",
    "-0.0",
    "1e15",
    "1e16",
    "123456789012345680",
    "1.5e-7",
    "1e-14",
    "1e-15",
    "1.5e-16",
    "1e300",
    "-1.7976931348623157e308",
    "2.2250738585072014e-308",
    "123456.789e3",
    '{"b": 1, "a": {"c": [1, 2.5, null, true, "x"]}, "aa": false, "ä": 1}',
    "[[[[[[1]]]]]]",
]
MADE = [
    "JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('-12:34:56.5' AS TIME(6)), 'n', CAST(1.50 AS DECIMAL(10,2)))",
    "JSON_ARRAY(CAST('2024-02-29 11:22:33.444' AS DATETIME(3)), CAST('ab' AS BINARY), 12345678901234567890.5)",
    "JSON_ARRAY(REPEAT('x', 200), REPEAT('y', 70000), 1, 70000, 5000000000)",
    "JSON_OBJECT('k', REPEAT('z', 65000), 'l', REPEAT('z', 65000), 'm', 100000)",
    "JSON_ARRAY(1e0/3, 1e20, 123456789012345e0, 1234567890123456e0, 0.00001e0)",
]


@pytest.mark.mysql
def test_json_of_the_log_is_written_as_the_server_writes_it(mysql_server: SqlServer) -> None:
    texts = ["'" + text.replace("\\", "\\\\") + "'" for text in JSON]
    _compare(mysql_server, {"JSON": [*texts, *MADE]})
