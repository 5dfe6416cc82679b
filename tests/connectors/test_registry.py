from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.config import SOURCE_TYPES, TARGET_TYPES, Source, Target
from runnel.connectors import open_source, open_target
from runnel.connectors.registry import STORES
from runnel.errors import Place, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def source(type_: str) -> Source:
    return Source("shop", type_, {"path": "feed"}, Place("runnel.toml", 4))


def test_every_type_the_settings_know_has_a_connector_but_managed_tables() -> None:
    assert set(STORES) == set(SOURCE_TYPES) - {"managed"} == set(TARGET_TYPES)


def test_an_unknown_type_brings_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"RUNNEL-SOURCE-TYPE.*runnel.toml:4.*did you mean 'files'"):
        open_source(source("file"), tmp_path)


def test_a_store_that_is_not_there_yet_says_what_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STORES, "hbase", ("nothing_here", None))
    with pytest.raises(UsageError, match=r"RUNNEL-SOURCE-NOT-YET.*files"):
        open_source(source("hbase"), tmp_path)


def test_a_missing_driver_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name="happydriver")

    monkeypatch.setitem(STORES, "hbase", ("files", "hbase"))
    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(UsageError, match=r"RUNNEL-SOURCE-DRIVER.*runnel\[hbase\]"):
        open_source(source("hbase"), tmp_path)


def target(type_: str, **settings: object) -> Target:
    return Target("front", type_, {"v": "t"}, settings, Place("runnel.toml", 4))


def test_a_target_that_is_not_there_yet_says_what_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"RUNNEL-TARGET-NOT-YET.*delivers to cassandra, mariadb, mysql, postgres"):
        open_target(target("files"), tmp_path)


@pytest.mark.parametrize(
    ("type_", "settings", "told"),
    [
        ("postgres", {}, "'url' is missing"),
        ("postgres", {"url": "mysql://h/d"}, "'url' is no URL of PostgreSQL"),
        ("postgres", {"url": "postgresql://u:hunter2@[::1/d"}, "'url' is no URL of PostgreSQL"),
        ("postgres", {"url": "postgresql://h/d", "ulr": 1}, "unknown key 'ulr'"),
        ("postgres", {"url": "postgresql://h/d", "timeout": "soon"}, "soon"),
        ("cassandra", {"hosts": ["h"]}, "'keyspace' is missing"),
        ("cassandra", {"hosts": ["h"], "keyspace": "k", "capture": "log"}, "unknown key 'capture'"),
        ("cassandra", {"hosts": ["h"], "keyspace": "k", "password": "x"}, "a password without a 'user'"),
    ],
)
def test_settings_of_a_target_are_checked_before_anything_is_connected_to(
    tmp_path: Path, type_: str, settings: dict[str, object], told: str
) -> None:
    with pytest.raises(UsageError, match=told) as raised:
        open_target(target(type_, **settings), tmp_path)
    assert "hunter2" not in str(raised.value)
