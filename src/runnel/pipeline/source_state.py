"""The state as one of its sources sees it: its id, what is to be skipped of the source's log, and the cycles of captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runnel.pipeline.captures import LakeCycles

if TYPE_CHECKING:
    from runnel.pipeline.runtime import Runtime

_DECISIONS = "decisions"


class StateOfSource:
    """What a source, and captures of it, know of the state, and keep there."""

    def __init__(self, runtime: Runtime, source: str) -> None:
        """Look into the state when asked."""
        self._runtime, self._source = runtime, source
        self.id = runtime.lake.state

    def cycles(self, technique: str) -> LakeCycles:
        """Give where the cycles of a technique are kept."""
        return LakeCycles(self._runtime, self._source, technique)

    def skipped(self) -> list[dict[str, Any]]:
        """Give the decisions about what is to be skipped."""
        return list(self._runtime.lake.noted(self._note).get(_DECISIONS, ()))

    def skip(self, decisions: list[dict[str, Any]]) -> None:
        """Keep decisions, in place of those before."""
        self._runtime.lake.note(self._note, {_DECISIONS: decisions})

    @property
    def _note(self) -> str:
        return f"skipped:{self._source}"
