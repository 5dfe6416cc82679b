"""Each pass rewrites as its fixture file shows, and the rewritten plan gives the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runnel.compiler import differentiate, passes
from runnel.compiler.lower import Lowering, node_of
from runnel.compiler.parse import parse_query
from runnel.compiler.source import SourceText
from runnel.model import types
from runnel.model.relation import WEIGHT, Column
from tests.compiler.harness import Maintained, difference, signed
from tests.compiler.test_views import START

if TYPE_CHECKING:
    from runnel.compiler.plan import Node
    from runnel.engine.duckdb import DuckDbEngine
    from runnel.model.relation import Relation

FOLDER = Path(__file__).parent.parent / "fixtures" / "passes"


def fixtures(name: str) -> list[tuple[str, str, str]]:
    """Read a fixture file: a comment, the SQL before, the program after, per case."""
    found = []
    for block in (FOLDER / f"{name}.sql").read_text().strip().split("\n\n"):
        comment, _, rest = block.partition("\n")
        before, after = (part.strip() for part in rest.split(";")[:2])
        found.append((comment.removeprefix("-- "), before, after))
    return found


CASES = [(rewrite.__name__, *case) for rewrite in passes.PASSES for case in fixtures(rewrite.__name__)]


@pytest.mark.parametrize(("name", "what", "before", "after"), CASES, ids=[f"{n}: {w}" for n, w, _, _ in CASES])
def test_a_pass_rewrites_as_its_fixture_shows_and_keeps_the_rows(
    engine: DuckDbEngine, shop: dict[str, Relation], name: str, what: str, before: str, after: str
) -> None:
    rewrite = next(p for p in passes.PASSES if p.__name__ == name)
    state = Maintained(engine, list(shop.values()))
    state.apply(START)

    def typed(node: Node) -> tuple[Column, ...]:
        piece = differentiate.state(node, "new")
        tables = {f"{n}__{role}": (*shop[n].rows, Column(WEIGHT, types.BIGINT)) for n, role in piece.reads}
        return engine.analyse(piece.sql, tables)[:-1]

    def no_stage(_: object) -> Relation:
        raise AssertionError(what)

    node, _ = node_of(Lowering(SourceText(before), shop, no_stage, no_stage, no_stage, typed), parse_query(before))
    rewritten = rewrite(node)
    assert differentiate.state(rewritten, "new").sql == after
    columns = typed(node)
    mine, theirs = (
        engine.rows(piece.sql, state._inputs(piece.reads), signed(columns))
        for piece in (differentiate.state(n, "new") for n in (rewritten, node))
    )
    assert not difference(mine, theirs, signed(columns), loose=True)


def test_every_pass_has_a_fixture_file_and_every_file_a_pass() -> None:
    assert {path.stem for path in FOLDER.glob("*.sql")} == {rewrite.__name__ for rewrite in passes.PASSES}
