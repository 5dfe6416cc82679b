"""Turns an aggregate into a relation of partial sums and the step that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import differentiate, partials, passes
from runnel.compiler.emit import GAP, cut, quoted
from runnel.compiler.sharing import shared_join
from runnel.compiler.sums import Across, Band, Partial
from runnel.compiler.support import NotLinear, check_keys
from runnel.model.program import Step, Term
from runnel.model.relation import WEIGHT, Column, Final, Kind, Merged, Relation
from runnel.model.types import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.compiler.grouping import Grouped
    from runnel.compiler.plan import Measure, Node
    from runnel.compiler.sums import Value

    Typed = Callable[[Node], tuple[Column, ...]]

BAND = Type("int")
"""The type of a stored band."""


@dataclass(frozen=True)
class _Sums:
    """The stored sums of an aggregate: a name for each, shared where two aggregates need the same one."""

    names: dict[tuple[str, str], str]
    partials: tuple[Partial, ...]
    bands: tuple[Band, ...] = ()
    across: tuple[tuple[Across, Value], ...] = ()

    def fill(self, formula: str, value: Value, quote: Callable[[str], str], by: str = "") -> str:
        """Put the names of sums in the place of their kinds; formulas are ours and have braces for nothing else."""
        known = {part.kind: quote(self.names[part.kind, part.argument]) for part, _ in _parts([value])}
        return formula.format(by=by, **known)

    def over_bands(self, partial: Partial) -> str:
        """Give what is summed over the rows of a change, with the names of its bands."""
        own = {b.kind: quoted(self.names[b.kind, b.argument]) for b in self.bands if b.argument == partial.argument}
        return partial.sql.format(**own) if own else partial.sql

    def merged(self, keys: tuple[str, ...]) -> tuple[Merged, ...]:
        """Say how the rows of a group, one per band, become one."""
        return tuple(
            Merged(
                self.names[a.kind, a.argument],
                self.fill(a.spark, value, quoted, _partition(keys, quoted)),
                self.fill(a.duckdb, value, double_quoted, _partition(keys, double_quoted)),
                a.window,
            )
            for a, value in self.across
        )


def _partition(keys: tuple[str, ...], quote: Callable[[str], str]) -> str:
    return f"PARTITION BY {', '.join(quote(key) for key in keys)}" if keys else ""


def aggregate_step(name: str, kind: Kind, grouped: Grouped, typed: Typed) -> Step:
    """Give the step that keeps an aggregate as sums under this name."""
    aggregate = grouped.aggregate
    source = passes.run(aggregate.source)
    given = {c.name: c for c in typed(source)}
    measures = [_typed(m, given) for m in aggregate.measures]
    values = [partials.value(m) for m in measures]
    sums = _sums(values, aggregate.keys)
    keys = tuple(given[k] for k in aggregate.keys)
    check_keys(keys)
    stored = tuple(Column(sums.names[p.kind, p.argument], p.type) for p in sums.partials)
    bands = tuple(Column(sums.names[b.kind, b.argument], BAND) for b in sums.bands)
    relation = Relation(name, kind, (*keys, *bands, *stored), aggregate.keys, _final(grouped, values, sums, keys))
    around = cut(_around(aggregate.keys, sums, tuple(given)))
    initial = differentiate.state(source, "new")
    terms = tuple(Term(p.sql, p.deltas, p.reads) for p in differentiate.delta(source))
    return Step(
        relation,
        terms,
        initial.sql.join(around),
        initial.reads,
        around,
        shared=shared_join(aggregate.source),
    )


def _typed(measure: Measure, given: dict[str, Column]) -> Measure:
    typed = measure if measure.argument is None else replace(measure, type=given[measure.argument].type)
    if measure.argument is not None and not partials.supported(typed):
        raise NotLinear("aggregate of this type", exp.Null(), f"{typed.function.upper()} of {typed.type}")
    return typed


def _sums(values: list[Value], keys: tuple[str, ...]) -> _Sums:
    taken = {key.lower() for key in keys}
    names: dict[tuple[str, str], str] = {}
    found: list[Partial] = []
    bands: list[Band] = []
    across: list[tuple[Across, Value]] = []
    for part, value in _parts(values):
        identity = (part.kind, part.argument)
        if isinstance(part, Across) and all(a != part for a, _ in across):
            across.append((part, value))
        if identity in names:
            continue
        name = f"_{part.kind}_{part.argument.rpartition('_')[2]}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        names[identity] = name
        if isinstance(part, Partial):
            found.append(part)
        elif isinstance(part, Band):
            bands.append(part)
    return _Sums(names, tuple(found), tuple(bands), tuple(across))


def _parts(values: list[Value]) -> Iterator[tuple[Partial | Band | Across, Value]]:
    for value in values:
        yield from ((part, value) for part in value.partials)
        yield from ((part, value) for part in value.bands)
        yield from ((part, value) for part in value.across)


def _final(grouped: Grouped, values: list[Value], sums: _Sums, keys: tuple[Column, ...]) -> Final:
    columns, spark, duckdb = [], [], []
    types = {key.name: key.type for key in keys}
    for name, reference in grouped.outputs:
        if isinstance(reference, str):
            columns.append(Column(name, types[reference]))
            spark.append(quoted(reference))
            duckdb.append(double_quoted(reference))
        else:
            value = values[reference]
            columns.append(Column(name, value.type))
            spark.append(sums.fill(value.spark, value, quoted))
            duckdb.append(sums.fill(value.duckdb, value, double_quoted))
    bands = tuple(sums.names[b.kind, b.argument] for b in sums.bands)
    merged = sums.merged(tuple(key.name for key in keys))
    return Final(tuple(columns), tuple(spark), tuple(duckdb), bands, merged)


def double_quoted(name: str) -> str:
    """Write a name as DuckDB quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _around(keys: tuple[str, ...], sums: _Sums, given: tuple[str, ...]) -> str:
    """Write the grouping around the terms, whose columns are `given`; groups in which nothing changed are left out."""
    bands = {quoted(sums.names[b.kind, b.argument]): b.sql for b in sums.bands}
    group = [*(quoted(key) for key in keys), *bands]
    columns = [
        f"{_summed(sums.over_bands(p), str(p.type))} AS {quoted(sums.names[p.kind, p.argument])}" for p in sums.partials
    ]
    columns.append(f"{_summed(quoted(WEIGHT), 'bigint')} AS {quoted(WEIGHT)}")
    changed = [f"{quoted(name)} <> 0" for name in (WEIGHT, *(sums.names[p.kind, p.argument] for p in sums.partials))]
    grouped = f"\n  GROUP BY {', '.join(group)}" if group else ""
    rows = f"(\n{GAP}\n)"
    if bands:
        listed = [quoted(name) for name in (*given, WEIGHT)] + [f"{sql} AS {name}" for name, sql in bands.items()]
        rows = f"(SELECT {', '.join(listed)} FROM {rows})"
    inner = f"SELECT {', '.join([*group, *columns])}\n  FROM {rows}{grouped}"
    names = [*group, *(quoted(sums.names[p.kind, p.argument]) for p in sums.partials), quoted(WEIGHT)]
    return f"SELECT {', '.join(names)}\nFROM ({inner})\nWHERE {' OR '.join(changed)}"


def _summed(sql: str, type_: str) -> str:
    return f"coalesce(CAST(sum({sql}) AS {type_}), CAST(0 AS {type_}))"
