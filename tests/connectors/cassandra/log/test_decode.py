from __future__ import annotations

import gzip
import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.log.catalog import Catalog
from runnel.connectors.cassandra.log.encryption import Keys
from runnel.connectors.cassandra.log.errors import LogError
from runnel.connectors.cassandra.log.mutation import Decoder
from runnel.connectors.cassandra.log.reader import LogReader
from runnel.connectors.cassandra.schema.system_tables import system_tables
from runnel.connectors.cassandra.schema.tables import SchemaRows, build_tables
from runnel.connectors.cassandra.schema.text import parse_schema
from tests.connectors.cassandra.encoder import Cell, Row, Secret, Updated, body, expected, write_segment
from tests.connectors.cassandra.random_updates import RandomUpdates, schema, tables

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from runnel.connectors.cassandra.cells import ChangeTuple

SEEDS = st.integers(0, 2**32)
VERSIONS = st.sampled_from([6, 7, 8])
SECRET = Secret("testing:1", bytes(range(16)), bytes(range(16, 32)))


def changes_of(updates: Iterable[Updated]) -> list[ChangeTuple]:
    return [change for update in updates for change in expected(update)]


@given(SEEDS, VERSIONS)
def test_what_is_encoded_is_decoded(seed: int, version: int) -> None:
    made = RandomUpdates(seed, version)
    updates = [made.update() for _ in range(made.random.choice([1, 1, 2]))]
    decoder = Decoder(Catalog(schema()), version)
    assert decoder.decode(body(*updates)) == changes_of(updates)


@given(SEEDS, VERSIONS)
def test_the_functions_made_for_column_lists_read_what_the_grammar_says(seed: int, version: int) -> None:
    made = RandomUpdates(seed, version)
    table = made.random.choice(list(tables().values()))
    decoder, by_grammar = (
        Decoder(Catalog(schema()), version),
        Decoder(Catalog(schema()), version, compile_readers=False),
    )
    all_columns = [Cell(c.name, made.value(c.type.width), 1) for c in table.regular if not c.type.multicell]
    usual = Updated(table, made.key(table), rows=(Row(made.clustering(table), (1, 0, 0), cells=tuple(all_columns)),))
    for _ in range(12):
        decoder.decode(body(usual))
    for _ in range(10):
        update = made.update(table)
        assert decoder.decode(body(update)) == by_grammar.decode(body(update)) == expected(update)


@pytest.mark.parametrize("version", [6, 7, 8])
@pytest.mark.parametrize(
    "compression", [None, "LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"]
)
def test_a_segment_is_read_in_order_with_the_position_behind_each_mutation(
    tmp_path: Path, version: int, compression: str | None
) -> None:
    made = RandomUpdates(5, version)
    sections = [[made.update() for _ in range(count)] for count in (3, 0, 40, 1)]
    bodies = [[body(update) for update in section] for section in sections]
    path = write_segment(tmp_path, bodies, version=version, compression=compression)
    found = list(LogReader(Catalog(schema())).read(path))
    assert [mutation.changes for mutation in found] == [expected(u) for s in sections for u in s if expected(u)]
    plain = write_segment(tmp_path, bodies, version=version, id_=2)
    moved = len(path.read_bytes().partition(b"}")[0]) - len(plain.read_bytes().partition(b"}")[0])
    assert [m.position - moved for m in found] == [m.position for m in LogReader(Catalog(schema())).read(plain)]


def test_an_encrypted_segment_is_read_with_its_key(tmp_path: Path) -> None:
    made = RandomUpdates(6)
    updates = [made.update() for _ in range(30)]
    path = write_segment(tmp_path, [[body(update) for update in updates]], secret=SECRET)
    found = LogReader(Catalog(schema()), Keys({"Testing:1": SECRET.key})).read(path)
    assert [mutation.changes for mutation in found] == [expected(update) for update in updates if expected(update)]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        (None, "RUNNEL-CASSANDRA-LOG-KEY"),
        (Keys({}), "RUNNEL-CASSANDRA-LOG-KEY"),
        (Keys({"testing:1": bytes(16)}), "RUNNEL-CASSANDRA-LOG-SECTION"),
    ],
)
def test_an_encrypted_segment_without_its_key_is_refused(tmp_path: Path, keys: Keys | None, code: str) -> None:
    path = write_segment(tmp_path, [[body(RandomUpdates(6).update(tables()["fixed"]))]], secret=SECRET)
    with pytest.raises(LogError) as caught:
        list(LogReader(Catalog(schema()), keys).read(path))
    assert caught.value.code == code


def test_a_gzipped_segment_is_read_like_any_other(tmp_path: Path) -> None:
    update = RandomUpdates(7).update(tables()["fixed"], b"\x00\x00\x00\x01")
    path = write_segment(tmp_path, [[body(update)]])
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(LogReader(Catalog(schema())).read(packed)) == list(LogReader(Catalog(schema())).read(path))


def test_reading_goes_on_behind_any_position_it_gave_before(tmp_path: Path) -> None:
    made = RandomUpdates(8)
    path = write_segment(
        tmp_path, [[body(made.update()) for _ in range(10)] for _ in range(3)], compression="LZ4Compressor"
    )
    reader = LogReader(Catalog(schema()))
    every = list(reader.read(path))
    for n, mutation in enumerate(every):
        assert list(reader.read(path, after=mutation.position)) == every[n + 1 :]


def test_reading_stops_before_the_section_that_is_not_safe_yet(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [[body(fixed(timestamp=n))] for n in range(3)])
    reader = LogReader(Catalog(schema()))
    every = list(reader.read(path))
    assert list(reader.read(path, until=every[1].position)) == every[:2]
    assert list(reader.read(path, until=every[2].position - 1)) == every[:2]


def fixed(key: bytes = b"\x00\x00\x00\x01", timestamp: int = 9) -> Updated:
    cell = Cell("a", b"\x00\x00\x00\x07", timestamp)
    return Updated(tables()["fixed"], key, rows=(Row((), (timestamp, 0, 0), cells=(cell,)),))


def test_a_table_that_is_not_known_is_named_by_its_id(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [[body(fixed())]])
    with pytest.raises(LogError, match="00000000-0000-0000-0000-000000000001") as caught:
        list(LogReader(Catalog()).read(path))
    assert caught.value.code == "RUNNEL-CASSANDRA-LOG-TABLE"
    assert caught.value.offset == 28


def test_names_that_would_break_python_source_are_only_names() -> None:
    odd = "'\"\\\n\0{}%s # \u2028"
    text = f'CREATE TABLE r.t (id int PRIMARY KEY, "{odd.replace(chr(34), chr(34) * 2)}" int) WITH ID = {TABLE_ID}'
    rows = parse_schema(text)
    rows.tables[0] = {**rows.tables[0], "table_name": odd}
    rows.columns[:] = [{**row, "table_name": odd} for row in rows.columns]
    table = build_tables(rows)[0]
    update = Updated(table, b"\0\0\0\1", rows=(Row((), (1, 0, 0), cells=(Cell(odd, b"\0\0\0\2", 1),)),))
    decoder = Decoder(Catalog(rows), 7)
    for _ in range(20):
        assert decoder.decode(body(update)) == expected(update)


def test_only_wanted_tables_are_given_also_out_of_mutations_that_change_several(tmp_path: Path) -> None:
    made = RandomUpdates(10)
    wanted, other = made.update(tables()["mixed"], b"k"), made.update(tables()["rows"], b"k")
    bodies = [body(other), body(wanted), body(other, wanted), body(wanted, other)]
    path = write_segment(tmp_path, [bodies])
    found = list(LogReader(Catalog(schema(), wanted={("r", "mixed")})).read(path))
    assert [mutation.changes for mutation in found] == [expected(wanted)] * 3


def test_a_table_that_is_neither_known_nor_wanted_is_passed_over(tmp_path: Path) -> None:
    stranger = b"\x01" + uuid.UUID(int=99).bytes + b"whatever it holds"
    path = write_segment(tmp_path, [[stranger, body(fixed())]])
    found = list(LogReader(Catalog(schema(), wanted={("r", "fixed")})).read(path))
    assert [mutation.changes for mutation in found] == [expected(fixed())]


def test_what_stands_behind_a_table_that_is_not_known_is_read(tmp_path: Path) -> None:
    """A batch that begins with two tables that were dropped, with a wanted one behind them, between them and nowhere."""
    text = "; ".join(
        f"CREATE TABLE k.{name} (id int PRIMARY KEY, v int) WITH ID = {uuid.UUID(int=n)}"
        for n, name in enumerate("abcd", 1)
    )
    made = {table.name: table for table in build_tables(parse_schema(text))}
    row = Row((), (5, 0, 0), cells=(Cell("v", made["a"].id.bytes[:4], 5),))
    updates = {name: Updated(table, b"\0\0\0\1", rows=(row,)) for name, table in made.items()}
    orders = ("ab", "abc", "acb", "cab", "abcd", "acbd", "cdab")
    path = write_segment(tmp_path, [[body(*(updates[name] for name in order)) for order in orders]])
    known = parse_schema("; ".join(part for part in text.split("; ") if "k.c" in part or "k.d" in part))
    reader = LogReader(Catalog(known, wanted=[("k", "c"), ("k", "d")]))
    found = ["".join(dict.fromkeys(c[1].name for c in mutation.changes)) for mutation in reader.read(path)]
    assert found == ["c", "c", "c", "cd", "cd", "cd"]


def test_the_server_is_asked_once_for_what_the_log_does_not_define(tmp_path: Path) -> None:
    ids = [uuid.UUID(int=n) for n in (1, 2, 3)]
    old = parse_schema(
        f"CREATE TABLE k.t (id int PRIMARY KEY, v int) WITH ID = {ids[0]}; "
        f"CREATE TABLE k.u (id int PRIMARY KEY, v int) WITH ID = {ids[2]}"
    )
    new = parse_schema(
        f"CREATE TABLE k.t (id int PRIMARY KEY, v int) WITH ID = {ids[1]}; "
        f"CREATE TABLE k.u (id int PRIMARY KEY, added int, v int) WITH ID = {ids[2]}"
    )
    tables = build_tables(new)
    bodies = [
        body(Updated(table, b"\0\0\0\1", rows=(Row((), (n, 0, 0), cells=(Cell(table.regular[0].name, bytes(4), n),)),)))
        for n in (5, 6)
        for table in tables
    ]
    asked: list[int] = []

    def ask() -> SchemaRows:
        asked.append(1)
        return new

    reader = LogReader(Catalog(old, wanted=[("k", "t"), ("k", "u")], ask=ask))
    found = [mutation.changes[0][1].name for mutation in reader.read(write_segment(tmp_path, [bodies]))]
    assert found == ["t", "u", "t", "u"]
    assert len(asked) == 1


def test_a_definition_that_cannot_be_read_matters_only_where_its_table_does(tmp_path: Path) -> None:
    columns = {"id": ("partition_key", "int"), "v": ("regular", "a_type_of_the_future")}
    log = [created("t", TABLE_ID, columns), body(fixed())]
    found = list(LogReader(Catalog(schema())).read(write_segment(tmp_path, [log])))
    assert [mutation.changes for mutation in found] == [expected(fixed())]
    with pytest.raises(LogError, match=f"{TABLE_ID} cannot be read: the CQL type 'a_type_of_the_future' is not known"):
        list(LogReader(Catalog(schema())).read(write_segment(tmp_path, [[*log, insert("v", bytes(4))]])))


def system(name: str, key: str, clustering: tuple[str, ...], values: dict[str, bytes], timestamp: int = 5) -> Updated:
    table = next(table for table in system_tables() if table.name == name)
    found = tuple(Cell(column, value, timestamp) for column, value in values.items())
    row = Row(tuple(part.encode() for part in clustering), (timestamp, 0, 0), cells=found)
    return Updated(table, key.encode(), rows=(row,))


def created(name: str, table_id: uuid.UUID, columns: dict[str, tuple[str, str]], timestamp: int = 5) -> bytes:
    """Give the mutation that defines a table of the keyspace `made`; columns are (kind, type)."""
    updates = [system("tables", "made", (name,), {"id": table_id.bytes}, timestamp)]
    for n, (column, (kind, type_)) in enumerate(columns.items()):
        values = {"kind": kind.encode(), "type": type_.encode(), "position": n.to_bytes(4, "big")}
        updates.append(system("columns", "made", (name, column), values | {"clustering_order": b"none"}, timestamp))
    return body(*updates)


TABLE_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


def insert(column: str, value: bytes, timestamp: int = 9) -> bytes:
    text = "".join(f", {name} {type_}" for name, type_ in [("v", "int"), ("w", "text")])
    table = build_tables(parse_schema(f"CREATE TABLE made.t (id int PRIMARY KEY{text}) WITH ID = {TABLE_ID}"))[0]
    return body(Updated(table, b"\x00\x00\x00\x01", rows=(Row((), None, cells=(Cell(column, value, timestamp),)),)))


def test_definitions_come_from_the_log_itself_at_their_place(tmp_path: Path) -> None:
    columns = {"id": ("partition_key", "int"), "v": ("regular", "int")}
    added = body(
        system("columns", "made", ("t", "w"), {"kind": b"regular", "type": b"text", "position": b"\xff" * 4}, 6)
    )
    log = [created("t", TABLE_ID, columns), insert("v", bytes(4)), added, insert("w", b"hello"), insert("v", bytes(4))]
    catalog = Catalog()
    found = list(LogReader(catalog).read(write_segment(tmp_path, [log])))
    assert [(change[4], change[6]) for m in found for change in m.changes] == [
        ("v", bytes(4)),
        ("w", b"hello"),
        ("v", bytes(4)),
    ]
    assert [column.name for column in catalog.tables()[0].columns] == ["id", "v", "w"]


def test_a_column_comes_before_its_definition_only_in_a_broken_log(tmp_path: Path) -> None:
    columns = {"id": ("partition_key", "int"), "v": ("regular", "int")}
    path = write_segment(tmp_path, [[created("t", TABLE_ID, columns), insert("v", bytes(4)), insert("w", b"hello")]])
    with pytest.raises(LogError, match="no column 'w'") as caught:
        list(LogReader(Catalog()).read(path))
    assert caught.value.code == "RUNNEL-CASSANDRA-LOG-BODY"


def test_definitions_without_a_name_or_half_said_define_nothing(tmp_path: Path) -> None:
    own = {table.name: table for table in system_tables()}
    nameless = Updated(own["types"], b"r", rows=(Row((None,), (20, 0, 0)),))
    half = Updated(own["columns"], b"made", rows=(Row((b"t", b"v"), (20, 0, 0)),))
    table = system("tables", "made", ("t",), {"id": TABLE_ID.bytes})
    catalog = Catalog(schema(), read_at=1)
    log = [body(nameless), body(table, half), body(fixed())]
    found = list(LogReader(catalog).read(write_segment(tmp_path, [log])))
    assert [mutation.changes for mutation in found] == [expected(fixed())]
    assert catalog.table(TABLE_ID) is None
    assert "not complete" in catalog.problems[TABLE_ID].message


def test_cells_of_a_dropped_column_and_of_a_dropped_table_are_still_read(tmp_path: Path) -> None:
    columns = {"id": ("partition_key", "int"), "v": ("regular", "int"), "w": ("regular", "text")}
    gone = next(table for table in system_tables() if table.name == "columns")
    dropped = system(
        "dropped_columns", "made", ("t", "w"), {"type": b"text", "dropped_time": (7).to_bytes(8, "big")}, 6
    )
    row = Updated(gone, b"made", rows=(Row((b"t", b"w"), deletion=(6, 1)),))
    whole = next(table for table in system_tables() if table.name == "tables")
    table = Updated(whole, b"made", rows=(Row((b"t",), deletion=(8, 1)),))
    log = [
        created("t", TABLE_ID, columns),
        body(row, dropped),
        insert("w", b"late"),
        body(table),
        insert("v", bytes(4)),
    ]
    catalog = Catalog()
    found = list(LogReader(catalog).read(write_segment(tmp_path, [log])))
    told = [(cells.KIND_NAMES[change[0]], change[4]) for mutation in found for change in mutation.changes]
    assert told == [("column-drop", "w"), ("set", "w"), ("set", "v")]
    assert found[0].changes[0][7] == 7000
    assert catalog.tables()[0].dropped_at == {"w": 7000}


def test_what_the_server_said_later_counts_more_than_what_the_log_said_earlier(tmp_path: Path) -> None:
    earlier = system("columns", "r", ("fixed", "a"), {"kind": b"regular", "type": b"text", "position": b"\xff" * 4}, 5)
    path = write_segment(tmp_path, [[body(earlier), body(fixed())]])
    catalog = Catalog(schema(), read_at=10)
    assert [mutation.changes for mutation in LogReader(catalog).read(path)] == [expected(fixed())]
    with pytest.raises(LogError):
        list(LogReader(Catalog(schema(), read_at=1)).read(path))


def test_a_truncate_is_given_with_the_position_up_to_which_it_took_all(tmp_path: Path) -> None:
    local = next(table for table in system_tables() if table.name == "local")
    value = (3).to_bytes(8, "big") + (77).to_bytes(4, "big") + (1_700_000_000_000).to_bytes(8, "big")
    cell = Cell("truncated_at", value, 9, path=tables()["fixed"].id.bytes)
    other = Cell("truncated_at", value, 9, path=uuid.UUID(int=50).bytes)
    log = [body(Updated(local, b"local", rows=(Row((), None, cells=(found,)),))) for found in (cell, other)]
    found = list(LogReader(Catalog(schema())).read(write_segment(tmp_path, [log])))
    change = cells.Change(*found[0].changes[0])
    assert len(found) == 1
    assert (change.kind, change.table, change.timestamp) == (cells.TRUNCATE, tables()["fixed"], 1_700_000_000_000_000)
    assert change.value == cells.Truncation(3, 77)
