"""The log lists which numeric columns are unsigned: which columns are in that list is the server's to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.connectors.mysql.conftest import Shop

NUMBERS = (
    "CREATE TABLE numbers (id INT PRIMARY KEY, y YEAR, i INT, u INT UNSIGNED, b BIT(3), j BIGINT, t TIMESTAMP NULL,"
    " w BIGINT UNSIGNED, e ENUM('x'), s SMALLINT, d DECIMAL(5,2), f FLOAT, k TINYINT, l TINYINT UNSIGNED, z YEAR, m INT)"
)
ROWS = (
    "INSERT INTO numbers VALUES (1, 2020, -1, 4294967295, b'101', -1, '2024-02-29 10:00:00', 18446744073709551615, 'x', -1,"
    " -1.50, -0.5, -1, 255, 1999, -2)",
    "INSERT INTO numbers (id) VALUES (2)",
    "UPDATE numbers SET i = -7, m = -8 WHERE id = 1",
)


def test_columns_after_a_year_keep_their_signs(shop: Shop) -> None:
    shop.sql(NUMBERS)
    shop.catch_up()
    shop.sql(*ROWS)
    shop.catch_up()
    shop.compare("numbers")
