from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.config import SOURCE_TYPES, Source
from runnel.connectors import open_source
from runnel.connectors.registry import STORES
from runnel.errors import Place, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def source(type_: str) -> Source:
    return Source("shop", type_, {"path": "feed"}, Place("runnel.toml", 4))


def test_every_type_the_settings_know_has_a_connector_but_managed_tables() -> None:
    assert set(STORES) == set(SOURCE_TYPES) - {"managed"}


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
