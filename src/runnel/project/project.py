"""A project: tables that change, views that follow, and the proof that they are right. See `docs/` for a tour.

Everything here hands over to a room below: transactions and epochs to `pipeline`, reads to `query`, proofs to `verify`.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace as replaced
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel import config, query
from runnel.compiler import bind
from runnel.compiler.alter import is_alter, parse_alter
from runnel.connectors import guarded_source, open_target
from runnel.engine.functions import user_function
from runnel.errors import (
    Failures,
    Problems,
    RunnelError,
    Terminal,
    Transient,
    Unreachable,
    UsageError,
    nearest,
    places_named,
)
from runnel.lake.lake import Lake
from runnel.model.ddl import parse_table
from runnel.model.foreign_keys import Reference
from runnel.pipeline import definitions, target_check, upkeep
from runnel.pipeline.alter import alter_table
from runnel.pipeline.prove import Prover
from runnel.pipeline.rebuilds import Rebuilder
from runnel.pipeline.reshape import altered
from runnel.pipeline.runner import Runner
from runnel.pipeline.runtime import Runtime
from runnel.pipeline.source_state import StateOfSource
from runnel.pipeline.source_tables import check_source_tables
from runnel.pipeline.targets import Targets
from runnel.pipeline.transaction import Transaction
from runnel.project.engine import spark_engine
from runnel.project.explain import Explanation, explain
from runnel.project.freshness import check_fresh
from runnel.project.fsck import Fsck, fsck
from runnel.project.functions import register
from runnel.project.history import history
from runnel.project.rebuild import rebuild
from runnel.project.relation import RelationHandle, Result
from runnel.project.status import Status, status
from runnel.project.subscribe import Subscription
from runnel.project.sync import sync
from runnel.project.waiting import Wanted, as_position, find_source, wait
from runnel.verify import Report, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import pyarrow as pa

    from runnel.config import Config
    from runnel.connectors.base import Source
    from runnel.engine.base import Engine, Input
    from runnel.model.relation import Column
    from runnel.pipeline.deliver import Round
    from runnel.pipeline.reread import Rebuilt
    from runnel.pipeline.step import Taken
    from runnel.pipeline.upkeep import Upkept


log = logging.getLogger("runnel")


class Project:
    """One open project; close it, or use it in a `with` block."""

    def __init__(self, folder: Path, settings: Config, lake: Lake, engine: Engine, *, throw_away: bool = False) -> None:
        """Take over an open lake and an engine; use `runnel.open`, `runnel.create` or `runnel.memory` instead."""
        self.folder, self.config = folder, settings
        self.runtime = Runtime(
            lake,
            engine,
            keep=settings.state.keep,
            on_difference=settings.run.on_difference,
            reports=folder / ".runnel" / "reports",
        )
        if engine.name == "spark":  # other engines are for tests, which want to see what an epoch leads to
            self.runtime.keeper = upkeep.Keeper(self.runtime)
        self._throw_away = throw_away
        self._sources: dict[str, Source] | None = None
        self._subscriptions: list[Subscription] = []
        self._stop = threading.Event()
        self._polling = threading.RLock()

    # -- definitions

    def create_table(
        self,
        name: str,
        columns: str,
        key: str | list[str] | tuple[str, ...] | None = None,
        references: Mapping[str | tuple[str, ...], str] | None = None,
    ) -> RelationHandle:
        """Create a managed table from Spark DDL, such as `"id BIGINT, cost DECIMAL(12,2)"`.

        `references` are foreign keys, such as `{"customer_id": "customers"}`; they are checked at every commit. The DDL may
        have them too: `FOREIGN KEY (customer_id) REFERENCES customers (id)`.
        """
        _need_string("the table's name", name)
        _need_string("the list of columns", columns)
        if references is not None and not isinstance(references, Mapping):
            raise UsageError(
                "RUNNEL-USAGE", f"{references!r} is no mapping", hint='give references as {"customer_id": "customers"}'
            )
        said = parse_table(columns, owner=name)
        more = [
            Reference((own,) if isinstance(own, str) else tuple(own), table)
            for own, table in (references or {}).items()
        ]
        named = (key,) if isinstance(key, str) else tuple(key if key is not None else said.key)
        definitions.create_table(
            self.runtime, name, said.columns, named, (*said.references, *more), self.config.outside
        )
        return self.table(name)

    def create_view(
        self, name: str, sql: str, refresh: str = "immediate", mode: str = "auto", *, replace: bool = False
    ) -> RelationHandle:
        """Define a view by a SELECT; it is computed now and follows from here on.

        `replace` swaps a view of that name, and those that read it, for the new one in one step.
        """
        _need_string("the view's name", name)
        _need_text("the view's SQL", sql)
        definitions.create_view(self.runtime, name, sql, {"refresh": refresh, "mode": mode}, replace=replace)
        self._poll()
        return self.view(name)

    def alter_table(self, statement: str) -> list[str]:
        """Run `ALTER TABLE t ADD COLUMN c TYPE | DROP COLUMN c | RENAME COLUMN a TO b | ALTER COLUMN c TYPE wider`.

        Views that do not read the column go on untouched; of those that do, say which were made anew.
        """
        _need_text("the statement", statement)
        said: list[str] = []
        for change in parse_alter(statement):
            self._refuse_source_table(change.table)
            said += alter_table(self.runtime, change.table, partial(altered, change=change))
        self._poll()
        return said

    def _refuse_source_table(self, name: str) -> None:
        source = name.partition(".")[0] if "." in name else None
        if source in self.config.outside:
            raise Terminal(
                "RUNNEL-ALTER-SOURCE", f"{name} is what its source says", hint=f"change the table in {source} itself"
            )

    def register_function(
        self,
        name: str,
        fn: Callable[..., Any],
        returns: str,
        arguments: str | None = None,
        *,
        pandas: bool = False,
        version: str | None = None,
    ) -> list[str]:
        """Let SQL call a Python function that gives the same value for the same arguments, always.

        `returns` is a SQL type, `arguments` such as `"a INT, b STRING"`; with `pandas` it takes and gives pandas Series. Views
        that were computed with another body of it are made anew; say which. What it reaches (globals, closures, classes,
        modules) belongs to its body; where that cannot be told, `version` has to.
        """
        said = register(self.runtime, user_function(name, fn, returns, arguments, pandas=pandas, version=version))
        self._poll()
        return said

    def drop_view(self, name: str) -> None:
        """Forget a view and what is stored of it."""
        definitions.drop_view(self.runtime, name)

    def sync(self, progress: Callable[[str], None] | None = None) -> list[str]:
        """Bring tables and views in line with the project's SQL files and sources; say what was done.

        A source that cannot be reached just now only matters where something cannot be made without it.
        """
        errors = list(check_source_tables(self.runtime, self.sources).values())
        try:
            done = sync(self.runtime, self.config, progress)
        except RunnelError as found:
            raise Problems([*errors, *_problems(found)]) if errors else found from None
        for error in errors:
            if isinstance(error, Transient):
                log.warning("%s", error)
        lasting = [error for error in errors if not isinstance(error, Transient)]
        if lasting:
            raise lasting[0] if len(lasting) == 1 else Problems(lasting)
        return done

    def _define(self) -> RunnelError | None:
        """Bring definitions in line for a run; give an error that may pass, or that comes of a source, and raise others."""
        errors = check_source_tables(self.runtime, self.sources)
        try:
            sync(self.runtime, self.config)
        except RunnelError as error:
            if errors or all(isinstance(one, Transient) for one in _problems(error)):
                return error
            raise
        return None

    # -- changes

    def transaction(self) -> Transaction:
        """Begin a transaction: `with project.transaction() as tx: ...` commits at the end, or leaves no trace."""
        return Transaction(self.runtime, self._after)

    def sql(self, text: str) -> int:
        """Run INSERT, UPDATE and DELETE statements as one transaction, or ALTER TABLE statements, and give the epoch."""
        _need_text("the SQL", text)
        if is_alter(text):
            self.alter_table(text)
            return self.runtime.lake.head()
        with self.transaction() as tx:
            tx.sql(text)
        return tx.epoch or 0

    def refresh(self, name: str | None = None, full: bool = False) -> int:  # noqa: FBT001, FBT002
        """Bring a view (or all) up to date now; `full` recomputes it. Give the epoch it is at."""
        names = None if name is None else [definitions.find_view(self.runtime.lake.snapshot(), name).name]
        epoch = definitions.refresh(self.runtime, names, full=full)
        self._poll()
        return epoch

    def rebuild(self, name: str, where: str | None = None) -> Rebuilt:
        """Read `SOURCE.TABLE` (or, with `where`, a part of it) from its store again, and write the rows that differ, as one epoch.

        The log may go on meanwhile, here or in another process. `SOURCE` alone reads all of its tables again, also after the store
        lost the log that comes next. Give what was read, what differed, and the newest epoch.
        """
        _need_string("the table's name", name)
        if where is not None:
            _need_text("the condition", where)
        done, taken = rebuild(self.runtime, self.config, name, where)
        self._after(taken)
        return done

    def _after(self, taken: Taken) -> None:
        """Tell subscribers and tidy up. The commit stands, so nothing here may look like its failure."""
        self._poll()
        if not taken.published:
            return
        try:
            upkeep.tidy(self.runtime, taken.epoch)
        except RunnelError as error:
            log.warning("upkeep after epoch %s was put off: %s", taken.epoch, error)

    # -- reads

    def view(self, name: str) -> RelationHandle:
        """Give a view."""
        definitions.find_view(self.runtime.lake.snapshot(), name)
        return RelationHandle(self.runtime.lake, self.runtime.engine, name)

    def table(self, name: str) -> RelationHandle:
        """Give a table."""
        return RelationHandle(self.runtime.lake, self.runtime.engine, name)

    def query(self, sql: str, at: int | None = None, *, strict: bool = False) -> Result:
        """Run a SELECT over tables and views at one epoch; `strict` refuses to read a view that is behind or failed."""
        _need_text("the SQL", sql)

        def make() -> tuple[str, dict[str, Input], tuple[Column, ...] | None]:
            snapshot = self.runtime.lake.snapshot(at)
            check_fresh(snapshot, sorted(bind(sql, snapshot.shown)[1]), strict=strict)
            return (*query.bound(self.runtime.engine, snapshot, sql), None)

        return Result(self.runtime.engine, make)

    def changes(self, name: str, since: int, until: int | None = None) -> pa.Table:
        """Give the net signed rows by which a view or table changed after epoch `since`."""
        return query.changes(self.runtime.lake, self.runtime.engine, name, since, until)

    def history(
        self, name: str, key: Mapping[str, Any], column: str | None = None, since: Any = None, until: Any = None
    ) -> list[dict[str, Any]]:
        """Give every kept change of one row, or of one column of it, oldest first."""
        return history(self.runtime, name, key, column, since, until)

    def subscribe(
        self, name: str, callback: Callable[[pa.Table, int], None], cursor: str | None = None
    ) -> Subscription:
        """Call back once per epoch with a view's net changes, in order; a named `cursor` is kept across restarts.

        The cursor moves after the callback has returned: after a crash in between, or an exception of the callback, the same epoch
        is handed over again. Store the epoch with what the callback does to have it exactly once.
        """
        if not callable(callback):
            raise UsageError(
                "RUNNEL-USAGE", f"{callback!r} cannot be called", hint="give a function of (changes, epoch)"
            )
        relation = query.find(self.runtime.lake.snapshot(), name)
        subscription = Subscription(self.runtime, relation.name, callback, cursor)
        self._subscriptions.append(subscription)
        return subscription

    def _poll(self) -> None:
        with self._polling:  # a scheduled rebuild publishes in a thread of its own
            for subscription in list(self._subscriptions):
                try:
                    subscription.poll()
                    subscription.error = None
                except Exception as error:  # a subscriber's own error must not look like a failed commit
                    if subscription.error != str(error):
                        log.error("a subscriber of %s failed and is tried again: %s", subscription.name, error)
                    subscription.error = str(error)

    def position(self, source: str) -> dict[str, Any]:
        """Give a position after everything that was written to a source so far, to be waited for or compared later.

        What a client has written, and the store has acknowledged, before this call is before the position.
        """
        return dict(find_source(self.sources, source).end_offset())

    def wait(
        self,
        source: str,
        position: Mapping[str, Any] | None = None,
        view: str | None = None,
        timeout: float = 5.0,
    ) -> int:
        """Wait until a view covers a position of a source's log, and give an epoch at which its rows do.

        The default is every view that is refreshed immediately, as are the views it reads, and what was written up to now. A view that is refreshed later, or
        by hand, is waited for, not refreshed. After `timeout` seconds: `RUNNEL-WAIT-TIMEOUT`, which names what is missing.
        """
        found = find_source(self.sources, source)
        at = self.position(source) if position is None else as_position(position)
        return wait(self.runtime.lake, Wanted(source, found, at), view, timeout)

    # -- answers about the project

    def explain(self, name: str) -> Explanation:
        """Say how a view is kept and what that costs; `str()` of it is what the command line prints."""
        return explain(self.runtime, name)

    def verify(self, name: str, sample: int | None = None) -> Report:
        """Recompute a view from its own SQL text and compare."""
        if sample is not None and (not isinstance(sample, int) or sample < 1):
            raise UsageError("RUNNEL-USAGE", f"{sample!r} is no sample", hint="give N to compare one row in N")
        snapshot = self.runtime.lake.snapshot()
        return verify(self.runtime.lake, self.runtime.engine, definitions.find_view(snapshot, name), sample=sample)

    def verify_target(
        self, name: str, views: Sequence[str] = (), *, repair: bool = False
    ) -> list[target_check.Checked]:
        """Compare a target's tables with its views, all or these; `repair` writes the rows that differ, and compares again."""
        (follower,) = self._targets(name).followers.values()
        wanted, target = follower.wanted, follower.target
        try:
            found = list(target_check.compare(self.runtime, wanted, target, views))
            wrong = [checked.view for checked in found if not checked.ok]
            if not repair or not wrong:
                return found
            target_check.repair(self.runtime, wanted, target, wrong)
            again = {checked.view: checked for checked in target_check.compare(self.runtime, wanted, target, wrong)}
            return [
                replaced(checked, repaired=again[checked.view]) if checked.view in again else checked
                for checked in found
            ]
        finally:
            follower.close()

    def verify_all(self) -> list[Report]:
        """Verify every view."""
        return [self.verify(name) for name in self.runtime.lake.snapshot().views]

    def status(self) -> Status:
        """Say where sources and views stand."""
        known = self.config
        return status(self.runtime, known.project.name, self.sources, known.targets, known.rebuilds)

    def epochs(self, limit: int = 100) -> list[dict[str, Any]]:
        """Give the records of the last epochs, newest last."""
        return self.runtime.lake.epochs(limit)

    def compact(self) -> Upkept:
        """Fold every relation into one sorted run and forget what is older than the kept epochs."""
        done = upkeep.compact(self.runtime, self.runtime.lake.snapshot(), all_files=True)
        return replaced(done, expired=upkeep.expire(self.runtime))

    def fsck(self, repair: bool = False, progress: Callable[[str], None] | None = None) -> Fsck:  # noqa: FBT001, FBT002
        """Read the whole state and say what is damaged; `repair` rebuilds what can be rebuilt, and looks again."""
        return fsck(self.runtime, self.config.outside, progress or (lambda _: None), repair=repair)

    # -- the job

    @property
    def sources(self) -> dict[str, Source]:
        """The open connectors of the project's sources."""
        if self._sources is None:
            wanted = [source for source in self.config.sources if source.type != "managed"]
            opened = {s.name: guarded_source(s, self.folder, StateOfSource(self.runtime, s.name)) for s in wanted}
            for source in opened.values():
                try:
                    source.open()
                except UsageError:
                    raise
                except RunnelError as error:  # it is opened again whenever it is asked
                    log.debug("%s", error)
            self._sources = dict(opened)
        return self._sources

    def run(self, once: bool = False, on_epoch: Callable[[Taken], None] | None = None) -> None:  # noqa: FBT001, FBT002
        """Capture, maintain and deliver: until caught up (`once`), or until `stop()` is called."""
        self._stop.clear()
        targets = self._targets()
        undefined = self._define()
        if undefined is not None:
            log.warning("some tables and views cannot be made yet: %s", undefined)
        if not once:
            self.runtime.engine.warm()

        def deliver(taken: Taken) -> None:
            self._poll()
            if on_epoch:
                on_epoch(taken)

        run = self.config.run
        runner = Runner(
            self.runtime,
            self.sources,
            gather=0.0 if run.epoch == "transaction" else run.epoch,
            max_rows=run.max_rows,
            per_transaction=run.epoch == "transaction",
            deliver=deliver,
            targets=targets,
            define=self._define if undefined is not None else None,
            prover=self._prover(),
            rebuilder=Rebuilder(self.runtime.lake, self.config.rebuilds, self.rebuild),
        )
        errors = runner.run(once=once, stop=self._stop)
        if once:
            failed = [_of_source(name, error) for name, error in errors.items()]
            _raise_all(failed + (_problems(undefined) if undefined is not None else []), targets.problems)

    def deliver(self, target: str | None = None, full: bool = False) -> dict[str, Round]:  # noqa: FBT001, FBT002
        """Bring targets up to date now, one or all; `full` writes their tables whole, and removes what should not be there."""
        targets = self._targets(target)
        try:
            done = targets.bring_up(full=full)
        finally:
            targets.close()
        _raise_all([], targets.problems)
        return done

    def _targets(self, name: str | None = None) -> Targets:
        wanted = {target.name: target for target in self.config.targets if name in (None, target.name)}
        if name is not None and not wanted:
            known = [target.name for target in self.config.targets]
            hint = nearest(name, known) or f"there are {', '.join(known) or 'none yet'}"
            raise UsageError("RUNNEL-TARGET-UNKNOWN", f"there is no target {name!r}", hint=hint)
        return Targets(
            self.runtime, {name: (target, open_target(target, self.folder)) for name, target in wanted.items()}
        )

    def _prover(self) -> Prover | None:
        prove = self.config.run.prove
        return None if prove == "off" else Prover(self.runtime, None if prove == "auto" else prove)

    def stop(self) -> None:
        """Let a running `run` end after the epoch it is in."""
        self._stop.set()

    def close(self) -> None:
        """Let go of sources, engine and catalog; a throw-away project is deleted."""
        self.stop()
        if self.runtime.keeper is not None:
            self.runtime.keeper.close()
        for source in (self._sources or {}).values():
            source.close()
        self.runtime.engine.close()
        self.runtime.lake.close()
        if self._throw_away:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Project:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_project(
    path: str | Path = ".", *, spark: Any = None, engine: Engine | None = None, sync: bool = True, create: bool = True
) -> Project:
    """Open the project in a folder; its state is created where there was none, unless `create=False`.

    `sync=False` leaves definitions alone. A state whose catalog is missing while its files are there is not created again.
    """
    with places_named("the project cannot be opened", path):
        folder = Path(path).resolve()
    settings = config.load(folder)
    catalog = str(config.reveal(settings.state.catalog))
    open_lake = _open_or_create if create else Lake.open
    lake = open_lake(catalog, settings.state.data)
    project = Project(folder, settings, lake, engine or spark_engine(settings, spark))
    if sync:
        try:
            project.sync()
        except RunnelError:
            project.close()
            raise
    return project


def create(path: str | Path, *, spark: Any = None, engine: Engine | None = None) -> Project:
    """Create an empty project in a folder that has none, and open it."""
    folder = Path(path)
    with places_named("the project cannot be created", path):
        if (folder / config.FILE).exists():
            raise UsageError(
                "RUNNEL-PROJECT-EXISTS", f"{folder} holds a project already", hint="open it with runnel.open"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / config.FILE).write_text(_project_file(folder.resolve().name), encoding="utf-8")
    return open_project(folder, spark=spark, engine=engine)


def _project_file(name: str) -> str:
    """Write the settings of an empty project; without its name, which is the folder's, where TOML would read another one."""
    plain = name.isprintable() and "$" not in name
    return f"[project]\nname = {json.dumps(name, ensure_ascii=False)}\n" if plain else "[project]\n"


def memory(*, spark: Any = None, engine: Engine | None = None) -> Project:
    """Give a throw-away project: it is deleted when closed, and a power cut may take it."""
    with places_named("a throw-away project cannot be created", tempfile.gettempdir(), "set TMPDIR to another folder"):
        folder = Path(tempfile.mkdtemp(prefix="runnel-"))
        (folder / config.FILE).write_text(_project_file("memory"), encoding="utf-8")
    settings = config.load(folder)
    lake = Lake.create(str(config.reveal(settings.state.catalog)), settings.state.data, durable=False)
    return Project(folder, settings, lake, engine or spark_engine(settings, spark), throw_away=True)


def _need_string(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError("RUNNEL-USAGE", f"{what} is {value!r}, not text", hint="give a string")


def _need_text(what: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise UsageError("RUNNEL-SQL-TEXT", f"{what} is {value!r}, not text", hint="give SQL as a string")


def _problems(error: RunnelError) -> list[RunnelError]:
    return list(error.problems) if isinstance(error, Problems) else [error]


def _of_source(name: str, error: RunnelError) -> RunnelError:
    if isinstance(error, Unreachable):
        return Unreachable("RUNNEL-SOURCE-FAILED", f"source {name}: {error}")
    return Terminal("RUNNEL-SOURCE-FAILED", f"source {name}: {error}")


def _raise_all(failed: list[RunnelError], undelivered: list[RunnelError]) -> None:
    """Raise what went wrong: a target's problem as it is, for its kind says whether the store could be reached."""
    if undelivered and not failed and len(undelivered) == 1:
        raise undelivered[0]
    if failed or undelivered:
        raise Failures([*failed, *undelivered])


def _open_or_create(catalog: str, data: str) -> Lake:
    try:
        return Lake.open(catalog, data)
    except RunnelError as error:
        if error.code != "RUNNEL-CATALOG-MISSING":
            raise
    try:
        return Lake.create(catalog, data)
    except RunnelError as error:
        if error.code != "RUNNEL-CATALOG-EXISTS":  # somebody else opens it for the first time just now
            raise
    return Lake.open(catalog, data)
