"""Keeps the foreign keys that are enforced: a change after which one would not hold is refused, and names the row.

Only what changed is looked at. Rows that come are looked up by key in the table they refer to, unless it gets that key in the
same step; keys that go are looked for among the rows that refer to them. A row that changes under its key costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from runnel.errors import Terminal
from runnel.lake.lookup import hashable
from runnel.model import arrow
from runnel.model.relation import WEIGHT, Trust

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import ForeignKey, Relation

    Values = tuple[Any, ...]


def check(lake: Lake, head: Snapshot, signed: Mapping[str, pa.Table]) -> None:
    """Raise `RUNNEL-FOREIGN-KEY-BROKEN` if an enforced foreign key does not hold after this change of `head`."""
    changed = {name for name, table in signed.items() if table.num_rows}
    for child in head.relations.values():
        for key in child.references:
            if key.trust is Trust.ENFORCED and {child.name, key.table} & changed:
                _Check(lake, head, signed, child, head.relations[key.table], key).run()


@dataclass(frozen=True)
class _Check:
    """One foreign key of `child` to the key of `parent`."""

    lake: Lake
    head: Snapshot
    signed: Mapping[str, pa.Table]
    child: Relation
    parent: Relation
    key: ForeignKey

    def run(self) -> None:
        moved = _counts(self.signed.get(self.parent.name), self.parent.key)
        referring = _counts(self.signed.get(self.child.name), self.key.columns)
        # Where no more rows refer to a value than before, it was there before.
        more = {value for value, count in referring.items() if count > 0 and None not in value}
        wanted = {value for value in more if moved.get(value, 0) <= 0}
        gone = {value for value, count in moved.items() if count < 0}
        for value in self._absent(wanted, moved):
            raise self._broken(value, "refers to", f"which {self.parent.name} does not have")
        for value in self._still_referred_to(gone - wanted, referring):
            raise self._broken(value, "still refers to", f"which goes from {self.parent.name}")

    def _absent(self, wanted: set[Values], moved: Mapping[Values, int]) -> Iterator[Values]:
        there = self._found(self.parent, self.parent.key, wanted)
        for value in sorted(wanted, key=repr):
            if there.get(value, 0) + moved.get(value, 0) < 1:
                yield value

    def _still_referred_to(self, gone: set[Values], change: Mapping[Values, int]) -> Iterator[Values]:
        """Give values that rows refer to after the change."""
        there = self._found(self.child, self.key.columns, gone)
        for value, count in there.items():
            if count + change.get(value, 0) > 0:
                yield value

    def _found(self, relation: Relation, columns: Sequence[str], values: set[Values]) -> dict[Values, int]:
        """Count the rows of a table as it is that have one of these values."""
        if not values:
            return {}
        types_of = {field.name: field.type for field in self.lake.arrow_schema(relation)}
        listed = sorted(values, key=repr)
        keys = {name: pa.array([v[i] for v in listed], types_of[name]) for i, name in enumerate(columns)}
        return _counts(self.lake.lookup(relation, self.head.files(relation.name), pa.table(keys)), columns)

    def _broken(self, value: Values, verb: str, why: str) -> Terminal:
        shown = ", ".join(f"{name}={part!r}" for name, part in zip(self.key.columns, value, strict=True))
        return Terminal(
            "RUNNEL-FOREIGN-KEY-BROKEN",
            f"{self.child.name}: a row {verb} {shown}, {why}",
            hint=f"change {self.child.name} and {self.parent.name} in one transaction",
        )


def _counts(signed: pa.Table | None, columns: Sequence[str]) -> dict[Values, int]:
    """Add up the weights of signed rows by the values of some columns."""
    if signed is None or not signed.num_rows:
        return {}
    keys, (summed,) = arrow.grouped(signed, columns, (WEIGHT, "sum"))
    values = zip(*[map(hashable, column.to_pylist()) for column in keys.columns], strict=True)
    return dict(zip(values, summed.to_pylist(), strict=True))
