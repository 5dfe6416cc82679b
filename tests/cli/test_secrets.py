"""No secret in output, logs, state or process list: each place that takes one has one of its own here, and all are looked for."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import runnel
from runnel import config
from runnel.config import Secret
from runnel.connectors.postgres.client import connect
from runnel.connectors.postgres.settings import Settings
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError, Terminal
from runnel.redaction import know, normal, redacted, secrets_in, shown
from tests.cli.conftest import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.testing import Result

MARK = "hunter2SECRET"
URLS = {
    "in its place": f"postgresql://me:{MARK}@127.0.0.1:1/db",
    "with an @": f"postgresql://me:p@{MARK}@127.0.0.1:1/db",
    "with a slash and a question mark": f"postgresql://me:p/{MARK}?x@127.0.0.1:1/db",
    "escaped": f"postgresql://me:p%40{MARK}%2F@127.0.0.1:1/db",
    "as a parameter": f"postgresql://127.0.0.1:1/db?user=me&password={MARK}",
    "of a key file": f"postgresql://me@127.0.0.1:1/db?sslmode=require&sslpassword={MARK}",
}
TABLE = "CREATE TABLE t (id BIGINT, PRIMARY KEY (id));"


def files_with(folder: Path, text: str = MARK) -> list[str]:
    return [str(p) for p in folder.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


@pytest.mark.parametrize("url", URLS.values(), ids=URLS.keys())
@pytest.mark.parametrize("debug", [False, True])
def test_the_password_of_a_catalog_is_never_printed(
    tmp_path: Path, command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, url: str, *, debug: bool
) -> None:
    monkeypatch.setenv("CAT", url)
    folder = write(tmp_path / "p", tables_t=TABLE, toml='[state]\ncatalog = "${CAT}"\n')
    for name in ("status", "check"):
        done = command("--project", folder, *(["--debug"] if debug else []), name)
        assert done.exit_code != 0
        assert "127.0.0.1" in done.output  # what is not secret is told
        assert MARK not in done.output
    assert not files_with(folder)


def test_no_secret_of_any_place_is_printed_or_stored(
    tmp_path: Path, command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("PASSWORD", "CASSANDRA", "S3", "NOTE", "REMOTE"):
        monkeypatch.setenv(f"IT_{place}", f"{MARK}{place}==")
    toml = """[spark]
remote = "sc://127.0.0.1:1/;token=${IT_REMOTE}"
conf = { "spark.hadoop.fs.s3a.secret.key" = "${IT_S3}", "spark.shop.note" = "${IT_NOTE}" }
[sources.shop]
type = "cassandra"
hosts = ["127.0.0.1"]
port = 1
keyspace = "k"
user = "me"
password = "${IT_CASSANDRA}"
timeout = "1 second"
[targets.apart]
type = "postgres"
url = "postgresql://me@127.0.0.1:1/db"
password = "${IT_PASSWORD}"
timeout = "2 seconds"
views = { t = "public.t" }
"""
    for number, url in enumerate([URLS["with an @"], URLS["as a parameter"]]):
        monkeypatch.setenv(f"IT_URL{number}", url)
        toml += (
            f'[targets.front{number}]\ntype = "postgres"\nurl = "${{IT_URL{number}}}"\nviews = {{ t = "public.t" }}\n'
        )
    folder = write(tmp_path / "p", tables_t=TABLE, toml=toml)
    said = repr(config.load(folder))
    for args in (("run", "--once", "--debug"), ("status", "--json"), ("check",)):
        said += command("--project", folder, *args).output
    assert "RUNNEL-CASSANDRA-DOWN" in said
    assert "RUNNEL-POSTGRES-DOWN" in said
    assert "127.0.0.1" in said
    assert MARK not in said
    assert not files_with(folder)


def test_an_error_of_a_driver_shows_no_password_however_far_down_its_chain(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings("targets.front", Secret(f"postgresql://me:p@{MARK}@127.0.0.1:1/db"), timeout=2)
    with pytest.raises(RunnelError) as told:
        connect(settings)
    error: BaseException | None = told.value
    while error is not None:
        assert MARK not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__
    assert MARK not in "".join(traceback.format_exception(told.value))
    try:
        raise psycopg.OperationalError(f"failed to resolve host '{MARK}@127.0.0.1'")
    except psycopg.OperationalError:
        logging.getLogger("runnel").exception("no host %s", MARK)
    assert "failed to resolve host '***@127.0.0.1'" in caplog.text
    assert MARK not in caplog.text


def test_a_project_that_cannot_be_opened_by_the_api_tells_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAT", URLS["with an @"])
    folder = write(tmp_path / "p", tables_t=TABLE, toml='[state]\ncatalog = "${CAT}"\n')
    with pytest.raises(RunnelError) as told:
        runnel.open(folder, engine=DuckDbEngine())
    assert "127.0.0.1:1/db" in str(told.value)
    assert MARK not in "".join(traceback.format_exception(told.value))


def test_a_url_is_split_at_the_last_at_sign() -> None:
    for name in ("with an @", "with a slash and a question mark", "escaped"):
        assert psycopg.conninfo.conninfo_to_dict(normal(URLS[name]))["host"] == "127.0.0.1"
        assert MARK in str(psycopg.conninfo.conninfo_to_dict(normal(URLS[name]))["password"])
    assert normal("postgresql://h/db?user=a@b") == "postgresql://h/db?user=a@b"
    assert shown("jdbc:mysql://h/db?user=a&password=b") == "jdbc:mysql://h/db?user=a&password=***"


def test_a_secret_is_found_as_it_was_written_decoded_encoded_or_cut() -> None:
    know("a b/c'd+correct-horse")
    assert redacted("x a b/c'd+correct-horse y") == "x *** y"
    assert redacted("x a%20b%2Fc%27d%2Bcorrect-horse y") == "x *** y"
    assert "correct-horse" not in redacted("no host c'd+correct-horse@h")
    assert secrets_in("-Djavax.net.ssl.trustStorePassword=changeit2 -Dx=1") == ["changeit2"]


def test_what_is_public_stays_readable(tmp_path: Path) -> None:
    toml = '[sources.s]\ntype = "cassandra"\nhosts = ["${HOST}"]\nport = "${PORT}"\nkeyspace = "k"\nuser = "${WHO}"\n'
    (tmp_path / "runnel.toml").write_text(toml)
    config.load(tmp_path, {"HOST": "db.example", "PORT": "9042", "WHO": "reader"})
    know("postgresql://postgres:postgres@db.example/postgres")
    assert redacted("db.example:9042 reader postgres") == "db.example:9042 reader postgres"
    know("abcd")  # a short one is no part of other words
    assert redacted("abcd abcde") == "*** abcde"


def test_a_secret_is_known_wherever_it_is_unpickled() -> None:
    packed = pickle.dumps(Secret(MARK))
    from runnel import redaction

    redaction.forget()
    assert pickle.loads(packed).reveal() == MARK
    assert str(Terminal("X", f"at {MARK}")) == "X: at ***"


def command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)


@pytest.mark.spark
def test_no_secret_of_spark_is_in_the_process_list_or_shown_by_spark(tmp_path: Path) -> None:
    toml = """[spark]
conf = { "spark.hadoop.fs.s3a.secret.key" = "${IT_S3}", "spark.shop.note" = "${IT_NOTE}", "spark.shop.plain" = "seen",\
 "spark.driver.memory" = "1g", "spark.driver.extraJavaOptions" = "-Dshop.password=${IT_JAVA}" }
"""
    folder = write(tmp_path / "p", tables_u="CREATE TABLE u (id BIGINT, PRIMARY KEY (id));", toml=toml)
    values = {"IT_S3": f"{MARK} s3#=:\\x", "IT_NOTE": f"{MARK}note", "IT_JAVA": f"{MARK}java"}
    environment = {**os.environ, **values, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    child = Path(__file__).parents[1] / "project" / "spark_secret_child.py"
    process = subprocess.Popen(
        [sys.executable, str(child), str(folder)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    seen: set[str] = set()
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.02):
            seen.add(command_lines())

    watcher = threading.Thread(target=sample)
    watcher.start()
    said, _ = process.communicate()
    done.set()
    watcher.join()
    assert process.returncode == 0, said
    assert any("org.apache.spark.deploy.SparkSubmit" in lines for lines in seen)
    assert not [lines for lines in seen if MARK in lines]
    assert MARK not in said
    assert not files_with(tmp_path)
    assert (
        f"got {hashed(values['IT_S3'])} {hashed(values['IT_NOTE'])} {hashed('seen')} {hashed(values['IT_JAVA'])}"
        in said
    )
    assert "shown *********(redacted) *********(redacted) seen" in said
    assert not list((tmp_path / "tmp").glob("runnel-start-*"))


def hashed(value: Any) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()[:12]
