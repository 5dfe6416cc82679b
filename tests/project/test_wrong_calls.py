"""A call with arguments of another kind gets one sentence with a code, never a traceback from inside and never an empty answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import runnel
from runnel.engine.duckdb import DuckDbEngine
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runnel.project import Project


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    """Give a project with a table and a view."""
    with runnel.memory(engine=DuckDbEngine(threads=1)) as made:
        made.create_table("t", "id INT", key=["id"])
        made.create_view("v", "SELECT id FROM t")
        yield made


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.view(None),
        lambda p: p.table(None).to_arrow(),
        lambda p: p.refresh(5),
        lambda p: p.verify("v", sample="x"),
        lambda p: p.verify("v", sample=0),
        lambda p: p.create_view(5, "SELECT 1 AS a"),
        lambda p: p.create_table("n", None),
        lambda p: p.create_table(None, "id INT"),
        lambda p: p.create_table("n", "id INT", references="t"),
        lambda p: p.changes("v", since=None),
        lambda p: p.changes("v", since=2, until=1),
        lambda p: p.subscribe("v", None),
    ],
)
def test_a_wrong_call_is_told(project: Project, call: Callable[[Any], Any]) -> None:
    with pytest.raises(RunnelError):
        call(project)


def test_a_key_of_one_column_may_be_given_as_its_name(project: Project) -> None:
    assert project.create_table("one", "id INT, n INT", key="id").key == ("id",)
