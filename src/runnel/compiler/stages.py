"""Turns an aggregate into a relation of partial sums and the step that keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler import differentiate, partials, passes
from runnel.compiler.emit import GAP, cut, quoted
from runnel.compiler.sharing import shared_join
from runnel.compiler.support import NotLinear
from runnel.model.program import Step, Term
from runnel.model.relation import WEIGHT, Column, Final, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.compiler.grouping import Grouped
    from runnel.compiler.plan import Measure, Node
    from runnel.compiler.sums import Partial, Value

    Typed = Callable[[Node], tuple[Column, ...]]


@dataclass(frozen=True)
class _Sums:
    """The stored sums of an aggregate: a name for each, shared where two aggregates need the same one."""

    names: dict[tuple[str, str], str]
    partials: tuple[Partial, ...]

    def fill(self, formula: str, value: Value, quote: Callable[[str], str]) -> str:
        """Put the names of sums in the place of their kinds; formulas are ours and have braces for nothing else."""
        return formula.format(**{p.kind: quote(self.names[p.kind, p.argument]) for p in value.partials})


def aggregate_step(name: str, kind: Kind, grouped: Grouped, typed: Typed) -> Step:
    """Give the step that keeps an aggregate as sums under this name."""
    aggregate = grouped.aggregate
    source = passes.run(aggregate.source)
    given = {c.name: c for c in typed(source)}
    measures = [_typed(m, given) for m in aggregate.measures]
    values = [partials.value(m) for m in measures]
    sums = _sums(values, aggregate.keys)
    keys = tuple(given[k] for k in aggregate.keys)
    stored = tuple(Column(sums.names[p.kind, p.argument], p.type) for p in sums.partials)
    relation = Relation(name, kind, (*keys, *stored), aggregate.keys, _final(grouped, values, sums, keys))
    around = cut(_around(aggregate.keys, sums))
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
    for partial in (p for value in values for p in value.partials):
        identity = (partial.kind, partial.argument)
        if identity in names:
            continue
        name = f"_{partial.kind}_{partial.argument.rpartition('_')[2]}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        names[identity] = name
        found.append(partial)
    return _Sums(names, tuple(found))


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
    return Final(tuple(columns), tuple(spark), tuple(duckdb))


def double_quoted(name: str) -> str:
    """Write a name as DuckDB quotes it."""
    return '"' + name.replace('"', '""') + '"'


def _around(keys: tuple[str, ...], sums: _Sums) -> str:
    """Write the grouping around the terms; groups in which nothing changed are left out."""
    group = [quoted(key) for key in keys]
    columns = [f"{_summed(p.sql, str(p.type))} AS {quoted(sums.names[p.kind, p.argument])}" for p in sums.partials]
    columns.append(f"{_summed(quoted(WEIGHT), 'bigint')} AS {quoted(WEIGHT)}")
    changed = [f"{quoted(name)} <> 0" for name in (WEIGHT, *(sums.names[p.kind, p.argument] for p in sums.partials))]
    grouped = f"\n  GROUP BY {', '.join(group)}" if group else ""
    inner = f"SELECT {', '.join([*group, *columns])}\n  FROM (\n{GAP}\n){grouped}"
    names = [*group, *(quoted(sums.names[p.kind, p.argument]) for p in sums.partials), quoted(WEIGHT)]
    return f"SELECT {', '.join(names)}\nFROM ({inner})\nWHERE {' OR '.join(changed)}"


def _summed(sql: str, type_: str) -> str:
    return f"coalesce(CAST(sum({sql}) AS {type_}), CAST(0 AS {type_}))"
