"""What declared keys and foreign keys spare a view, each with a stable word: `explain` lists it, the reference describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.compiler import passes
from runnel.compiler.plan import Scan, Spj, UnionAll
from runnel.model.program import Operator, Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from runnel.compiler.plan import Node
    from runnel.model.program import Step


@dataclass(frozen=True)
class Saving:
    """One way in which a key helps: the word `explain` has for it, the kind of key, and what is not needed."""

    word: str
    key: str
    reason: str

    def operator(self, table: str) -> Operator:
        """Give the line of `explain` for a table."""
        return Operator(f"{self.key} {table}", Strategy.LINEAR, self.reason, self.word)


MATCHED = Saving("RUNNEL-SAVED-MATCHED", "key of", "which values have a partner is not kept beside the view")
MISSING = Saving(
    "RUNNEL-SAVED-MISSING", "foreign key to", "only NULLs have no partner, so that rows without one are not looked for"
)
JOIN = Saving("RUNNEL-SAVED-JOIN", "foreign key to", "nothing else is read of the table, so that it is not joined")
LOOKUP = Saving(
    "RUNNEL-SAVED-LOOKUP", "foreign key to", "its new and removed rows are not looked up, only updated ones"
)
SAVINGS = (MATCHED, MISSING, JOIN, LOOKUP)

Found = tuple[Saving, str]


def in_plan(node: Node) -> Iterator[Found]:
    """Give the tables that the passes leave out of a plan."""
    left = {alias for alias, _ in _scans(passes.run(node))}
    for alias, table in _scans(node):
        if alias not in left:
            yield JOIN, table


def _scans(node: Node, alias: str = "") -> Iterator[tuple[str, str]]:
    """Give the relations a plan reads, each with the alias it is read by."""
    match node:
        case Scan(relation, _):
            yield alias, relation.name
        case Spj(inputs):
            for item in inputs:
                yield from _scans(item.node, item.alias)
        case UnionAll(branches):
            for branch in branches:
                yield from _scans(branch, alias)


def in_steps(steps: Iterable[Step]) -> Iterator[Found]:
    """Give the tables of which the steps look up nothing but updated keys."""
    for step in steps:
        for table, role in sorted(step.parts):
            if role == "updated":
                yield LOOKUP, table


def operators(found: Iterable[Found]) -> tuple[Operator, ...]:
    """Give the lines of `explain`, each once; stages and joins that users do not know are left out."""
    return tuple(dict.fromkeys(saving.operator(table) for saving, table in found if not table.startswith("#")))
