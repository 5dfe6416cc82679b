"""Talks to a Cassandra cluster. Rows come and values go as the server's own bytes, as they stand in its log too.

The driver's own decoding is passed by: it refuses dates beyond Python's and lists with NULLs in them, the latter at the
price of the connection. What goes wrong is told in runnel's errors.
"""

from __future__ import annotations

import logging
import ssl
import struct
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.concurrent import execute_concurrent
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, RetryPolicy, TokenAwarePolicy
from cassandra.protocol import ConfigurationException, ResultMessage, SyntaxException, _ProtocolHandler
from cassandra.query import BoundStatement, SimpleStatement, tuple_factory

from runnel.connectors.cassandra.schema.system_tables import SYSTEM_KEYSPACES
from runnel.connectors.cassandra.schema.tables import Problems, SchemaRows, TableSchema, build_tables
from runnel.errors import RunnelError, Terminal, Unreachable, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runnel.connectors.cassandra.settings import Settings

RawRow = tuple[bytes | None, ...]
_INT = struct.Struct(">i")
_AWAY = (Unavailable, ReadTimeout, ReadFailure, WriteTimeout, WriteFailure, OperationTimedOut)
_IN_FLIGHT = 32
_PIECE = 512


class _RawRows(ResultMessage):  # type: ignore[misc]
    """A result whose rows stay bytes."""

    def recv_results_rows(self, f: Any, version: Any, types: Any, metadata: Any, policy: Any) -> None:
        self.recv_results_metadata(f, types)
        columns = self.column_metadata or metadata
        count = _INT.unpack(f.read(4))[0]
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        width = range(len(columns))
        self.parsed_rows = [tuple(_value(f) for _ in width) for _ in range(count)]


def _value(f: Any) -> bytes | None:
    length = _INT.unpack(f.read(4))[0]
    return f.read(length) if length >= 0 else None


class _RawHandler(_ProtocolHandler):  # type: ignore[misc]
    message_types_by_opcode = {**_ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: _RawRows}  # noqa: RUF012


class _SaysSo(RetryPolicy):  # type: ignore[misc]
    """The driver's own policy, but too few replicas are told at once.

    The driver would ask the next node, and where there is none it may forget why the first one refused.
    """

    def on_unavailable(self, *_: Any, **__: Any) -> tuple[int, None]:
        return self.RETHROW, None


RECONNECT_SECONDS = 1.0
"""How often a node that went away is looked for."""
_DEFINING = 60.0
"""Seconds that a definition may take: every node writes it to its disk, and a busy one takes long."""


class Client:
    """A connection to the cluster of one source or target."""

    def __init__(self, settings: Settings) -> None:
        """Connect; raise `RUNNEL-CASSANDRA-DOWN` or `RUNNEL-CASSANDRA-LOGIN` where that is not possible."""
        self.settings = settings
        _quieten()
        level = ConsistencyLevel.name_to_value[settings.consistency]
        balancing = TokenAwarePolicy(DCAwareRoundRobinPolicy(settings.datacenter or ""))
        profile = ExecutionProfile(balancing, _SaysSo(), consistency_level=level, request_timeout=settings.timeout)
        profile.row_factory = tuple_factory
        login = None
        if settings.user is not None:
            login = PlainTextAuthProvider(settings.user, settings.password.reveal() if settings.password else "")
        self._cluster = Cluster(
            list(settings.hosts),
            settings.port,
            auth_provider=login,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            # The driver would wait twice as long after each attempt, up to ten minutes.
            reconnection_policy=ConstantReconnectionPolicy(RECONNECT_SECONDS, max_attempts=None),
            ssl_context=_encrypted(settings),
            connect_timeout=settings.timeout,
            control_connection_timeout=settings.timeout,
        )
        self._prepared: dict[str, Any] = {}
        try:
            with self._told():
                self._session = self._cluster.connect()
        except RunnelError:
            self._cluster.shutdown()
            raise
        self._session.client_protocol_handler = _RawHandler
        self._session.default_fetch_size = settings.page

    def close(self) -> None:
        """Let go of every connection."""
        self._cluster.shutdown()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tokens(self) -> list[int]:
        """Give the tokens that the ring is cut at, in ascending order."""
        token_map = self._cluster.metadata.token_map
        return sorted(token.value for token in token_map.ring) if token_map else []

    def hosts(self) -> list[tuple[str, str, bool]]:
        """Give each node's address and id, and whether it is up."""
        return [(host.address, str(host.host_id), bool(host.is_up)) for host in self._cluster.metadata.all_hosts()]

    def execute(self, cql: str) -> None:
        """Run a statement that gives no rows, such as a definition."""
        with self._told():
            self._session.execute(SimpleStatement(cql), timeout=max(_DEFINING, self.settings.timeout))

    def prepare(self, cql: str) -> Any:
        """Prepare a statement once."""
        if cql not in self._prepared:
            with self._told():
                self._prepared[cql] = self._session.prepare(cql)
        return self._prepared[cql]

    def rows(
        self, cql: str, values: Sequence[bytes | None] = (), *, consistency: str | None = None
    ) -> Iterator[RawRow]:
        """Give the rows of a prepared query page by page; `values` and rows are bytes as the server has them."""
        statement = self._bound(cql, values)
        if consistency is not None:
            statement.consistency_level = ConsistencyLevel.name_to_value[consistency]
        with self._told():
            yield from self._session.execute(statement)

    def records(self, cql: str, values: Sequence[bytes | None] = ()) -> list[dict[str, Any]]:
        """Give the rows of a small query as dictionaries of the driver's values."""
        with self._told():
            result = self._session.execute(self._bound(cql, values))
            types = list(result.column_types or ())
            names = list(result.column_names or ())
            return [
                {
                    name: None if v is None else type_.from_binary(v, 5)
                    for name, type_, v in zip(names, types, row, strict=True)
                }
                for row in result
            ]

    def write(self, statements: Iterable[tuple[str, Sequence[bytes | None]]]) -> int:
        """Run writes, some of them at a time and in any order, and say how many; the first one that fails ends it."""
        done = 0
        waiting = iter(statements)
        # In pieces, because nothing may be prepared by the driver's own thread, which asks for the next statement.
        while piece := [(self._bound(cql, values), ()) for cql, values in islice(waiting, _PIECE)]:
            with self._told():
                execute_concurrent(self._session, piece, concurrency=_IN_FLIGHT, raise_on_first_error=True)
            done += len(piece)
        return done

    def _bound(self, cql: str, values: Sequence[bytes | None]) -> Any:
        statement = BoundStatement(self.prepare(cql), fetch_size=self.settings.page)
        statement.values = list(values)
        return statement

    def tables(self) -> dict[str, TableSchema]:
        """Give all tables of the keyspace that can be read."""
        return self._readable()[0]

    def _readable(self) -> tuple[dict[str, TableSchema], dict[str, Terminal]]:
        """Give the tables by name, and why others cannot be read."""
        problems: Problems = {}
        described = self.definitions()
        tables = {table.name: table for table in build_tables(described, problems)}
        names = {str(row["id"]): row["table_name"] for row in described.tables}
        return tables, {names[str(table_id)]: problem for table_id, problem in problems.items()}

    def definitions(self) -> SchemaRows:
        """Give what the server says of the keyspace; raise `RUNNEL-CASSANDRA-KEYSPACE` where there is none of that name."""
        names = self._keyspaces()
        if self.settings.keyspace not in names:
            raise Terminal(
                "RUNNEL-CASSANDRA-KEYSPACE",
                f"{self.settings.label}: there is no keyspace {self.settings.keyspace!r}",
                hint=nearest(self.settings.keyspace, names),
            )
        return self._described([self.settings.keyspace])

    def all_definitions(self) -> SchemaRows:
        """Give what the server says of all users' keyspaces: a log holds the writes of all of them."""
        return self._described([name for name in self._keyspaces() if name not in SYSTEM_KEYSPACES])

    def _keyspaces(self) -> list[str]:
        return [row["keyspace_name"] for row in self.records("SELECT keyspace_name FROM system_schema.keyspaces")]

    def _described(self, keyspaces: list[str]) -> SchemaRows:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for table in ("tables", "columns", "dropped_columns", "types"):
            cql = f"SELECT * FROM system_schema.{table} WHERE keyspace_name = ?"
            found[table] = [row for name in keyspaces for row in self.records(cql, [name.encode()])]
        return SchemaRows(found["tables"], found["columns"], found["dropped_columns"], found["types"])

    def chosen_tables(self) -> list[TableSchema]:
        """Give the tables that the settings name, or all but runnel's own; raise `RUNNEL-CASSANDRA-TABLE` for a wrong name."""
        there, problems = self._readable()
        wanted = self.settings.tables
        for problem in (problems[name] for name in (problems if wanted is None else wanted) if name in problems):
            raise problem
        if wanted is None:
            return [table for name, table in sorted(there.items()) if not is_own(name)]
        for name in wanted:
            if name not in there:
                raise Terminal(
                    "RUNNEL-CASSANDRA-TABLE",
                    f"{self.settings.label}: {self.settings.keyspace} has no table {name!r}",
                    hint=nearest(name, there) or "names are compared with their case",
                )
        return [there[name] for name in wanted]

    def replicas(self) -> int:
        """Give how many copies the keyspace keeps of a row, in all data centres together."""
        cql = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"
        rows = self.records(cql, [self.settings.keyspace.encode()])
        counts = [str(value).split("/")[0] for row in rows for value in row["replication"].values()]
        return sum(int(count) for count in counts if count.isdigit())

    @cached_property
    def version(self) -> tuple[int, int]:
        """Give the server's release, such as (5, 0)."""
        release = str(self.records("SELECT release_version FROM system.local")[0]["release_version"])
        major, minor = release.split(".")[:2]
        return int(major), int(minor)

    def server_settings(self) -> dict[str, str]:
        """Give what a node says of its own settings (`system_views.settings`); empty where it does not tell."""
        try:
            rows = self.records("SELECT name, value FROM system_views.settings")
        except Terminal:
            return {}
        return {row["name"]: row["value"] for row in rows}

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn the driver's errors into runnel's."""
        where = self.settings.label
        try:
            yield
        except NoHostAvailable as error:
            raise self._no_host(error) from error
        except AuthenticationFailed as error:
            raise self._login() from error
        except Unauthorized as error:
            raise UsageError(
                "RUNNEL-CASSANDRA-PERMISSION",
                f"{where}: {self.settings.user or 'an anonymous user'} may not do this: {_said(error)}",
                hint="docs/stores/cassandra.md lists what must be granted",
            ) from error
        except _AWAY as error:
            raise Unreachable(
                "RUNNEL-CASSANDRA-REPLICAS",
                f"{where}: not enough replicas answered at consistency {self._level(error)}: {_said(error)}",
                hint="start the missing nodes and run it again, or choose a lower consistency",
            ) from error
        except (InvalidRequest, ConfigurationException, SyntaxException) as error:
            raise Terminal("RUNNEL-CASSANDRA-REQUEST", f"{where}: the server refused: {_said(error)}") from error

    def _level(self, error: Any) -> str:
        value = getattr(error, "consistency", None)
        return str(ConsistencyLevel.value_to_name.get(value, self.settings.consistency))

    def _no_host(self, error: NoHostAvailable) -> RunnelError:
        causes = list(error.errors.values()) if isinstance(error.errors, dict) else list(error.errors or ())
        if any(isinstance(cause, AuthenticationFailed) or "AuthenticationFailed" in repr(cause) for cause in causes):
            return self._login()
        for cause in causes:
            if isinstance(cause, ssl.SSLError) or "SSL" in repr(cause) or "certificate" in str(cause).lower():
                return UsageError(
                    "RUNNEL-CASSANDRA-TLS",
                    f"{self.settings.label}: no encrypted connection: {_said(cause)}",
                    hint="set tls = true, and ca to the file with the certificates that the server's own is signed by; "
                    "hosts must be named as in its certificate",
                )
            if isinstance(cause, _AWAY):
                return Unreachable(
                    "RUNNEL-CASSANDRA-REPLICAS",
                    f"{self.settings.label}: not enough replicas answered: {_said(cause)}",
                    hint="start the missing nodes and run it again, or choose a lower consistency",
                )
        said = _said(causes[0]) if causes else "no answer"
        at = ", ".join(f"{host}:{self.settings.port}" for host in self.settings.hosts)
        return Unreachable(
            "RUNNEL-CASSANDRA-DOWN",
            f"{self.settings.label}: no node answers at {at}: {said}",
            hint="is the server started, and are host and port those of its native protocol?",
        )

    def _login(self) -> RunnelError:
        who = f"user {self.settings.user!r}" if self.settings.user else "nobody's login"
        return UsageError(
            "RUNNEL-CASSANDRA-LOGIN",
            f"{self.settings.label}: the server does not accept {who}",
            hint='set user and password = "${CASSANDRA_PASSWORD}" there',
        )


def _encrypted(settings: Settings) -> ssl.SSLContext | None:
    """Give how the connection is encrypted: the server's certificate and the name in it are checked, always."""
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.cert is not None:
            context.load_cert_chain(settings.cert, settings.key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            "RUNNEL-CASSANDRA-TLS",
            f"{settings.label}: the certificates cannot be read: {_said(error)}",
            hint="ca, cert and key are files in PEM form, the key without a password",
        ) from error
    return context


OWN_SUFFIXES = ("_runnel_journal", "_runnel_old")
"""Tables that `runnel prepare` makes beside a table; they are not captured themselves."""
MARKS = "runnel_delivery"
"""The table in which a target keeps how far its tables are."""


def is_own(name: str) -> bool:
    """Say whether a table is one that runnel made for itself."""
    return name == MARKS or name.endswith(OWN_SUFFIXES)


def _said(error: BaseException) -> str:
    text = getattr(error, "message", None) or str(error)
    return " ".join(str(text).split())[:300].rstrip(".") or type(error).__name__


def _quieten() -> None:
    """Leave what the driver logs to whoever has asked for it; its warnings about versions are of no use to others."""
    logger = logging.getLogger("cassandra")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
