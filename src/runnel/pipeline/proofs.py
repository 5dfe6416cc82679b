"""What is known about the proof of each view, kept in the catalog: when, how, at what cost, with what outcome."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from runnel.compiler.serialize import VERSION
from runnel.redaction import plainly

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel.lake.lake import Lake
    from runnel.lake.snapshot import Snapshot
    from runnel.verify.bags import Found

PROOF = "proof:"
UNPROVED = "unproved:"
CODE = "RUNNEL-VIEW-UNPROVED"
SHOWN_ROWS = 20
"""Differing rows that a reproduction holds."""
log = logging.getLogger("runnel")

How = Literal["whole", "totals", "sample and totals", "sample", "columns", "recomputed"]


@dataclass(frozen=True)
class Proof:
    """One comparison of a view with the user's own text.

    `how` is `whole`, `totals` (over all rows), `sample` (some keys), `sample and totals`, `columns` (names and types, where there
    were no rows or no time to compare them), or `recomputed` for a view that is that text. `changes` says whether the view had followed changes by then. `problem` is the error that prevented it.
    `relation` identifies the incarnation of the view: one made again has other proofs. `alarm` is a difference, kept until
    the view was rebuilt and proved.
    """

    relation: int
    epoch: int
    at: str
    how: How
    ms: float = 0.0
    rows: int = 0
    changes: bool = False
    problem: str = ""
    alarm: str = ""
    past: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether the view was found equal."""
        return not self.problem and not self.alarm

    @property
    def age(self) -> float:
        """The seconds since then."""
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds())

    def to_dict(self) -> dict[str, Any]:
        """Give plain data."""
        return asdict(self) | {"ok": self.ok, "age": round(self.age, 1)}

    def __str__(self) -> str:
        if self.alarm:
            return self.alarm
        if self.problem:
            return f"not proved: {self.problem}"
        what = {
            "whole": "all rows",
            "totals": "totals over all rows",
            "sample and totals": "a sample of keys, and totals over all rows",
            "sample": "a sample of keys",
            "columns": "columns only, as there were no rows or there was no time",
        }
        return (
            f"proved {_ago(self.age)} ago at epoch {self.epoch}, {what.get(self.how, 'recomputed')}, {self.ms:.0f} ms"
        )


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def now() -> str:
    """Give the time as proofs write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def keep(lake: Lake, view: str, proof: Proof) -> None:
    """Keep a proof for every process to see."""
    lake.note(PROOF + view, plainly(asdict(proof)))


def known(lake: Lake, head: Snapshot) -> dict[str, Proof]:
    """Give the last proof of each view, where there is one of this incarnation."""
    found = {}
    for view, data in lake.notes(PROOF).items():
        proof = Proof(**{**data, "past": tuple(data.get("past", ()))})
        if view in head.views and proof.relation == head.definitions.ids.get(view):
            found[view] = proof
    return found


def condemn(lake: Lake, view: str, sql: str, why: str) -> None:
    """Remember that this text, compiled by this version, gave other rows than the text itself: it is to be recomputed."""
    lake.note(UNPROVED + view, {"text": _digest(sql), "version": VERSION, "why": why, "at": now()})


def condemned(lake: Lake, view: str, sql: str) -> str:
    """Say why a text must be recomputed; '' where nothing is against it."""
    note = lake.noted(UNPROVED + view)
    same = note.get("text") == _digest(sql) and note.get("version") == VERSION
    return str(note["why"]) if same else ""


def _digest(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()[:16]


def difference_text(view: str, found: Found, epoch: int) -> str:
    """Say a difference in one sentence."""
    more = "more than " if found.too_many else ""
    return (
        f"{CODE}: {view} differs from its text at epoch {epoch}:"
        f" {more}{len(found.missing)} rows missing, {len(found.unexpected)} unexpected"
    )


def reproduce(
    folder: Path | None, view: str, sql: str, inputs: Mapping[str, list[str]], found: Found, said: str
) -> str:
    """Log a difference, and write what is needed to see it again: the text, the tables' columns, some of the rows."""
    case = plainly(
        {
            "view": view,
            "sql": sql,
            "inputs": inputs,
            "missing": [_plain(row) for row in found.missing[:SHOWN_ROWS]],
            "unexpected": [_plain(row) for row in found.unexpected[:SHOWN_ROWS]],
            "said": said,
            "at": now(),
        }
    )
    where = ""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            plain = re.sub(r"\W", "_", view)[:80]
            path = folder / f"unproved-{plain}-{_digest(json.dumps(case, default=str))}.json"
            path.write_text(json.dumps(case, indent=1, default=str, ensure_ascii=False))
            where = str(path)
        except OSError as error:
            log.warning("the reproduction could not be written: %s", error)
    log.error("%s%s", said, f"; a reproduction is in {where}" if where else f"; {sql}")
    return where


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
        for name, value in row.items()
    }
