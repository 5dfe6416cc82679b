from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel import config
from runnel.errors import Place, Problems, UsageError

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """\
[project]
name = "shop"

[state]
catalog = "sqlite:.runnel/catalog.sqlite"
data = "lake"
keep = 7

[spark]
master = "local[2]"
conf = { "spark.driver.memory" = "4g", "spark.ui.enabled" = false }

[run]
epoch = "5 seconds"
max_rows = 1_000

[sources.shop]
type = "postgres"
tables = ["orders"]
password = "${DB_PASSWORD}"

[targets.front]
type = "postgres"
url = "${FRONT_URL}"
views = { revenue = "public.revenue" }

[rebuild.recent]
tables = ["shop.orders"]
where = "created_at > current_date - INTERVAL 7 DAYS"
every = "30 minutes"
"""
ENVIRONMENT = {"DB_PASSWORD": "hunter2", "FRONT_URL": "postgresql://me:pw@host/db"}


def project(folder: Path, text: str, **files: str) -> Path:
    (folder / "runnel.toml").write_text(text)
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".sql").write_text(content)
    return folder


def problems(folder: Path, text: str) -> list[UsageError]:
    with pytest.raises(Problems) as told:
        config.load(project(folder, text), {})
    return [problem for problem in told.value.problems if isinstance(problem, UsageError)]


def test_every_setting_is_read_into_its_place(tmp_path: Path) -> None:
    loaded = config.load(project(tmp_path, WHOLE), ENVIRONMENT)
    assert loaded.project.name == "shop"
    assert loaded.state == config.State(f"sqlite:{tmp_path}/.runnel/catalog.sqlite", str(tmp_path / "lake"), 7)
    assert loaded.spark.conf == {"spark.driver.memory": "4g", "spark.ui.enabled": "false"}
    assert loaded.run == config.Run(epoch=5.0, max_rows=1000)
    assert loaded.sources[0].at("password") == Place("runnel.toml", 20, 1)
    assert loaded.targets[0].views == {"revenue": "public.revenue"}
    assert loaded.rebuilds[0].every == 1800
    assert loaded.warnings == ()


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    loaded = config.load(project(tmp_path, ""))
    assert loaded.project.name == tmp_path.name
    assert loaded.state == config.State(f"sqlite:{tmp_path}/.runnel/catalog.sqlite", str(tmp_path / ".runnel/data"))
    assert (loaded.spark.master, loaded.spark.remote, loaded.run.epoch) == ("local[*]", None, 0.1)


def test_a_folder_without_a_project_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="RUNNEL-PROJECT-MISSING") as told:
        config.load(tmp_path)
    assert told.value.hint is not None
    assert "runnel init" in told.value.hint


def test_every_problem_is_told_at_once_with_its_line_and_a_hint(tmp_path: Path) -> None:
    text = """\
[proyect]
name = "x"
[run]
epoch = "5 parsecs"
max_rows = 0
maxrows = 5
[sources.shop]
type = "postgras"
[sources.other]
hosts = ["h"]
[targets."my front"]
type = "files"
[state]
catalog = "mysql://h/db"
"""
    found = [(p.code.removeprefix("RUNNEL-CONFIG-"), p.place.line if p.place else 0) for p in problems(tmp_path, text)]
    assert found == [
        ("UNKNOWN", 1),
        ("DURATION", 4),
        ("TYPE", 5),
        ("UNKNOWN", 6),
        ("STORE", 8),
        ("MISSING", 9),
        ("NAME", 11),
        ("CATALOG", 14),
    ]


def test_a_misspelt_key_brings_the_nearest_one(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "[run]\nmax_row = 5\n")
    assert str(problem) == (
        "RUNNEL-CONFIG-UNKNOWN: unknown key 'max_row' in [run] (runnel.toml:2:1); did you mean 'max_rows'?"
    )


@pytest.mark.parametrize(
    ("text", "line"), [("[run\nepoch = 1", 1), ("a = 1\na = 2\n", 2), ("[run]\nepoch = ", 2), ("x = 'open", 1)]
)
def test_a_syntax_error_names_its_line(tmp_path: Path, text: str, line: int) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.code == "RUNNEL-CONFIG-SYNTAX"
    assert problem.place is not None
    assert problem.place.line == line


@pytest.mark.parametrize(
    "text",
    ["sources = 5", "[sources]\nshop = 5", "[spark]\nconf = 5", "[run]\nmax_rows = true", "[project]\nname = 5",
     "[targets.t]\ntype = 'files'\nviews = 3", "[targets.t]\ntype = 'files'\nviews = {a = 3}", "[run]\nepoch = []",
     "[rebuild.r]\ntables = 'x'\nevery = '1 day'", "[state]\nkeep = 'all'", "[sources.s]\ntype = 5"],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_a_problem_and_no_crash(tmp_path: Path, text: str) -> None:
    assert all(problem.code.startswith("RUNNEL-CONFIG-") for problem in problems(tmp_path, text))


def test_a_rebuild_of_an_unknown_source_is_a_problem(tmp_path: Path) -> None:
    text = "[sources.shop]\ntype = 'files'\n[rebuild.r]\ntables = ['shap.orders']\nevery = '1 day'\n"
    (problem,) = problems(tmp_path, text)
    assert (problem.code, problem.hint) == ("RUNNEL-CONFIG-SOURCE", "did you mean 'shop'?")


def test_a_target_may_name_the_keys_of_its_views(tmp_path: Path) -> None:
    views = "[targets.t]\ntype = 'postgres'\nurl = 'x'\nviews = { a = 'x', b = 'y' }\n"
    target = config.load(project(tmp_path, views + "keys = { a = ['i', 'j'], b = 'k' }")).targets[0]
    assert target.keys == {"a": ("i", "j"), "b": ("k",)}
    assert dict(target.settings) == {"url": "x"}
    for keys in ("{ a = 3 }", "{ a = [] }", "{ c = ['i'] }", "3"):
        (problem,) = problems(tmp_path, f"{views}keys = {keys}")
        assert problem.message.startswith("targets.t.keys")
    (problem,) = problems(tmp_path, "[targets.t]\ntype = 'postgres'\nviews = { a = 'x', b = 'x' }")
    assert problem.message == "targets.t.views gives one table to two views"


def test_sql_files_come_tables_first_and_sorted(tmp_path: Path) -> None:
    loaded = config.load(project(tmp_path, "", views__b="B", views__a="A", tables__z="Z"))
    assert [(file.path, file.text) for file in loaded.sql_files] == [
        ("tables/z.sql", "Z"),
        ("views/a.sql", "A"),
        ("views/b.sql", "B"),
    ]


def test_a_file_that_is_not_utf8_is_a_problem_with_its_line(tmp_path: Path) -> None:
    project(tmp_path, "", views__a="")
    (tmp_path / "views" / "a.sql").write_bytes(b"SELECT 1\n\xff\n")
    with pytest.raises(Problems, match=r"RUNNEL-CONFIG-ENCODING.*views/a.sql:2"):
        config.load(tmp_path)


def test_an_absolute_catalog_and_a_remote_data_folder_stay_as_they_are(tmp_path: Path) -> None:
    text = '[state]\ncatalog = "sqlite:/var/lib/c.sqlite"\ndata = "s3a://bucket/lake"\n'
    state = config.load(project(tmp_path, text)).state
    assert (state.catalog, state.data) == ("sqlite:/var/lib/c.sqlite", "s3a://bucket/lake")


def test_how_often_views_are_proved_is_read_and_checked(tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[run]\nprove = "10 minutes"\non_difference = "stop"\n')
    run = config.load(tmp_path).run
    assert (run.prove, run.on_difference) == (600.0, "stop")
    (tmp_path / "runnel.toml").write_text('[run]\non_difference = "rebild"\n')
    with pytest.raises((Problems, UsageError)) as caught:
        config.load(tmp_path)
    assert "rebuild" in str(caught.value)
