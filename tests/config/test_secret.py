from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel import config
from runnel.config.secret import interpolate
from runnel.errors import Problems

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, text: str, **environment: str) -> config.Config:
    (folder / "runnel.toml").write_text(text)
    return config.load(folder, environment)


def test_a_secret_from_the_environment_is_usable_and_never_printed(tmp_path: Path) -> None:
    text = '[sources.s]\ntype = "postgres"\nurl = "postgresql://me:${PW}@h/db"\nhosts = ["${HOST}"]\n'
    loaded = load(tmp_path, text, PW="hunter2", HOST="inner.example")
    settings = loaded.sources[0].settings
    assert config.reveal(settings) == {"url": "postgresql://me:hunter2@h/db", "hosts": ["inner.example"]}
    assert "hunter2" not in f"{loaded!r} {settings} {settings['url']}"
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    "line",
    ['password = "x9z"', 'api_key = "x9z"', 'url = "mysql://me:x9z@host/db"', 'auth_token = "x9z"',
     'url = "jdbc:postgresql://host/db?user=a&password=x9z"'],
)  # fmt: skip
def test_a_literal_secret_is_hidden_and_warned_about(tmp_path: Path, line: str) -> None:
    loaded = load(tmp_path, f'[sources.s]\ntype = "mysql"\n{line}\n')
    (warning,) = loaded.warnings
    assert warning.code == "RUNNEL-CONFIG-SECRET"
    assert "runnel.toml:3" in str(warning)
    assert "x9z" not in f"{loaded!r} {warning}"


def test_ordinary_settings_are_no_secrets(tmp_path: Path) -> None:
    text = '[sources.s]\ntype = "files"\npath = "feed"\nkey = { orders = ["id"] }\nurl = "http://host:80/a@b"\n'
    loaded = load(tmp_path, text)
    assert loaded.warnings == ()
    assert loaded.sources[0].settings["url"] == "http://host:80/a@b"


def test_every_variable_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problems) as told:
        load(tmp_path, '[sources.s]\ntype = "mysql"\nuser = "${A_USER}"\npassword = "${A_PASSWORD}"\n')
    assert [(p.code, "A_" in p.message) for p in told.value.problems] == [("RUNNEL-CONFIG-VARIABLE", True)] * 2


def test_two_dollars_stand_for_one() -> None:
    assert interpolate("$${A} $5 ${A}", {"A": "a"}) == ("${A} $5 a", True)


@given(st.text())
def test_no_text_of_a_secret_shows(value: str) -> None:
    secret = config.Secret(value)
    assert {repr(secret), str(secret), f"{secret}", "%s" % secret} == {"***"}  # noqa: UP031
    assert secret.reveal() == value
