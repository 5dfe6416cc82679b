"""Settings that decide what a view means are kept with it: under others it is made anew by name, or not followed; never mixed."""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.engine.meaning import decides, meaning
from runnel.errors import RunnelError, RunnelWarning

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.project import Project

TIME_ZONE = "spark.sql.session.timeZone"


def opened(folder: Path, settings: dict[str, str], *, sync: bool = True) -> Project:
    """Open a project on an engine that says it has these settings."""
    engine = DuckDbEngine()
    engine.meaning = meaning(settings)
    (folder / "runnel.toml").write_text('[project]\nname = "x"\n')
    return runnel.open(folder, engine=engine, sync=sync)


def define(project: Project) -> None:
    project.create_table("t", "id BIGINT, k STRING, x BIGINT", key=["id"])
    project.create_view("v", "SELECT k, sum(x) AS s, max(x) AS m FROM t GROUP BY k")
    project.create_view("over", "SELECT count(*) AS n FROM v")
    project.sql("INSERT INTO t VALUES (1, 'a', 5), (2, 'b', 6)")


def made(project: Project) -> dict[str, int]:
    return {name: project.runtime.lake.snapshot().table_id(name) for name in ("v", "over")}


def test_views_are_made_anew_by_name_when_a_setting_that_decides_meaning_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, {}) as project:
        define(project)
        before = made(project)
    with opened(tmp_path, {"spark.sql.shuffle.partitions": "3", TIME_ZONE: "UTC"}) as project:
        assert made(project) == before  # nothing that decides
    with caplog.at_level(logging.INFO, "runnel"), opened(tmp_path, {TIME_ZONE: "America/New_York"}) as project:
        said = f"view v made anew under other settings: {TIME_ZONE} was UTC and is America/New_York"
        assert said in caplog.text
        after = made(project)
        assert not {*after.values()} & {*before.values()}
        entries = project.runtime.lake.snapshot().entries.values()
        assert {one.settings[TIME_ZONE] for one in entries} == {"America/New_York"}
        project.sql("DELETE FROM t WHERE id = 1")
        assert all(report.ok for report in project.verify_all())
    with opened(tmp_path, {TIME_ZONE: "America/New_York"}) as project:
        assert made(project) == after
    with opened(tmp_path, {}) as project:
        assert made(project) != after
        assert all(not one.settings for one in project.runtime.lake.snapshot().entries.values())


def test_two_processes_with_different_settings_do_not_mix_them(tmp_path: Path) -> None:
    with opened(tmp_path, {}) as one:
        define(one)
        with opened(tmp_path, {"spark.sql.ansi.enabled": "false"}) as other:
            with pytest.warns(RunnelWarning, match="ansi.enabled was false and is true"), one.transaction() as tx:
                tx.insert("t", {"id": 3, "k": "a", "x": 1})
            assert tx.failed.keys() == {"v", "over"}
            with pytest.raises(RunnelError) as told:
                one.verify("v")
            assert told.value.code == "RUNNEL-VIEW-SETTINGS"
            with pytest.raises(RunnelError):
                one.refresh("v", full=True)
            other.sql("INSERT INTO t VALUES (4, 'b', 1)")  # the one that has them goes on
            assert sorted(r["s"] for r in other.view("v").to_pylist(strict=True)) == [6, 7]


def test_a_project_opened_without_its_files_changes_no_view(tmp_path: Path) -> None:
    with opened(tmp_path, {}) as project:
        define(project)
        before = made(project)
    with opened(tmp_path, {TIME_ZONE: "Asia/Tokyo"}, sync=False) as project:
        assert made(project) == before
        with pytest.warns(RunnelWarning, match="RUNNEL-VIEW-SETTINGS"):
            project.sql("INSERT INTO t VALUES (3, 'c', 1)")
        with pytest.warns(RunnelWarning, match="RUNNEL-VIEW-FAILED"):
            assert len(project.view("v").to_pylist()) == 2


def test_an_event_view_goes_on_with_what_it_has_gathered(tmp_path: Path) -> None:
    with opened(tmp_path, {}) as project:
        define(project)
        project.create_view("log", "SELECT new.id AS id FROM CHANGES(t)")
        project.sql("INSERT INTO t VALUES (3, 'c', 1)")
    with opened(tmp_path, {TIME_ZONE: "Asia/Tokyo"}) as project:
        project.sql("INSERT INTO t VALUES (4, 'c', 1)")
        assert sorted(row["id"] for row in project.view("log").to_pylist()) == [3, 4]


def test_a_setting_that_is_not_known_to_be_harmless_counts() -> None:
    deciding = (TIME_ZONE, "spark.sql.ansi.enabled", "spark.sql.caseSensitive", "spark.sql.legacy.timeParserPolicy",
                "spark.sql.mapKeyDedupPolicy", "spark.sql.groupByAliases", "spark.sql.decimalOperations.allowPrecisionLoss",
                "spark.sql.timestampType", "spark.sql.nobody.knows.it")  # fmt: skip
    assert [key for key in deciding if not decides(key)] == []
    assert (
        meaning({"spark.sql.adaptive.enabled": "false", "spark.driver.memory": "1g", "spark.sql.ansi.enabled": "TRUE"})
        == {}
    )
    hidden = meaning({"spark.sql.some.token": "hunter2SECRET"}, ["spark.sql.some.token"])
    assert hidden
    assert "hunter2SECRET" not in str(hidden)


@pytest.mark.spark
def test_on_spark_a_changed_time_zone_leaves_no_row_of_the_old_one(tmp_path: Path) -> None:
    def on_spark(conf: str) -> Project:
        text = f'[project]\nname = "x"\n[spark]\nconf = {{ "spark.driver.memory" = "1g"{conf} }}\n'
        (tmp_path / "runnel.toml").write_text(text)
        return runnel.open(tmp_path)

    with on_spark("") as project:
        project.create_table("t", "id BIGINT, ts TIMESTAMP", key=["id"])
        project.create_view("day", "SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM t GROUP BY CAST(ts AS DATE)")
        rows = [
            {"id": i, "ts": dt.datetime(2024, 3, 10, hour, 30, tzinfo=dt.UTC)} for i, hour in enumerate((1, 2, 12, 13))
        ]
        with project.transaction() as tx:
            tx.insert("t", rows)
        assert project.view("day").to_pylist() == [{"d": dt.date(2024, 3, 10), "n": 4}]
    with on_spark(f', "{TIME_ZONE}" = "America/New_York"') as project:
        engine = project.runtime.engine
        ours = engine._registry(quick=True).session  # type: ignore[attr-defined]
        assert (ours.conf.get(TIME_ZONE), engine.light) == ("America/New_York", 0)
        with project.transaction() as tx:
            tx.delete("t", [0])
        found = {row["d"].day: row["n"] for row in project.view("day").to_pylist()}
        assert found == {9: 1, 10: 2}
        assert project.verify("day").ok
