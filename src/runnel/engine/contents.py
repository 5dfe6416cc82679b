"""What a table or view holds at an epoch, and by what it changed between two: rows, brought to the driver."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from runnel.engine.inputs import Inputs, Pending, signed
from runnel.lake.compaction import fold
from runnel.model import types
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import Relation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from runnel.engine.base import Engine, Input
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Column


def rows_query(engine: Engine, snapshot: Snapshot, relation: Relation) -> tuple[str, dict[str, Input]]:
    """Give the SQL of a relation's rows at an epoch, and its inputs."""
    columns = ", ".join(quote(c.name) for c in relation.rows)
    inputs = Inputs(engine, snapshot, snapshot, Pending()).roles([(relation.name, "rows")])
    return f"SELECT {columns} FROM {role_name(relation.name, 'rows')}", inputs


def rows(engine: Engine, snapshot: Snapshot, relation: Relation) -> pa.Table:
    """Give a relation's rows at an epoch."""
    sql, inputs = rows_query(engine, snapshot, relation)
    return engine.rows(sql, inputs, relation.rows)


def rows_in_parts(
    engine: Engine, snapshot: Snapshot, relation: Relation, by: Sequence[str], most: int
) -> Iterator[pa.Table]:
    """Give a relation's rows in parts of about `most` rows; rows that are equal in `by` are in the same part.

    Each part reads the whole relation. Floats and maps decide nothing: their text may differ where they are equal.
    """
    sql, inputs = rows_query(engine, snapshot, relation)
    for condition in _parts([c for c in relation.rows if c.name in by], _stored(snapshot, relation) / most):
        yield engine.rows(sql + condition, inputs, relation.rows)


def _stored(snapshot: Snapshot, relation: Relation) -> int:
    return sum(file.rows for file in snapshot.files(relation))


def _parts(columns: list[Column], count: float) -> list[str]:
    exact = [quote(c.name) for c in columns if not types.floating(c.type) and "map<" not in str(c.type)]
    digits = math.ceil(math.log(count, 16)) if count > 1 and exact else 0
    text = ", ".join(f"coalesce(CAST({name} AS STRING), '')" for name in exact)
    begins = ("".join(part) for part in itertools.product("0123456789abcdef", repeat=digits))
    return [f" WHERE substr(md5(concat_ws('|', {text})), 1, {digits}) = '{b}'" if digits else "" for b in begins]


def plain(relation: Relation) -> Relation:
    """Give a relation as a user sees it: a bag of rows."""
    return Relation(relation.name, relation.kind, relation.rows, () if relation.final else relation.key)


def changes(engine: Engine, old: Snapshot, head: Snapshot, relation: Relation) -> pa.Table:
    """Give the net signed rows by which a relation changed between two epochs; it must be the same one in both."""
    source = Inputs(engine, old, head, Pending()).delta(relation.name)
    sql = f"SELECT * FROM {role_name(relation.name, 'delta')}"
    table = engine.rows(sql, {role_name(relation.name, "delta")[1:-1]: source}, signed(relation.rows))
    return fold(plain(relation), table)
