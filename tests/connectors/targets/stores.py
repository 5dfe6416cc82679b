"""The stores that the target suite runs against: how one is configured, looked at, and tampered with."""

from __future__ import annotations

import json
import socket
import threading
import time
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from cassandra.util import OrderedMapSerializedKey
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import set_json_loads

if TYPE_CHECKING:
    from tests.servers.cassandra import CassandraNode
    from tests.servers.mysql import SqlServer
    from tests.servers.postgres import PostgresServer

Row = dict[str, Any]
OWN = ("_runnel_row", "_runnel_copy", "_runnel_key")


class Store(Protocol):
    """One place of its own in a real server; `gate` can be shut, and then nobody gets through to it."""

    type: str
    gate: Gate

    def settings(self) -> dict[str, Any]:
        """Give the settings of a target for it, but for its views."""
        ...

    def run(self, *statements: str) -> None:
        """Run statements as somebody else would; names of tables stand alone."""
        ...

    def rows(self, table: str) -> list[Row]:
        """Give the rows of a table, without columns of runnel's own."""
        ...

    def mark(self, table: str) -> Row:
        """Give what a table is marked with."""
        ...

    def put_mark(self, table: str, mark: Row) -> None:
        """Put an older mark back."""
        ...


class Gate:
    """Passes connections on to a server while it is open; at `pace`, so many bytes a second of each."""

    def __init__(self, host: str, port: int, pace: float | None = None) -> None:
        self._to, self._pace = (host, port), pace
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []

    def open(self) -> None:
        """Let connections through."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """Cut all connections and refuse new ones."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # its other end was faster
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._to)
            except OSError:
                return
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(one, other, self._pace), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket, pace: float | None) -> None:
    try:
        while data := one.recv(65536 if pace is None else 4096):
            if pace is not None:
                time.sleep(len(data) / pace)
            other.sendall(data)
        other.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class PostgresStore:
    """A database."""

    type = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.url = server.database()
        self.gate = Gate("127.0.0.1", server.port)

    def settings(self) -> dict[str, Any]:
        return {"url": f"postgresql://postgres@127.0.0.1:{self.gate.port}/{conninfo_to_dict(self.url)['dbname']}"}

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, table: str) -> list[Row]:
        with psycopg.connect(self.url) as connection:
            set_json_loads(lambda text: json.loads(text, parse_float=Decimal), connection)
            connection.execute("SET TIME ZONE 'UTC'")
            cursor = connection.execute(f'SELECT * FROM "{table}"'.encode())
            names = [column.name for column in cursor.description or ()]
            return [{n: v for n, v in zip(names, row, strict=True) if n not in OWN} for row in cursor.fetchall()]

    def mark(self, table: str) -> Row:
        return next(row for row in self.rows("_runnel") if row["table_name"] == table)

    def put_mark(self, table: str, mark: Row) -> None:
        with psycopg.connect(self.url) as connection:
            values = [mark["epoch"], mark["state"], table]
            connection.execute("UPDATE _runnel SET epoch = %s, state = %s WHERE table_name = %s", values)


class MysqlStore:
    """A database of MariaDB or MySQL."""

    def __init__(self, server: SqlServer) -> None:
        self.type = server.program.name.partition("-")[0]
        self.server, self.database = server, server.database()
        self.gate = Gate("127.0.0.1", server.port)

    def settings(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.gate.port, "user": "root", "database": self.database}

    def run(self, *statements: str) -> None:
        names_in_double_quotes = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"
        self.server.sql(names_in_double_quotes, *statements, database=self.database)

    def rows(self, table: str) -> list[Row]:
        types = dict(
            self.server.sql(
                "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS "
                f"WHERE TABLE_SCHEMA = '{self.database}' AND TABLE_NAME = '{table}' ORDER BY ORDINAL_POSITION"
            )
        )
        names = [name for name in types if name not in OWN]
        # A FLOAT is shown with six digits, and as a double with all.
        exact = ", ".join(f"`{name}`" + (" * 1e0" if types[name] == "float" else "") for name in names)
        found = self.server.sql(f"SELECT {exact} FROM `{table}`", database=self.database)
        return [{n: _typed(types[n], v) for n, v in zip(names, row, strict=True)} for row in found]

    def mark(self, table: str) -> Row:
        return next(row for row in self.rows("_runnel") if row["table_name"] == table)

    def put_mark(self, table: str, mark: Row) -> None:
        with self.server.connect(self.database) as connection, connection.cursor() as cursor:
            values = [mark["epoch"], mark["state"], table]
            cursor.execute("UPDATE _runnel SET epoch = %s, state = %s WHERE table_name = %s", values)


def _typed(type_: str, value: Any) -> Any:
    return bool(value) if type_ == "tinyint(1)" and value is not None else value


class CassandraStore:
    """A keyspace."""

    type = "cassandra"

    def __init__(self, node: CassandraNode) -> None:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile

        self.keyspace = "t_" + uuid.uuid4().hex[:12]
        self.gate = Gate(node.host, node.port)
        profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(request_timeout=60)}
        self._cluster = Cluster([node.host], node.port, execution_profiles=profiles, protocol_version=5)
        self._session = self._cluster.connect()
        how = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self._session.execute(f"CREATE KEYSPACE {self.keyspace} WITH replication = {how}")
        self._session.set_keyspace(self.keyspace)

    def settings(self) -> dict[str, Any]:
        return {"hosts": ["127.0.0.1"], "port": self.gate.port, "keyspace": self.keyspace, "timeout": "20 seconds"}

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._session.execute(statement)

    def rows(self, table: str) -> list[Row]:
        # The driver's own rows give columns such as "as" another name.
        found = self._session.execute(f'SELECT * FROM "{table}"')
        return [{n: _plain(v) for n, v in zip(found.column_names, row, strict=True)} for row in found]

    def mark(self, table: str) -> Row:
        return next(row for row in self.rows("runnel_delivery") if row["table_name"] == table)

    def put_mark(self, table: str, mark: Row) -> None:
        # Nobody can write below a later time: the row is removed, and the server forgets that it was.
        self._session.execute("TRUNCATE runnel_delivery")
        names = [name for name, value in mark.items() if value is not None]
        cql = f"INSERT INTO runnel_delivery ({', '.join(names)}) VALUES ({', '.join('%s' for _ in names)}) USING TIMESTAMP 1"
        self._session.execute(cql, [mark[name] for name in names])

    def close(self) -> None:
        self._cluster.shutdown()


def _plain(value: Any) -> Any:
    """Give a value of the driver's in plain forms: dicts, lists, dates."""
    if isinstance(value, OrderedMapSerializedKey | dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if type(value).__name__ == "Date":
        return value.date()
    return [_plain(item) for item in value] if isinstance(value, list) else value
