"""Ranges of a source that are too large for the driver: decoded by tasks, turned into signed rows by SQL, written where they are.

The driver sees partitions, paths and counts, never rows. Two steps: tasks read the partitions and write what they find, each change
with its place in the log; then a query nets it per table, completed with old rows of the state as of n-1. What the driver would refuse
(a key twice, a row that is deleted and does not exist) is refused here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.connectors.base import OP, UPDATE
from runnel.connectors.guarded import translate_errors
from runnel.engine.base import Files
from runnel.engine.inputs import Inputs, Pending
from runnel.errors import RunnelError, Terminal
from runnel.lake import files as lake_files
from runnel.model import types
from runnel.model.identity import identical
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import WEIGHT, Column
from runnel.pipeline.draft import check_keys, check_weights, plain_keys
from runnel.pipeline.rows_in import to_table
from runnel.pipeline.transaction import find_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runnel.connectors.base import ChangeSet, Offset, Partition, Source
    from runnel.engine.base import Input
    from runnel.lake.entries import NewFile
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation
    from runnel.pipeline.runtime import Runtime

PART, ROW, GIVEN = "_runnel_part", "_runnel_row", "_runnel_given"
CHANGES = "~changes"
# Aliases begin so too: columns may be called like anything else, and `stored.id` could be the field of a column.
MOVE = "move"
"""An update of some columns of a row that had another key: what it leaves out is where that key was, so order matters."""
PLACE = (
    Column(WEIGHT, types.BIGINT),
    Column(OP, types.STRING),
    Column(GIVEN, types.STRING),
    Column(PART, types.BIGINT),
    Column(ROW, types.BIGINT),
)
"""What a change has besides the columns of its table: a weight, or what is done to its key; of an update, a 1 for each column that it
sets, else a 0; the partition, and its place there."""


@dataclass(frozen=True)
class Staged:
    """The changes of a table as the tasks wrote them: not yet netted, and of no epoch."""

    relation: Relation
    files: Files
    keyed: bool
    deletes: bool
    updates: bool
    trusted: bool


def partitions_of(runtime: Runtime, source: Source, start: Offset, end: Offset) -> Sequence[Partition] | None:
    """Give the partitions of a range that is read by tasks; None where the driver reads it."""
    found = source.partitions(start, end) if start != end else None
    return found if found and runtime.engine.reads(sum(part.rows for part in found)) else None


def read_partitions(
    runtime: Runtime, head: Snapshot, source: str, partitions: Sequence[Partition]
) -> dict[str, list[NewFile]] | None:
    """Read partitions by tasks; give each table's signed rows as files. None where one table has changes of both forms, or such moves.

    Such a range has to be gone through in its order, which the driver does.
    """
    by_table: dict[str, list[Partition]] = {}
    for part in partitions:
        by_table.setdefault(part.table, []).append(part)
    made: dict[str, list[NewFile]] = {}
    try:
        for table, parts in by_table.items():
            relation = find_table(head, f"{source}.{table}")
            found = _read_table(runtime, head, relation, parts)
            if found is None:
                _discard(runtime, made)
                return None
            made[relation.name] = found
    except BaseException:
        _discard(runtime, made)
        raise
    return made


def _discard(runtime: Runtime, made: Mapping[str, list[NewFile]]) -> None:
    runtime.lake.discard([file for files in made.values() for file in files])


def _read_table(
    runtime: Runtime, head: Snapshot, relation: Relation, partitions: Sequence[Partition]
) -> list[NewFile] | None:
    columns = (*relation.columns, *PLACE)
    tasks = [partial(changes_of, relation, part, number) for number, part in enumerate(partitions)]
    folder = runtime.lake.unpublished(relation.name)
    written = runtime.engine.read(tasks, columns, folder)
    try:
        if not written.rows:
            return []
        files = Files(written.paths, columns, written.rows, sum(map(_size, written.paths)))
        counts = (
            f"SELECT count(`{OP}`) AS keyed, count(`{WEIGHT}`) AS signed, min(`{WEIGHT}`) AS least, count(`{GIVEN}`) AS updates,"
            f" count(CASE WHEN `{OP}` = '{MOVE}' THEN 1 END) AS moves FROM `{CHANGES}`"
        )
        (told,) = runtime.engine.rows(counts, {CHANGES: files}).to_pylist()
        if told["moves"] or (told["keyed"] and told["signed"]) or (told["updates"] and not _comparable(relation)):
            return None
        deletes = told["least"] is not None and told["least"] < 0
        trusted = not told["keyed"] and all(part.trusted for part in partitions)
        return _net(
            runtime, head, Staged(relation, files, bool(told["keyed"]), deletes, bool(told["updates"]), trusted)
        )
    finally:
        for path in written.paths:
            lake_files.delete(path)


def changes_of(relation: Relation, partition: Partition, number: int) -> Iterator[pa.RecordBatch]:
    """Give the changes of a partition with their places; runs in a task, and checks what can be told from a change alone."""
    with translate_errors(relation.name):
        yield from _changes_of(relation, partition, number)


def _changes_of(relation: Relation, partition: Partition, number: int) -> Iterator[pa.RecordBatch]:
    row = 0
    for changes in partition.read():
        if partition.trusted and changes.signed is not None and not changes.trusted:
            raise Terminal(
                "RUNNEL-SOURCE-FAULT",
                f"{relation.name}: a partition is trusted, and a change in it is not",
                hint="report it: the source says two things",
            )
        try:
            table = _typed(relation, changes)
        except RunnelError as error:
            if error.place is None and changes.place:
                came = f"it comes from {changes.place}"
                error.hint = f"{came}; {error.hint}" if error.hint else came
            raise
        size = table.num_rows
        where = pa.table(
            {PART: pa.repeat(pa.scalar(number, pa.int64()), size), ROW: pa.array(range(row, row + size), pa.int64())}
        )
        row += size
        for name in where.column_names:
            table = table.append_column(name, where.column(name))
        yield from table.combine_chunks().to_batches()


def _typed(relation: Relation, changes: ChangeSet) -> pa.Table:
    """Give a change set with the columns and types of its table, weight and operation behind them."""
    signed = changes.signed is not None
    given = changes.signed if changes.signed is not None else changes.keyed
    assert given is not None
    rows = plain_keys(relation, to_table(relation, given if signed else given.drop_columns([OP]), weighted=signed))
    check_keys(relation, rows)
    if signed:
        check_weights(relation, rows.column(WEIGHT))
    size = given.num_rows
    arrays = [
        rows.column(c.name) if c.name in rows.column_names else pa.nulls(size, types.to_arrow(c.type))
        for c in relation.columns
    ]
    weights = rows.column(WEIGHT) if signed else pa.nulls(size, pa.int64())
    ops = pa.nulls(size, pa.string()) if signed else _operations(given, changes)
    marks = pa.scalar("".join("01"[c.name in rows.column_names] for c in relation.columns))
    marked = pc.if_else(pc.is_in(ops, value_set=pa.array([UPDATE, MOVE])), marks, pa.scalar(None, pa.string()))
    return pa.table([*arrays, weights, ops, marked], names=[*(c.name for c in relation.columns), WEIGHT, OP, GIVEN])


def _operations(given: pa.Table, changes: ChangeSet) -> Any:
    """Give what is done to each key."""
    if changes.was is not None:
        return pa.repeat(pa.scalar(MOVE, pa.string()), given.num_rows)
    return given.column(OP).cast(pa.string())


def _net(runtime: Runtime, head: Snapshot, staged: Staged) -> list[NewFile]:
    """Turn changes into signed rows, written by the engine."""
    relation, lake = staged.relation, runtime.lake
    inputs: dict[str, Input] = {CHANGES: staged.files}
    if not staged.trusted:
        inputs |= Inputs(runtime.engine, head, head, Pending()).roles([(relation.name, "stored_old")])
        _refuse_wrong(runtime, staged, inputs)
    if staged.keyed:
        sql = keyed_sql(relation, updated_rows(relation) if staged.updates else upserted_rows(relation))
    else:
        sql = signed_sql(relation, netted=staged.deletes)
    order = relation.key or tuple(c.name for c in relation.columns[:1])
    written = runtime.engine.write(sql, inputs, lake.arrow_schema(relation), lake.unpublished(relation.name), order)
    return lake.adopt(relation, written.paths, written.rows)


def _listed(relation: Relation) -> str:
    return ", ".join(quote(c.name) for c in relation.columns)


def _same_key(relation: Relation, one: str, other: str) -> str:
    return " AND ".join(f"`~{one}`.{quote(k)} <=> `~{other}`.{quote(k)}" for k in relation.key)


def signed_sql(relation: Relation, *, netted: bool) -> str:
    """Give the change that signed rows make; rows that only come need not be added up."""
    if not netted:
        return f"SELECT {_listed(relation)}, `{WEIGHT}` FROM `{CHANGES}` WHERE `{WEIGHT}` <> 0"
    shown, by = identical(relation.columns)
    total = f"sum(`{WEIGHT}`)"
    return f"SELECT {shown}, {total} AS `{WEIGHT}` FROM `{CHANGES}` GROUP BY {by} HAVING {total} <> 0"


def _comparable(relation: Relation) -> bool:
    """Say whether all columns can be: maps have no largest value, by which the query finds the only one."""
    return not any("map<" in str(column.type).lower() for column in relation.columns)


def upserted_rows(relation: Relation) -> str:
    """Give the rows that keys have after upserts and deletes: the last upsert of each, unless it is deleted after that."""
    keys = ", ".join(quote(k) for k in relation.key)
    return (
        f"SELECT {_listed(relation)} FROM (\n"
        f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY `{PART}` DESC, `{ROW}` DESC) AS `{ROW}_back`"
        f" FROM `{CHANGES}`\n) AS `~change` WHERE `{ROW}_back` = 1 AND `{OP}` = 'upsert'"
    )


def updated_rows(relation: Relation) -> str:
    """Give the rows that keys have after changes of which some are updates of some columns.

    Each column has the value of the last change that sets it, from the last whole change of its key on; a column that none sets has
    the stored one where there is no whole change.
    """
    keys = ", ".join(quote(k) for k in relation.key)
    whole, last, old = f"{ROW}_whole", f"{ROW}_last", role_name(relation.name, "stored_old")
    by_key = f"OVER (PARTITION BY {keys})"
    others = [(at, c.name) for at, c in enumerate(relation.columns) if c.name not in relation.key]
    placed = f"SELECT *, `{PART}` * {1 << 40} + `{ROW}` AS `{ROW}_at` FROM `{CHANGES}`"
    split = (
        f"SELECT *, max(CASE WHEN `{GIVEN}` IS NULL THEN `{ROW}_at` ELSE -1 END) {by_key} AS `{whole}`,"
        f" max(`{ROW}_at`) {by_key} AS `{last}` FROM (\n{placed}\n) AS `~placed`"
    )
    sets = [
        f"max(CASE WHEN `{ROW}_at` >= `{whole}` AND (`{GIVEN}` IS NULL OR substring(`{GIVEN}`, {at + 1}, 1) = '1')"
        f" THEN `{ROW}_at` END) {by_key} AS `{ROW}_{at}`"
        for at, _ in others
    ]
    found = f"SELECT {', '.join(['*', *sets])} FROM (\n{split}\n) AS `~split`"
    values = [
        f"max(CASE WHEN `{ROW}_at` = `{ROW}_{at}` THEN {quote(name)} END) AS {quote(name)}, max(`{ROW}_{at}`) AS `{ROW}_{at}`"
        for at, name in others
    ]
    ends = f"max(`{whole}`) AS `{whole}`, max(CASE WHEN `{ROW}_at` = `{last}` THEN `{OP}` END) AS `{OP}`"
    keyed = f"SELECT {', '.join([keys, ends, *values])} FROM (\n{found}\n) AS `~found` GROUP BY {keys}"
    columns = {
        name: f"CASE WHEN `~now`.`{ROW}_{at}` IS NULL THEN `~stored`.{quote(name)} ELSE `~now`.{quote(name)} END AS {quote(name)}"
        for at, name in others
    }
    listed = ", ".join(columns.get(c.name, f"`~now`.{quote(c.name)}") for c in relation.columns)
    return (
        f"SELECT {listed} FROM (\n{keyed}\n) AS `~now` LEFT JOIN (\n{_standing(relation, old)}\n) AS `~stored`"
        f" ON {_same_key(relation, 'stored', 'now')} WHERE `~now`.`{OP}` IN ('upsert', 'update')"
    )


def _standing(relation: Relation, old: str) -> str:
    """Give the rows of touched keys that are stored, each once."""
    keys = ", ".join(quote(k) for k in relation.key)
    shown, by = identical(relation.columns)
    return (
        f"SELECT {shown} FROM {old} AS `~stored` LEFT SEMI JOIN (SELECT DISTINCT {keys} FROM `{CHANGES}`) AS `~touched`"
        f" ON {_same_key(relation, 'stored', 'touched')} GROUP BY {by} HAVING sum(`{WEIGHT}`) > 0"
    )


def keyed_sql(relation: Relation, rows: str) -> str:
    """Give the change that brings rows to touched keys in place of the stored ones."""
    shown, by = identical(relation.columns)
    total = f"sum(`{WEIGHT}`)"
    old = role_name(relation.name, "stored_old")
    keys = ", ".join(quote(k) for k in relation.key)
    return (
        f"SELECT {shown}, {total} AS `{WEIGHT}` FROM (\n"
        f"SELECT {_listed(relation)}, CAST(1 AS BIGINT) AS `{WEIGHT}` FROM (\n{rows}\n) AS `~rows_now`\nUNION ALL\n"
        f"SELECT {', '.join(f'`~stored`.{quote(c.name)}' for c in relation.columns)}, -`~stored`.`{WEIGHT}` AS `{WEIGHT}`"
        f" FROM {old} AS `~stored` LEFT SEMI JOIN (SELECT DISTINCT {keys} FROM `{CHANGES}`) AS `~touched`"
        f" ON {_same_key(relation, 'stored', 'touched')}\n) AS `~both_sides` GROUP BY {by} HAVING {total} <> 0"
    )


def _refuse_wrong(runtime: Runtime, staged: Staged, inputs: Mapping[str, Input]) -> None:
    """Raise for the first change that cannot have happened to the table as it is stored."""
    relation = staged.relation
    if staged.keyed:
        found = runtime.engine.rows(missing_sql(relation), inputs).to_pylist()
        if found:
            raise _wrong(relation, "RUNNEL-KEY-MISSING", f"the key {_short(found[0])} is not there", "insert it first")
        return
    if staged.deletes:
        found = runtime.engine.rows(_negative_sql(relation), inputs).to_pylist()
        if found:
            said = f"a row is deleted that is not there: {_short(found[0])}"
            raise _wrong(relation, "RUNNEL-ROW-MISSING", said, "the old row must be given exactly as it is stored")
    if relation.key:
        found = runtime.engine.rows(_twice_sql(relation), inputs).to_pylist()
        if found:
            said = f"the key {_short(found[0])} would be there twice"
            raise _wrong(relation, "RUNNEL-KEY-DUPLICATE", said, "delete the old row in the same step")


def missing_sql(relation: Relation) -> str:
    """Give a key that is deleted or updated although nothing has it: not before the range, and not from a change before in it."""
    keys = ", ".join(quote(k) for k in relation.key)
    old = role_name(relation.name, "stored_old")
    return (
        f"SELECT {keys} FROM (SELECT {keys}, `{OP}`, lag(`{OP}`) OVER (PARTITION BY {keys} ORDER BY `{PART}`, `{ROW}`)"
        f" AS `{ROW}_before` FROM `{CHANGES}`) AS `~change` WHERE `{OP}` IN ('delete', 'update') AND"
        f" (`{ROW}_before` IN ('delete', 'remove') OR (`{ROW}_before` IS NULL AND"
        f" NOT EXISTS (SELECT 1 FROM (SELECT {keys} FROM {old} GROUP BY {keys} HAVING sum(`{WEIGHT}`) > 0) AS `~stored`"
        f" WHERE {_same_key(relation, 'stored', 'change')}))) LIMIT 1"
    )


def _negative_sql(relation: Relation) -> str:
    """Give a row that would be there less than zero times."""
    shown, by = identical(relation.columns)
    old, total = role_name(relation.name, "stored_old"), f"sum(`{WEIGHT}`)"
    listed = _listed(relation)
    touched = f"GROUP BY {by} HAVING {total} < 0 AND count(`{OP}`) > 0"
    return (
        f"SELECT {shown} FROM (SELECT {listed}, `{WEIGHT}`, 'new' AS `{OP}` FROM `{CHANGES}` UNION ALL"
        f" SELECT {listed}, `{WEIGHT}`, NULL AS `{OP}` FROM {old}) AS `~both_sides` {touched} LIMIT 1"
    )


def _twice_sql(relation: Relation) -> str:
    """Give a key that several rows would have."""
    keys = ", ".join(quote(k) for k in relation.key)
    old = role_name(relation.name, "stored_old")
    return (
        f"SELECT {keys} FROM (SELECT {keys}, `{WEIGHT}`, 'new' AS `{OP}` FROM `{CHANGES}` UNION ALL"
        f" SELECT {keys}, `{WEIGHT}`, NULL AS `{OP}` FROM {old}) AS `~both_sides`"
        f" GROUP BY {keys} HAVING sum(`{WEIGHT}`) > 1 AND count(`{OP}`) > 0 LIMIT 1"
    )


def _wrong(relation: Relation, code: str, said: str, hint: str) -> Terminal:
    return Terminal(code, f"{relation.name}: {said}", hint=hint)


def _short(row: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in row.items())
    return text if len(text) <= 120 else text[:117] + "..."


def _size(path: str) -> int:
    system, inside = lake_files.filesystem(path)
    return int(system.get_file_info(inside).size)
