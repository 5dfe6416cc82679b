"""For every type: the value of a snapshot is the value of the log, in both forms, and what SELECT shows."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from runnel.errors import RunnelError
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from tests.connectors.postgres.conftest import Shop

pytestmark = pytest.mark.postgres
NUMBERS = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767", "0"],
    "integer": ["-2147483648", "2147483647"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "numeric": ["0", "-99999999999999999999.999999999999999999", "1.50", "1e-18", "12345678901234567890"],
    "numeric(1,0)": ["-9", "9", "0"],
    "numeric(12,2)": ["-9999999999.99", "9999999999.99", "0.01"],
    "numeric(38,10)": ["-9999999999999999999999999999.9999999999", "1"],
    "numeric(2,5)": ["0.00099", "-0.00001"],
    "numeric(3,-2)": ["99900", "-100"],
    "numeric(50,10)": ["-" + "9" * 40 + "." + "9" * 10, "'NaN'", "1.5"],
    "real": [
        "-3.4028235e38",
        "0.1",
        "1.17549435e-38",
        "16777217",
        "'-0'",
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "1e-45",
    ],
    "double precision": [
        "-1.7976931348623157e308",
        "0.1",
        "1e22",
        "'-0'",
        "'NaN'",
        "'Infinity'",
        "5e-324",
        "1e15",
        "1e16",
    ],
    "money": ["'-92233720368547758.08'", "'92233720368547758.07'", "1.5"],
    "serial": ["7"],
}
TIMES = {
    "date": ["'0001-01-01'", "'9999-12-31'", "'2024-02-29'"],
    "time": ["'00:00:00'", "'24:00:00'", "'12:34:56.789012'"],
    "time(0)": ["'12:34:56.7'"],
    "timetz": ["'00:00:00+15:59'", "'23:59:59.999999-03:30'"],
    "timestamp": ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59'"],
    "timestamp(3)": ["'2024-02-29 12:34:56.7894'"],
    "timestamptz": [
        "'0001-01-01 00:00:00+00'",
        "'2024-06-01 12:00:00.000001 America/New_York'",
        "'1890-01-01 00:00:00+00:19:32'",
    ],
    "interval": ["'1 year 2 mons -3 days 04:05:06.789'", "'-178000000 years'", "'0'", "'infinity'"],
}
TEXTS = {
    "text": [
        "''",
        "E'a\\tb\\nc\\r\\n\"q\", \\\\. ''x'''",
        "'NULL'",
        "'\\N'",
        "repeat('ü', 5000)",
        "'日本😀'",
        "E'\\\\.'",
        "' x '",
    ],
    "varchar(10)": ["''", "'ab  '", "'NULL'"],
    "char(5)": ["''", "'ab'", "'äöü😀x'"],
    '"char"': ["'x'", "''"],
    "name": ["'n'"],
    "bytea": ["''", r"'\x00ff00'", r"'\x5c'"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "'FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF'"],
    "json": ['\'{ "b": 1, "a" : [ 1.0 ] , "a": null}\'', "'null'", "'\"\"'"],
    "jsonb": ['\'{ "b": 1.00, "a" : [ 1e2 ]}\'', "'null'", "'[]'"],
    "mood": ["'glad'", "'it''s, so'", "''"],
    "inet": ["'192.168.0.1/24'", "'::1'", "'2001:db8::/32'"],
    "cidr": ["'10.0.0.0/8'", "'::/0'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:05'"],
    "bit(3)": ["B'101'"],
    "varbit": ["B''", "B'1011'"],
    "int4range": ["'[1,5]'", "'empty'", "'(,)'"],
    "numrange": ["'[1.5,2.5)'"],
    "tstzrange": ["'[2024-01-01 00:00+00,)'"],
    "int4multirange": ["'{[1,2],[5,7)}'", "'{}'"],
    "point": ["'(1.5,-2)'"],
    "box": ["'((1,2),(3,4))'"],
    "path": ["'[(1,2),(3,4)]'"],
    "polygon": ["'((1,2),(3,4),(5,6))'"],
    "circle": ["'<(1,2),3>'"],
    "tsvector": ["'a:1 b:2'"],
    "pg_lsn": ["'16/B374D848'"],
    "pair": ["ROW(1, 'a,\"b')", "ROW(NULL, '')"],
}
ARRAYS = {
    "integer[]": ["'{}'", "'{1,NULL,-2147483648}'"],
    "bigint[]": ["'{9223372036854775807}'"],
    "boolean[]": ["'{t,f,NULL}'"],
    "text[]": ["ARRAY['', 'NULL', NULL, 'a,b', '{}', E'\"\\\\', ' x ', E'n\\nl', 'ü']", "'{}'", "ARRAY[NULL]::text[]"],
    "numeric(5,2)[]": ["'{1.5,-999.99,NULL}'"],
    "numeric[]": ["'{1.5,1e-18}'"],
    "double precision[]": ["'{NaN,Infinity,-0,0.1}'"],
    "date[]": ["'{2024-02-29}'"],
    "timestamp[]": ["'{2024-02-29 12:00:00.5}'"],
    "timestamptz[]": ["'{2024-02-29 12:00:00+02}'"],
    "bytea[]": [r"ARRAY['\x00ff'::bytea, '']"],
    "uuid[]": ["'{00000000-0000-0000-0000-000000000000}'"],
    "jsonb[]": ["ARRAY['{\"a\": [1, 2]}'::jsonb]"],
    "mood[]": ["ARRAY['it''s, so'::mood, 'glad']"],
    "small[]": ["'{1,2}'"],
    "box[]": ["ARRAY['((1,2),(3,4))'::box, '((1,2),(3,4))'::box]"],
    "pair[]": ["ARRAY[ROW(1, 'a')::pair]"],
    "int2vector": ["'1 2'"],
}
DOMAINS = {
    "small": ["1"],
    "smaller": ["2"],
    "price": ["1.50", "-99999999.99"],
    "names": ["'{a,b}'"],
    "tags": ["'{x}'"],
}
MADE = [
    "CREATE TYPE mood AS ENUM ('glad', 'it''s, so', '')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN small AS int CHECK (VALUE < 100)",
    "CREATE DOMAIN smaller AS small CHECK (VALUE < 10)",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE DOMAIN names AS text[]",
    "CREATE DOMAIN tags AS varchar(9)[]",
]


def _values(found: pa.Table, name: str) -> list[str]:
    return [repr(value) for value in found.column(name).to_pylist()]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize(
    "columns", [NUMBERS, TIMES, TEXTS, ARRAYS, DOMAINS], ids=["numbers", "times", "texts", "arrays", "domains"]
)
def test_a_row_of_the_log_is_the_row_of_a_snapshot(shop: Shop, columns: dict[str, list[str]], identity: str) -> None:
    names = [f"c{at}" for at in range(len(columns))]
    defined = ", ".join(f"{name} {type_}" for name, type_ in zip(names, columns, strict=True))
    shop.sql(*MADE, f"CREATE TABLE t (k int PRIMARY KEY, {defined})", f"ALTER TABLE t REPLICA IDENTITY {identity}")
    shop.sql("CREATE TABLE other (k int PRIMARY KEY)")
    source = shop.source()
    source.tables()
    start = source.latest_offset({}, 1000)
    source.commit(start)
    most = max(map(len, columns.values()))
    for at in range(most):
        shop.sql(f"INSERT INTO t VALUES ({at}, {', '.join(values[at % len(values)] for values in columns.values())})")
    nulls = ["0" if type_ == "serial" else "NULL" for type_ in columns]
    shop.sql(f"INSERT INTO t VALUES ({most}, {', '.join(nulls)})")
    logged = [
        one.signed if one.signed is not None else one.keyed
        for one in source.read(start, source.latest_offset(start, 1000))
    ]
    snapshot = shop.there("t").sort_by("k")
    from_log = pa.concat_tables([one for one in logged if one is not None])
    for name, type_ in zip(snapshot.column_names, ["key", *columns], strict=True):
        assert _values(from_log, name) == _values(snapshot, name), type_
        assert from_log.column(name).type == snapshot.column(name).type, type_
    _compare_with_select(shop, snapshot, dict(zip(names, columns, strict=True)))
    old = _old_rows(shop, source, identity)
    if old is not None:
        assert [_values(old, name) for name in snapshot.column_names] == [
            _values(snapshot, name) for name in snapshot.column_names
        ]


def _compare_with_select(shop: Shop, snapshot: pa.Table, types: dict[str, str]) -> None:
    """Hold what is text here against the text that SELECT gives, and numbers and times against their values."""
    listed = ", ".join(f"format('%s', {name}), {name} IS NULL" for name in types)
    options = "-c TimeZone=UTC -c DateStyle=ISO -c lc_monetary=C"
    with psycopg.connect(shop.url, options=options) as db:
        shown = db.execute(f"SELECT {listed} FROM t ORDER BY k").fetchall()
    for at, (name, type_) in enumerate(types.items()):
        for value, row in zip(snapshot.column(name).to_pylist(), shown, strict=True):
            text, null = row[2 * at], row[2 * at + 1]
            assert (value is None) == null, type_
            if isinstance(value, str):
                assert value == text, type_
            elif isinstance(value, Decimal):
                assert value == Decimal(text), type_
            elif isinstance(value, bool):
                assert str(value).lower()[0] == text, type_
            elif isinstance(value, int | float):
                assert repr(float(value)) == repr(float(text)) or type_ == "real", type_
            elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
                assert value.isoformat() == text, type_


def _old_rows(shop: Shop, source: Any, identity: str) -> pa.Table | None:
    """Delete all rows; give them as the log has them."""
    if identity == "DEFAULT":
        return None
    source.close()
    again = shop.source(slot="deletes")
    again.tables()
    begin = again.latest_offset({}, 1000)
    again.commit(begin)
    shop.sql("DELETE FROM t")
    (found,) = again.read(begin, again.latest_offset(begin, 1000))
    assert found.signed is not None
    assert set(found.signed.column(WEIGHT).to_pylist()) == {-1}
    rows: pa.Table = found.signed.drop_columns([WEIGHT]).sort_by("k")
    return rows


OUTSIDE = {
    "date": ["'infinity'", "'-infinity'", "'0001-01-01 BC'", "'10000-01-01'"],
    "timestamp": ["'infinity'", "'-infinity'", "'0044-03-15 12:00:00 BC'", "'10000-01-01 00:00:00'"],
    "timestamptz": ["'infinity'", "'0044-03-15 12:00:00+00 BC'", "'294276-12-31 23:59:59+00'"],
    "numeric": ["'NaN'", "'Infinity'", "1e-19", "1e20", "'-Infinity'"],
    "numeric(5,2)": ["'NaN'"],
    "integer[]": ["'{{1,2},{3,4}}'", "'[0:1]={1,2}'"],
    "date[]": ["'{2024-01-01,infinity}'"],
}


@pytest.mark.parametrize("type_", OUTSIDE)
def test_a_value_that_has_no_place_is_refused_or_null_as_the_settings_say(shop: Shop, type_: str) -> None:
    shop.sql(f"CREATE TABLE t (k int PRIMARY KEY, v {type_})", "INSERT INTO t VALUES (1, NULL)")
    refusing, lenient = shop.source(slot="one"), shop.source(slot="two", unrepresentable="null")
    for source in (refusing, lenient):
        source.tables()
        start = source.latest_offset({}, 1000)
        source.commit(start)
    for at, value in enumerate(OUTSIDE[type_]):
        shop.sql(f"INSERT INTO t VALUES ({at + 2}, {value})")
    with pytest.raises(RunnelError, match=r"RUNNEL-POSTGRES-VALUE.*t\.v.*[0-9A-F]+/[0-9A-F]+.*unrepresentable = "):
        list(refusing.read(start, refusing.latest_offset(start, 1000)))
    (found,) = lenient.read(start, lenient.latest_offset(start, 1000))
    assert found.keyed is not None
    values = [value if not isinstance(value, list) else value[-1] for value in found.keyed.column("v").to_pylist()]
    assert values == [None] * len(OUTSIDE[type_])
    with pytest.raises(RunnelError, match="RUNNEL-POSTGRES-VALUE"):
        shop.there("t")
