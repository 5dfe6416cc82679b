"""A table in another shape: which column becomes which, and its stored rows rewritten accordingly.

Rows of before have NULL in a column that is added. A type may only grow: every value stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.engine.inputs import stored
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.program import quote
from runnel.model.relation import WEIGHT, Column, Relation, Trust, check_columns
from runnel.pipeline.materialise import materialise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.compiler.alter import Alteration
    from runnel.lake.entries import DataFile, NewFile
    from runnel.model.relation import ForeignKey
    from runnel.model.types import Type
    from runnel.pipeline.runtime import Runtime

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True)
class Reshaped:
    """A table before and after; `origin` names for each new column the old one it comes from, None where it is added.

    `narrowed` is the table without its dropped columns and with the new names, but with the old types.
    """

    before: Relation
    relation: Relation
    origin: tuple[str | None, ...]

    @property
    def narrowed(self) -> Relation:
        """What can still be read of the old table."""
        types_before = {c.name: c.type for c in self.before.columns}
        kept = [(c.name, o) for c, o in zip(self.relation.columns, self.origin, strict=True) if o is not None]
        return replace(self.relation, columns=tuple(Column(name, types_before[o]) for name, o in kept))

    @property
    def words(self) -> str:
        """What happens, in words."""
        pairs = list(zip(self.relation.columns, self.origin, strict=True))
        types_before = {c.name: c.type for c in self.before.columns}
        gone = [c.name for c in self.before.columns if c.name not in self.origin]
        said = [f"{c.name} added" for c, o in pairs if o is None]
        said += [f"{name} dropped" for name in gone]
        said += [f"{o} renamed to {c.name}" for c, o in pairs if o is not None and o != c.name]
        said += [f"{c.name} widened to {c.type}" for c, o in pairs if o is not None and types_before[o] != c.type]
        said += ["foreign keys changed"] if self.relation.references != self.kept_references() else []
        return ", ".join(said) or "columns in another order"

    def kept_references(self) -> tuple[ForeignKey, ...]:
        """Give the foreign keys of before under the new names of their columns."""
        now = {o: c.name for c, o in zip(self.relation.columns, self.origin, strict=True) if o is not None}
        return tuple(replace(key, columns=tuple(now.get(c, c) for c in key.columns)) for key in self.before.references)

    @property
    def unchecked(self) -> tuple[ForeignKey, ...]:
        """The foreign keys that are new and would have to hold for the rows that are there."""
        kept = {(key.columns, key.table) for key in self.kept_references() if key.trust is Trust.ENFORCED}
        return tuple(
            key
            for key in self.relation.references
            if key.trust is Trust.ENFORCED and (key.columns, key.table) not in kept
        )


def altered(table: Relation, change: Alteration) -> Reshaped:
    """Give a table as a statement makes it; raise for what is not there, for keys, and for types that do not hold the values."""
    pairs: list[tuple[Column, str | None]] = [(column, column.name) for column in table.columns]
    for name in change.drop:
        dropped = table.column(name).name
        if dropped in table.key:
            raise Terminal(
                "RUNNEL-ALTER-KEY",
                f"{table.name}: {dropped!r} is part of the key and cannot be dropped",
                hint="keep it",
            )
        if any(dropped in key.columns for key in table.references):
            raise Terminal(
                "RUNNEL-ALTER-KEY",
                f"{table.name}: {dropped!r} is part of a foreign key and cannot be dropped",
                hint="keep it",
            )
        pairs = [(column, origin) for column, origin in pairs if origin != dropped]
    renamed = {table.column(old).name: new for old, new in change.rename}
    wider = {table.column(column.name).name: column.type for column in change.widen}
    made = [(_column(table, column, renamed, wider), origin) for column, origin in pairs]
    made += [(column, None) for column in change.add]
    shape = _checked(table, made, tuple(renamed.get(part, part) for part in table.key))
    return replace(shape, relation=replace(shape.relation, references=shape.kept_references()))


def unchanged(table: Relation) -> Reshaped:
    """Give a table as it is."""
    return Reshaped(table, table, tuple(column.name for column in table.columns))


def like(table: Relation, columns: tuple[Column, ...], key: tuple[str, ...]) -> Reshaped:
    """Give a table as a new CREATE TABLE has it: columns of the same name are the same, others come or go."""
    if tuple(part.lower() for part in key) != tuple(part.lower() for part in table.key):
        raise Terminal(
            "RUNNEL-ALTER-KEY",
            f"{table.name}: the key is ({', '.join(table.key)}) and cannot become ({', '.join(key)})",
            hint="make a new table and copy the rows",
        )
    before = {column.name.lower(): column for column in table.columns}
    made: list[tuple[Column, str | None]] = []
    for column in columns:
        old = before.get(column.name.lower())
        made.append((column if old is None else _wider(table, old, column), None if old is None else old.name))
    return _checked(table, made, key)


def _column(table: Relation, column: Column, renamed: dict[str, str], wider: dict[str, Type]) -> Column:
    made = _wider(table, column, Column(column.name, wider[column.name])) if column.name in wider else column
    return Column(renamed.get(column.name, column.name), made.type)


def _checked(table: Relation, made: list[tuple[Column, str | None]], key: tuple[str, ...]) -> Reshaped:
    columns = tuple(column for column, _ in made)
    if not columns:
        raise Terminal("RUNNEL-SCHEMA-EMPTY", f"{table.name} would have no columns", hint="keep one")
    check_columns(table.name, columns, key)
    spelled = {column.name.lower(): column.name for column in columns}
    relation = replace(table, columns=columns, key=tuple(spelled[part.lower()] for part in key))
    return Reshaped(table, relation, tuple(origin for _, origin in made))


def _wider(table: Relation, old: Column, new: Column) -> Column:
    if not holds(new.type, old.type):
        raise Terminal(
            "RUNNEL-ALTER-TYPE",
            f"{table.name}: {old.name!r} is {old.type}, and {new.type} does not hold all of its values",
            hint="only wider types are taken: more digits, bigint for int, double for float",
        )
    return new


def holds(new: Type, old: Type) -> bool:
    """Say whether a type holds every value of another one unchanged."""
    if new == old:
        return True
    if new.name in _DIGITS and old.name in _DIGITS:
        return _DIGITS[new.name] > _DIGITS[old.name]
    if new.name == "double":
        return old.name in ("float", "tinyint", "smallint", "int")
    if isinstance(new, types.Decimal):
        if isinstance(old, types.Decimal):
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        return old.name in _DIGITS and new.precision - new.scale >= _DIGITS[old.name]
    return False


def rewrite(runtime: Runtime, shape: Reshaped, files: Sequence[DataFile | NewFile]) -> list[NewFile]:
    """Write the signed rows of these files in the new shape; nothing is published."""
    if not files:
        return []
    source = stored(shape.before, files)
    name = f"{shape.before.name}__before"
    columns = [_expression(c, o) for c, o in zip(shape.relation.columns, shape.origin, strict=True)]
    sql = f"SELECT {', '.join(columns)}, {quote(WEIGHT)} FROM {quote(name)}"
    return materialise(runtime, shape.relation, sql, {name: source}, large=source.rows > runtime.large)


def _expression(column: Column, origin: str | None) -> str:
    value = "NULL" if origin is None else quote(origin)
    return f"CAST({value} AS {column.type}) AS {quote(column.name)}"
