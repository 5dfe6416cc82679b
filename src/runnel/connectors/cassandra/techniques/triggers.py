"""The triggers that write twins and journals: what they are called, and whether a table has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.errors import UsageError

if TYPE_CHECKING:
    from runnel.connectors.cassandra.client import Client
    from runnel.connectors.cassandra.schema.tables import TableSchema

NAMES = {"audit": "runnel_audit", "trigger": "runnel_journal"}
"""By technique."""


def check_trigger(client: Client, table: TableSchema, technique: str) -> None:
    """Refuse a table that nobody writes the twins or the journal of, with `RUNNEL-CASSANDRA-PREPARE`."""
    cql = "SELECT trigger_name FROM system_schema.triggers WHERE keyspace_name = ? AND table_name = ?"
    found = client.records(cql, [table.keyspace.encode(), table.name.encode()])
    if NAMES[technique] not in [row["trigger_name"] for row in found]:
        raise UsageError(
            "RUNNEL-CASSANDRA-PREPARE",
            f"{table.keyspace}.{table.name} has no trigger {NAMES[technique]}",
            hint=f"make it: runnel prepare {client.settings.name} --technique {technique}",
        )
