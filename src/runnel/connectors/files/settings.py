"""The settings of a `files` source, checked; every problem is told at once with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from runnel.config import reveal
from runnel.errors import Problems, RunnelError, UsageError, nearest
from runnel.model.ddl import parse_table, spelled
from runnel.model.relation import check_columns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runnel import config
    from runnel.model.foreign_keys import Reference
    from runnel.model.relation import Column

Format = Literal["parquet", "csv", "jsonl"]
FORMATS: tuple[Format, ...] = ("parquet", "csv", "jsonl")
KEYS = ("path", "table", "tables", "schema", "key", "format", "start", "delimiter", "null", "time_unit", "before")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "format": FORMATS,
    "start": ("snapshot", "latest"),
    "time_unit": ("s", "ms", "us"),
    "before": ("row", "key", "trusted"),
}


@dataclass(frozen=True)
class Settings:
    """Where the files are and how they are read.

    `table` is set when the folder itself holds one table's files; else each sub-folder is a table. `schemas`, `keys` and
    `references` have an entry for each table that the settings describe. `time_unit` is what a number means as a timestamp.
    `before` says whether an envelope's before image is the whole row or, like a replica identity, only its key; `trusted` is a whole
    row that is not held against the state.
    """

    name: str
    path: Path
    shown: str
    table: str | None = None
    tables: tuple[str, ...] | None = None
    schemas: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    references: Mapping[str, tuple[Reference, ...]] = field(default_factory=dict)
    format: Format | None = None
    start: str = "snapshot"
    delimiter: str = ","
    null: str = ""
    time_unit: str | None = None
    before: str = "row"

    @property
    def trusted(self) -> bool:
        """Whether whoever writes the files vouches for old rows, and for keys that are new."""
        return self.before == "trusted"


def read_settings(source: config.Source, folder: Path) -> Settings:
    """Check what `[sources.NAME]` says; raise `Problems` with everything that is wrong."""
    values: dict[str, Any] = reveal(dict(source.settings))
    problems: list[RunnelError] = []
    _check(source, values, problems)
    table = values.get("table")
    schemas, keys, references = _schemas(source, values, problems)
    if problems:
        raise Problems(problems)
    tables = values.get("tables")
    return Settings(
        name=source.name,
        path=folder / values["path"],
        shown=values["path"],
        table=table,
        tables=None if tables is None else tuple(tables),
        schemas=schemas,
        keys=keys,
        references=references,
        **{
            name: values[name]
            for name in ("format", "start", "delimiter", "null", "time_unit", "before")
            if name in values
        },
    )


def _check(source: config.Source, values: Mapping[str, Any], problems: list[RunnelError]) -> None:
    def problem(code: str, message: str, key: str, hint: str | None = None) -> None:
        code, message = f"RUNNEL-CONFIG-{code}", f"sources.{source.name}: {message}"
        problems.append(UsageError(code, message, place=source.at(key), hint=hint))

    for key, value in values.items():
        if key not in KEYS:
            problem("UNKNOWN", f"unknown key {key!r}", key, nearest(key, KEYS) or f"known are {', '.join(KEYS)}")
        elif key == "tables" and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
            problem("TYPE", "'tables' must be a list of names", key)
        elif key not in ("schema", "key", "tables") and not isinstance(value, str):
            problem("TYPE", f"{key!r} must be a string, not {value!r}", key)
        elif key in CHOICES and value not in CHOICES[key]:
            problem("VALUE", f"{key!r} cannot be {value!r}", key, f"one of {', '.join(CHOICES[key])}")
    if "path" not in values:
        problem("MISSING", "'path' is missing", "path", 'name the folder: path = "feed"')
    if len(str(values.get("delimiter", ","))) != 1:
        problem("VALUE", "'delimiter' must be one character", "delimiter")
    if "table" in values and "tables" in values:
        problem("VALUE", "'table' and 'tables' exclude each other", "tables", "'table' is for a folder of one table")


def _schemas(
    source: config.Source, values: Mapping[str, Any], problems: list[RunnelError]
) -> tuple[dict[str, tuple[Column, ...]], dict[str, tuple[str, ...]], dict[str, tuple[Reference, ...]]]:
    """Read `schema` and `key`: one entry per table, or the bare value where there is one table."""
    schemas: dict[str, tuple[Column, ...]] = {}
    references: dict[str, tuple[Reference, ...]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for table, text in _per_table(source, values, "schema", str, problems).items():
        try:
            said = parse_table(text, owner=table, place=source.at("schema"))
            schemas[table], keys[table], references[table] = said.columns, said.key, said.references
        except UsageError as error:
            problems.append(error)
    for table, names in _per_table(source, values, "key", list, problems).items():
        keys[table] = tuple(map(str, names))
        if table not in schemas:
            continue
        try:
            check_columns(table, schemas[table], keys[table])
        except RunnelError as error:
            problems.append(UsageError(error.code, error.message, place=source.at("key"), hint=error.hint))
        keys[table] = spelled(keys[table], schemas[table])
    return schemas, {table: key for table, key in keys.items() if key}, references


def _per_table(
    source: config.Source, values: Mapping[str, Any], key: str, kind: type, problems: list[RunnelError]
) -> dict[str, Any]:
    value = values.get(key, {})
    table = values.get("table")
    if isinstance(value, kind) and isinstance(table, str):
        return {table: value}
    if isinstance(value, dict) and all(isinstance(item, kind) for item in value.values()):
        return value
    example = '{ orders = "id BIGINT, ..." }' if kind is str else '{ orders = ["id"] }'
    problems.append(
        UsageError(
            "RUNNEL-CONFIG-TYPE",
            f"sources.{source.name}: {key!r} must have one entry per table",
            place=source.at(key),
            hint=f"write {key} = {example}",
        )
    )
    return {}
