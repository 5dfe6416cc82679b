"""Leases: who may run, until when. A lease that has run out may be taken over; nobody holds one twice at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.lake import tables

if TYPE_CHECKING:
    from runnel.lake.catalog import Catalog

_L = tables.runnel_lease
_PIN = "pin:"


def _clock(connection: sa.Connection) -> float:
    # Machines that share a PostgreSQL share its clock too.
    if connection.dialect.name == "postgresql":
        return float(connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return time.time()


def acquire(catalog: Catalog, lease: str, owner: str, seconds: float) -> bool:
    """Take a lease that is free, run out, or already ours; say whether we hold it now."""
    with catalog.write(_L) as connection:
        clock = _clock(connection)
        held = connection.execute(sa.select(_L).where(_L.c.name == lease)).one_or_none()
        if held is not None and held.owner != owner and held.until > clock:
            return False
        if held is None:
            connection.execute(_L.insert().values(name=lease, owner=owner, until=clock + seconds))
        else:
            connection.execute(_L.update().where(_L.c.name == lease).values(owner=owner, until=clock + seconds))
        return True


def renew(catalog: Catalog, lease: str, owner: str, seconds: float) -> bool:
    """Lengthen a lease we hold; say False if somebody has taken it over."""
    with catalog.write(_L) as connection:
        mine = sa.and_(_L.c.name == lease, _L.c.owner == owner)
        result = connection.execute(_L.update().where(mine).values(until=_clock(connection) + seconds))
        return result.rowcount == 1


def release(catalog: Catalog, lease: str, owner: str) -> None:
    """Give a lease back, if it is ours."""
    with catalog.write(_L) as connection:
        connection.execute(_L.delete().where(_L.c.name == lease, _L.c.owner == owner))


def pin_name(epoch: int, owner: str) -> str:
    """Name the lease that keeps an epoch, and all after it, from being forgotten."""
    return f"{_PIN}{epoch}:{owner}"


def pinned(connection: sa.Connection) -> list[int]:
    """Give the epochs that somebody works on just now."""
    held = sa.and_(_L.c.name.startswith(_PIN), _L.c.until > _clock(connection))
    names = connection.execute(sa.select(_L.c.name).where(held)).scalars()
    return [int(name.removeprefix(_PIN).partition(":")[0]) for name in names]


def holder(catalog: Catalog, lease: str) -> str | None:
    """Say who holds a lease that has not run out."""
    with catalog.read() as connection:
        held = connection.execute(sa.select(_L).where(_L.c.name == lease)).one_or_none()
        return None if held is None or held.until <= _clock(connection) else str(held.owner)
