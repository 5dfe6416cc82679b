"""Change sets of sources, put into the draft of their table one after the other."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runnel.connectors.base import OP, REMOVE, UPDATE, UPSERT
from runnel.errors import RunnelError
from runnel.pipeline.rows_in import to_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from runnel.connectors.base import ChangeSet
    from runnel.pipeline.draft import Draft


@contextmanager
def located(changes: ChangeSet) -> Iterator[None]:
    """Let an error say which file or log position the changes came from."""
    try:
        yield
    except RunnelError as error:
        if error.place is None and changes.place:
            came = f"it comes from {changes.place}"
            error.hint = f"{came}; {error.hint}" if error.hint else came
        raise


def add_changes(draft: Draft, changes: ChangeSet) -> None:
    """Add one change set to its table's draft."""
    if changes.whole:
        draft.clear()
    if changes.signed is not None:
        draft.apply(to_table(draft.relation, changes.signed, weighted=True), trusted=changes.trusted)
    if changes.keyed is not None and changes.was is not None:
        rows = to_table(draft.relation, changes.keyed.drop_columns([OP]))
        draft.update(rows, to_table(draft.relation, changes.was))
    elif changes.keyed is not None:
        _draft_keyed(draft, changes.keyed)


def _draft_keyed(draft: Draft, keyed: pa.Table) -> None:
    """Apply upserts and deletes in order, as long runs of one kind with each key at most once."""
    ops = keyed.column(OP).to_pylist()
    rows = to_table(draft.relation, keyed.drop_columns([OP]))
    keys = list(zip(*[rows.column(name).to_pylist() for name in draft.relation.key], strict=True))
    begin = 0
    seen: set[Any] = set()
    for at in range(len(ops) + 1):
        if at == len(ops) or ops[at] != ops[begin] or keys[at] in seen:
            run = rows.slice(begin, at - begin)
            if run.num_rows:
                _draft_run(draft, ops[begin], run)
            begin, seen = at, set()
        if at < len(ops):
            seen.add(keys[at])


def _draft_run(draft: Draft, operation: str, run: pa.Table) -> None:
    if operation == UPSERT:
        draft.upsert(run)
    elif operation == UPDATE:
        draft.update(run)
    else:
        draft.delete(run.select(list(draft.relation.key)), lenient=operation == REMOVE)
