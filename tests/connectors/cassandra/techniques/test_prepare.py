"""C.h: what a technique needs is made, filled and removed again; doing it twice changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.techniques import trigger_jar
from runnel.connectors.cassandra.techniques.table_writer import TableWriter
from runnel.connectors.cassandra.techniques.trigger_jar import build_jar
from runnel.errors import UsageError
from tests.connectors.cassandra.ways import session_of
from tests.servers.cassandra import jars

if TYPE_CHECKING:
    from pathlib import Path

    from tests.connectors.cassandra.conftest import Shop

pytestmark = pytest.mark.cassandra

TABLE = "CREATE TABLE KS.t (k int, c int, s text static, v int, l list<int>, PRIMARY KEY (k, c))"
FILLED = [
    "INSERT INTO KS.t (k, c, s, v, l) VALUES (1, 1, 'one', 10, [1])",
    "INSERT INTO KS.t (k, c, v) VALUES (1, 2, 20) USING TIMESTAMP 1000",
]


def tables_and_columns(shop: Shop) -> list[tuple[str, str]]:
    cql = f"SELECT table_name, column_name FROM system_schema.columns WHERE keyspace_name = '{shop.keyspace}'"
    return sorted((row.table_name, row.column_name) for row in shop.node.cql(cql))


def triggers(shop: Shop) -> list[str]:
    cql = f"SELECT trigger_name FROM system_schema.triggers WHERE keyspace_name = '{shop.keyspace}'"
    return [row.trigger_name for row in shop.node.cql(cql)]


@pytest.mark.parametrize("writer", ["application", "trigger"])
@pytest.mark.parametrize(("technique", "mode"), [("audit", "time"), ("audit", "value"), ("trigger", "time")])
def test_c_h_prepare_a_cycle_changes_a_cycle_undo(shop: Shop, technique: str, mode: str, writer: str) -> None:
    shop.configure(tables=["t"], audit=mode, writer=writer)
    shop.cql(TABLE, *FILLED)
    before = tables_and_columns(shop)
    shop.run("prepare", "shop", "--technique", technique)
    made = tables_and_columns(shop)
    assert "0 filled" in shop.run("prepare", "shop", "--technique", technique)
    assert tables_and_columns(shop) == made != before
    assert shop.told(technique) == []
    if writer == "trigger":
        shop.cql(
            "UPDATE KS.t SET v = 11 WHERE k = 1 AND c = 1",
            "INSERT INTO KS.t (k, c, v) VALUES (2, 1, 30)",
            "UPDATE KS.t SET s = 'two' WHERE k = 2",
        )
    else:
        with session_of(shop) as session:
            wrapped = TableWriter(session, shop.keyspace, "t", technique=technique, mode=mode)
            wrapped.set({"k": 1, "c": 1}, {"v": 11})
            wrapped.set({"k": 2, "c": 1}, {"v": 30})
            wrapped.set({"k": 2}, {"s": "two"})
    was = " (was 10)" if technique == "trigger" or mode == "value" else ""
    assert sorted(shop.told(technique)) == ["ins s:two", "ins v:30", f"upd v:11{was}"]
    shop.run("prepare", "shop", "--technique", technique, "--undo")
    assert tables_and_columns(shop) == before
    assert triggers(shop) == []
    shop.run("prepare", "shop", "--technique", technique, "--undo")


def test_twins_made_again_after_an_undo_are_not_hidden_by_it(shop: Shop) -> None:
    shop.configure(tables=["t"], audit="value")
    shop.cql(TABLE, *FILLED)
    for option in ((), ("--undo",), ()):
        shop.run("prepare", "shop", "--technique", "audit", *option)
    assert sorted(shop.cql('SELECT "audit-v" FROM KS.t')) == [(10,), (20,)]
    assert shop.told("audit") == []
    shop.configure(tables=["t"], audit="time")
    assert "RUNNEL-CASSANDRA-TWIN" in shop.run("prepare", "shop", "--technique", "audit", exit_code=2)


def test_a_technique_that_was_not_prepared_says_how(shop: Shop) -> None:
    shop.cql(TABLE)
    for technique in ("audit", "trigger"):
        said = shop.run("capture", "shop", "--technique", technique, exit_code=2)
        assert f"runnel prepare shop --technique {technique}" in said
    assert "RUNNEL-CAPTURE-PREPARE" in shop.run("prepare", "shop", "--technique", "scan", exit_code=2)


@pytest.mark.parametrize(("technique", "trigger"), [("audit", "runnel_audit"), ("trigger", "runnel_journal")])
def test_a_table_without_the_trigger_that_tells_its_changes_is_refused(
    shop: Shop, technique: str, trigger: str
) -> None:
    shop.configure(tables=["t"], writer="trigger")
    shop.cql(TABLE)
    shop.run("prepare", "shop", "--technique", technique)
    shop.cql(f"DROP TRIGGER {trigger} ON KS.t")
    said = shop.run("capture", "shop", "--technique", technique, exit_code=2)
    assert f"has no trigger {trigger}" in said
    assert f"runnel prepare shop --technique {technique}" in said


def test_tables_of_counters_are_refused(shop: Shop) -> None:
    shop.cql("CREATE TABLE KS.hits (k int PRIMARY KEY, n counter)")
    assert "RUNNEL-CASSANDRA-COUNTERS" in shop.run("prepare", "shop", "--technique", "audit", exit_code=2)


def test_collections_and_coarse_deletes_are_tracked(shop: Shop) -> None:
    shop.configure(tables=["t"])
    shop.cql(TABLE, *FILLED)
    shop.run("prepare", "shop", "--technique", "trigger")
    shop.cql("UPDATE KS.t SET l = l + [2] WHERE k = 1 AND c = 1")
    assert shop.told("trigger") == ["upd l:[1, 2] (was [1])"]
    shop.cql("DELETE FROM KS.t WHERE k = 1 AND c > 1")
    assert shop.told("trigger") == ["del v (was 20)"]
    shop.cql("DELETE FROM KS.t WHERE k = 1 AND c = 1")
    assert sorted(shop.told("trigger")) == ["del l (was [1, 2])", "del v (was 10)"]
    shop.cql("DELETE FROM KS.t WHERE k = 1")
    assert shop.told("trigger") == ["del s (was one)"]


def test_triggers_are_built_from_source_or_refused_kindly(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = shop.run("prepare", "shop", "--technique", "trigger", "--build-triggers", str(jars()))
    assert "runnel-triggers.jar" in said
    with pytest.raises(UsageError, match="RUNNEL-TRIGGER-LIBRARIES"):
        build_jar(tmp_path, tmp_path / "x.jar")
    monkeypatch.setattr(trigger_jar, "find_compiler", lambda: None)
    with pytest.raises(UsageError, match=r"RUNNEL-TRIGGER-JAVAC.*JDK"):
        build_jar(jars(), tmp_path / "x.jar")


@pytest.mark.parametrize("technique", ["audit", "trigger"])
def test_the_wrapper_leaves_the_time_to_live_of_a_table_in_force(shop: Shop, technique: str) -> None:
    shop.configure(tables=["t"], writer="application")
    shop.cql("CREATE TABLE KS.t (k int PRIMARY KEY, v int) WITH default_time_to_live = 1000")
    shop.run("prepare", "shop", "--technique", technique)
    with session_of(shop) as session:
        wrapped = TableWriter(session, shop.keyspace, "t", technique=technique)
        wrapped.set({"k": 1}, {"v": 1})
        wrapped.set({"k": 2}, {"v": 2}, ttl=50)
        wrapped.set({"k": 3}, {"v": 3}, ttl=0)
    left = {row.k: row.ttl for row in shop.cql("SELECT k, ttl(v) AS ttl FROM KS.t")}
    assert 50 < left[1] <= 1000 and 0 < left[2] <= 50 and left[3] is None
    if technique == "trigger":
        told = {delta.key[0]: delta.ttl for delta in shop.capture(technique)}
        assert told == {"1": 1000, "2": 50, "3": None}
