"""What `project.fsck()` gives: what was read of the state, what is damaged of it, and what became of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake import fsck as lake_fsck
from runnel.pipeline.repair import repair as repair_damages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from runnel.lake.fsck import Checked, Damage
    from runnel.pipeline.runtime import Runtime


@dataclass(frozen=True)
class Fsck:
    """What is damaged (after the repair, where one was asked for), and what was rebuilt or could not be, one sentence each."""

    checked: Checked
    rebuilt: tuple[str, ...] = ()
    not_rebuilt: tuple[str, ...] = ()

    @property
    def damages(self) -> list[Damage]:
        """What is damaged."""
        return self.checked.damages

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.checked.damages

    def __str__(self) -> str:
        return "\n".join([*map(str, self.damages), *self.rebuilt, *self.not_rebuilt, str(self.checked)])


def fsck(runtime: Runtime, sources: Collection[str], progress: Callable[[str], None], *, repair: bool) -> Fsck:
    """Check the state; with `repair`, rebuild what can be rebuilt and check again."""
    found = lake_fsck.check(runtime.lake, progress)
    if not repair or not found.damages:
        return Fsck(found)
    said = repair_damages(runtime, found.damages, sources, progress)
    return Fsck(lake_fsck.check(runtime.lake, progress), tuple(said.done), tuple(said.left))
