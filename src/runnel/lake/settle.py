"""Commits whose outcome is found out before anything is deleted: an answer that got lost is asked for.

A publish writes an id of its own into its snapshot. When the answer to COMMIT is not heard, the catalog is asked for that id
by another connection, under the lock that every publish holds until its end: so a session that is still committing is waited
for, and one that has not sent COMMIT cannot do so later.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from runnel.errors import Conflict, Place, RunnelError, Transient, Unreachable
from runnel.lake import tables
from runnel.lake.epochs import head_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.lake.catalog import Catalog

SETTLE_SECONDS = 30.0
"""How long an unreachable catalog is asked what became of a commit."""


class Unsettled(Unreachable):
    """Whether a commit was made could not be found out: its files have to stay."""


def commit(catalog: Catalog, publish_id: str, work: Callable[[sa.Connection], int]) -> int:
    """Publish in one transaction and give the epoch; `work` writes the snapshot, with the id, and gives its epoch.

    Raise `Unsettled` if it could not be found out whether it was published, and the transaction's error if it was not.
    """
    epoch: int | None = None
    try:
        with catalog.write() as connection:
            made = work(connection)
            epoch = made
        return made
    except BaseException as error:
        # Until `epoch` is set COMMIT has not been sent, and a transaction without it is undone.
        if epoch is None:
            raise
        stands = _ask(catalog, publish_id, epoch, error)
        if not stands:
            raise _lost(error) from error
        if not isinstance(error, Exception):
            raise
        return epoch


def _lost(error: BaseException) -> BaseException:
    """Give the error of a commit that the catalog does not have; when the connection broke, it may be tried again."""
    if isinstance(error, Unreachable):
        return Conflict("RUNNEL-EPOCH-CONFLICT", f"the commit did not reach the catalog: {error.message}")
    return error


def _ask(catalog: Catalog, publish_id: str, epoch: int, error: BaseException) -> bool:
    """Ask the catalog whether a publish is there, for as long as it may take to come back."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            with catalog.write() as connection:
                answer = is_published(connection, publish_id, epoch)
            if answer is None:
                break
            return answer
        except Transient:
            if time.monotonic() >= deadline:
                break
            time.sleep(0.25)
        except RunnelError:
            break
    raise Unsettled(
        "RUNNEL-COMMIT-UNKNOWN",
        f"the catalog gave no answer to the commit of epoch {epoch}, and could not be asked whether it was made ({error})",
        place=Place(catalog.name),
        hint="its files are kept; read the newest epoch before you do the same again",
    ) from error


def is_published(connection: sa.Connection, publish_id: str, epoch: int) -> bool | None:
    """Say whether the publish with this id made this epoch; None if the epoch was forgotten since."""
    c = tables.snapshot_changes.c
    row = connection.execute(sa.select(c.commit_extra_info).where(c.snapshot_id == epoch)).one_or_none()
    if row is not None:
        return bool(row.commit_extra_info == publish_id)
    return False if head_of(connection) < epoch else None
