"""Views agree with each other at every epoch: money is moved at random, and no epoch shows a part of a transfer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.pipeline.transaction import Transaction
    from runnel.project import Project

VIEWS = {
    "accepted": "SELECT id, payer, payee, amount FROM transfers WHERE amount > 0",
    "credits": "SELECT payee AS account, sum(amount) AS total, count(*) AS n FROM accepted GROUP BY payee",
    "debits": "SELECT payer AS account, sum(amount) AS total, count(*) AS n FROM accepted GROUP BY payer",
    "balances": (
        "SELECT coalesce(c.account, d.account) AS account, coalesce(c.total, 0) - coalesce(d.total, 0) AS balance "
        "FROM credits c FULL JOIN debits d ON c.account = d.account"
    ),
    "total": "SELECT coalesce(sum(balance), 0) AS total FROM balances",
    "owners": (
        "SELECT a.owner AS owner, sum(coalesce(b.balance, 0)) AS balance, count(b.account) AS active "
        "FROM accounts a LEFT JOIN balances b ON b.account = a.id GROUP BY a.owner"
    ),
    "owners_total": "SELECT coalesce(sum(balance), 0) AS total FROM owners",
    "pairs": "SELECT a.id AS id, b.id AS other, a.amount - b.amount AS gap FROM accepted a LEFT JOIN accepted b ON a.id = b.id",
    "unmatched": "SELECT id FROM pairs WHERE other IS NULL OR gap <> 0",
    "strangers": "SELECT account FROM balances x WHERE NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = x.account)",
}
ZERO = {"total": 0, "owners_total": 0}
NEVER = ("unmatched", "strangers")
ACCOUNTS, EPOCHS = 8, 12


@pytest.fixture
def bank() -> Iterator[Project]:
    with runnel.memory(engine=DuckDbEngine(threads=2)) as project:
        project.create_table("accounts", "id BIGINT, owner STRING", key=["id"])
        project.create_table("transfers", "id BIGINT, payer BIGINT, payee BIGINT, amount DECIMAL(12,2)", key=["id"])
        for name, sql in VIEWS.items():
            project.create_view(name, sql)
        yield project


@pytest.mark.parametrize("seed", range(3))
def test_the_total_is_zero_and_no_unmatched_row_shows_at_any_epoch(bank: Project, seed: int) -> None:
    rng = random.Random(seed)
    assert all(bank.explain(name).incremental for name in VIEWS)
    with bank.transaction() as tx:
        tx.insert("accounts", [{"id": i, "owner": f"owner {i % 3}"} for i in range(ACCOUNTS)])
    begun, live = _epoch(tx), dict[int, dict[str, object]]()
    epochs = [_work(bank, rng, live, number) for number in range(EPOCHS)]
    epochs.append(_empty(bank, live))
    assert any(bank.view("balances").to_arrow(at=epoch).num_rows for epoch in epochs)
    for epoch in epochs:
        for name, value in ZERO.items():
            assert [row["total"] for row in bank.view(name).to_arrow(at=epoch).to_pylist()] == [value], (name, epoch)
        for name in NEVER:
            assert bank.view(name).to_arrow(at=epoch).num_rows == 0, (name, epoch)
    for name in (*ZERO, *NEVER):
        assert bank.changes(name, since=begun).num_rows == 0, f"{name} showed a row for a moment"
    assert bank.view("balances").to_arrow().num_rows == 0
    assert all(bank.verify(name).ok for name in VIEWS)


def _work(bank: Project, rng: random.Random, live: dict[int, dict[str, object]], number: int) -> int:
    """Move money in one step: new transfers, changed ones, ones taken back, now and then an account given away."""
    gone = rng.sample(sorted(live), rng.randint(0, len(live) // 3))
    left = [id_ for id_ in live if id_ not in gone]
    changed = [_transfer(rng, id_) for id_ in rng.sample(left, rng.randint(0, len(left) // 2))]
    fresh = [_transfer(rng, 100 * number + i) for i in range(rng.randint(1, 8))]
    with bank.transaction() as tx:
        tx.insert("transfers", fresh)
        tx.update("transfers", changed)
        tx.delete("transfers", [{"id": id_} for id_ in gone])
        if rng.random() < 0.3:
            tx.update("accounts", [{"id": rng.randrange(ACCOUNTS), "owner": rng.choice((None, "owner 1", "nobody"))}])
    for id_ in gone:
        del live[id_]
    live.update({_id(row): row for row in (*fresh, *changed)})
    return _epoch(tx)


def _empty(bank: Project, live: dict[int, dict[str, object]]) -> int:
    with bank.transaction() as tx:
        tx.delete("transfers", [{"id": id_} for id_ in live])
    return _epoch(tx)


def _transfer(rng: random.Random, id_: int) -> dict[str, object]:
    payer, payee = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS)
    return {"id": id_, "payer": payer, "payee": payee, "amount": f"{rng.randint(-20, 500)}.{rng.randint(0, 99):02}"}


def _epoch(tx: Transaction) -> int:
    assert tx.epoch is not None
    return tx.epoch


def _id(row: dict[str, object]) -> int:
    found = row["id"]
    assert isinstance(found, int)
    return found
