"""Proves views: a new one before it is published, every one after its first changes, and all of them when there is time.

A proof compares with the user's own text, run by the engine. At birth all rows are compared where up to `WHOLE` rows are read; over
larger inputs the rows of some keys and totals over all rows, within a share of the time that computing the view took. A view that
differs is never shown: it is recomputed from then on.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from runnel.compiler import bind
from runnel.engine.base import TooSlow
from runnel.engine.inputs import Inputs, Pending
from runnel.errors import Conflict, RunnelError, Terminal, Unreachable
from runnel.lake import lookup
from runnel.lake.entries import Commit
from runnel.model import types
from runnel.model.program import quote
from runnel.model.relation import WEIGHT
from runnel.pipeline import proofs
from runnel.pipeline.events import refuse_recomputing
from runnel.pipeline.proofs import CODE, Proof
from runnel.pipeline.rebuild import rebuild
from runnel.pipeline.step import in_turn
from runnel.verify import choices_of, own_text, verify
from runnel.verify.bags import Comparison, Found, compare, same_totals, totals_cover

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.engine.inputs import Beside
    from runnel.lake.entries import ViewEntry
    from runnel.lake.snapshot import Snapshot
    from runnel.model.relation import Column, Relation
    from runnel.pipeline.plan import Plan
    from runnel.pipeline.runtime import Runtime
    from runnel.verify import Report

WHOLE = 100_000
"""Stored rows of a view's inputs up to which all of its rows are compared before it is published."""
KEYS = 32
"""Keys compared where there are more."""
BIRTH_SHARE = 0.25
"""The part of the time a view took to compute that comparing its keys and totals may take, where not all rows are compared."""
BIRTH_SECONDS = 0.5
"""And what it may take at least."""
FEW = 20_000
"""Rows of a view up to which both sides are compared in the driver."""
PATIENCE = 1.0
SHARE = 10
"""Proofs in the background take one part in so many of the time."""
log = logging.getLogger("runnel")


class Unproved(Exception):
    """A new view differs from its text: it has to be planned again, as one that is recomputed."""


def at_birth(runtime: Runtime, plan: Plan, beside: Mapping[str, Beside], seconds: float) -> dict[str, Proof]:
    """Compare the views of a plan, computed in so many seconds and not yet published, with their texts.

    Raises `Unproved` for one that differs.
    """
    found: dict[str, Proof] = {}
    allowed = max(BIRTH_SECONDS, BIRTH_SHARE * seconds / max(1, len(plan.programs)))
    for program in plan.fresh:
        entry = plan.entries[program.view]
        if program.view not in plan.programs or not entry.sql or program.events:
            continue
        begun = time.perf_counter()
        how: proofs.How = "recomputed"
        problem = ""
        if program.incremental:
            try:
                how = _compare_new(runtime, plan, entry, beside, allowed)
            except (Unreachable, Conflict):
                raise
            except RunnelError as error:
                how, problem = "columns", str(error)
        rows = sum(file.rows for file in beside[program.view].files)
        ms = round((time.perf_counter() - begun) * 1000, 1)
        found[program.view] = Proof(0, plan.head.epoch, proofs.now(), how, ms, rows, problem=problem)
    return found


def _compare_new(
    runtime: Runtime, plan: Plan, entry: ViewEntry, beside: Mapping[str, Beside], allowed: float
) -> proofs.How:
    relation = beside[entry.name].relation
    shown = {**plan.head.shown, **{name: made.relation for name, made in beside.items() if name in plan.programs}}
    shown |= {name: shape.relation for name, shape in plan.tables.items()}
    inputs = Inputs(runtime.engine, plan.head, plan.head, Pending(), beside)
    text, roles = own_text(inputs, shown, entry)
    _check_columns(runtime, entry, relation, text, shown)
    read = bind(entry.sql, shown)[1]
    size = sum(f.rows for n in read for f in (beside[n].files if n in beside else plan.head.files(n)))
    if not size and not beside[entry.name].files:
        return "columns"
    where = "" if size <= WHOLE else _some_keys(relation, beside[entry.name])
    roles.update(inputs.roles([(entry.name, "rows")]))
    program = plan.programs[entry.name]
    choices = choices_of(entry, program, shown)
    definite = bind(program.definite, shown)[0] if program.definite else ""
    few = size <= WHOLE and sum(file.rows for file in beside[entry.name].files) <= FEW
    rows = _rows_at_hand(beside[entry.name]) if few else None
    asked = Comparison(relation, text, roles, choices, definite, where, few, rows)
    how, found = _compared_parts(runtime, asked, allowed) if size > WHOLE else ("whole", compare(runtime.engine, asked))
    if not found.same:
        said = proofs.difference_text(entry.name, found, plan.head.epoch)
        _condemn(runtime, entry, said, found, {n: shown[n].rows for n in sorted(read)})
    return how


def _compared_parts(runtime: Runtime, asked: Comparison, allowed: float) -> tuple[proofs.How, Found]:
    """Compare totals over all rows, as far as the time goes; what SQL leaves open is left to a whole proof.

    Where totals do not cover the values of all columns, the rows of some keys are compared first.
    """
    how: proofs.How = "columns"
    if asked.choices.any:
        return how, Found()
    same = True
    sampled = bool(asked.where) and not totals_cover(runtime.engine, asked.relation.rows)
    try:
        with runtime.engine.limited(allowed):
            if sampled:
                same = compare(runtime.engine, asked).same
                how = "sample"
            if same:
                same = same_totals(runtime.engine, asked)
                how = "sample and totals" if sampled else "totals"
    except TooSlow:
        pass
    return how, Found() if same else compare(runtime.engine, replace(asked, where=""))


def _rows_at_hand(made: Beside) -> pa.Table | None:
    """Give the rows of a bag that was just written, from memory; None where they have to be computed."""
    relation = made.relation
    if relation.final is not None or not made.files:
        return None
    stored = pa.concat_tables([lookup.whole(relation, file) for file in made.files])
    weights = stored[WEIGHT].to_numpy()
    if weights.min(initial=1) < 1:
        return None
    rows = stored.select([c.name for c in relation.rows])
    return rows if weights.max(initial=1) == 1 else rows.take(np.repeat(np.arange(len(weights)), weights))


def _check_columns(
    runtime: Runtime, entry: ViewEntry, relation: Relation, text: str, shown: Mapping[str, Relation]
) -> None:
    """See that the view has the columns of its text, in their order; off Spark, numbers may be of another width."""
    read = bind(entry.sql, shown)[1]
    tables = {f"{name}__rows": _seen(entry, shown[name]) for name in read}
    theirs = runtime.engine.analyse(text, tables)
    mine = relation.rows
    if [c.name for c in mine] == [c.name for c in theirs]:
        exact = runtime.engine.name == "spark"
        if all(
            a.type == b.type or (not exact and _number(a) and _number(b)) for a, b in zip(mine, theirs, strict=True)
        ):
            return
    said = f"{CODE}: {entry.name} has the columns {_listed(mine)}, its text {_listed(theirs)}"
    _condemn(runtime, entry, said, Found(), {n: shown[n].rows for n in sorted(read)})


def _seen(entry: ViewEntry, relation: Relation) -> tuple[Column, ...]:
    seen = entry.seen.get(relation.name)
    return relation.rows if seen is None else tuple(c for c in relation.rows if c.name in seen)


def _number(column: Column) -> bool:
    return column.type.name in (*types.INTEGERS, *types.FLOATS, "decimal")


def _listed(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in columns)


def _some_keys(relation: Relation, made: Beside) -> str:
    """Give a condition for the rows of some keys, those at the ends of the view's files; '' where there is no such column."""
    for column in relation.rows:
        if column.type.name not in (*types.INTEGERS, "string", "date"):
            continue
        stats = [file.stats[column.name] for file in made.files if column.name in file.stats]
        ends = [value for s in stats for value in (s.minimum, s.maximum) if value is not None]
        if ends:
            some = sorted({str(value) for value in ends})[:KEYS]
            literals = ", ".join(f"CAST({_literal(value)} AS {column.type})" for value in some)
            return f"{quote(column.name)} IN ({literals})"
    return ""


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _condemn(
    runtime: Runtime, entry: ViewEntry, said: str, found: Found, inputs: Mapping[str, tuple[Column, ...]]
) -> None:
    columns = {name: [f"{c.name} {c.type}" for c in read] for name, read in inputs.items()}
    proofs.reproduce(runtime.reports, entry.name, entry.sql, columns, found, said)
    proofs.condemn(runtime.lake, entry.name, entry.sql, said)
    raise Unproved(entry.name)


def note_birth(runtime: Runtime, found: Mapping[str, Proof], epoch: int) -> None:
    """Keep the proofs of views that were published in an epoch."""
    ids = runtime.lake.snapshot().definitions.ids
    for view, proof in found.items():
        if view not in ids:
            continue
        proofs.keep(runtime.lake, view, replace(proof, relation=ids[view], epoch=epoch))


def prove_first_changes(runtime: Runtime, rest: Callable[[], bool] | None = None) -> None:
    """Prove the views that have followed changes for the first time, if they are small; others are left to the background."""
    head = runtime.lake.snapshot()
    ids = head.definitions.ids
    if all(ids[view] in runtime.settled for view in head.views):
        return
    known = proofs.known(runtime.lake, head)
    for view, entry in head.views.items():
        proof = known.get(view)
        if proof is None or proof.changes or entry.events or input_rows(head, entry) > WHOLE:
            runtime.settled.add(ids[view])
        elif not entry.error and _changed(head, view, proof.epoch):
            if rest is not None and not rest():
                return
            runtime.settled.add(ids[view])
            try:
                prove(runtime, view)
            except RunnelError as error:
                log.warning("the proof of %s was put off: %s", view, error)


def _changed(head: Snapshot, view: str, since: int) -> bool:
    try:
        return bool(head.changes(view, since))
    except RunnelError:  # changes that are no longer kept
        return True


def input_rows(head: Snapshot, entry: ViewEntry) -> int:
    """Count the stored rows that a proof of this view reads."""
    names = {*entry.inputs, *(i for stage in entry.stages if stage in head.entries for i in head.entries[stage].inputs)}
    return sum(file.rows for name in names if name in head.relations for file in head.files(name))


def prove(runtime: Runtime, view: str) -> Proof | None:
    """Verify a view, keep the outcome, and deal with a difference as the settings say; None where it is gone."""
    begun = time.perf_counter()
    head = runtime.lake.snapshot()
    if view not in head.views:
        return None
    before = proofs.known(runtime.lake, head).get(view)
    past = before.past if before else ()
    try:
        report = verify(runtime.lake, runtime.engine, head.views[view])
        problem = report.unchecked
    except (Unreachable, Conflict):
        raise
    except RunnelError as error:
        report, problem = None, str(error)
    ids = runtime.lake.snapshot().definitions.ids
    if view not in ids:
        return None
    epoch = report.epoch if report else head.epoch
    ms = round((time.perf_counter() - begun) * 1000, 1)
    rows = report.rows_checked if report else 0
    proof = Proof(ids[view], epoch, proofs.now(), "whole", ms, rows, changes=True, problem=problem, past=past)
    if report is not None and not report.ok:
        proof = _alarm(runtime, head, view, report, proof)
    proofs.keep(runtime.lake, view, proof)
    return proof


def _alarm(runtime: Runtime, head: Snapshot, view: str, report: Report, proof: Proof) -> Proof:
    entry = head.views[view]
    found = Found(report.missing, report.unexpected, report.too_many, report.compared)
    said = proofs.difference_text(view, found, report.epoch)
    inputs = {n: [f"{c.name} {c.type}" for c in head.relations[n].rows] for n in entry.inputs if n in head.relations}
    proofs.reproduce(runtime.reports, view, entry.sql, inputs, found, said)
    proof = replace(proof, alarm=said, past=(*proof.past, f"{proof.at} {said}")[-10:])
    proofs.keep(runtime.lake, view, proof)
    if runtime.on_difference == "stop":
        _stop(runtime, view, said)
    if runtime.on_difference != "rebuild":
        return proof
    refuse_recomputing(entry)
    rebuild(runtime, view)
    again = verify(runtime.lake, runtime.engine, head.views[view])
    if again.ok:
        return replace(proof, alarm="", epoch=again.epoch, at=proofs.now(), rows=again.rows_checked)
    if entry.properties.get("mode") == "incremental":
        _stop(runtime, view, said)
        return proof
    return _recompute_from_now_on(runtime, entry, said, proof)


def _recompute_from_now_on(runtime: Runtime, entry: ViewEntry, said: str, proof: Proof) -> Proof:
    """Swap a view whose program gives other rows than its text for one that runs the text."""
    from runnel.pipeline.plan import Definition
    from runnel.pipeline.swap import swap

    proofs.condemn(runtime.lake, entry.name, entry.sql, said)
    swap(runtime, [Definition(entry.name, entry.sql, dict(entry.properties))])
    head = runtime.lake.snapshot()
    report = verify(runtime.lake, runtime.engine, head.views[entry.name])
    alarm = "" if report.ok else said
    return replace(
        proof, relation=head.definitions.ids[entry.name], alarm=alarm, epoch=report.epoch, rows=report.rows_checked
    )


def _stop(runtime: Runtime, view: str, said: str) -> None:
    """Let a view stay where it is: reading it says why, and a full refresh lets it go on."""
    why = str(
        Terminal(
            "RUNNEL-VIEW-STOPPED",
            f"view {view} stays where it is, for it is wrong: {said}",
            hint=f"rebuild it with `runnel refresh {view} --full`",
        )
    )

    def attempt() -> int:
        head = runtime.lake.snapshot()
        return runtime.lake.publish(Commit(base=head.epoch, errors={view: why}, kind="stop"))

    in_turn(runtime, attempt)


class Prover:
    """Proves views in a thread of its own while `runnel run` has time: the oldest proof first, within a budget.

    `every` is the age, in seconds, at which a view is proved again; None waits only for the budget. A view that did not change
    since its last proof is left alone.
    """

    def __init__(self, runtime: Runtime, every: float | None = None) -> None:
        """Keep the settings; `start` begins."""
        self._runtime, self._every = runtime, every
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin proving, again after a close."""
        self._closed.clear()
        self._thread = threading.Thread(target=self._work, name="runnel-prover", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Begin no other proof; one that runs is waited for a little."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _work(self) -> None:
        pause = 1.0
        while not self._closed.wait(pause):
            pause = 1.0
            try:
                self._runtime.wait_idle(PATIENCE)
                begun = time.monotonic()
                if self.prove_next() is not None:
                    pause = max(1.0, (SHARE - 1) * (time.monotonic() - begun))
            except RunnelError as error:
                log.warning("a proof was put off: %s", error)
            except Exception:  # the thread has to live
                if not self._closed.is_set():
                    log.exception("a proof was put off")

    def prove_next(self) -> Proof | None:
        """Prove the view that has waited longest; None where none is due."""
        view = next_due(self._runtime, self._every)
        return prove(self._runtime, view) if view is not None else None


def next_due(runtime: Runtime, every: float | None = None) -> str | None:
    """Give the view with the oldest proof among those that changed since, or were never compared whole."""
    head = runtime.lake.snapshot()
    known = proofs.known(runtime.lake, head)
    due: list[tuple[float, str]] = []
    for view, entry in head.views.items():
        proof = known.get(view)
        if proof is None:
            due.append((float("inf"), view))
        elif not entry.error and _is_due(head, view, proof, every):
            due.append((proof.age, view))
    return max(due)[1] if due else None


def _is_due(head: Snapshot, view: str, proof: Proof, every: float | None) -> bool:
    if proof.how not in ("whole", "recomputed"):
        return True
    return (every is None or proof.age >= every) and _changed(head, view, proof.epoch)
