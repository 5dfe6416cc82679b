"""What MariaDB and MySQL promise: exact keys whatever the collation, one transaction for all views, few privileges, locks of others."""

from __future__ import annotations

import datetime as dt
import socket
import threading
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from runnel.errors import RunnelError
from runnel.model import types
from tests.connectors.targets.conftest import Front, state, wait_until
from tests.connectors.targets.stores import MysqlStore
from tests.connectors.targets.test_delivery import fill, run_child, same
from tests.servers.mariadb import mariadb_program
from tests.servers.mysql import mysql_program, server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runnel.project import Project


INNODB_TRX_PAUSE = 0.25
"""Seconds between two looks: the server keeps what it answered for as long as it is asked again within a tenth of a second."""


@pytest.fixture
def front(mysql_front: Front) -> Front:
    return mysql_front


def store_of(front: Front) -> MysqlStore:
    assert isinstance(front.store, MysqlStore)
    return front.store


@contextmanager
def locked(front: Front, sql: str) -> Iterator[Any]:
    """Run a statement as somebody else who has not committed yet; give the cursor."""
    store = store_of(front)
    with store.server.connect(store.database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        yield cursor
        connection.commit()


def waiting(front: Front) -> list[int]:
    """Give the connections that wait for a lock."""
    sql = "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
    return [row[0] for row in store_of(front).server.sql(sql)]


@contextmanager
def delivering(project: Project) -> Iterator[None]:
    """Deliver meanwhile; raise what went wrong there."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            project.run(once=True)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(timeout=120)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def test_a_user_needs_no_more_than_the_documentation_says(front: Front) -> None:
    store = store_of(front)
    makes, fills = f"m_{store.database[2:]}", f"f_{store.database[2:]}"
    for user in (makes, fills):
        store.server.sql(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'pw'")
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE TEMPORARY TABLES"
    store.server.sql(f"GRANT {rights} ON {store.database}.* TO {makes}@'127.0.0.1'")
    front.configure("t", user=makes, password="pw")
    with front.open() as project:
        project.create_table("t", "id INT, a STRING", key=["id"])
        project.sql("INSERT INTO t VALUES (1, 'a')")
        with pytest.raises(RunnelError, match=r"RUNNEL-MYSQL-DENIED.*CREATE, ALTER"):
            project.run(once=True)
    assert "RUNNEL-MYSQL-DENIED" in front.command("check", exit_code=1)
    store.server.sql(f"GRANT CREATE, ALTER ON {store.database}.* TO {makes}@'127.0.0.1'")
    front.command("check")
    front.command("run", "--once")
    assert front.rows("t") == [("a", 1)]
    for table in ("t", "_runnel"):
        store.server.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {store.database}.{table} TO {fills}@'127.0.0.1'")
    store.server.sql(f"GRANT CREATE TEMPORARY TABLES ON {store.database}.* TO {fills}@'127.0.0.1'")
    front.configure("t", user=fills, password="pw")
    with front.open() as project:
        project.sql("INSERT INTO t VALUES (2, 'b'); UPDATE t SET a = 'c' WHERE id = 1")
    front.command("check")
    front.command("run", "--once")
    assert front.rows("t") == [("b", 2), ("c", 1)]


def test_a_password_is_never_shown(front: Front) -> None:
    front.configure("t", password="hunter2")
    with front.open() as project:
        project.create_table("t", "id INT", key=["id"])
    for command in (["run", "--once"], ["check"], ["status"], ["deliver", "--debug"]):
        assert "hunter2" not in front.command(
            *command, exit_code=0 if command[0] == "status" else 1 + (command[0] != "check")
        )


def test_all_views_move_in_one_transaction_and_a_lock_of_others_delays_them(front: Front) -> None:
    front.configure("takings", "sales", timeout="1s")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        before = {name: front.rows(name) for name in ("sales", "takings", "_runnel")}
        project.sql("UPDATE sales SET amount = 11 WHERE id = 1")
        with locked(front, "SELECT * FROM takings FOR UPDATE"):
            with pytest.raises(RunnelError, match="RUNNEL-MYSQL-BUSY"):
                project.run(once=True)
            assert {name: front.rows(name) for name in before} == before
        assert "RUNNEL-MYSQL-BUSY" in (state(project, "takings").error or "")
        project.run(once=True)
        same(front, project)
        assert state(project, "takings").error is None
        assert front.store.mark("takings")["epoch"] == front.store.mark("sales")["epoch"]


def test_rows_that_stay_equal_are_not_written(front: Front) -> None:
    front.configure("t")
    with front.open() as project:
        project.create_table("t", "id INT, x INT, a STRING, d DOUBLE, m MAP<STRING,INT>", key=["id"])
        project.sql(
            "INSERT INTO t VALUES (1, 1, 'a', 0.1, map('k', 1)), (2, 2, 'b', -0.0, NULL), (3, 3, NULL, 1e300, NULL)"
        )
        project.run(once=True)
        front.store.run(
            "CREATE TABLE touched (id int)",
            "CREATE TRIGGER touch AFTER UPDATE ON t FOR EACH ROW INSERT INTO touched VALUES (NEW.id)",
        )
        project.sql("UPDATE t SET a = 'B' WHERE id = 2")
        assert project.deliver(full=True)["front"].rows == 1
        assert front.rows("touched") == [(2,)]
        assert front.rows("t", "id", "a") == [(1, "a"), (2, "B"), (3, None)]


def test_a_dead_lock_with_somebody_else_is_tried_again(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    front.configure("t")
    with front.open() as project:
        project.create_table("t", "id INT, x INT", key=["id"])
        project.sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        project.run(once=True)
        front.store.run("ALTER TABLE t ADD COLUMN note varchar(9)", "CREATE TABLE heavy (n int PRIMARY KEY)")
        store = store_of(front)
        in_order = [
            row[0] for row in store.server.sql("SELECT id FROM t ORDER BY _runnel_key", database=store.database)
        ]
        project.sql("UPDATE t SET x = 10")
        with locked(front, f"UPDATE t SET note = 'mine' WHERE id = {in_order[-1]}") as other:
            # Who has written less is the one that the server ends.
            other.execute("INSERT INTO heavy VALUES " + ", ".join(f"({n})" for n in range(1000)))
            with delivering(project):
                wait_until(lambda: bool(waiting(front)), pause=INNODB_TRX_PAUSE)
                other.execute(f"UPDATE t SET note = 'mine' WHERE id = {in_order[0]}")
                other.connection.commit()
        assert "RUNNEL-MYSQL-BUSY" in caplog.text
        assert "deadlock" in caplog.text.lower()
        assert front.rows("t", "id", "x") == [(1, 10), (2, 10), (3, 10)]
        notes = {row["id"]: row["note"] for row in front.store.rows("t")}
        assert notes == dict.fromkeys((1, 2, 3)) | {in_order[0]: "mine", in_order[-1]: "mine"}


def test_a_connection_that_is_killed_in_the_middle_loses_nothing(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        project.sql("UPDATE sales SET amount = 99 WHERE id = 1; DELETE FROM sales WHERE id = 2")
        with locked(front, "SELECT * FROM takings FOR UPDATE") as other, delivering(project):
            wait_until(lambda: bool(waiting(front)), pause=INNODB_TRX_PAUSE)
            store_of(front).server.sql(f"KILL {waiting(front)[0]}")
            other.connection.commit()
        assert "RUNNEL-MYSQL-UNREACHABLE" in caplog.text
        same(front, project)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(mariadb_program, marks=pytest.mark.mariadb, id="mariadb"),
        pytest.param(mysql_program, marks=pytest.mark.mysql, id="mysql"),
    ],
)
def test_a_server_that_is_killed_in_the_middle_has_all_of_an_epoch_or_nothing(program: Any, tmp_path: Path) -> None:
    with server(program(), "--innodb-flush-log-at-trx-commit=1") as running:
        front = Front(tmp_path, MysqlStore(running))
        front.configure("takings", "sales", timeout="5s", port=running.port)
        with front.open() as project:
            fill(project)
            project.run(once=True)
            before = {name: front.rows(name) for name in ("sales", "takings")}
            project.sql("UPDATE sales SET amount = 99 WHERE id = 1; DELETE FROM sales WHERE id = 2")
            other = running.connect(store_of(front).database, autocommit=False)
            with other.cursor() as cursor:
                cursor.execute("SELECT * FROM takings FOR UPDATE")
            thread = threading.Thread(target=project.run)
            thread.start()
            try:
                wait_until(lambda: bool(waiting(front)), pause=INNODB_TRX_PAUSE)
                running.kill()
                wait_until(lambda: "does not answer" in (state(project, "takings").error or ""))
                running.start()
                assert all(front.rows(name) in (rows, expected(project, name)) for name, rows in before.items())
                wait_until(lambda: state(project, "takings").behind == 0 == state(project, "sales").behind)
            finally:
                project.stop()
                thread.join(timeout=60)
            same(front, project)


def expected(project: Project, name: str) -> list[tuple[Any, ...]]:
    rows = project.table(name).to_pylist()
    return sorted((tuple(row[column] for column in sorted(row)) for row in rows), key=str)


def test_a_server_that_accepts_and_says_nothing_is_not_waited_for(front: Front) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        front.configure("t", timeout="1s", port=mute.getsockname()[1])
        with front.open() as project:
            project.create_table("t", "id INT", key=["id"])
        assert "does not answer" in front.command("check", exit_code=1)


STEPS = ["deliver:table-made", "deliver:sent", "deliver:rows-written", "deliver:marked"]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_after_any_step_is_made_up_for(front: Front, step: str) -> None:
    """A first load, a change, and a table that somebody dropped: its mark must not vouch for the empty one that is made then."""
    front.configure("takings", "sales")
    with front.open() as project:
        fill(project)
    run_child(front, step)
    with front.open() as project:
        project.run(once=True)
        same(front, project)
        project.sql("UPDATE sales SET amount = 99 WHERE id = 1; DELETE FROM sales WHERE id = 2")
    run_child(front, step)
    with front.open() as project:
        project.sql("UPDATE sales SET amount = 10 WHERE id = 1; INSERT INTO sales VALUES (2, 'n', 5)")
        project.run(once=True)
        same(front, project)
        project.sql("DELETE FROM sales WHERE id = 3")
    front.store.run("DROP TABLE sales")
    run_child(front, step)
    with front.open() as project:
        project.sql("UPDATE sales SET amount = 7 WHERE id = 1")
        project.run(once=True)
        same(front, project)


def test_a_target_that_was_restored_from_a_backup_catches_up(front: Front) -> None:
    front.configure("takings", "sales")
    tables = ("takings", "sales", "_runnel")
    with front.open() as project:
        fill(project)
        project.run(once=True)
        front.store.run(*(f"CREATE TABLE backup_{t} AS SELECT * FROM {t}" for t in tables))
        project.sql("UPDATE sales SET amount = 99 WHERE id = 1; DELETE FROM sales WHERE id = 2")
        project.run(once=True)
        project.sql("INSERT INTO sales VALUES (9, 'z', 9)")
        front.store.run(
            *(f"DELETE FROM {t}" for t in tables), *(f"INSERT INTO {t} SELECT * FROM backup_{t}" for t in tables)
        )
        project.run(once=True)
        same(front, project)
        front.store.run("DELETE FROM sales", "INSERT INTO sales SELECT * FROM backup_sales", "DROP TABLE _runnel")
        project.run(once=True)
        same(front, project)


def test_keys_are_exact_whatever_a_collation_takes_for_equal(front: Front) -> None:
    front.configure("v")
    long = "x" * 5000
    keys = [
        "a",
        "A",
        "a ",
        " a",
        "á",
        "\uff41",
        "",
        "a\0",
        "ß",
        "ss",
        long + "1",
        long + "2",
        "\U0001f600",
        "\U0001f601",
        None,
    ]
    with front.open() as project:
        project.create_table("t", "id INT, k STRING, x INT", key=["id"])
        project.create_view("v", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        with project.transaction() as tx:
            tx.insert(
                "t",
                pa.table(
                    {
                        "id": pa.array(range(len(keys)), pa.int32()),
                        "k": keys,
                        "x": pa.array(range(len(keys)), pa.int32()),
                    }
                ),
            )
        project.run(once=True)
        assert front.rows("v", "k", "s") == sorted(zip(keys, range(len(keys)), strict=True), key=str)
        project.sql("DELETE FROM t WHERE id % 2 = 0; UPDATE t SET x = 100 + x")
        project.run(once=True)
        left = [(key, 100 + at) for at, key in enumerate(keys) if at % 2]
        assert front.rows("v", "k", "s") == sorted(left, key=str)


def test_a_table_whose_key_ignores_case_never_gets_a_wrong_row(front: Front) -> None:
    front.configure("v")
    store_of(front).run(
        "CREATE TABLE v (k varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, s bigint)"
    )
    with front.open() as project:
        project.create_table("t", "id INT, k STRING, x INT", key=["id"])
        project.create_view("v", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        project.sql("INSERT INTO t VALUES (1, 'n', 1), (2, 'm', 2)")
        project.run(once=True)
        project.sql("UPDATE t SET k = 'N' WHERE id = 1; UPDATE t SET k = 'm ' WHERE id = 2")
        project.run(once=True)
        assert front.rows("v", "k", "s") == [("N", 1), ("m ", 2)]
        project.sql("INSERT INTO t VALUES (3, 'n', 3)")
        with pytest.raises(RunnelError, match="RUNNEL-MYSQL-DUPLICATE"):
            project.run(once=True)
        assert front.rows("v", "k", "s") == [("N", 1), ("m ", 2)]
        project.sql("DELETE FROM t WHERE id = 1")
        project.run(once=True)
        assert front.rows("v", "k", "s") == [("m ", 2), ("n", 3)]
        project.sql("INSERT INTO t VALUES (4, NULL, 1)")
        with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-KEY-NULL.*'k' is NULL"):
            project.run(once=True)


@pytest.mark.mariadb
def test_a_unique_index_over_whole_texts_which_mariadb_has_is_one(mariadb_store: MysqlStore, tmp_path: Path) -> None:
    front = Front(tmp_path, mariadb_store)
    front.configure("v")
    front.store.run("CREATE TABLE v (region longtext COLLATE utf8mb4_nopad_bin, n bigint, UNIQUE (region))")
    with front.open() as project:
        fill(project)
        project.create_view("v", "SELECT region, count(*) AS n FROM sales GROUP BY region")
        project.run(once=True)
        project.sql("UPDATE sales SET region = 'S ' WHERE id = 3")
        project.run(once=True)
        same(front, project, "v")


def test_another_key_than_the_one_a_table_was_made_by_is_refused(front: Front) -> None:
    front.configure("v", keys={"v": ["id"]})
    with front.open() as project:
        fill(project)
        project.create_view("v", "SELECT id, region FROM sales")
        project.run(once=True)
    front.configure("v", keys={"v": ["id", "region"]})
    with front.open() as project:
        project.sql("UPDATE sales SET region = 'x' WHERE id = 1")
        with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-KEY-INDEX.*another key \(hash of id\)"):
            project.run(once=True)
        front.store.run("DROP TABLE v")
        project.run(once=True)
        same(front, project, "v")


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ("id int PRIMARY KEY, a longtext, t datetime(6)) ENGINE = MyISAM", "no transactions"),
        ("id int unsigned PRIMARY KEY, a longtext, t datetime(6))", "'id' is int unsigned, and has to be int"),
        ("id int PRIMARY KEY, a longtext, t datetime(3))", r"'t' is datetime\(3\)"),
        ("id int PRIMARY KEY, a char(9), t datetime(6))", r"'a' is char\(9\)"),
        ("id int PRIMARY KEY, a longtext, t datetime(6), z int NOT NULL)", "'z' is not the view's"),
        ("id int, a longtext, t datetime(6))", "RUNNEL-TARGET-KEY-INDEX"),
    ],
)
def test_a_table_that_would_change_values_is_refused(front: Front, definition: str, told: str) -> None:
    front.configure("t")
    front.store.run(f"CREATE TABLE t ({definition}")
    with front.open() as project:
        project.create_table("t", "id INT, a STRING, t TIMESTAMP", key=["id"])
        project.sql("INSERT INTO t VALUES (1, 'a', NULL)")
        with pytest.raises(RunnelError, match=told):
            project.run(once=True)
    front.command("check", exit_code=1)


EDGES: list[tuple[str, list[Any]]] = [
    ("tinyint", [-128, 127]),
    ("smallint", [-(2**15), 2**15 - 1]),
    ("int", [-(2**31), 2**31 - 1]),
    ("bigint", [-(2**63), 2**63 - 1]),
    ("float", [-3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612, 16777217.0 - 1]),
    ("double", [-1.7976931348623157e308, 5e-324, 0.1, 2.2250738585072014e-308, 123456789012345680.0]),
    ("decimal(38,0)", [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    ("decimal(38,30)", [Decimal("99999999.999999999999999999999999999999"), Decimal("-1E-30")]),
    ("string", ["", " ", "a ", "\\", "'", '"', "%s", "\0\x1a\r\n", "\ufeff", "\U0010ffff", "é" * 300_000]),
    ("binary", [b"", bytes(range(256)), b"'\\", b"\0" * 70_000]),
    ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29)]),
    (
        "timestamp_ntz",
        [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 3, 29, 2, 30)],
    ),
    ("boolean", [True, False]),
]


def test_values_at_the_edges_are_read_back_equal(front: Front) -> None:
    front.configure(*(f"t{at}" for at in range(len(EDGES))))
    with front.open() as project:
        for at, (type_, values) in enumerate(EDGES):
            project.create_table(f"t{at}", f"id INT, v {type_}", key=["id"])
            with project.transaction() as tx:
                columns = [
                    pa.array(range(len(values)), pa.int32()),
                    pa.array(values, types.to_arrow(types.parse(type_))),
                ]
                tx.insert(f"t{at}", pa.table(columns, names=["id", "v"]))
        project.run(once=True)
        for at, (type_, values) in enumerate(EDGES):
            rows = {row["id"]: row["v"] for row in front.store.rows(f"t{at}")}
            assert rows == dict(enumerate(values)), type_
        assert project.deliver(full=True)["front"].rows == 0


def test_decimals_that_no_table_can_have_are_refused(front: Front) -> None:
    front.configure("t")
    with front.open() as project:
        project.create_table("t", "id INT, d DECIMAL(38,31)", key=["id"])
        with pytest.raises(RunnelError, match=r"RUNNEL-TARGET-COLUMN.*'d' has 31 decimals.*cast it"):
            project.run(once=True)
    assert "31 decimals" in front.command("check", exit_code=1)


def insert(project: Project, rows: dict[int, str]) -> None:
    with project.transaction() as tx:
        tx.insert("t", pa.table({"id": pa.array(rows, pa.int32()), "a": list(rows.values())}))


def test_rows_come_in_packets_that_the_server_takes_and_a_longer_row_is_told(front: Front) -> None:
    front.configure("t")
    server = store_of(front).server
    ((before,),) = server.sql("SELECT @@GLOBAL.max_allowed_packet")
    server.sql("SET GLOBAL max_allowed_packet = 65536")
    try:
        with front.open() as project:
            project.create_table("t", "id INT, a STRING", key=["id"])
            insert(project, dict.fromkeys(range(300), "é" * 1000))
            project.run(once=True)
            same(front, project, "t")
            project.sql("INSERT INTO t VALUES (1000, repeat('x', 70000))")
            with pytest.raises(RunnelError, match=r"RUNNEL-MYSQL-PACKET.*t: a row is 70\d\d\d bytes"):
                project.run(once=True)
            server.sql("SET GLOBAL max_allowed_packet = 1048576")
            project.run(once=True)
            same(front, project, "t")
    finally:
        server.sql(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_row_may_repeat_thousands_of_times(front: Front) -> None:
    front.configure("bag")
    with front.open() as project:
        project.create_table("t", "id INT, a STRING", key=["id"])
        project.create_view("bag", "SELECT a FROM t")
        insert(project, dict.fromkeys(range(3000), "a"))
        project.run(once=True)
        assert front.rows("bag") == [("a",)] * 3000
        project.sql("DELETE FROM t WHERE id >= 10")
        insert(project, dict.fromkeys(range(5000, 7000), "b"))
        project.run(once=True)
        assert front.rows("bag") == [("a",)] * 10 + [("b",)] * 2000
        project.sql("DELETE FROM t WHERE id > 1")
        project.run(once=True)
        assert front.rows("bag") == [("a",)] * 2


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("nowhere.t", "RUNNEL-MYSQL-DATABASE"),
        ("a.b.c", "RUNNEL-TARGET-NAME"),
        ("x.", "RUNNEL-TARGET-NAME"),
        ("information_schema.TABLES", "RUNNEL-MYSQL-TABLE"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(front: Front, table: str, told: str) -> None:
    front.configure("t")
    text = (front.folder / "runnel.toml").read_text()
    (front.folder / "runnel.toml").write_text(text.replace('"t" = "t"', f'"t" = "{table}"'))
    with front.open() as project:
        project.create_table("t", "id INT", key=["id"])
        with pytest.raises(RunnelError, match=told):
            project.run(once=True)
    assert told in front.command("check", exit_code=1)


def test_a_table_of_another_database_and_odd_names_are_delivered_to(front: Front) -> None:
    other = store_of(front).server.database()
    front.configure("t")
    text = (front.folder / "runnel.toml").read_text()
    (front.folder / "runnel.toml").write_text(text.replace('"t" = "t"', f'"t" = "`{other}`.`my.ta``ble`"'))
    with front.open() as project:
        project.create_table("t", "`i``d` INT, `select` INT, `{a}` INT, `x%s` INT", key=["i`d"])
        project.sql("INSERT INTO t VALUES (1, 1, 1, 1), (2, 2, 2, 2)")
        project.run(once=True)
        project.sql("DELETE FROM t WHERE `i``d` = 1; UPDATE t SET `{a}` = 3")
        project.run(once=True)
    found = store_of(front).server.sql("SELECT `i``d`, `select`, `{a}`, `x%s` FROM `my.ta``ble`", database=other)
    assert found == ((2, 2, 3, 2),)
