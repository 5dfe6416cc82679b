"""Subscriptions: a callback gets a view's net changes once per epoch, in order, from where its cursor is.

The cursor moves after the callback has returned. An epoch whose callback raised, or during which the process died, is therefore
handed over again: at least once across a crash, exactly once for a callback that stores the epoch with what it does and leaves
an epoch alone that it has stored already. Nothing is skipped: epochs are kept until every cursor has passed them, up to ten
times `[state] keep`; a cursor further behind is an error, and `restart` goes on from the newest epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel import query
from runnel.errors import Terminal
from runnel.lake.expiry import CURSOR

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from runnel.lake.snapshot import Snapshot
    from runnel.pipeline.runtime import Runtime


class Subscription:
    """Follows one view or table. With a named cursor the position is stored after each call, and survives restarts."""

    def __init__(
        self, runtime: Runtime, name: str, callback: Callable[[pa.Table, int], None], cursor: str | None = None
    ) -> None:
        """Start behind the newest epoch, or where the stored cursor stands."""
        self.name = name
        self._runtime, self._callback = runtime, callback
        self._cursor = f"{CURSOR}{cursor}" if cursor else None
        self.error: str | None = None
        """Why the last poll did not end; None when it did."""
        stored = runtime.lake.delivered(self._cursor, name) if self._cursor else None
        self.epoch = stored if stored is not None else runtime.lake.head()
        if self._cursor and stored is None:
            runtime.lake.deliver(self._cursor, name, self.epoch)

    def poll(self) -> int:
        """Call back for every epoch since the last call that changed the view; give how many there were.

        Across a view that was made anew there is one call, with what its rows changed by in all.
        """
        head = self._runtime.lake.snapshot()
        if self._made_anew(head):
            calls = self._tell(self.epoch, head.epoch)
        else:
            calls = sum(self._tell(epoch - 1, epoch) for epoch in self._changed(head))
        self.epoch = head.epoch
        return calls

    def restart(self) -> int:
        """Go on after the newest epoch, without what changed up to it; give that epoch, as of which the view can be read."""
        self._move(self._runtime.lake.head())
        return self.epoch

    def _changed(self, head: Snapshot) -> list[int]:
        try:
            return sorted({file.begin for file in head.changes(self.name, self.epoch)})
        except Terminal as error:
            raise Terminal(
                "RUNNEL-SUBSCRIPTION-BEHIND",
                f"a subscriber of {self.name} is at epoch {self.epoch}, and changes after it are no longer kept",
                hint="call restart() on the subscription, and read the view whole as of the epoch it gives",
            ) from error

    def _made_anew(self, head: Snapshot) -> bool:
        try:
            then = self._runtime.lake.snapshot(self.epoch)
        except Terminal:  # an epoch that is no longer kept: its changes may be all the same
            return False
        return then.definitions.ids.get(self.name) not in (None, head.table_id(self.name))

    def _tell(self, since: int, until: int) -> int:
        changed = query.changes(self._runtime.lake, self._runtime.engine, self.name, since, until)
        if changed.num_rows:
            self._callback(changed, until)
        self._move(until)
        return int(changed.num_rows > 0)

    def _move(self, epoch: int) -> None:
        self.epoch = epoch
        if self._cursor:
            self._runtime.lake.deliver(self._cursor, self.name, epoch)
