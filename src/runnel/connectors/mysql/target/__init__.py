"""Views delivered to MariaDB and MySQL: types and values, tables, the rows on their way, and the transaction that writes them."""
