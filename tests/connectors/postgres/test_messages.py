"""Every message of pgoutput is read, and damaged bytes are an error with their place, never a hang."""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from runnel.connectors.postgres.log import messages
from runnel.connectors.postgres.log.messages import UNCHANGED, decode
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer

LETTERS = "BCRIUDTYOM"


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def row(*values: str | None) -> bytes:
    made = struct.pack(">H", len(values))
    for value in values:
        made += b"n" if value is None else b"t" + struct.pack(">I", len(value.encode())) + value.encode()
    return made


def test_values_are_text_null_or_left_out() -> None:
    data = b"U" + struct.pack(">I", 7) + b"K" + row("1", None) + b"N" + struct.pack(">H", 2) + b"u" + row("ü")[2:]
    assert decode(0, data) == messages.Update(7, (UNCHANGED, "ü"), ("1", None))
    assert decode(0, b"Y" + struct.pack(">I", 9) + text("") + text("mood")) == messages.Type(9, "pg_catalog", "mood")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Z",
        b"B" + bytes(19),
        b"B" + bytes(21),
        b"I" + bytes(4) + b"N" + struct.pack(">H", 65535),
        b"I" + bytes(4) + b"N" + struct.pack(">H", 1) + b"t" + struct.pack(">I", 1 << 31) + b"x",
        b"I" + bytes(4) + b"N" + struct.pack(">H", 1) + b"t" + struct.pack(">I", 1) + b"\xff",
        b"I" + bytes(4) + b"N" + struct.pack(">H", 1) + b"b" + struct.pack(">I", 1) + b"x",
        b"T" + struct.pack(">I", 0xFFFFFFFF) + b"\0",
        b"M\0" + bytes(8) + text("p") + struct.pack(">I", 0xFFFFFFFF),
        b"O" + bytes(8) + b"no end",
        b"R" + bytes(4) + text("s") + text("t") + b"x" + bytes(2),
    ],
)
def test_bytes_that_are_not_a_message_are_an_error_with_their_place(data: bytes) -> None:
    with pytest.raises(RunnelError, match=r"RUNNEL-PGOUTPUT-DAMAGED.*1/2A"):
        decode(0x1_0000_002A, data)


def logged(url: str) -> list[bytes]:
    """Make the server write a message of every kind; give them."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TYPE mood AS ENUM ('glad', 'sad')")
        db.execute("CREATE TABLE t (id int PRIMARY KEY, m mood, big text)")
        db.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
        db.execute("CREATE TABLE f (a int, b text); ALTER TABLE f REPLICA IDENTITY FULL")
        db.execute("CREATE PUBLICATION p FOR TABLE t, f")
        db.execute("SELECT pg_create_logical_replication_slot('messages', 'pgoutput')")
        db.execute("SELECT pg_replication_origin_create('elsewhere')")
        db.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
        try:
            db.execute("INSERT INTO t VALUES (1, 'glad', repeat('x', 9000)), (2, NULL, '')")
            db.execute("UPDATE t SET m = 'sad'")
            db.execute("UPDATE t SET id = 3 WHERE id = 1")
            db.execute("DELETE FROM t WHERE id = 2")
            db.execute("INSERT INTO f VALUES (1, 'ü')")
            db.execute("UPDATE f SET b = NULL")
            db.execute("DELETE FROM f")
            db.execute("TRUNCATE t, f")
            db.execute("SELECT pg_logical_emit_message(true, 'note', 'hello')")
            found = db.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes('messages', NULL, NULL,"
                " 'proto_version', '1', 'publication_names', 'p', 'messages', 'true')"
            ).fetchall()
        finally:
            db.execute("SELECT pg_replication_origin_session_reset()")
            db.execute("SELECT pg_replication_origin_drop('elsewhere')")
            db.execute("SELECT pg_drop_replication_slot('messages')")
    return [bytes(data) for (data,) in found]


@pytest.mark.postgres
def test_a_server_s_messages_of_every_kind_are_read_and_damaged_ones_never_hang(
    postgres_server: PostgresServer,
) -> None:
    found = logged(postgres_server.database())
    read = [decode(0, data) for data in found]
    assert {chr(data[0]) for data in found} == set(LETTERS)
    assert messages.Type in map(type, read)
    updates = [one for one in read if isinstance(one, messages.Update)]
    assert updates[0].new == ("1", "sad", UNCHANGED)
    assert updates[2].old == ("1", None, None)
    assert [one.whole for one in updates] == [False, False, False, True]
    chance = random.Random(1)
    begin = time.process_time()
    outcomes = {"read": 0, "RUNNEL-PGOUTPUT-DAMAGED": 0}
    for _ in range(5000):
        made = bytearray(chance.choice(found))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(made) or 1)
            match chance.randrange(4):
                case 0:
                    del made[at:]
                case 1:
                    made[at : at + 4] = chance.randbytes(4)
                case 2:
                    made[at : at + 4] = b"\xff" * 4
                case _:
                    del made[at : at + chance.randint(1, 9)]
        try:
            decode(42, bytes(made))
            outcomes["read"] += 1
        except RunnelError as error:
            assert "0/2A" in str(error)
            outcomes[error.code] += 1
    assert outcomes["RUNNEL-PGOUTPUT-DAMAGED"] > 1000
    assert time.process_time() - begin < 20
