"""Announces who writes files: a lease in the catalog, renewed for as long as the process lives.

Files carry the id of their state and of their writer in their names. A file that the catalog does not list is an orphan when its
writer has no lease any more: such a writer cannot publish (`check_writers`), so nobody will ever read the file. Files of other
states, and files that others put there, never count.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import uuid
import weakref
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.errors import RunnelError
from runnel.lake import lease, tables
from runnel.lake.owner import is_dead, this_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.lake.catalog import Catalog

LEASE_SECONDS = 600.0
"""How long a writer that is not heard of keeps its files: longer than a machine is likely to stand still."""
RENEWALS = 10
_L = tables.runnel_lease
_PREFIX = "writer:"
_NAME = re.compile(r"(?:^|/)([0-9a-f]{12})-([0-9a-f]{12})-[0-9a-f]{32}(?:\.parquet|/|$)")
log = logging.getLogger("runnel")


class Writer:
    """This process as a writer of one state's files; it has no id until it writes the first one."""

    def __init__(self, catalog: Catalog, state: str) -> None:
        """Keep the catalog; nothing is announced yet."""
        self._catalog, self._state = catalog, state
        self._lock = threading.RLock()
        self._id: str | None = None
        self._process = 0
        self._owner = ""
        self._stop = threading.Event()
        weakref.finalize(self, self._stop.set)

    @property
    def owner(self) -> str:
        """The owner of this writer's leases, which are renewed together."""
        self._announced()
        return self._owner

    def new_name(self) -> str:
        """Give the name for a file or folder that nobody else will use."""
        return f"{self._state}-{self._announced()}-{uuid.uuid4().hex}"

    def forget(self) -> None:
        """Begin again under another id: this one's lease was ended by somebody else."""
        with self._lock:
            self._id = None
            self._stop.set()

    def close(self) -> None:
        """Give all leases back; whatever was not published is now an orphan."""
        with self._lock:
            if self._id is None or self._process != os.getpid():
                return
            self.forget()
            try:
                # Under the publish lock: a publish that is under way has found its writer's lease.
                self._catalog.transact(lambda c: c.execute(_L.delete().where(_L.c.owner == self._owner)))
            except RunnelError as error:
                log.debug("the lease of a writer runs out by itself: %s", error)

    def _announced(self) -> str:
        with self._lock:
            if self._id is None or self._process != os.getpid():
                made, self._owner, self._process = uuid.uuid4().hex[:12], this_process(), os.getpid()
                lease.acquire(self._catalog, _PREFIX + made, self._owner, LEASE_SECONDS)
                self._id, self._stop = made, threading.Event()
                weakref.finalize(self, self._stop.set)
                arguments = (weakref.ref(self), self._catalog, _PREFIX + made, self._owner, self._stop)
                threading.Thread(target=_renew, args=arguments, name="runnel-writer", daemon=True).start()
            return self._id


def _renew(writer: weakref.ref[Writer], catalog: Catalog, name: str, owner: str, stop: threading.Event) -> None:
    while not stop.wait(LEASE_SECONDS / RENEWALS):
        try:
            held = lease.renew_all(catalog, name, owner, LEASE_SECONDS)
        except RunnelError as error:
            log.warning("the lease of this process's files could not be renewed just now: %s", error)
            continue
        if not held:
            known = writer()
            if known is not None and not stop.is_set():
                known.forget()
            return


def writer_of(path: str) -> tuple[str, str] | None:
    """Read the ids of the state and of the writer off a file's path; None if it has none."""
    found = _NAME.search(path)
    return (found.group(1), found.group(2)) if found else None


def missing_writers(connection: sa.Connection, writers: Iterable[str]) -> set[str]:
    """Give those of these writers that have no lease."""
    names = {_PREFIX + writer for writer in writers}
    if not names:
        return set()
    held = connection.execute(sa.select(_L.c.name).where(_L.c.name.in_(sorted(names)))).scalars()
    return {name.removeprefix(_PREFIX) for name in names - set(held)}


def live_writers(connection: sa.Connection) -> set[str]:
    """Give the writers that have a lease, run out or not: until it is taken away they may publish."""
    names = connection.execute(sa.select(_L.c.name).where(_L.c.name.startswith(_PREFIX))).scalars()
    return {name.removeprefix(_PREFIX) for name in names}


def end_gone_writers(connection: sa.Connection) -> None:
    """Take the leases of writers that are gone; to be called under the publish lock, so that none of them is publishing."""
    clock = lease.clock(connection)
    rows = connection.execute(sa.select(_L)).all()
    gone = sorted(
        {row.owner for row in rows if row.name.startswith(_PREFIX) and (row.until <= clock or is_dead(row.owner))}
    )
    for owner in gone:
        connection.execute(_L.delete().where(_L.c.owner == owner))
