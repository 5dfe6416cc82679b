"""Leases: who may run, until when. A lease that has run out may be taken over; nobody holds one twice at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.lake import tables
from runnel.lake.owner import is_dead

if TYPE_CHECKING:
    from runnel.lake.catalog import Catalog

_L = tables.runnel_lease
_PIN = "pin:"


def clock(connection: sa.Connection) -> float:
    """Give the time that leases go by."""
    # Machines that share a PostgreSQL share its clock too.
    if connection.dialect.name == "postgresql":
        return float(connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return time.time()


def acquire(catalog: Catalog, lease: str, owner: str, seconds: float) -> bool:
    """Take a lease that is free, run out, held by a process of this host that is gone, or ours; say whether we hold it now."""

    def work(connection: sa.Connection) -> bool:
        now = clock(connection)
        held = connection.execute(sa.select(_L).where(_L.c.name == lease)).one_or_none()
        if held is not None and held.owner != owner and held.until > now and not is_dead(held.owner):
            return False
        if held is None:
            connection.execute(_L.insert().values(name=lease, owner=owner, until=now + seconds))
        else:
            connection.execute(_L.update().where(_L.c.name == lease).values(owner=owner, until=now + seconds))
        return True

    return catalog.transact(work, _L)


def renew(catalog: Catalog, lease: str, owner: str, seconds: float) -> bool:
    """Lengthen a lease we hold; say False if somebody has taken it over."""

    def work(connection: sa.Connection) -> bool:
        mine = sa.and_(_L.c.name == lease, _L.c.owner == owner)
        return connection.execute(_L.update().where(mine).values(until=clock(connection) + seconds)).rowcount == 1

    return catalog.transact(work, _L)


def renew_all(catalog: Catalog, lease: str, owner: str, seconds: float) -> bool:
    """Lengthen every lease of an owner; say False if this one was taken from it."""

    def work(connection: sa.Connection) -> bool:
        connection.execute(_L.update().where(_L.c.owner == owner).values(until=clock(connection) + seconds))
        return connection.scalar(sa.select(_L.c.owner).where(_L.c.name == lease)) == owner

    return catalog.transact(work, _L)


def release(catalog: Catalog, lease: str, owner: str) -> None:
    """Give a lease back, if it is ours."""
    catalog.transact(
        lambda connection: connection.execute(_L.delete().where(_L.c.name == lease, _L.c.owner == owner)), _L
    )


def pin_name(epoch: int, owner: str) -> str:
    """Name the lease that keeps an epoch, and all after it, from being forgotten."""
    return f"{_PIN}{epoch}:{owner}"


def pinned(connection: sa.Connection) -> list[int]:
    """Give the epochs that somebody works on just now."""
    held = sa.and_(_L.c.name.startswith(_PIN), _L.c.until > clock(connection))
    pins = connection.execute(sa.select(_L.c.name, _L.c.owner).where(held))
    return [int(name.removeprefix(_PIN).partition(":")[0]) for name, owner in pins if not is_dead(owner)]


def holder(catalog: Catalog, lease: str) -> str | None:
    """Say who holds a lease that has not run out; a process of this host that is gone holds none."""
    with catalog.read() as connection:
        held = connection.execute(sa.select(_L).where(_L.c.name == lease)).one_or_none()
        free = held is None or held.until <= clock(connection)
    return None if held is None or free or is_dead(held.owner) else str(held.owner)
