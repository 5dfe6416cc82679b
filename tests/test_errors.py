"""Errors travel between processes whole: definitions that tasks are given may hold some."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from runnel.connectors.cassandra.log.errors import LogError
from runnel.errors import Place, RunnelError, Terminal, UsageError


@pytest.mark.parametrize(
    "error",
    [
        Terminal("RUNNEL-X", "it is wrong", place=Place("here"), hint="mend it"),
        UsageError("RUNNEL-Y", "it is not so"),
        LogError("RUNNEL-Z", "it is damaged", Path("CommitLog-7-1.log"), 12),
    ],
)
def test_an_error_that_was_pickled_is_the_same_error(error: RunnelError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code, again.hint) == (type(error), str(error), error.code, error.hint)
    assert again.__dict__ == error.__dict__
