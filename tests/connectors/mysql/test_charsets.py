"""Character sets: Python reads the bytes of each as the server does, and the numbers of collations are those of the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.connectors.mysql.log.charsets import BINARY, BY_NAME, CODECS, codec_of, decoded
from runnel.connectors.mysql.log.problems import BadBytes

if TYPE_CHECKING:
    from tests.servers.mysql import SqlServer

WIDE = ("utf8", "utf8mb3", "utf8mb4", "utf16", "utf16le", "utf32", "ucs2", "binary")


@pytest.mark.parametrize("charset", sorted(set(BY_NAME) - set(WIDE)))
def test_each_byte_is_the_character_that_it_is_to_the_server(sql_server: SqlServer, charset: str) -> None:
    bytes_ = bytes(range(256))
    ((text,),) = sql_server.sql(f"SELECT CONVERT(_{charset} X'{bytes_.hex()}' USING utf8mb4)")
    assert len(text) == 256
    known = 0
    for byte, character in enumerate(text):
        if character != "?" or byte == ord("?"):
            assert decoded(bytes([byte]), BY_NAME[charset]) == character
            known += 1
    assert known >= 128


def test_collations_have_the_numbers_that_the_servers_give_them(sql_server: SqlServer) -> None:
    table = "COLLATION_CHARACTER_SET_APPLICABILITY" if "maria" in sql_server.program.name else "COLLATIONS"
    rows = sql_server.sql(f"SELECT ID, CHARACTER_SET_NAME FROM information_schema.{table} WHERE ID IS NOT NULL")
    assert len(rows) > 200
    for number, charset in rows:
        if charset in BY_NAME and charset != "binary":
            assert codec_of(int(number)) == codec_of(BY_NAME[charset]), (number, charset)
        else:
            assert int(number) not in CODECS, (number, charset)


def test_a_character_set_that_is_read_in_another_way_elsewhere_is_refused() -> None:
    with pytest.raises(BadBytes, match="collation 13 "):
        decoded(b"x", 13)  # sjis
    assert decoded(b"name", BINARY) == "name"
