"""Definitions of tables: read from the catalog, as of now or as of a snapshot, and kept in positions of the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import md5
from typing import TYPE_CHECKING, Any

from runnel.connectors.base import TableInfo
from runnel.connectors.postgres.columns import SqlColumn, type_of
from runnel.connectors.postgres.server import quoted
from runnel.errors import UsageError, nearest
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from runnel.connectors.postgres.log.messages import Relation
    from runnel.connectors.postgres.settings import SourceSettings

    Rows = Callable[..., list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Definition:
    """A table as it was at a position of the log.

    `identity` is the letter of its replica identity; `whole` says that old rows are logged whole, also of all its partitions. `key` tells
    rows apart: where old rows are not whole, it is what the log has of them. `mark` names its entry in the publication.

    `version` is another one after whatever may have changed rows without logging them: of columns, or of partitions. `files` names the
    files of the table and its partitions: they are others after whatever rewrote or emptied it, logged or not.
    """

    name: str
    oid: int
    identity: str
    whole: bool
    columns: tuple[SqlColumn, ...]
    key: tuple[str, ...]
    version: str = ""
    mark: str = ""
    files: str = ""

    def info(self) -> TableInfo:
        """Describe it to the pipeline."""
        columns = tuple(Column(column.name, type_of(column)) for column in self.columns)
        check_columns(self.name, columns, self.key)
        return TableInfo(self.name, columns, self.key, grows=True)

    def is_like(self, other: Definition | None) -> bool:
        """Say whether all changes of rows since another definition are in the log."""
        return other is not None and replace(self, files="") == replace(other, files="")

    def is_of(self, relation: Relation) -> bool:
        """Say whether a table is in the log as this definition says."""
        logged = [(column.name, column.type, column.modifier) for column in relation.columns]
        mine = [(column.name, column.type, column.modifier) for column in self.columns]
        same = relation.number == self.oid and relation.identity == self.identity and logged == mine
        return same and (self.identity == "f" or {c.name for c in relation.columns if c.key} == set(self.key))

    def as_position(self) -> dict[str, Any]:
        """Give it as a position keeps it."""
        columns = [[c.name, c.type, c.modifier, c.base, c.digits] for c in self.columns]
        known = {"oid": self.oid, "identity": self.identity, "whole": self.whole, "columns": columns}
        return known | {"key": list(self.key), "version": self.version, "mark": self.mark}

    @classmethod
    def of(cls, name: str, kept: Mapping[str, Any]) -> Definition:
        """Read it out of a position."""
        columns = tuple(SqlColumn(*column) for column in kept["columns"])
        plain = {key: kept[key] for key in ("oid", "identity", "whole", "version", "mark")}
        return cls(name, columns=columns, key=tuple(kept["key"]), **plain)


@dataclass(frozen=True)
class Table:
    """What the catalog says of a table besides its definition: whether its log and its rows can be read, and how it is stored.

    `leaves` are what its rows are read from, each with its blocks and rows, about.
    """

    definition: Definition
    partitioned: bool
    logged: bool
    readable: bool
    owned: bool
    generated: tuple[str, ...]
    leaves: tuple[tuple[str, int, float], ...]


_TABLES = """
SELECT c.oid::bigint, c.relname::text, c.relkind = 'p', c.relpersistence = 'p', c.relreplident::text,
       has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND NOT c.relispartition
ORDER BY c.relname"""
_LEAVES = """
WITH RECURSIVE below (root, oid) AS (
  SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY(%s)
  UNION ALL SELECT b.root, i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid
            JOIN pg_class p ON p.oid = i.inhparent AND p.relkind = 'p')
SELECT b.root::bigint, c.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relfilenode::bigint,
       c.relreplident::text, c.relpersistence = 'p', c.relpages, c.reltuples::float8, c.relkind::text,
       has_table_privilege(c.oid, 'SELECT')
FROM below b JOIN pg_class c ON c.oid = b.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind <> 'p' ORDER BY b.root, c.oid"""
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname::text, a.atttypid::bigint, a.atttypmod, a.attgenerated::text, a.attnotnull, a.attnum,
       a.xmin::text
FROM pg_attribute a WHERE a.attrelid = ANY(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum"""
_INDEXES = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident, i.indkey::int2[], i.indnkeyatts
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = ANY(%s) AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indrelid, NOT i.indisprimary, c.relname"""
_TYPES = """
SELECT t.oid::bigint, CASE WHEN n.nspname = 'pg_catalog' THEN t.typname::text ELSE 'text' END, t.typtype::text,
       t.typbasetype::bigint, t.typtypmod, CASE WHEN t.typlen = -1 AND t.typcategory = 'A' THEN t.typelem::bigint ELSE 0 END, t.typdelim::text
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = ANY(%s)"""


@dataclass
class Catalog:
    """Reads definitions; types are remembered, because a type's number never gets another meaning while tables use it."""

    settings: SourceSettings

    def __post_init__(self) -> None:
        """Begin with no type known."""
        self._types: dict[int, tuple[str, str, int, int, int, str]] = {}

    def tables(self, rows: Rows, marks: Callable[[int], str], *, stored_generated: bool) -> dict[str, Table]:
        """Read the tables of the schema, as whatever `rows` asks sees them; `stored_generated` columns are in the log."""
        found = rows(_TABLES, self.settings.schema)
        oids = [oid for oid, *_ in found]
        leaves = _grouped(rows(_LEAVES, oids))
        columns = _grouped(rows(_COLUMNS, oids))
        indexes = _grouped(rows(_INDEXES, oids))
        self._learn(rows, {column[1] for one in columns.values() for column in one})
        tables = {}
        for oid, name, partitioned, logged, identity, readable, owned in found:
            mine = leaves.get(oid, [])
            logged_ones = [c for c in columns.get(oid, []) if not c[3] or (c[3] == "s" and stored_generated)]
            whole = identity == "f" and all(leaf[3] == "f" for leaf in mine)
            definition = Definition(
                name,
                oid,
                identity,
                whole,
                tuple(SqlColumn(c[0], c[1], c[2], *self._base(c[1], c[2])) for c in logged_ones),
                _key(identity, columns.get(oid, []), indexes.get(oid, [])),
                _version(columns.get(oid, []), mine if partitioned else []),
                marks(oid),
                " ".join(f"{leaf[0]}:{leaf[2]}" for leaf in mine),
            )
            generated = tuple(c[0] for c in columns.get(oid, []) if c not in logged_ones)
            sizes = tuple((f"ONLY {leaf[1]}", leaf[5], leaf[6]) for leaf in mine)
            if partitioned and not all(leaf[8] for leaf in mine):  # then they may be read through their root
                sizes = ((quoted(self.settings.schema, name), 0, sum(max(leaf[6], 0.0) for leaf in mine)),)
            all_logged = logged and all(leaf[4] for leaf in mine) and all(leaf[7] == "r" for leaf in mine)
            tables[name] = Table(definition, partitioned, all_logged, readable, owned, generated, sizes)
        return tables

    def _learn(self, rows: Rows, wanted: set[int]) -> None:
        """Read the types that are not known yet, and those that they are made of."""
        while wanted := {oid for oid in wanted if oid and oid not in self._types}:
            read = rows(_TYPES, sorted(wanted))
            self._types |= {oid: tuple(rest) for oid, *rest in read}
            wanted = {one for _, _, _, base, _, element, _ in read for one in (base, element)}

    def _base(self, type_: int, modifier: int) -> tuple[str, int]:
        """Give the type below domains, and its modifier; of an array, those of what is in it."""
        name, kind, base, base_modifier, element, delimiter = self._types[type_]
        if kind == "d":
            return self._base(base, base_modifier)
        if not element or name in ("int2vector", "oidvector") or delimiter != ",":
            return ("text" if element else name), modifier
        inner, digits = self._base(element, modifier)
        return ("text" if inner.endswith("[]") else f"{inner}[]"), digits


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for oid, *rest in rows:
        found.setdefault(oid, []).append(tuple(rest))
    return found


def _key(identity: str, columns: list[tuple[Any, ...]], indexes: list[tuple[Any, ...]]) -> tuple[str, ...]:
    """Give the columns by which rows are told apart: those of the replica identity, or of a unique index where old rows are whole."""
    by_number = {number: (name, fixed, generated) for name, _, _, generated, fixed, number, _ in columns}
    for primary, chosen, numbers, count in indexes:
        if (identity == "d" and not primary) or (identity == "i" and not chosen) or identity == "n":
            continue
        named = [by_number[number] for number in numbers[:count]]
        if all(fixed and not generated for _, fixed, generated in named):
            return tuple(name for name, _, _ in named)
    return ()


def _version(columns: list[tuple[Any, ...]], leaves: list[tuple[Any, ...]]) -> str:
    """Give a short text of which columns these are, by number and by who wrote them last, and which partitions with which files.

    A column that is dropped and added again, or whose values are computed anew, is another one though it looks the same.
    """
    said = [f"{number}.{writer}" for *_, number, writer in columns] + [f"{leaf[0]}:{leaf[2]}" for leaf in leaves]
    return md5(" ".join(said).encode(), usedforsecurity=False).hexdigest()[:16]


def check_names(settings: SourceSettings, names: Iterable[str]) -> None:
    """Raise where a table that the settings name does not exist, or where there is none."""
    there = list(names)
    missing = [name for name in settings.tables if name not in there]
    if missing:
        raise UsageError(
            "RUNNEL-POSTGRES-TABLE",
            f"{settings.label}: schema {settings.schema} has no table {missing[0]!r}",
            hint=nearest(missing[0], there) or "see `database`, `schema` and `tables`; views cannot be followed",
        )
    if not there:
        raise UsageError(
            "RUNNEL-POSTGRES-TABLE",
            f"{settings.label}: schema {settings.schema} has no tables",
            hint="see `database` and `schema`",
        )
