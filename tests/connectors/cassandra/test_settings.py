"""Every problem of a source's settings is told at once, with its place and a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from runnel.config import Secret, Source
from runnel.connectors.cassandra.settings import read_settings
from runnel.errors import Place, Problems

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"hosts": ["a", "b"], "keyspace": "shop"}


def source(**settings: Any) -> Source:
    return Source("shop", "cassandra", settings, Place("runnel.toml", 3))


def test_defaults_are_those_of_analysis(tmp_path: Path) -> None:
    settings = read_settings(source(**GOOD), tmp_path)
    assert (settings.hosts, settings.port, settings.consistency) == (("a", "b"), 9042, "ALL")
    assert (settings.capture, settings.start, settings.tables) == ("log", "snapshot", None)


def test_paths_start_from_the_project_and_secrets_stay_hidden(tmp_path: Path) -> None:
    settings = read_settings(source(**GOOD, cdc_raw="raw", user="me", password=Secret("x")), tmp_path)
    assert settings.cdc_raw == (tmp_path / "raw",)
    assert "x" not in repr(settings.password)
    offline = read_settings(source(keyspace="k", logs="logs/*", schema="s.cql"), tmp_path)
    assert offline.logs == (str(tmp_path / "logs" / "*"),)
    assert offline.schema == tmp_path / "s.cql"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ["'hosts' is missing", "'keyspace' is missing"]),
        (GOOD | {"keyspce": "x", "port": "9042"}, ["did you mean 'keyspace'", "'port' must be a whole number"]),
        (
            GOOD | {"capture": "trigge", "consistency": "SOME"},
            ["did you mean 'trigger'", "'consistency' cannot be 'SOME'"],
        ),
        (GOOD | {"separators": {"level": ":", "value": ":"}}, ["cannot be told apart"]),
        (GOOD | {"overlap": "soon", "tables": [1]}, ["no length of time", "'tables' must be a list of names"]),
        (GOOD | {"password": Secret("x")}, ["without a 'user'"]),
    ],
)
def test_every_problem_is_told_at_once(settings: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    with pytest.raises(Problems) as caught:
        read_settings(source(**settings), tmp_path)
    for text in told:
        assert text in str(caught.value)
    assert "runnel.toml:3" in str(caught.value)
