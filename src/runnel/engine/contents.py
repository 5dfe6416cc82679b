"""What a table or view holds at an epoch, and by what it changed between two: rows, brought to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.engine.inputs import Inputs, Pending, signed
from runnel.lake.compaction import fold
from runnel.model.program import name as role_name
from runnel.model.program import quote
from runnel.model.relation import Relation

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.engine.base import Engine, Input
    from runnel.lake.snapshot import Snapshot


def rows_query(engine: Engine, snapshot: Snapshot, relation: Relation) -> tuple[str, dict[str, Input]]:
    """Give the SQL of a relation's rows at an epoch, and its inputs."""
    columns = ", ".join(quote(c.name) for c in relation.rows)
    inputs = Inputs(engine, snapshot, snapshot, Pending()).roles([(relation.name, "rows")])
    return f"SELECT {columns} FROM {role_name(relation.name, 'rows')}", inputs


def rows(engine: Engine, snapshot: Snapshot, relation: Relation) -> pa.Table:
    """Give a relation's rows at an epoch."""
    sql, inputs = rows_query(engine, snapshot, relation)
    return engine.rows(sql, inputs, relation.rows)


def plain(relation: Relation) -> Relation:
    """Give a relation as a user sees it: a bag of rows."""
    return Relation(relation.name, relation.kind, relation.rows, () if relation.final else relation.key)


def changes(engine: Engine, old: Snapshot, head: Snapshot, relation: Relation) -> pa.Table:
    """Give the net signed rows by which a relation changed between two epochs; it must be the same one in both."""
    source = Inputs(engine, old, head, Pending()).delta(relation.name)
    sql = f"SELECT * FROM {role_name(relation.name, 'delta')}"
    table = engine.rows(sql, {role_name(relation.name, "delta")[1:-1]: source}, signed(relation.rows))
    return fold(plain(relation), table)
