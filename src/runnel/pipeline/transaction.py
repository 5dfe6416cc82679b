"""A transaction over managed tables: everything it holds and every immediate view's change become visible in one step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runnel.compiler import compile_dml, rows_sql
from runnel.engine.base import Derived, Rows
from runnel.engine.inputs import Inputs, Pending, signed
from runnel.errors import RunnelWarning, Terminal, UsageError, nearest
from runnel.model.program import quote
from runnel.model.relation import Kind
from runnel.pipeline.draft import Draft
from runnel.pipeline.rows_in import by_given_columns, to_table
from runnel.pipeline.step import Change, take

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime
    from runnel.pipeline.step import Taken

    Operation = Callable[["Drafts"], None]


class Drafts:
    """The drafts of all tables one transaction touches, on top of one epoch."""

    def __init__(self, runtime: Runtime, head: Snapshot) -> None:
        """Start with no change."""
        self.runtime, self.head = runtime, head
        self._drafts: dict[str, Draft] = {}

    def of(self, table: str) -> Draft:
        """Give the draft of a table, refusing what is not one."""
        relation = find_table(self.head, table)
        if relation.name not in self._drafts:
            self._drafts[relation.name] = Draft(self.runtime.lake, relation, self.head.files(relation.name))
        return self._drafts[relation.name]

    def change(self) -> Change:
        """Give the net change of every table."""
        return Change({name: draft.signed() for name, draft in self._drafts.items()})

    def run_sql(self, text: str) -> None:
        """Run INSERT, UPDATE and DELETE statements one after the other; each sees the ones before it."""
        for dml in compile_dml(text, self.head.shown, self.runtime.engine.analyse):
            draft = self.of(dml.table)
            if dml.literal_rows is not None:
                draft.insert(to_table(draft.relation, list(dml.literal_rows)))
                continue
            inputs = Inputs(self.runtime.engine, self.head, self.head, Pending()).roles(dml.reads)
            for name, earlier in self._drafts.items():
                _add_rows(inputs, name, earlier)
            draft.apply(self.runtime.engine.rows(dml.sql, inputs, signed(draft.relation.columns)))


def _add_rows(inputs: dict[str, Any], name: str, draft: Draft) -> None:
    """Let a statement read what earlier statements of the same transaction changed."""
    source = inputs.get(f"{name}__stored_new")
    pending = draft.signed()
    if source is None or pending.num_rows == 0:
        return
    columns = signed(draft.relation.columns)
    listed = ", ".join(quote(c.name) for c in columns)
    inputs[f"{name}__stored_files"] = source
    inputs[f"{name}__stored_draft"] = Rows(pending, columns)
    inputs[f"{name}__stored_new"] = Derived(
        f"SELECT {listed} FROM `{name}__stored_files` UNION ALL SELECT {listed} FROM `{name}__stored_draft`",
        (f"{name}__stored_files", f"{name}__stored_draft"),
    )
    if f"{name}__rows" in inputs:  # a draft may take away what no file does
        text = rows_sql(draft.relation, quote(f"{name}__stored_new"), signed=False)
        inputs[f"{name}__rows"] = Derived(text, (f"{name}__stored_new",))


def find_table(head: Snapshot, name: str) -> Relation:
    """Find a table by its name without regard to case; views and unknown names are refused."""
    for relation in head.relations.values():
        if relation.name.lower() == name.lower() and relation.kind is Kind.TABLE:
            return relation
        if relation.name.lower() == name.lower() and relation.kind is Kind.VIEW:
            raise Terminal(
                "RUNNEL-TABLE-IS-VIEW", f"{name} is a view and follows its query", hint="change its tables instead"
            )
    tables = [r.name for r in head.relations.values() if r.kind is Kind.TABLE]
    raise Terminal("RUNNEL-TABLE-UNKNOWN", f"there is no table {name!r}", hint=nearest(name, tables))


class Transaction:
    """Collects operations and commits them as one step when its `with` block ends without an error."""

    def __init__(self, runtime: Runtime, after: Callable[[Taken], None] | None = None) -> None:
        """Prepare an empty transaction; `after` is called with what a commit did."""
        self._runtime, self._after = runtime, after
        self._operations: list[Operation] = []
        self.epoch: int | None = None
        self.failed: dict[str, str] = {}
        """After the commit: the views that could not be brought along, each with why. What was written stands."""

    def insert(self, table: str, rows: Any) -> None:
        """Add rows (dicts, Arrow, pandas or Spark); columns not given are NULL."""
        kept = _kept(rows)
        self._operations.append(lambda drafts: _with(drafts, table, kept, lambda d, t: d.insert(t)))

    def update(self, table: str, rows: Any) -> None:
        """Change rows by key; columns not given keep their values."""
        kept = _kept(rows)
        self._operations.append(lambda drafts: _update(drafts, table, kept))

    def upsert(self, table: str, rows: Any) -> None:
        """Insert whole rows, replacing those with the same key."""
        kept = _kept(rows)
        self._operations.append(lambda drafts: _with(drafts, table, kept, lambda d, t: d.upsert(t)))

    def delete(self, table: str, keys: Any) -> None:
        """Delete rows by key (dicts or plain values of a one-column key), or whole rows where the table has no key."""
        kept = _kept(keys)
        self._operations.append(
            lambda drafts: _with(drafts, table, _as_keys(drafts, table, kept), lambda d, t: d.delete(t))
        )

    def apply(self, table: str, rows: Any, *, trusted: bool = False) -> None:
        """Add signed rows: a `_weight` column says how often each comes (+n) or goes (-n).

        Each row that goes is looked up first. `trusted` leaves that out: the caller vouches that the old rows are there
        exactly as given and that keys stay unique, as with the before images of a database's log.
        """
        kept = _kept(rows)
        self._operations.append(
            lambda drafts: _with(drafts, table, kept, lambda d, t: d.apply(t, trusted=trusted), weighted=True)
        )

    def sql(self, text: str) -> None:
        """Run INSERT, UPDATE and DELETE statements."""
        self._operations.append(lambda drafts: drafts.run_sql(text))

    def commit(self) -> int:
        """Make everything visible in one step and give its epoch."""
        if self.epoch is not None:
            raise UsageError("RUNNEL-TRANSACTION-DONE", "this transaction is committed already", hint="begin a new one")
        taken = take(self._runtime, self._build)
        self.epoch, self.failed = taken.epoch, taken.failed
        if self._after:
            self._after(taken)
        for view, error in self.failed.items():
            said = f"the transaction stands, but view {view} could not be brought along: {error}"
            warnings.warn(said, RunnelWarning, stacklevel=2)
        return taken.epoch

    def _build(self, head: Snapshot) -> Change:
        drafts = Drafts(self._runtime, head)
        for operation in self._operations:
            operation(drafts)
        return drafts.change()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.epoch is None:
            self.commit()


def _with(drafts: Drafts, table: str, rows: Any, act: Callable[[Draft, Any], None], *, weighted: bool = False) -> None:
    draft = drafts.of(table)
    act(draft, to_table(draft.relation, rows, weighted=weighted))


def _update(drafts: Drafts, table: str, rows: Any) -> None:
    """Update by rows that may each name other columns."""
    draft = drafts.of(table)
    for part in by_given_columns(draft.relation, rows):
        draft.update(part)


def _kept(rows: Any) -> Any:
    """Take the rows as they are now: the caller may go on using the list, or the commit may be tried again."""
    if isinstance(rows, Mapping):
        return dict(rows)
    if isinstance(rows, list | tuple):
        return [dict(row) if isinstance(row, Mapping) else row for row in rows]
    if hasattr(rows, "toArrow"):
        return rows.toArrow()
    return rows.copy() if hasattr(rows, "iloc") else rows


def _as_keys(drafts: Drafts, table: str, keys: Any) -> Any:
    """Let a plain value stand for a one-column key."""
    relation = drafts.of(table).relation
    if isinstance(keys, list) and len(relation.key) == 1 and keys and not isinstance(keys[0], dict):
        return [{relation.key[0]: key} for key in keys]
    if isinstance(keys, int | str) and len(relation.key) == 1:
        return [{relation.key[0]: keys}]
    return keys
