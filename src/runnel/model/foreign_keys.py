"""Foreign keys as a user writes them, and what becomes of them once the tables they name are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.errors import Terminal, nearest
from runnel.model import types
from runnel.model.relation import ForeignKey, Kind, Relation, Trust

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


@dataclass(frozen=True)
class Reference:
    """`FOREIGN KEY (columns) REFERENCES table (targets)`; without `targets` the key of the table is meant.

    `trust` is what the text says: `RELY` vouches for it, `NOT ENFORCED` only writes it down, neither has it checked.
    """

    columns: tuple[str, ...]
    table: str
    targets: tuple[str, ...] = ()
    trust: Trust = Trust.ENFORCED


def with_references(
    table: Relation,
    references: Iterable[Reference],
    relations: Mapping[str, Relation],
    sources: Collection[str] = (),
) -> Relation:
    """Give a table with its foreign keys; raise `RUNNEL-FOREIGN-KEY-*` for one that cannot be.

    `sources` are the names of outside sources. Their stores write when they like, so that nothing can be checked between
    their tables and others: a key to or from such a table holds only where the user vouches for it (`RELY`).
    """
    known = {**relations, table.name: table}
    found = tuple(_resolved(table, reference, known, frozenset(sources)) for reference in references)
    checked = replace(table, references=tuple(dict.fromkeys(found)))
    check_types(checked, known)
    return checked


def _resolved(
    table: Relation, reference: Reference, relations: Mapping[str, Relation], sources: frozenset[str]
) -> ForeignKey:
    parent = _parent(table, reference, relations)
    columns = tuple(table.column(name).name for name in reference.columns)
    targets = tuple(parent.column(name).name for name in reference.targets) or parent.key
    if not parent.key or sorted(targets) != sorted(parent.key):
        key = f"its key is ({', '.join(parent.key)})" if parent.key else "it has no key"
        raise Terminal(
            "RUNNEL-FOREIGN-KEY-TARGET",
            f"{table.name}: ({', '.join(targets or columns)}) is not the key of {parent.name}",
            hint=f"{key}; reference the whole key",
        )
    if len(columns) != len(targets):
        raise Terminal(
            "RUNNEL-FOREIGN-KEY-COLUMNS",
            f"{table.name}: ({', '.join(columns)}) references ({', '.join(targets)}) of {parent.name}",
            hint="name as many columns as the key has",
        )
    by_target = dict(zip(targets, columns, strict=True))
    found = ForeignKey(tuple(by_target[part] for part in parent.key), parent.name, reference.trust)
    return _judged(table, found, sources)


def _judged(table: Relation, key: ForeignKey, sources: frozenset[str]) -> ForeignKey:
    """Say what answers for a key: nothing is checked of what an outside store writes."""
    if key.trust is not Trust.ENFORCED:
        return key
    if _source(table.name) in sources:
        return replace(key, trust=Trust.NONE)
    if _source(key.table) in sources:
        raise Terminal(
            "RUNNEL-FOREIGN-KEY-OUTSIDE",
            f"{table.name}: {key.table} is written by its own store, so a foreign key to it cannot be enforced",
            hint="say RELY if it always holds, or NOT ENFORCED",
        )
    return key


def _source(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _parent(table: Relation, reference: Reference, relations: Mapping[str, Relation]) -> Relation:
    """Find the table a key references: one of the same source first."""
    tables = {r.name.lower(): r for r in relations.values() if r.kind is Kind.TABLE}
    beside = f"{_source(table.name)}.{reference.table}".lower()
    found = tables.get(beside) or tables.get(reference.table.lower())
    if found is None:
        raise Terminal(
            "RUNNEL-FOREIGN-KEY-TABLE",
            f"{table.name}: there is no table {reference.table!r} to reference",
            hint=nearest(reference.table, [r.name for r in tables.values()]) or "create it first",
        )
    return found


def check_types(table: Relation, relations: Mapping[str, Relation]) -> None:
    """See that every foreign key of a table compares values that are equal exactly."""
    for key in table.references:
        parent = relations[key.table]
        for name, target in zip(key.columns, parent.key, strict=True):
            mine, theirs = table.column(name).type, parent.column(target).type
            whole = mine.name in types.INTEGERS and theirs.name in types.INTEGERS
            if types.floating(mine) or not (mine == theirs or whole):
                raise Terminal(
                    "RUNNEL-FOREIGN-KEY-TYPE",
                    f"{table.name}: {name!r} is {mine}, and {target!r} of {parent.name} is {theirs}",
                    hint="give both the same type, and none with fractions that are not exact",
                )
