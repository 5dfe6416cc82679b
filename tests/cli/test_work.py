from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.cli import work
from runnel.engine.duckdb import DuckDbEngine
from runnel.lake import files
from runnel.lake.entries import Commit
from runnel.project.project import Project

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.testing import Result

    Command = Callable[..., Result]


def spoil(folder: Path) -> None:
    """Put a row into a view's stored rows that its query does not give."""
    with runnel.open(folder, engine=DuckDbEngine()) as project:
        lake = project.runtime.lake
        head = lake.snapshot()
        large = head.relations["large"]
        rows = project.view("large").to_arrow().slice(0, 1)
        wrong = rows.append_column("_weight", [[1]])
        lake.publish(Commit(base=head.epoch, add=[lake.write(large, wrong)], frontiers=dict.fromkeys(head.views)))


def test_init_writes_a_project_that_checks_runs_and_answers(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert command("init", folder).exit_code == 0
    assert command("check", "--project", folder).exit_code == 0
    assert not (folder / ".runnel").exists(), "check makes no state"
    assert command("run", "--once", "--project", folder).exit_code == 0
    rows = json.loads(command("show", "per_product", "--format", "json", "--project", folder).stdout)
    assert {row["product"]: row["n"] for row in rows} == {10: 2, 11: 1}
    again = command("init", folder)
    assert again.exit_code == 2
    assert "RUNNEL-PROJECT-EXISTS" in again.stderr


def test_init_writes_an_example_by_its_name_and_refuses_others(command: Command, tmp_path: Path) -> None:
    """What the example does is run by `tests/docs/test_sync_page.py`."""
    folder = tmp_path / "front"
    unknown = command("init", "--example", "snyc", folder)
    assert unknown.exit_code == 2
    assert "RUNNEL-EXAMPLE-UNKNOWN" in unknown.stderr
    assert "did you mean 'sync'?" in unknown.stderr
    assert not folder.exists()
    assert command("init", "--example", "sync", folder).exit_code == 0
    assert 'epoch = "transaction"' in (folder / "runnel.toml").read_text()
    assert "RUNNEL-PROJECT-EXISTS" in command("init", "--example", "sync", folder).stderr


def test_run_once_reads_each_file_once(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    command("init", folder)
    command("run", "--once", "--project", folder)
    (folder / "feed/orders/0002.jsonl").write_text('{"id": 4, "customer": 1, "product": 11, "amount": 1}\n')
    for _ in range(2):
        assert command("run", "--once", "--project", folder).exit_code == 0
        rows = json.loads(command("show", "per_product", "--format", "json", "--project", folder).stdout)
        assert {row["product"]: row["n"] for row in rows} == {10: 2, 11: 2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_cleanly(
    command: Command, shop: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    started = threading.Event()

    def run(self: Project, once: bool = False, on_epoch: object = None) -> None:
        self._stop.clear()
        started.set()
        assert self._stop.wait(30), "the run was told to stop"

    monkeypatch.setattr(Project, "run", run)

    def send() -> None:
        started.wait(30)
        os.kill(os.getpid(), number)

    threading.Thread(target=send).start()
    before = signal.getsignal(number)
    assert command("run", "--project", shop).exit_code == 0
    assert signal.getsignal(number) is before


def test_a_second_signal_abandons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    codes: list[int] = []
    monkeypatch.setattr("runnel.cli.work.os._exit", codes.append)
    job = work.Job(tmp_path, once=False)
    job.on_signal(signal.SIGINT, None)
    assert codes == []
    job.on_signal(signal.SIGINT, None)
    assert codes == [130]


def test_sigterm_ends_a_run_that_hangs(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the epoch waits for, the process ends; here the end itself is what lets the run go on."""
    started, ended = threading.Event(), threading.Event()
    codes: list[int] = []

    def run(self: Project, once: bool = False, on_epoch: object = None) -> None:
        started.set()
        assert ended.wait(30), "the run was abandoned"

    def leave(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(Project, "run", run)
    monkeypatch.setattr("runnel.cli.work.os._exit", leave)
    monkeypatch.setattr(work, "GRACE_SECONDS", 0.05)
    job = work.Job(shop, once=False)

    def send() -> None:
        started.wait(30)
        job.on_signal(signal.SIGTERM, None)

    sender = threading.Thread(target=send)
    sender.start()
    job.work()
    sender.join()
    assert codes[0] == 143


def test_verify_says_that_views_are_right(command: Command, shop: Path) -> None:
    told = command("verify", "--project", shop)
    assert told.exit_code == 0
    assert told.stdout.count("verified") == 2


def test_verify_lists_what_differs_and_repairs_it(command: Command, shop: Path) -> None:
    spoil(shop)
    wrong = command("verify", "large", "--project", shop)
    assert wrong.exit_code == 1
    assert '+ unexpected {"id": 1, "amount": 130.00}' in wrong.stdout
    assert command("verify", "takings", "--project", shop).exit_code == 0
    mended = command("verify", "--repair", "--project", shop)
    assert mended.exit_code == 0
    assert "repaired" in mended.stdout
    assert command("verify", "--project", shop).exit_code == 0


def test_refresh_brings_a_manual_view_up_to_date(command: Command, shop: Path) -> None:
    text = "CREATE MATERIALIZED VIEW late TBLPROPERTIES ('refresh' = 'manual') AS SELECT id FROM orders"
    (shop / "views/late.sql").write_text(text)
    assert command("show", "late", "--format", "json", "--project", shop).exit_code == 0
    with runnel.open(shop, engine=DuckDbEngine()) as project:
        project.sql("INSERT INTO orders VALUES (9, 1, 1)")
    before = json.loads(command("show", "late", "--format", "json", "--project", shop).stdout)
    assert command("refresh", "late", "--project", shop).exit_code == 0
    after = json.loads(command("show", "late", "--format", "json", "--project", shop).stdout)
    assert ({"id": 9} in before, {"id": 9} in after) == (False, True)
    assert "full" in command("refresh", "late", "--full", "--project", shop).stdout


def test_compact_folds_and_changes_no_row(command: Command, shop: Path) -> None:
    before = json.loads(command("show", "takings", "--format", "json", "--project", shop).stdout)
    told = command("compact", "--project", shop)
    assert told.exit_code == 0
    assert "folded" in told.stdout
    after = json.loads(command("show", "takings", "--format", "json", "--project", shop).stdout)
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_fsck_names_what_is_damaged_and_repairs_it(command: Command, shop: Path) -> None:
    fine = command("fsck", "--project", shop)
    assert (fine.exit_code, "nothing is damaged" in fine.stdout) == (0, True)
    with runnel.open(shop, engine=DuckDbEngine()) as project:
        bad = Path(project.runtime.lake.snapshot().files("large")[0].path)
    files.forget_checks()
    data = bytearray(bad.read_bytes())
    data[-20] ^= 1
    bad.write_bytes(data)
    told = command("fsck", "--project", shop)
    assert told.exit_code == 1
    assert f"large: RUNNEL-FILE-BROKEN: its footer is not the one that was written ({bad})" in told.stdout
    repaired = command("fsck", "--repair", "--project", shop)
    assert "large: rebuilt from what it reads" in repaired.stdout
    assert command("verify", "--project", shop).exit_code == 0
