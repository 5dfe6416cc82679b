"""Compaction: folding the signed rows of several files into fewer, without changing what any epoch shows.

Which files: log-structured, so that every row is rewritten a number of times that grows with the logarithm of the relation.
What was folded away stays until `expiry` lets it go; change files among it still answer `Snapshot.changes`.
"""

from __future__ import annotations

import uuid
from decimal import Context, Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from runnel.errors import Terminal
from runnel.failpoints import reach
from runnel.lake import tables
from runnel.lake.publish import COMPACTION, add_files, begin, check_writers, finish
from runnel.model import arrow, identity, types
from runnel.model.relation import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.lake.entries import DataFile, NewFile
    from runnel.lake.lake import Lake
    from runnel.lake.publish import Draft
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Relation

FAN_IN = 8
RATIO = 3
SMALL = 65_536
LARGE = 2_000_000
FEW = 10_000
_SORT_COLUMNS = 3
_INT64 = 2**63 - 1
_EXACT = Context(prec=76)
_DECIMAL128 = 10**38 - 1


def plan(
    snapshot: Snapshot, relation: str | Relation, *, fan_in: int = FAN_IN, ratio: int = RATIO, small: int = SMALL
) -> tuple[DataFile, ...] | None:
    """Choose the live files to fold now; None = leave all as they are.

    Files published together are one run. Runs of like size (each at most `ratio` times all smaller ones of its level) are a
    level; a level is folded when it has `fan_in` runs, or when it is larger than `small` rows and its smaller runs
    together reach the largest divided by `ratio`; a run of more than `LARGE` rows is written again only with as many others.
    """
    runs: dict[int, list[DataFile]] = {}
    for file in snapshot.files(relation):
        runs.setdefault(file.begin, []).append(file)
    for level in _levels(list(runs.values()), ratio):
        rows = [sum(file.rows for file in run) for run in level]
        crowded = len(level) >= fan_in
        share = ratio if rows[-1] < LARGE else 1
        stale = len(level) > 1 and sum(rows) > small and sum(rows[:-1]) * share >= rows[-1]
        if crowded or stale:
            reach("compaction:planned")
            return tuple(file for run in level for file in run)
    return None


def _levels(runs: list[list[DataFile]], ratio: int) -> list[list[list[DataFile]]]:
    levels: list[list[list[DataFile]]] = []
    below = 0
    for run in sorted(runs, key=lambda run: sum(file.rows for file in run)):
        rows = sum(file.rows for file in run)
        if levels and rows <= below * ratio:
            levels[-1].append(run)
            below += rows
        else:
            levels.append([run])
            below = rows
    return levels


def fold(relation: Relation, table: pa.Table, *, from_start: bool = False) -> pa.Table:
    """Add up signed rows: equal rows of a bag add their weights, equal keys of partials their sums; what is zero goes.

    `from_start` says that the table holds all of the relation: a group without base rows then goes whatever its sums drifted to.
    A sum that its column cannot hold is `RUNNEL-SUM-OVERFLOW`, never a wrong number.
    """
    columns = [c.name for c in relation.columns]
    table = table.select([*columns, WEIGHT])
    if table.num_rows == 0:
        return table
    paired = _paired(relation, table)
    if paired is not None:
        return paired
    keys = list(relation.summed_by) if relation.final else columns
    sums = [*relation.partial_sums, WEIGHT]
    alone = None if relation.final else _alone(table[(*relation.key, *columns)[0]])
    if alone is None:
        folded = _added_up(table, keys, sums)
    else:
        meeting = table.filter(pa.array(~alone))
        folded = pa.concat_tables([table.filter(pa.array(alone)), _added_up(meeting, keys, sums)])
    kept = [folded[WEIGHT]] if from_start or not relation.final else [folded[name] for name in sums]
    return _sorted(folded.filter(_any_non_zero(kept)), list(relation.key) or columns[:_SORT_COLUMNS])


def _paired(relation: Relation, table: pa.Table) -> pa.Table | None:
    """Add up signed rows of which no more than two have the same key; None where there are more, or they are not plain numbers.

    So it is where rows of a table with a key are updated: two neighbours are soon compared, column by column, until one differs.
    """
    if relation.final or len(relation.key) != 1 or len(table) < FEW:
        return None
    table = table.combine_chunks()
    key = table[relation.key[0]]
    kinds = [field.type for field in table.schema]
    plain = not any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in kinds)
    if not plain or not pa.types.is_integer(key.type) or key.null_count:
        return None
    values = key.to_numpy()
    order = np.argsort(values, kind="stable")
    same = np.diff(values[order]) == 0
    weights = table[WEIGHT].to_numpy()[order]
    if (same[1:] & same[:-1]).any() or np.abs(weights).max() > _INT64 // 4:
        return None
    alike = np.flatnonzero(same)
    for name in (c.name for c in relation.columns if c.name not in relation.key):
        if not len(alike):
            break
        one, other = (table[name].take(pa.array(order[alike + step])) for step in (0, 1))
        differ = pc.fill_null(pc.not_equal(one, other), fill_value=False)
        alone_null = pc.xor(pc.is_null(one), pc.is_null(other))
        alike = alike[~pc.or_(differ, alone_null).to_numpy()]
    weights[alike] += weights[alike + 1]
    weights[alike + 1] = 0
    kept = np.flatnonzero(weights)
    at = table.column_names.index(WEIGHT)
    return table.take(pa.array(order[kept])).set_column(at, table.schema.field(at), pa.array(weights[kept]))


def _alone(column: pa.ChunkedArray) -> np.ndarray | None:
    """Mark the rows that no other is equal to, because none has the same number in this column; None where that is not cheap.

    Of a table with a key these are most rows, and to compare all columns of all rows takes several times as long.
    """
    if len(column) < FEW or not pa.types.is_integer(column.type) or column.null_count:
        return None
    values = column.to_numpy()
    order = np.argsort(values, kind="stable")
    same = values[order[1:]] == values[order[:-1]]
    alone = np.ones(len(values), dtype=bool)
    alone[order[1:][same]] = alone[order[:-1][same]] = False
    return alone


def _added_up(table: pa.Table, keys: list[str], sums: list[str]) -> pa.Table:
    # Arrow cannot group by nested columns: a number stands for each of their values.
    grouping = [_numbered(table[name]) if _nested(table[name]) else table[name] for name in keys]
    summing = [(_roomy(table[name]), "sum") for name in sums]
    _, (*added, rows) = arrow.group(grouping, [*summing, (pa.array(np.arange(table.num_rows)), "min")])
    first = table.select(keys).take(rows)
    total = {
        name: _narrowed(name, column, table.schema.field(name).type) for name, column in zip(sums, added, strict=True)
    }
    columns = [total[name] if name in total else first[name] for name in table.column_names]
    return pa.table(columns, schema=table.schema)


def _roomy(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Widen numbers whose sum might wrap: Arrow adds up groups without checking."""
    type_ = column.type
    if pa.types.is_decimal128(type_):
        return column.cast(pa.decimal256(76, type_.scale)) if _reach(column, type_.scale) > _DECIMAL128 else column
    if pa.types.is_int64(type_) and _reach(column, 0) > _INT64:
        return column.cast(pa.decimal128(38, 0))
    return column


def _reach(column: pa.ChunkedArray, scale: int) -> int:
    """Give a number, counted in the last digit, that no sum of these values exceeds."""
    ends = pc.min_max(column).as_py().values()
    return len(column) * max(
        (abs(int(Decimal(end).scaleb(scale, _EXACT))) for end in ends if end is not None), default=0
    )


def _narrowed(name: str, sums: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    try:
        return pc.fill_null(sums.cast(type_), _zero(type_))
    except pa.ArrowInvalid as error:
        raise Terminal(
            "RUNNEL-SUM-OVERFLOW",
            f"a sum of column {name!r} does not fit {type_}",
            hint="give the summed column a wider type",
        ) from error


def _zero(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(0) if pa.types.is_decimal(type_) else 0, type_)


def _nested(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_nested(column.type))


def _numbered(column: pa.ChunkedArray) -> pa.Array:
    numbers: dict[object, int] = {}
    return pa.array(
        [numbers.setdefault(identity.of_value(value), len(numbers)) for value in column.to_pylist()], pa.int64()
    )


def _any_non_zero(columns: list[pa.ChunkedArray]) -> pa.ChunkedArray:
    mask = None
    for column in columns:
        one = pc.not_equal(column, _zero(column.type))
        mask = one if mask is None else pc.or_(mask, one)
    return mask


def _sorted(table: pa.Table, names: list[str]) -> pa.Table:
    flat = [name for name in names if not _nested(table[name])]
    return arrow.in_order(table, flat) if flat else table


def fold_sql(relation: Relation, stored: str, *, from_start: bool = False) -> str:
    """Give Spark SQL that does what `fold` does to the rows of `stored` (a name in backquotes)."""
    grouping = [c for c in relation.columns if not relation.final or c.name in relation.summed_by]
    by_name = {c.name: c.type for c in relation.columns} | {WEIGHT: types.BIGINT}
    made = {
        name: f"CAST(coalesce(sum({_backquoted(name)}), 0) AS {by_name[name]})"
        for name in (*relation.partial_sums, WEIGHT)
    }
    kept = [WEIGHT] if from_start or not relation.final else list(made)
    having = " OR ".join(f"{made[name]} <> 0" for name in kept)
    shown = {name: f"{total} AS {_backquoted(name)}" for name, total in made.items()}
    shown |= {c.name: identity.identical([c])[0] for c in grouping}
    by = identity.identical(grouping)[1]
    group = f" GROUP BY {by}" if by else ""
    columns = [shown[name] for name in (*(c.name for c in relation.columns), WEIGHT)]
    return f"SELECT {', '.join(columns)} FROM {stored}{group} HAVING {having}"


def _backquoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def publish(lake: Lake, relation: Relation, folded: Sequence[DataFile], new: Sequence[NewFile]) -> int | None:
    """Put `new` in the place of `folded`, in a snapshot of its own; None (and `new` discarded) if one of them is gone."""
    reach("compaction:written")
    publish_id = uuid.uuid4().hex

    def work(connection: sa.Connection) -> int:
        draft = begin(connection, lake.reader)
        if not _end(draft, relation, folded):
            raise _Gone
        check_writers(draft, new)
        add_files(draft, new, lake.stored_path, change=False)
        record = {"relation": relation.name, "files_before": len(folded), "files_after": len(new)}
        finish(draft, COMPACTION, record, _carried(draft), publish_id=publish_id)
        reach("compaction:before-commit")
        return draft.epoch

    try:
        lake.sync(new)
        epoch = lake.commit(new, publish_id, work)
    except _Gone:
        lake.discard(new)
        return None
    except BaseException:
        lake.discard(new)
        raise
    reach("compaction:after-commit")
    return epoch


class _Gone(Exception):
    """One of the files is live no more."""


def _end(draft: Draft, relation: Relation, folded: Sequence[DataFile]) -> bool:
    known = draft.relations.get(relation.name)
    if known is None:
        return False
    f, t = tables.data_file, tables.table_stats
    which = sa.and_(f.c.table_id == known[1], f.c.data_file_id.in_([file.id for file in folded]))
    ended = draft.end(f, which, [file.entry for file in folded])
    draft.connection.execute(
        t.update()
        .where(t.c.table_id == known[1])
        .values(
            record_count=t.c.record_count - sum(file.rows for file in folded),
            file_size_bytes=t.c.file_size_bytes - sum(file.bytes for file in folded),
        )
    )
    return ended == len(folded)


def _carried(draft: Draft) -> dict[str, list[object]]:
    # A view that was up to date still is: this snapshot changes no rows.
    return {
        name: [draft.epoch if frontier == draft.head else frontier, error]
        for name, (frontier, error) in draft.frontiers.items()
    }
