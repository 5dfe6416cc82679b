"""The connection to the catalog: SQLite or PostgreSQL, read transactions, the one-at-a-time write transaction, versions.

Every database error leaves here as one of runnel's: what may pass by itself is `Transient`.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event, exc

from runnel.errors import Conflict, Place, RunnelError, Terminal, Transient, Unreachable, UsageError, places_named
from runnel.lake import digests, epochs, tables
from runnel.lake.uninterrupted import uninterrupted
from runnel.redaction import know, normal, scrub, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DUCKLAKE_VERSION = "1.0"
RUNNEL_VERSION = 4
BUSY_SECONDS = 10.0
IDLE_SECONDS = 8.0
"""How long PostgreSQL lets a session of ours stand still inside a transaction: shorter than others wait for its locks."""
_CREATION_LOCK = 7_286_635
T = TypeVar("T")
MAIN_SCHEMA_ID = 0
STATE_SCHEMA_ID = 1
_STATE = "state"
_DIGESTS = "digests"
_ALL = "all"
_SUMS_OF_FILES = 3


class Catalog:
    """A catalog database. `name` is its URL without a password.

    It `has_digests` unless an earlier version wrote it and it can only be read; it `needs_digests` where no earlier version wrote any
    of it, so that an epoch without one is damage.
    """

    def __init__(self, url: str, *, durable: bool = True) -> None:
        """Prepare to connect; nothing is opened yet."""
        self.path: Path | None = None
        self.read_only = False
        self.has_digests = True
        self.needs_digests = False
        if url.startswith("sqlite:"):
            self.path = Path(url.removeprefix("sqlite:").removeprefix("///"))
            self.name = f"sqlite:{self.path}"
            self.read_only = _closed_to_us(self.path)
            self.engine = _reading_engine(self.path) if self.read_only else _sqlite_engine(self.path, durable=durable)
        else:
            parsed = _postgres_url(url)
            self.name = shown(parsed.set(drivername="postgresql").render_as_string(hide_password=True))
            self.engine = _postgres_engine(parsed)
        self._reader = (
            self.engine.execution_options(isolation_level="REPEATABLE READ") if self.path is None else self.engine
        )

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Read in one transaction, which sees one state."""
        before = _version(self.path) if self.read_only and self.path is not None else None
        with self._translated(), self._reader.begin() as connection:
            yield connection
        if before is not None and self.path is not None and _version(self.path) != before:
            raise Transient(
                "RUNNEL-CATALOG-LOCKED",
                "the catalog was written while it was read without locks, for it is closed to this user",
                place=Place(self.name),
                hint="try again, or make the catalog's folder writable",
            )

    @contextmanager
    def write(self, locked: sa.Table = tables.snapshot) -> Iterator[sa.Connection]:
        """Write in one transaction; only one at a time holds the lock on `locked`."""
        if self.read_only:
            raise Terminal(
                "RUNNEL-CATALOG-READ-ONLY",
                "the catalog can be read, not written",
                place=Place(self.name),
                hint="make the file and its folder writable for this user",
            )
        with self._translated(), self.engine.connect() as connection:
            if self.path is not None:
                connection = connection.execution_options(begin="BEGIN IMMEDIATE")
            with connection.begin():
                if self.path is None:
                    connection.execute(sa.text(f"LOCK TABLE {locked.name} IN EXCLUSIVE MODE"))
                yield connection

    def transact(self, work: Callable[[sa.Connection], T], locked: sa.Table = tables.snapshot) -> T:
        """Do work in one write transaction, which a signal does not cut short."""

        def run() -> T:
            with self.write(locked) as connection:
                return work(connection)

        return uninterrupted(run)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError as error:
            scrub(error)
            raise Conflict("RUNNEL-EPOCH-CONFLICT", "somebody else published first", place=Place(self.name)) from error
        except exc.DBAPIError as error:
            scrub(error)
            raise _as_runnel_error(error, self.name) from error
        except UnicodeDecodeError as error:  # so sqlite3 fails on a damaged name or text
            raise _damaged_structure(str(error), Place(self.name)) from error

    def create(self, data_path: str, allowed: Callable[[], None] = lambda: None) -> None:
        """Make all tables and snapshot 0, once whoever else creates it at the same time is done.

        Refuse a database that already has a catalog; `allowed` may refuse it too.
        """
        if self.path is not None:
            with places_named("the catalog cannot be created", self.path.parent):
                self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._translated(), self.engine.connect() as connection:
            if self.path is not None:
                connection = connection.execution_options(begin="BEGIN IMMEDIATE")
            with connection.begin():
                if self.path is None:
                    connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
                if _has_catalog(connection):
                    raise Terminal(
                        "RUNNEL-CATALOG-EXISTS", "there is a catalog already", place=Place(self.name), hint="open it"
                    )
                if sa.inspect(connection).has_table(tables.snapshot.name):
                    raise Terminal(
                        "RUNNEL-CATALOG-BROKEN",
                        "the database has a DuckLake that is not runnel's, or part of a catalog",
                        place=Place(self.name),
                        hint="use another database, or restore this one from a copy",
                    )
                allowed()
                tables.metadata.create_all(connection)
                _fill(connection, data_path)

    def check(self) -> None:
        """Refuse a catalog that is not there, not runnel's, or newer than this runnel."""
        if self.path is not None:
            with places_named("the catalog cannot be opened", self.path):
                if not self.path.exists():
                    raise self._missing()
        with self.read() as connection:
            if not _has_catalog(connection):
                raise self._missing()
            mine = connection.scalar(
                sa.select(tables.runnel_metadata.c.value).where(tables.runnel_metadata.c.key == "version")
            )
            theirs = connection.scalar(
                sa.select(tables.ducklake_metadata.c.value).where(tables.ducklake_metadata.c.key == "version")
            )
        if mine is None:
            raise Terminal(
                "RUNNEL-CATALOG-BROKEN",
                "the catalog has its tables, but not its rows",
                place=Place(self.name),
                hint="restore it from a copy",
            )
        if int(mine) > RUNNEL_VERSION or theirs != DUCKLAKE_VERSION:
            raise Terminal(
                "RUNNEL-CATALOG-NEWER",
                f"the catalog has version {mine} on DuckLake {theirs}, this runnel knows {RUNNEL_VERSION} on {DUCKLAKE_VERSION}",
                place=Place(self.name),
                hint="use the runnel that wrote it, or a newer one",
            )

    def upgrade(self) -> None:
        """Bring the tables of an earlier version to this one; a catalog that can only be read stays as it is."""
        m = tables.runnel_metadata
        with self.read() as connection:
            said = connection.execute(sa.select(m.c.key, m.c.value).where(m.c.key.in_(("version", _DIGESTS)))).all()
        known = {row.key: row.value for row in said}
        self.needs_digests = known.get(_DIGESTS) == _ALL
        version = int(known.get("version", RUNNEL_VERSION))
        if version >= RUNNEL_VERSION:
            return
        if self.read_only:
            self.has_digests = self.needs_digests = False
            return

        def add(connection: sa.Connection) -> None:
            for column in (column for columns in tables.ADDED.values() for column in columns):
                there = {known["name"] for known in sa.inspect(connection).get_columns(column.table.name)}
                if column.name not in there:
                    connection.execute(sa.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} VARCHAR"))
            tables.runnel_changes.create(connection, checkfirst=True)
            if version == _SUMS_OF_FILES:
                epochs.put_epochs_into_sums(connection, self.name)
            connection.execute(m.update().where(m.c.key == "version").values(value=str(RUNNEL_VERSION)))

        self.transact(add)

    def state(self) -> str:
        """Give the id of the state, which its files carry; a state of an older version gets one now."""
        m = tables.runnel_metadata

        def ask(connection: sa.Connection) -> str | None:
            return connection.scalar(sa.select(m.c.value).where(m.c.key == _STATE))

        def give(connection: sa.Connection) -> str:
            known = ask(connection)
            if known is None:
                known = new_state()
                connection.execute(m.insert().values(key=_STATE, value=known))
            return known

        with self.read() as connection:
            known = ask(connection)
        if known is None and self.read_only:
            return new_state()  # nothing is written under this name
        return self.transact(give) if known is None else known

    def _missing(self) -> RunnelError:
        return Terminal(
            "RUNNEL-CATALOG-MISSING", "there is no catalog", place=Place(self.name), hint="create the project first"
        )

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def new_state() -> str:
    """Make the id of a state."""
    return uuid.uuid4().hex[:12]


def now() -> str:
    """Give the time as the catalog writes it."""
    return datetime.now(UTC).isoformat(sep=" ")


def _has_catalog(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table(tables.runnel_metadata.name)


def _fill(connection: sa.Connection, data_path: str) -> None:
    said = {"version": DUCKLAKE_VERSION, "created_by": "runnel", "data_path": data_path, "encrypted": "false"}
    connection.execute(
        tables.ducklake_metadata.insert(), [{"key": key, "value": value, "scope": None} for key, value in said.items()]
    )
    mine = {"version": str(RUNNEL_VERSION), _STATE: new_state(), _DIGESTS: _ALL}
    connection.execute(tables.runnel_metadata.insert(), [{"key": key, "value": value} for key, value in mine.items()])
    at = now()
    connection.execute(
        tables.snapshot.insert(),
        [{"snapshot_id": 0, "snapshot_time": at, "schema_version": 0, "next_catalog_id": 2, "next_file_id": 0}],
    )
    connection.execute(
        tables.snapshot_changes.insert(),
        [{"snapshot_id": 0, "changes_made": 'created_schema:"main",created_schema:"state"'}],
    )
    for number, name in ((MAIN_SCHEMA_ID, "main"), (STATE_SCHEMA_ID, "state")):
        row = {"schema_id": number, "schema_uuid": str(uuid.uuid4()), "begin_snapshot": 0, "schema_name": name}
        connection.execute(tables.schema.insert(), [{**row, "path": f"{name}/", "path_is_relative": True}])
    digest = digests.epoch_digest(0, 0, ("create", at, "{}", "{}", 0, 2, 0))
    row = {"epoch": 0, "kind": "create", "time": at, "frontiers": "{}", "record": "{}", "digest": digest}
    connection.execute(tables.runnel_epoch.insert(), [row])


def _sqlite_engine(path: Path, *, durable: bool) -> sa.Engine:
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        pool_size=8,
        max_overflow=24,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        # SQLAlchemy begins transactions through the event below; sqlite3's own guessing has to be off.
        connection.isolation_level = None
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _closed_to_us(path: Path) -> bool:
    """Say whether a catalog can only be read: SQLite writes beside the file, too."""
    with places_named("the catalog cannot be opened", path):
        return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def _reading_engine(path: Path) -> sa.Engine:
    """Read without writing anything, locks included; each transaction has a connection of its own.

    While others write, their log is beside the file and is read with it. Without it the file is all there is.
    """

    def connect() -> sqlite3.Connection:
        how = "mode=ro" if _log_of(path).exists() else "immutable=1"
        connection = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, timeout=BUSY_SECONDS)
        connection.isolation_level = None
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _version(path: Path) -> tuple[int, int] | None:
    """Give what changes when the file itself is written; None while a log beside it guards who reads."""
    if _log_of(path).exists():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _use_wal(connection: Any) -> None:
    """Turn the journal to WAL; SQLite does not wait for others that open a new file at the same time, so this does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _postgres_url(url: str) -> sa.URL:
    know(url, whole=False)
    try:
        parsed = sa.make_url(normal(url))
    except (exc.ArgumentError, ValueError) as error:
        scrub(error)
        raise _unknown_url(url) from error
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise _unknown_url(url)
    return parsed.set(drivername="postgresql+psycopg")


def _unknown_url(url: str) -> UsageError:
    return UsageError(
        "RUNNEL-CATALOG-URL",
        f"a catalog of kind {url.partition(':')[0]!r} cannot be used",
        hint="write sqlite:PATH or postgresql://user@host/database",
    )


def _postgres_engine(url: sa.URL) -> sa.Engine:
    # A session that stands still, or whose machine is gone, must not keep its locks: the server ends it. So does this
    # side with a server that is gone.
    sessions = {
        "lock_timeout": int(BUSY_SECONDS * 1000),
        "idle_in_transaction_session_timeout": int(IDLE_SECONDS * 1000),
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "timezone": "UTC",
    }
    connect = {
        "connect_timeout": int(BUSY_SECONDS),
        "options": " ".join(f"-c {name}={value}" for name, value in sessions.items()),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    engine = sa.create_engine(url, connect_args=connect, pool_pre_ping=True, pool_size=8, max_overflow=24)
    # Many rows in one INSERT: psycopg sends them one by one otherwise.
    engine.dialect.use_insertmanyvalues_wo_returning = True
    return engine


def _damaged_structure(said: str, place: Place) -> Terminal:
    return Terminal(
        "RUNNEL-CATALOG-BROKEN",
        f"the catalog's own structure is damaged: {said}",
        place=place,
        hint="restore it from a copy; `runnel fsck` lists what is damaged",
    )


def _as_runnel_error(error: exc.DBAPIError, name: str) -> RunnelError:
    said = str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
    place = Place(name)
    if "locked" in said or "busy" in said or type(error.orig).__name__ in ("LockNotAvailable", "DeadlockDetected"):
        return Transient(
            "RUNNEL-CATALOG-LOCKED",
            f"the catalog is locked: {said}",
            place=place,
            hint="find who holds it, or try again",
        )
    if type(error.orig).__name__ == "IdleInTransactionSessionTimeout":
        return Conflict("RUNNEL-EPOCH-CONFLICT", "this process stood still for too long in a transaction", place=place)
    if type(error.orig).__name__ == "SerializationFailure":
        return Conflict("RUNNEL-EPOCH-CONFLICT", "somebody else wrote at the same time", place=place)
    if type(error.orig).__name__ == "InvalidCatalogName" or "does not exist" in said:
        return Terminal(
            "RUNNEL-CATALOG-MISSING", f"there is no catalog: {said}", place=place, hint="create the database"
        )
    if "full" in said:
        return Terminal(
            "RUNNEL-DISK-FULL", f"the catalog cannot grow: {said}", place=place, hint="make room; nothing was published"
        )
    if "malformed" in said or "no such column" in said or "no such table" in said:
        return _damaged_structure(said, place)
    if "unable to open" in said or "not a database" in said:
        return Terminal(
            "RUNNEL-CATALOG-BROKEN", f"the catalog cannot be opened: {said}", place=place, hint="check path and rights"
        )
    lost = error.connection_invalidated or isinstance(error, (exc.OperationalError, exc.InterfaceError))
    if lost or (error.orig is not None and _connection_broke(error.orig)):
        return Unreachable("RUNNEL-CATALOG-UNREACHABLE", f"the catalog does not answer: {said}", place=place)
    return Terminal("RUNNEL-CATALOG-BROKEN", f"the catalog refused a statement: {said}", place=place)


def _connection_broke(error: BaseException) -> bool:
    """Return whether the connection to PostgreSQL ended: what its driver cannot read any more has no code of the server's."""
    code = getattr(error, "sqlstate", "")
    if code is None:
        return type(error).__name__ in ("Error", "DatabaseError", "InternalError", "OperationalError")
    return str(code)[:2] in ("08", "57") or code == "53300"
