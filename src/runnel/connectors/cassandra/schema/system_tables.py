"""The server's own tables, as far as a log's reader has to know them: `system_schema`, and `system.local` for TRUNCATE.

Their ids follow from their names. A column that no version listed here has is refused like any other unknown column,
unless the log itself defines it.
"""

from __future__ import annotations

from functools import cache

from runnel.connectors.cassandra.schema.tables import TableSchema, build_tables, system_table_id
from runnel.connectors.cassandra.schema.text import parse_schema

SYSTEM_KEYSPACES = frozenset(
    (
        "system",
        "system_auth",
        "system_distributed",
        "system_schema",
        "system_traces",
        "system_views",
        "system_virtual_schema",
    )
)

_OPTIONS = """\
additional_write_policy text, allow_auto_snapshot boolean, bloom_filter_fp_chance double, caching frozen<map<text, text>>,
cdc boolean, comment text, compaction frozen<map<text, text>>, compression frozen<map<text, text>>,
crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int,
extensions frozen<map<text, blob>>, gc_grace_seconds int, id uuid, incremental_backups boolean, max_index_interval int,
memtable text, memtable_flush_period_in_ms int, min_index_interval int, read_repair text, read_repair_chance double,
speculative_retry text"""

# A time of dropping is a timestamp, but the server's own rows hold some that no calendar has: they are read as numbers.
_DEFINITIONS = {
    ("system_schema", "keyspaces"): "keyspace_name text PRIMARY KEY, durable_writes boolean, "
    "replication frozen<map<text, text>>",
    ("system_schema", "tables"): f"keyspace_name text, table_name text, flags frozen<set<text>>, {_OPTIONS}, "
    "PRIMARY KEY (keyspace_name, table_name)",
    ("system_schema", "views"): "keyspace_name text, view_name text, base_table_id uuid, base_table_name text, "
    f"include_all_columns boolean, where_clause text, {_OPTIONS}, PRIMARY KEY (keyspace_name, view_name)",
    ("system_schema", "columns"): "keyspace_name text, table_name text, column_name text, clustering_order text, "
    "column_name_bytes blob, kind text, position int, type text, "
    "PRIMARY KEY (keyspace_name, table_name, column_name)",
    ("system_schema", "column_masks"): "keyspace_name text, table_name text, column_name text, function_keyspace text, "
    "function_name text, function_argument_types frozen<list<text>>, function_argument_values frozen<list<text>>, "
    "function_argument_nulls frozen<list<boolean>>, PRIMARY KEY (keyspace_name, table_name, column_name)",
    ("system_schema", "dropped_columns"): "keyspace_name text, table_name text, column_name text, "
    "dropped_time bigint, kind text, type text, PRIMARY KEY (keyspace_name, table_name, column_name)",
    ("system_schema", "types"): "keyspace_name text, type_name text, field_names frozen<list<text>>, "
    "field_types frozen<list<text>>, PRIMARY KEY (keyspace_name, type_name)",
    ("system_schema", "triggers"): "keyspace_name text, table_name text, trigger_name text, "
    "options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, trigger_name)",
    ("system_schema", "indexes"): "keyspace_name text, table_name text, index_name text, kind text, "
    "options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, index_name)",
    ("system_schema", "functions"): "keyspace_name text, function_name text, argument_types frozen<list<text>>, "
    "argument_names frozen<list<text>>, body text, language text, return_type text, called_on_null_input boolean, "
    "PRIMARY KEY (keyspace_name, function_name, argument_types)",
    ("system_schema", "aggregates"): "keyspace_name text, aggregate_name text, argument_types frozen<list<text>>, "
    "final_func text, initcond text, return_type text, state_func text, state_type text, "
    "PRIMARY KEY (keyspace_name, aggregate_name, argument_types)",
    ("system", "local"): "key text PRIMARY KEY, bootstrapped text, broadcast_address inet, broadcast_port int, "
    "cluster_name text, cql_version text, data_center text, gossip_generation int, host_id uuid, "
    "listen_address inet, listen_port int, native_protocol_version text, partitioner text, rack text, "
    "release_version text, rpc_address inet, rpc_port int, schema_version uuid, thrift_version text, "
    "tokens set<text>, truncated_at map<uuid, blob>",
}

SCHEMA_TABLES = {
    name: system_table_id("system_schema", name) for name in ("tables", "columns", "dropped_columns", "types", "views")
}
"""The tables that define tables, with their ids."""

_NAMES = {
    "system": "IndexInfo available_ranges available_ranges_v2 batches batchlog built_views compaction_history hints local paxos "
    "paxos_repair_history peer_events peer_events_v2 peers peers_v2 prepared_statements range_xfers repairs "
    "size_estimates sstable_activity sstable_activity_v2 table_estimates top_partitions transferred_ranges "
    "transferred_ranges_v2 view_builds_in_progress views_builds_in_progress schema_keyspaces schema_columnfamilies "
    "schema_columns schema_triggers schema_usertypes schema_functions schema_aggregates",
    "system_auth": "cidr_groups cidr_permissions identity_to_role network_permissions resource_role_permissons_index "
    "role_members role_permissions roles credentials permissions users",
    "system_distributed": "parent_repair_history partition_denylist repair_history view_build_status",
    "system_traces": "events sessions",
}
OWN_TABLE_IDS = frozenset(
    system_table_id(keyspace, name) for keyspace, names in _NAMES.items() for name in names.split()
)
"""Tables of the server that no user wrote to; their mutations are passed over."""


@cache
def system_tables() -> tuple[TableSchema, ...]:
    """Give the definitions of the server's tables that are read."""
    text = ";\n".join(
        f"CREATE TABLE {keyspace}.{name} ({columns}) WITH ID = {system_table_id(keyspace, name)}"
        for (keyspace, name), columns in _DEFINITIONS.items()
    )
    return tuple(build_tables(parse_schema(text, file="system tables")))
