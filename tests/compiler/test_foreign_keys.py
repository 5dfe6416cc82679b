"""Foreign keys spare terms, look-ups, stages and joins, and never a row."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from runnel.compiler import compile_view
from runnel.engine.duckdb import DuckDbEngine
from runnel.model.program import Strategy
from runnel.model.relation import Trust
from tests.compiler.conftest import by_name, table
from tests.compiler.harness import Maintained, play_case
from tests.compiler.random_keys import keeps_keys
from tests.compiler.random_views import random_case

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.engine.spark import SparkEngine
    from runnel.model.program import Program, Reads
    from tests.compiler.harness import Batch

CHECKS = int(os.environ.get("RUNNEL_CASES", "300")) // 2
SEED = int(os.environ.get("RUNNEL_SEED", "700001")) or 700001
MADE_OF = ("inner join", "left join", "semi join", "in", "anti join", "exists", "right join", "full join", "")

REGIONS = table("regions", "rid INT, name STRING, PRIMARY KEY (rid)")
PEOPLE = table("people", "cid INT PRIMARY KEY, rid INT REFERENCES regions, boss INT REFERENCES people (cid)", REGIONS)
GOODS = table("goods", "pid INT, version INT, price INT, PRIMARY KEY (pid, version)")
ORDERS = table(
    "orders",
    "id BIGINT, cid INT, pid INT, version INT, n INT, PRIMARY KEY (id),"
    " CONSTRAINT buyer FOREIGN KEY (cid) REFERENCES people (cid),"
    " FOREIGN KEY (version, pid) REFERENCES goods (version, pid)",
    PEOPLE,
    GOODS,
)
NOTES = table("notes", "oid BIGINT REFERENCES orders (id), word STRING", ORDERS)
TABLES = (REGIONS, PEOPLE, GOODS, ORDERS, NOTES)

START: Batch = {
    "regions": [((1, "north"), 1), ((2, "south"), 1)],
    "people": [((1, 1, None), 1), ((2, 1, 1), 1), ((3, None, 1), 1), ((4, 2, 4), 1)],
    "goods": [((1, 1, 10), 1), ((1, 2, 12), 1), ((2, 1, 5), 1)],
    "orders": [((1, 1, 1, 1, 2), 1), ((2, 2, 1, 2, 1), 1), ((3, None, 2, 1, 1), 1), ((4, 4, 2, None, 7), 1)],
    "notes": [((1, "a"), 2), ((2, "b"), 1), ((None, "c"), 1)],
}
STORY: dict[str, Batch] = {
    "rows nobody refers to": {
        "regions": [((3, "east"), 1)],
        "goods": [((3, 1, 1), 1)],
        "people": [((5, None, None), 1)],
    },
    "parent and child come together": {
        "regions": [((4, "west"), 1)],
        "people": [((6, 4, 6), 1)],
        "orders": [((5, 6, 3, 1, 3), 1)],
        "notes": [((5, "d"), 3)],
    },
    "parents change under their key": {
        "regions": [((1, "north"), -1), ((1, "up"), 1)],
        "goods": [((1, 2, 12), -1), ((1, 2, 13), 1)],
        "people": [((2, 1, 1), -1), ((2, 2, 6), 1)],
    },
    "a parent and what refers to it go together": {
        "regions": [((4, "west"), -1)],
        "people": [((6, 4, 6), -1), ((2, 2, 6), -1), ((2, 2, None), 1)],
        "orders": [((5, 6, 3, 1, 3), -1)],
        "notes": [((5, "d"), -3)],
    },
    "children move from a parent that goes to one that comes": {
        "people": [((4, 2, 4), -1), ((7, 2, 7), 1)],
        "orders": [((4, 4, 2, None, 7), -1), ((4, 7, 2, None, 7), 1)],
    },
    "a parent goes and its children lose it": {
        "regions": [((2, "south"), -1)],
        "people": [((2, 2, None), -1), ((2, None, None), 1), ((7, 2, 7), -1), ((7, 3, 7), 1)],
    },
    "a key comes and goes within a step": {
        "goods": [((9, 9, 9), 1), ((9, 9, 9), -1), ((1, 1, 10), -1), ((1, 1, 11), 1)],
        "orders": [((6, 1, 1, 1, 1), 1)],
    },
    "a key is replaced by another": {
        "orders": [((1, 1, 1, 1, 2), -1), ((8, 1, 1, 1, 2), 1)],
        "notes": [((1, "a"), -2), ((8, "a"), 1)],
    },
    "everything goes": {},
}

QUERIES = {
    "inner": "SELECT o.id, p.rid FROM orders o JOIN people p ON o.cid = p.cid",
    "the other way round": "SELECT o.id, p.rid FROM people p, orders o WHERE p.cid <=> o.cid",
    "a chain": "SELECT n.word, o.n, r.name FROM notes n JOIN orders o ON n.oid = o.id JOIN people p USING (cid) JOIN regions r ON r.rid = p.rid",
    "a star": "SELECT o.id, p.rid, g.price FROM orders o, people p, goods g WHERE o.cid = p.cid AND o.pid = g.pid AND o.version = g.version",
    "filtered": "SELECT o.id, p.rid FROM orders o JOIN people p ON o.cid = p.cid AND p.rid = 1 WHERE o.n > 1",
    "summed": "SELECT r.name, count(*) AS c, sum(o.n) AS s FROM orders o JOIN people p USING (cid) JOIN regions r USING (rid) GROUP BY r.name",
    "itself": "SELECT a.cid, b.rid FROM people a JOIN people b ON a.boss = b.cid",
    "itself twice": "SELECT a.cid, c.rid FROM people a JOIN people b ON a.boss = b.cid JOIN people c ON b.boss = c.cid",
    "a circle": "SELECT a.cid, b.rid, a.rid AS r FROM people a JOIN people b ON a.boss = b.cid AND b.boss = a.cid",
    "two children": "SELECT o.id, e.cid FROM people p JOIN orders o ON o.cid = p.cid JOIN people e ON e.boss = p.cid WHERE p.rid IS NULL OR p.rid > 0",
    "left": "SELECT o.id, p.rid FROM orders o LEFT JOIN people p ON o.cid = p.cid",
    "left by two columns": "SELECT o.id, g.price FROM orders o LEFT JOIN goods g ON o.pid = g.pid AND o.version = g.version",
    "left and left": "SELECT o.id, r.name FROM orders o LEFT JOIN people p ON o.cid = p.cid LEFT JOIN regions r ON p.rid = r.rid",
    "left with more": "SELECT o.id, p.rid FROM orders o LEFT JOIN people p ON o.cid = p.cid AND p.rid = 1",
    "left with both": "SELECT o.id, p.rid FROM orders o LEFT JOIN people p ON o.cid = p.cid AND o.n > p.rid",
    "right": "SELECT o.id, p.rid FROM people p RIGHT JOIN orders o ON o.cid = p.cid",
    "full": "SELECT o.id, p.rid FROM orders o FULL JOIN people p ON o.cid = p.cid",
    "semi": "SELECT id FROM orders o LEFT SEMI JOIN people p ON o.cid = p.cid",
    "anti": "SELECT id FROM orders o LEFT ANTI JOIN people p ON o.cid = p.cid",
    "anti by two columns": "SELECT id FROM orders o LEFT ANTI JOIN goods g ON o.pid = g.pid AND o.version = g.version",
    "in": "SELECT id FROM orders WHERE cid IN (SELECT cid FROM people)",
    "not in": "SELECT id FROM orders WHERE cid NOT IN (SELECT cid FROM people)",
    "exists": "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.cid = o.cid)",
    "exists or": "SELECT id FROM orders o WHERE n > 5 OR EXISTS (SELECT 1 FROM people p WHERE p.cid = o.cid)",
    "scalar": "SELECT id, (SELECT rid FROM people p WHERE p.cid = o.cid) AS rid FROM orders o",
    "unused": "SELECT o.id, p.cid FROM orders o JOIN people p ON o.cid = p.cid JOIN goods g ON g.pid = o.pid AND g.version = o.version",
    "unused chain": "SELECT word FROM notes n JOIN orders o ON n.oid = o.id JOIN people p ON o.cid = p.cid",
    "the parent's side": "SELECT p.cid, count(o.id) AS n FROM people p LEFT JOIN orders o ON o.cid = p.cid GROUP BY p.cid",
    "first rows": "SELECT p.rid, max(o.n) AS m FROM orders o JOIN people p USING (cid) GROUP BY p.rid",
    "windows": "SELECT o.id, row_number() OVER (PARTITION BY p.rid ORDER BY o.id) AS k FROM orders o JOIN people p USING (cid)",
    "distinct": "SELECT DISTINCT p.rid FROM orders o JOIN people p USING (cid)",
    "union": "SELECT u.x, p.rid FROM (SELECT cid AS x FROM orders UNION ALL SELECT boss FROM people) u JOIN people p ON u.x = p.cid",
}


def story() -> list[tuple[str, Batch]]:
    """Give the story with its end: everything that is there then goes."""
    left: dict[str, dict[tuple[object, ...], int]] = defaultdict(lambda: defaultdict(int))
    for batch in (START, *STORY.values()):
        for name, rows in batch.items():
            for row, weight in rows:
                left[name][row] += weight
    end: Batch = {name: [(row, -weight) for row, weight in rows.items() if weight] for name, rows in left.items()}
    return [*list(STORY.items())[:-1], ("everything goes", end)]


def test_the_story_keeps_its_foreign_keys() -> None:
    assert keeps_keys(TABLES, [START, *(batch for _, batch in story())])


@pytest.mark.parametrize("share", [False, True], ids=["alone", "by a shared join"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_view_over_foreign_keys_is_right_after_every_step(engine: DuckDbEngine, query: str, share: bool) -> None:
    stepwise = Maintained(engine, TABLES, share=share)
    merged = Maintained(engine, TABLES, share=share)
    program = stepwise.define("v", QUERIES[query])
    merged.keep(QUERIES[query], program)
    stepwise.apply(START)
    together: Batch = defaultdict(list)
    for what, batch in story():
        stepwise.apply(batch)
        stepwise.check(what)
        for name, rows in batch.items():
            together[name] += rows
    merged.apply(START)
    merged.apply(
        {name: rows for name, rows in together.items() if name != "regions"} | {"regions": together["regions"]}
    )
    merged.check("one merged step")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_foreign_keys_are_used_rightly_on_spark_as_well(spark_engine: SparkEngine) -> None:
    state = Maintained(spark_engine, TABLES)
    state.apply(START)
    for query in ("a chain", "left by two columns", "unused"):
        state.define(query.replace(" ", "_"), QUERIES[query])
    for what, batch in story()[:4]:
        state.apply(batch)
        state.check(what)


def compiled(engine: DuckDbEngine, query: str, trust: Trust = Trust.ENFORCED) -> Program:
    tables = by_name(TABLES)
    if trust is not Trust.ENFORCED:
        tables = {
            name: replace(t, references=tuple(replace(key, trust=trust) for key in t.references))
            for name, t in tables.items()
        }
    return compile_view("v", QUERIES[query], tables, engine.analyse)


def saved(program: Program) -> set[tuple[str, str]]:
    return {(o.code, o.name) for o in program.operators if o.code.startswith("RUNNEL-SAVED")}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("inner", {("RUNNEL-SAVED-LOOKUP", "foreign key to people")}),
        ("the other way round", {("RUNNEL-SAVED-LOOKUP", "foreign key to people")}),
        ("left", {("RUNNEL-SAVED-LOOKUP", "foreign key to people"), ("RUNNEL-SAVED-MISSING", "foreign key to people")}),
        ("semi", {("RUNNEL-SAVED-MATCHED", "key of people"), ("RUNNEL-SAVED-JOIN", "foreign key to people")}),
        ("in", {("RUNNEL-SAVED-MATCHED", "key of people"), ("RUNNEL-SAVED-JOIN", "foreign key to people")}),
        ("anti", {("RUNNEL-SAVED-MISSING", "foreign key to people")}),
        ("unused", {("RUNNEL-SAVED-JOIN", "foreign key to people"), ("RUNNEL-SAVED-JOIN", "foreign key to goods")}),
        (
            "unused chain",
            {("RUNNEL-SAVED-JOIN", "foreign key to people"), ("RUNNEL-SAVED-LOOKUP", "foreign key to orders")},
        ),
    ],
)
def test_what_keys_spare_is_said_with_a_stable_word(
    engine: DuckDbEngine, query: str, expected: set[tuple[str, str]]
) -> None:
    assert saved(compiled(engine, query)) == expected


@pytest.mark.parametrize("query", ["left", "right", "semi", "anti", "in", "exists", "unused", "left and left"])
def test_a_join_on_a_foreign_key_keeps_nothing_beside_the_view(engine: DuckDbEngine, query: str) -> None:
    assert compiled(engine, query).stages == ()
    assert compiled(engine, query, Trust.RELY).stages == ()


@pytest.mark.parametrize(
    ("query", "inputs"), [("unused", ("orders",)), ("unused chain", ("notes", "orders")), ("semi", ("orders",))]
)
def test_a_table_of_which_only_the_key_is_read_is_not_read(
    engine: DuckDbEngine, query: str, inputs: tuple[str, ...]
) -> None:
    assert compiled(engine, query).inputs == inputs
    assert len(compiled(engine, query, Trust.NONE).inputs) > len(inputs)


@pytest.mark.parametrize("query", QUERIES)
def test_a_foreign_key_that_nobody_answers_for_is_not_used(engine: DuckDbEngine, query: str) -> None:
    words = {word for word, _ in saved(compiled(engine, query, Trust.NONE))}
    assert words <= {"RUNNEL-SAVED-MATCHED"}


def test_a_change_of_new_keys_alone_leaves_no_term_to_run(engine: DuckDbEngine) -> None:
    (step,) = compiled(engine, "a star").steps
    updated: Reads = frozenset({("people", "updated"), ("people", "removed")})
    assert step.parts >= updated
    assert step.delta_sql(frozenset({"people"}), updated) is None
    assert step.delta_sql(frozenset({"people"})) is not None
    assert ("orders", "old") in step.delta_reads(frozenset({"people"}))


def test_removed_keys_meet_the_change_of_what_referred_to_them_and_not_its_rows(engine: DuckDbEngine) -> None:
    (step,) = compiled(engine, "inner").steps
    (term,) = [term for term in step.terms if ("people", "removed") in term.reads]
    assert term.reads == {("people", "removed"), ("orders", "delta")}
    assert term.deltas == {"people", "orders"}


def test_random_views_over_foreign_keys_equal_their_query(say: Callable[[str], None]) -> None:
    engine = DuckDbEngine(threads=2)
    checks, seed = 0, SEED
    while checks < CHECKS:
        only = MADE_OF[seed % len(MADE_OF)]
        case = random_case(seed, only, keys=True)
        assert keeps_keys(case.tables, (case.start, *case.batches)), f"seed {seed}"
        checks += play_case(engine, case, f"seed {seed} {only}, keys").checks
        seed += 1
    engine.close()
    say(f"{checks} checks in {seed - SEED} cases with foreign keys")


def test_every_query_of_the_story_is_incremental(engine: DuckDbEngine) -> None:
    assert [q for q in QUERIES if compiled(engine, q).strategy is Strategy.FULL] == []
