"""Maintains views in memory by their programs, as a pipeline would, and compares them with their own SQL recomputed.

It works with any engine: state is Arrow tables, epochs are lists of signed rows.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from runnel.compiler import (
    bind,
    compile_view,
    part_sql,
    program_from_json,
    program_to_json,
    rows_delta_sql,
    rows_sql,
    top,
)
from runnel.compiler.choices import open_choices
from runnel.engine.base import Derived, Rows
from runnel.errors import Terminal
from runnel.model import types
from runnel.model.identity import identical
from runnel.model.program import PARTS, Strategy, quote
from runnel.model.relation import WEIGHT, Column, Kind
from tests.compiler.oracle import Failed, Refused, oracle_for
from tests.compiler.random_people import ON_SPARK
from tests.compiler.random_views import FEATURES, random_case
from tests.support.bags import bag_difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.compiler.choices import Choices
    from runnel.engine.base import Engine, Input
    from runnel.model.program import Program, Role, Shared, Step
    from runnel.model.relation import Relation
    from tests.compiler.oracle import Oracle
    from tests.compiler.random_views import Case

REFUSED = ("RUNNEL-NAME-RESERVED", "RUNNEL-VIEW-COLUMNS", "RUNNEL-TYPE-UNSUPPORTED")
"""What a view may be refused for although the engine computes it: names and types that no relation can have."""
Row = tuple[object, ...]
Batch = dict[str, list[tuple[Row, int]]]


@dataclass(frozen=True)
class Outcome:
    """What a case came to: comparisons made, the views kept incrementally out of all, and the texts that nobody took."""

    checks: int
    views: int
    incremental: int
    reasons: tuple[str, ...] = ()
    refused: int = 0


def check_case(engine: Engine, seed: int, only: str = "", *, many: bool = False) -> Outcome:
    """Maintain the random case of a seed, of `many` batches or few, batch by batch and again in one merged batch.

    Every other case is made mostly of one feature, each in turn, unless one is named.
    """
    spark = engine.name == "spark"
    features = (*FEATURES, *ON_SPARK) if spark else FEATURES
    only = only or (features[seed // 2 % len(features)] if seed % 2 else "")
    case = random_case(seed, only, small=spark, spark=spark, many=many)
    return play_case(engine, case, f"seed {seed} {only}".strip())


def play_case(engine: Engine, case: Case, label: str, mode: str = "auto") -> Outcome:
    """Maintain a case batch by batch and again in one merged batch, comparing every view each time.

    Tables are small, so in most cases few first rows are kept to spare: groups then outgrow them, and run out of them.
    """
    usual, sampled = top.SPARE, top.SAMPLED
    top.SPARE = (1, 3, usual)[zlib.crc32(label.encode()) % 3]
    top.SAMPLED = 0.5
    try:
        return _play(engine, case, label, mode)
    finally:
        top.SPARE, top.SAMPLED = usual, sampled


def _play(engine: Engine, case: Case, label: str, mode: str) -> Outcome:
    stepwise = Maintained(engine, case.tables)
    stepwise.apply(case.start)
    programs = []
    for name, sql in case.views:
        program = _define(stepwise, name, sql, mode)
        if program is None:
            break  # nobody accepts the text, and views after it may read it
        programs.append(program)
    checks = 0
    merged = stepwise.copied(share=True)
    try:
        checks = stepwise.check(f"{label}, start")
        together: Batch = defaultdict(list)
        for number, batch in enumerate(case.batches, 1):
            stepwise.apply(batch)
            checks += stepwise.check(f"{label}, batch {number}")
            for table, rows in batch.items():
                together[table] += rows
        merged.apply(together)
        # The tables are now the same on both sides, so what was answered for one is the answer for the other.
        checks += merged.check(f"{label}, one merged batch", stepwise.oracle)
    except Terminal as error:
        # Where the query itself fails over these rows (an overflow), so may its view; then nothing is left to compare.
        if error.code != "RUNNEL-SQL-FAILED" or not stepwise.fails():
            raise
    except Failed:
        pass
    reasons = [o.code for p in programs if not p.incremental for o in p.operators if o.strategy is Strategy.FULL]
    return Outcome(
        checks, len(programs), sum(p.incremental for p in programs), tuple(reasons), len(case.views) - len(programs)
    )


def _define(kept: Maintained, name: str, sql: str, mode: str) -> Program | None:
    """Define a view on both sides; None where both refuse it, or where the form is one that runnel says it refuses."""
    try:
        kept.oracle.define(name, sql)
        refused = ""
    except Refused as error:
        refused = str(error)
    try:
        program = kept.compiled(name, sql, mode)
        # DuckDB's own reading of a text is not Spark's: what it cannot read may be kept all the same, with nothing to compare.
        assert not refused or kept.engine.name != "spark", (
            f"{name} is accepted, although Spark refuses it: {refused}\n{sql}"
        )
        return None if refused else kept.keep(sql, program, told=True)
    except Terminal as error:
        if refused or error.code in REFUSED:
            return None
        if error.code == "RUNNEL-SQL-FAILED" and kept.fails(name):
            return None
        raise


@dataclass
class Maintained:
    """Tables, views and stages as stored signed rows; `apply` is one epoch.

    Where the first rows are stored without `apply` (`rows_unknown`), the engine itself answers the views' texts over what
    is stored of their tables.
    """

    engine: Engine
    tables: Sequence[Relation]
    relations: dict[str, Relation] = field(default_factory=dict)
    stored: dict[str, pa.Table] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    sql: dict[str, str] = field(default_factory=dict)
    deltas: dict[str, pa.Table] = field(default_factory=dict)
    share: bool = False
    rows_unknown: bool = False
    untold: list[tuple[str, str] | Mapping[str, list[tuple[Row, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with empty tables."""
        self._oracle: Oracle | None = None
        for relation in self.tables:
            self._add(relation)

    @property
    def oracle(self) -> Oracle:
        """What answers the views' own texts; it hears of changes and views when it is first asked after them."""
        if self._oracle is None:
            self._oracle = oracle_for(self.engine, self.tables)
        untold, self.untold = self.untold, []
        for news in untold:
            if isinstance(news, tuple):
                self._oracle.define(*news)
            else:
                self._oracle.apply(news)
        return self._oracle

    def define(self, name: str, sql: str, mode: str = "auto") -> Program:
        """Compile a view and compute it from scratch."""
        return self.keep(sql, self.compiled(name, sql, mode))

    def compiled(self, name: str, sql: str, mode: str = "auto") -> Program:
        """Compile a view over what there is."""
        visible = {n: r for n, r in self.relations.items() if r.kind is not Kind.STAGE}
        return compile_view(name, sql, visible, self.engine.analyse, mode)

    def copied(self, *, share: bool) -> Maintained:
        """Give another one that keeps the same, and goes its own way from here."""
        other = Maintained(self.engine, self.tables, share=share)
        for name in ("relations", "stored", "programs", "sql"):
            setattr(other, name, dict(getattr(self, name)))
        return other

    def keep(self, sql: str, program: Program, *, told: bool = False) -> Program:
        """Compute a compiled view from scratch; its program goes through JSON on the way. `told` the oracle knows it already."""
        assert program_from_json(program_to_json(program)) == program
        self.sql[program.view] = sql
        if not told:
            self.untold.append((program.view, sql))
        self.deltas = {}
        for part in (*program.stages, program):
            if part.view in self.programs:
                continue
            self.programs[part.view] = part
            for step in part.steps:
                self._add(step.target)
                if step.stored:
                    self.stored[step.target.name] = self._run(step.initial, step.initial_reads, step.target)
                    self._check_grown(step)
        return program

    def _check_grown(self, step: Step) -> None:
        """Where nothing was taken away yet, the shorter way to the first contents leads to the same ones."""
        read = [self.stored[name] for name, _ in step.initial_reads if self.relations[name].final is None]
        if step.grown and all(weight > 0 for table in read for weight in table.column(WEIGHT).to_pylist()):
            grown = self._run(step.grown, step.initial_reads, step.target)
            found = difference(grown, self.stored[step.target.name], signed(step.target.columns), loose=False)
            assert not found, f"{step.target.name}: {found}"

    def apply(self, batch: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Change the tables by signed rows and every view by its program."""
        self.untold.append(batch)
        self.deltas = {}
        for name, rows in batch.items():
            if rows:
                self.deltas[name] = _table(
                    signed(self.relations[name].columns), [(*row, weight) for row, weight in rows]
                )
        passing = set()
        for program in self.programs.values():
            brief = self._at_once(program)
            for step in program.steps:
                delta = self._delta(step, program)
                if delta is not None and delta.num_rows:
                    self.deltas[step.target.name] = delta
                passing |= set() if step.stored else {step.target.name}
            if brief is not None:
                target = program.steps[-1].target
                long = self.deltas.get(target.name, _table(signed(target.columns), []))
                found = difference(brief, long, signed(target.columns), loose=False)
                assert not found, f"{target.name} at once: {found}"
        for name, delta in self.deltas.items():
            if name not in passing:
                self.stored[name] = pa.concat_tables([self.stored[name], delta])
        self.deltas = {}

    def rows(self, name: str) -> pa.Table:
        """Give a relation's rows as a user sees them.

        A bag's are put together here where the engine is Spark, which takes as long over that as over the change itself.
        """
        relation = self.relations[name]
        if relation.final is None and self.engine.name == "spark":
            return _expanded(self.stored[name], relation.rows)
        inputs = self._inputs([(name, "rows")])
        return self.engine.rows(f"SELECT * FROM {quote(f'{name}__rows')}", inputs, relation.rows)

    def check(self, what: str, oracle: Oracle | None = None) -> int:
        """Compare every view with the oracle's answer to its own SQL over the tables as they are now."""
        for name, sql in self.sql.items():
            program = self.programs[name]
            found, expected = self.rows(name), self._answer(name, oracle)
            problem = self._compared(found, expected, program.columns)
            if problem:
                problem = self._where_determined(sql, program, found, expected, problem)
            assert not problem, f"{what}, view {name} ({program.strategy.value}): {problem}\n{sql}"
            self._check_no_negative(name, what)
        return len(self.sql)

    def _where_determined(self, sql: str, program: Program, found: pa.Table, expected: pa.Table, problem: str) -> str:
        """Say what is wrong with rows that differ: '' where the text leaves them open, and they are as the view fixes them."""
        shown = {n: r for n, r in self.relations.items() if r.kind is not Kind.STAGE}
        choices = open_choices(sql, shown, [c.name for c in program.columns], loose=not program.incremental)
        if not choices.any:
            return problem
        problem = self._determined(found, expected, program.columns, choices)
        if problem or not program.definite:
            return problem
        bound, read = bind(program.definite, shown)
        fixed = self.engine.rows(bound, self._inputs([(n, "rows") for n in read]), program.columns)
        return difference(found, fixed, program.columns, loose=self.engine.name != "spark")

    def _answer(self, name: str, oracle: Oracle | None) -> pa.Table:
        columns = self.programs[name].columns
        # Which `t` stands for `source.t` is the binding's business.
        if not self.rows_unknown and not any("." in table.name for table in self.tables):
            return (oracle or self.oracle).ask(name, columns)
        bound, read = bind(self.sql[name], {n: r for n, r in self.relations.items() if r.kind is not Kind.STAGE})
        return self.engine.rows(bound, self._inputs([(n, "rows") for n in read]), columns)

    def _compared(self, found: pa.Table, expected: pa.Table, columns: Sequence[Column]) -> str:
        """Compare by names too where the engine is Spark, whose text is the user's own."""
        if self.engine.name == "spark":
            return bag_difference(found, expected)
        return difference(found, expected, columns, loose=True)

    def _determined(self, found: pa.Table, expected: pa.Table, columns: Sequence[Column], choices: Choices) -> str:
        """Compare with the user's own text what it determines: of other columns it allows several values."""
        for family in choices.families:
            if not family and found.num_rows != expected.num_rows:
                return f"{found.num_rows} rows for {expected.num_rows}"
            at = [i for i, c in enumerate(columns) if c.name in family]
            problem = self._compared(found.select(at), expected.select(at), [columns[i] for i in at])
            if problem:
                return f"in {', '.join(columns[i].name for i in at)}: {problem}"
        return ""

    def fails(self, name: str = "") -> bool:
        """Say whether the oracle cannot answer some view's text (or this one's) over the rows as they are."""
        for view in [name] if name else self.sql:
            try:
                self.oracle.ask(view, self.programs[view].columns if view in self.programs else ())
            except Failed:
                return True
        return False

    def _check_no_negative(self, name: str, what: str) -> None:
        relation = self.relations[name]
        keys = relation.key if relation.final else tuple(c.name for c in relation.columns)
        stored = self.stored[name]
        weights: Counter[str] = Counter()
        for key, weight in zip(
            _rows(stored.select(keys)) or [()] * stored.num_rows, stored.column(WEIGHT).to_pylist(), strict=True
        ):
            weights[repr(key)] += weight
        assert min(weights.values(), default=0) >= 0, f"{what}, view {name}: rows with negative weight"

    def _add(self, relation: Relation) -> None:
        self.relations[relation.name] = relation
        self.stored[relation.name] = _table(signed(relation.columns), [])

    def _delta(self, step: Step, program: Program) -> pa.Table | None:
        changed = frozenset(self.deltas)
        if program.strategy is Strategy.FULL:
            return self._difference(step) if changed & {name for name, _ in step.initial_reads} else None
        if self.share and step.shared is not None:
            return self._by_join(step, step.shared, changed)
        sql = step.delta_sql(changed)
        return None if sql is None else self._run(sql, step.delta_reads(changed), step.target)

    def _at_once(self, program: Program) -> pa.Table | None:
        """Compute a program's change in one query, where it has one for that; None where the steps must be run."""
        first, target = program.steps[0], program.steps[-1].target
        changed = frozenset(self.deltas)
        sql = replace(first, around=first.brief).delta_sql(changed) if first.brief else None
        if sql is None:
            return None
        columns = (*target.columns, Column(first.unless, types.parse("boolean")))
        rows = self.engine.change(sql, self._inputs(first.delta_reads(changed)), signed(columns))
        return None if any(rows.column(first.unless).to_pylist()) else rows.drop_columns([first.unless])

    def _by_join(self, step: Step, shared: Shared, changed: frozenset[str]) -> pa.Table | None:
        """Compute the change of the join first, as an epoch does for a join that several views read."""
        sql = shared.delta_sql(changed)
        if sql is None:
            return None
        rows = self._run(sql, shared.delta_reads(changed), shared.relation)
        reads = [read for read in step.shared_reads(changed) if read[0] != shared.relation.name]
        inputs = self._inputs(reads)
        inputs[f"{shared.relation.name}__delta"] = Rows(rows, signed(shared.relation.columns))
        return self.engine.change(step.shared_sql(changed), inputs, signed(step.target.columns))

    def _difference(self, step: Step) -> pa.Table:
        """Recompute a view and keep only what differs."""
        fresh = self._run(step.initial, step.initial_reads, step.target)
        columns = ", ".join(quote(c.name) for c in step.target.columns)
        shown, by = identical(step.target.columns)
        sql = (
            f"SELECT {shown}, sum(`{WEIGHT}`) AS `{WEIGHT}` FROM (SELECT {columns}, `{WEIGHT}` FROM `~fresh` UNION ALL "
            f"SELECT {columns}, -`{WEIGHT}` AS `{WEIGHT}` FROM `~kept`) GROUP BY {by} HAVING sum(`{WEIGHT}`) <> 0"
        )
        shape = signed(step.target.columns)
        return self.engine.rows(
            sql, {"~fresh": Rows(fresh, shape), "~kept": Rows(self.stored[step.target.name], shape)}, shape
        )

    def _run(self, sql: str, reads: Iterable[tuple[str, Role]], target: Relation) -> pa.Table:
        return self.engine.change(sql, self._inputs(reads), signed(target.columns))

    def _inputs(self, reads: Iterable[tuple[str, Role]]) -> dict[str, Input]:
        found: dict[str, Input] = {}
        for name, role in reads:
            self._role(name, role, found)
        return found

    def _role(self, name: str, role: Role, found: dict[str, Input]) -> None:
        relation = self.relations[name]
        shape = signed(relation.columns)
        delta = self.deltas.get(name, _table(shape, []))

        def stored(which: str) -> str:
            key = f"{name}__stored_{which}"
            tables = {"old": [self.stored[name]], "new": [self.stored[name], delta], "delta": [delta]}[which]
            found[key] = Rows(pa.concat_tables(tables), shape)
            return key

        key = f"{name}__{role}"
        if role in ("old", "new", "rows"):
            base = stored("old" if role == "old" else "new")
            found[key] = Derived(rows_sql(relation, quote(base), signed=role != "rows"), (base,))
        elif role in ("stored_old", "stored_delta"):
            stored(role.removeprefix("stored_"))
        elif role in PARTS:
            found[f"{name}__delta"] = Rows(delta, shape)
            found[key] = Derived(part_sql(relation, role), (f"{name}__delta",))
        elif role == "delta" and relation.final is None:
            found[key] = Rows(delta, shape)
        elif role == "delta":
            found[key] = Derived(rows_delta_sql(relation), (stored("delta"), stored("old")))


def signed(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Give these columns with `_weight` behind them."""
    return (*columns, Column(WEIGHT, types.BIGINT))


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> pa.Table:
    arrays = [pa.array([row[i] for row in rows], types.to_arrow(c.type)) for i, c in enumerate(columns)]
    return pa.Table.from_arrays(arrays, names=[c.name for c in columns])


def difference(mine: pa.Table, theirs: pa.Table, columns: Sequence[Column], *, loose: bool) -> str:
    """Say how two bags differ, or ''. Doubles may differ by 1e-9; `loose` lets decimals differ in their last digit."""
    near = [
        i for i, c in enumerate(columns) if c.type.name in types.FLOATS or (loose and isinstance(c.type, types.Decimal))
    ]
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in _rows(theirs):
        groups[_exact(row, near)].append(row)
    for row in _rows(mine):
        candidates = groups[_exact(row, near)]
        match = next((i for i, other in enumerate(candidates) if _alike(row, other, near, columns)), None)
        if match is None:
            return f"unexpected row {row}; the query has {candidates[:3]} there, {theirs.num_rows} rows in all"
        candidates.pop(match)
    missing = [row for rows in groups.values() for row in rows]
    return f"missing rows {missing[:3]}; there are {mine.num_rows} of {theirs.num_rows}" if missing else ""


def _expanded(stored: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Give each row of a bag as often as its weights add up to."""
    counts: Counter[str] = Counter()
    rows = {}
    for *row, weight in _rows(stored):
        assert isinstance(weight, int), row
        rows[repr(row)] = tuple(row)
        counts[repr(row)] += weight
    return _table(columns, [rows[text] for text, count in counts.items() for _ in range(count)])


def _rows(table: pa.Table) -> list[Row]:
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*columns, strict=True)) if columns else []


def _exact(row: Row, near: list[int]) -> Row:
    return tuple(repr(value) for i, value in enumerate(row) if i not in near)


def _alike(row: Row, other: Row, near: list[int], columns: Sequence[Column]) -> bool:
    return all(_close(row[i], other[i], columns[i]) for i in near)


def _close(mine: object, theirs: object, column: Column) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    assert isinstance(mine, (float, Decimal)), column
    assert isinstance(theirs, (float, Decimal)), column
    a, b = float(mine), float(theirs)
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return (math.isnan(a) and math.isnan(b)) or a == b
    step = 1.01 * 10.0**-column.type.scale if isinstance(column.type, types.Decimal) else 1e-9
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=step)
