"""The binary log of MariaDB and MySQL: from bytes of files or of the replication protocol to transactions of rows as Arrow.

From the outside in: `files` and `stream` give events, `transactions` puts them together, `row_events` gathers the bytes of rows by
table, `decode` turns them column by column into Arrow. Whatever is not understood is an error with file and position.
"""
