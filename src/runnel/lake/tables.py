"""The catalog's tables: those of DuckLake 1.0, exactly as DuckDB 1.5 makes them, and runnel's own beside them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import TIMESTAMP, BigInteger, Boolean, Column, Float, Index, MetaData, String, Table, Text
from sqlalchemy.dialects import postgresql

metadata = MetaData()

_BOOL = Boolean(create_constraint=False).with_variant(BigInteger(), "sqlite")
_UUID = String().with_variant(postgresql.UUID(as_uuid=False), "postgresql")
_TIME = String().with_variant(TIMESTAMP(timezone=True), "postgresql")
_TYPES: dict[str, Any] = {"id": BigInteger(), "text": String(), "bool": _BOOL, "uuid": _UUID, "time": _TIME}
_SPAN = "begin_snapshot end_snapshot"


def _table(name: str, *columns: str, key: str | None = None, required: tuple[str, ...] = ()) -> Table:
    """Declare a table; a column is its name, with `:type` where it is not a number."""
    made: list[Column[Any]] = []
    for column in " ".join(columns).split():
        column_name, _, type_ = column.partition(":")
        made.append(
            Column(
                column_name,
                _TYPES[type_ or "id"],
                primary_key=column_name == key,
                autoincrement=False,
                nullable=column_name != key and column_name not in required,
            )
        )
    return Table(name, metadata, *made)


ducklake_metadata = _table("ducklake_metadata", "key:text value:text scope:text scope_id", required=("key", "value"))
snapshot = _table(
    "ducklake_snapshot",
    "snapshot_id snapshot_time:time schema_version next_catalog_id next_file_id",
    key="snapshot_id",
)
snapshot_changes = _table(
    "ducklake_snapshot_changes",
    "snapshot_id changes_made:text author:text commit_message:text commit_extra_info:text",
    key="snapshot_id",
)
schema = _table(
    "ducklake_schema",
    "schema_id schema_uuid:uuid",
    _SPAN,
    "schema_name:text path:text path_is_relative:bool",
    key="schema_id",
)
table = _table(
    "ducklake_table",
    "table_id table_uuid:uuid",
    _SPAN,
    "schema_id table_name:text path:text path_is_relative:bool",
)
view = _table(
    "ducklake_view",
    "view_id view_uuid:uuid",
    _SPAN,
    "schema_id view_name:text dialect:text sql:text column_aliases:text",
)
column = _table(
    "ducklake_column",
    "column_id",
    _SPAN,
    "table_id column_order column_name:text column_type:text initial_default:text default_value:text",
    "nulls_allowed:bool parent_column default_value_type:text default_value_dialect:text",
)
data_file = _table(
    "ducklake_data_file",
    "data_file_id table_id",
    _SPAN,
    "file_order path:text path_is_relative:bool file_format:text record_count file_size_bytes footer_size",
    "row_id_start partition_id encryption_key:text mapping_id partial_max",
    key="data_file_id",
)
file_column_stats = _table(
    "ducklake_file_column_stats",
    "data_file_id table_id column_id column_size_bytes value_count null_count min_value:text max_value:text",
    "contains_nan:bool extra_stats:text",
)
table_stats = _table("ducklake_table_stats", "table_id record_count next_row_id file_size_bytes")
table_column_stats = _table(
    "ducklake_table_column_stats",
    "table_id column_id contains_null:bool contains_nan:bool min_value:text max_value:text extra_stats:text",
)
schema_versions = _table("ducklake_schema_versions", "begin_snapshot schema_version table_id")
scheduled = _table(
    "ducklake_files_scheduled_for_deletion", "data_file_id path:text path_is_relative:bool schedule_start:time"
)

# DuckDB wants these to exist; runnel leaves them empty.
_table("ducklake_tag", "object_id", _SPAN, "key:text value:text")
_table("ducklake_column_tag", "table_id column_id", _SPAN, "key:text value:text")
_table(
    "ducklake_file_variant_stats",
    "data_file_id table_id column_id variant_path:text shredded_type:text column_size_bytes value_count null_count",
    "min_value:text max_value:text contains_nan:bool extra_stats:text",
)
_table(
    "ducklake_delete_file",
    "delete_file_id table_id",
    _SPAN,
    "data_file_id path:text path_is_relative:bool format:text delete_count file_size_bytes footer_size",
    "encryption_key:text partial_max",
    key="delete_file_id",
)
_table("ducklake_partition_info", "partition_id table_id", _SPAN)
_table("ducklake_partition_column", "partition_id table_id partition_key_index column_id transform:text")
_table("ducklake_file_partition_value", "data_file_id table_id partition_key_index partition_value:text")
_table("ducklake_inlined_data_tables", "table_id table_name:text schema_version")
_table("ducklake_column_mapping", "mapping_id table_id type:text")
_table("ducklake_name_mapping", "mapping_id column_id source_name:text target_field_id parent_column is_partition:bool")
_table("ducklake_macro", "schema_id macro_id macro_name:text", _SPAN)
_table("ducklake_macro_impl", "macro_id impl_id dialect:text sql:text type:text")
_table(
    "ducklake_macro_parameters",
    "macro_id impl_id column_id parameter_name:text parameter_type:text default_value:text default_value_type:text",
)
_table("ducklake_sort_info", "sort_id table_id", _SPAN)
_table(
    "ducklake_sort_expression",
    "sort_id table_id sort_key_index expression:text dialect:text sort_direction:text null_order:text",
)

runnel_metadata = Table("runnel_metadata", metadata, Column("key", String, primary_key=True), Column("value", String))
# Which files are changes, and to tell them from what compaction wrote; the digest of a file's bytes, and the hash of all that is said
# of it here (`digests.file_entry`), both empty where an earlier version wrote it.
runnel_file = Table(
    "runnel_file",
    metadata,
    Column("data_file_id", BigInteger, primary_key=True, autoincrement=False),
    Column("change", _BOOL, nullable=False),
    Column("digest", String),
    Column("entry", String),
)
# `changes_from`: changes of epochs up to this one have been forgotten.
runnel_relation = Table(
    "runnel_relation",
    metadata,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", String, nullable=False),
    Column("definition", Text, nullable=False),
    Column("begin_snapshot", BigInteger, nullable=False),
    Column("end_snapshot", BigInteger),
    Column("changes_from", BigInteger, nullable=False),
)
runnel_view = Table(
    "runnel_view",
    metadata,
    Column("name", String, primary_key=True),
    Column("begin_snapshot", BigInteger, primary_key=True, autoincrement=False),
    Column("end_snapshot", BigInteger),
    Column("definition", Text, nullable=False),
)
runnel_position = Table(
    "runnel_position",
    metadata,
    Column("source", String, primary_key=True),
    Column("begin_snapshot", BigInteger, primary_key=True, autoincrement=False),
    Column("end_snapshot", BigInteger),
    Column("position", Text, nullable=False),
)
# One row per epoch; `frontiers` is JSON: view -> [frontier, error], of all views, so that nothing has to be looked back for. `digest` is
# that of the row and of all entries that the epoch shows (`digests.epoch_digest`).
runnel_epoch = Table(
    "runnel_epoch",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("time", String, nullable=False),
    Column("frontiers", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("digest", String),
)
# One row per relation: the sum of the hashes of all its change files that are still kept (of epochs after `changes_from`), and the hash
# of this row. A change that goes missing from a list of changes is noticed by it.
runnel_changes = Table(
    "runnel_changes",
    metadata,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("changes_from", BigInteger, nullable=False),
    Column("added_up", String, nullable=False),
    Column("entry", String, nullable=False),
)
ADDED = {3: (runnel_file.c.digest, runnel_file.c.entry, runnel_epoch.c.digest)}
"""The columns that later versions of the catalog added to tables of earlier ones."""
runnel_delivery = Table(
    "runnel_delivery",
    metadata,
    Column("target", String, primary_key=True),
    Column("view", String, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
runnel_lease = Table(
    "runnel_lease",
    metadata,
    Column("name", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("until", Float(53), nullable=False),
)

Index("runnel_ix_file_begin", data_file.c.table_id, data_file.c.begin_snapshot)
Index("runnel_ix_file_since", data_file.c.begin_snapshot)
Index("runnel_ix_file_until", data_file.c.end_snapshot)
Index("runnel_ix_stats", file_column_stats.c.data_file_id)
Index("runnel_ix_column", column.c.table_id)
Index("runnel_ix_table_stats", table_stats.c.table_id)
