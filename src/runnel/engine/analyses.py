"""Remembers what an engine said of queries' columns: creating a view asks for the same text when it is compiled and when it is proved."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.model.relation import Column

    _Asked = tuple[str, tuple[tuple[str, tuple[Column, ...]], ...]]

KEPT = 512


class Analyses:
    """The columns of queries over tables with certain columns; forgotten when a function changes. Errors are not kept."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: OrderedDict[_Asked, tuple[Column, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, sql: str, tables: Mapping[str, tuple[Column, ...]], ask: Callable[[], tuple[Column, ...]]
    ) -> tuple[Column, ...]:
        """Give the columns of a query, asking only for what is not known."""
        asked = (sql, tuple(sorted(tables.items(), key=lambda table: table[0])))
        with self._lock:
            known = self._known.get(asked)
        if known is None:
            known = ask()
            with self._lock:
                self._known[asked] = known
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
        return known

    def forget(self) -> None:
        """Forget all: what a function gives may be another type now."""
        with self._lock:
            self._known.clear()
