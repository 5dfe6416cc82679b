"""Which of the users' own functions a piece of SQL calls."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import AGGREGATES, EXTREMA, GENERATORS, LINEAR_AGGREGATES, NON_DETERMINISTIC
from runnel.model.tokens import tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

_SQL_OWN = frozenset({"changes", *AGGREGATES, *EXTREMA, *GENERATORS, *LINEAR_AGGREGATES, *NON_DETERMINISTIC})


def called(sql: str, functions: Mapping[str, str]) -> dict[str, str]:
    """Give those of these functions that a text calls, each with its fingerprint.

    >>> called("SELECT Mine(a) FROM t", {"mine": "f1", "other": "f2"})
    {'mine': 'f1'}
    """
    if not functions:
        return {}
    read = [token for token in tokens(sql) if token.kind != "comment"]
    words = {
        name.name.lower() for name, bracket in pairwise(read) if bracket.text == "(" and name.kind in ("word", "name")
    }
    return {name: functions[name] for name in sorted(words & functions.keys())}


def is_sql_function(name: str) -> bool:
    """Say whether SQL has a function of that name already, as far as the compiler knows."""
    return name.upper() in exp.FUNCTION_BY_NAME or name.lower() in _SQL_OWN
