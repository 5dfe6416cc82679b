"""Holds what is written back of a parsed query against its text: whatever the parser left out or added shows here.

The parser knows many databases, and reads some of Spark's forms as others that mean nearly the same. A program is made of what it
read, so a query of which a literal or a name got lost, or to which a literal was added, is not followed but recomputed.
"""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from runnel.compiler.spark import DIALECT

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

_LITERALS = frozenset(
    {TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NATIONAL_STRING}
)
_WORDS = frozenset({"unknown", "nulls", "first", "last", "aggregate"})
"""Words that the tokenizer takes for names."""
_WITH_UNIT = re.compile(r"\s*(?P<number>[+-]?\d+)\s+[A-Za-z]+\s*")
"""`INTERVAL '1 day'` is written as `INTERVAL '1' DAY`."""


def misread(sql: str, tree: exp.Expr) -> str:
    """Say what differs between a query's text and what is written back of it; '' where nothing does.

    >>> from runnel.compiler.parse import parse_query
    >>> misread("SELECT a, 'x' AS b FROM t", parse_query("SELECT a, 'x' AS b FROM t"))
    ''
    >>> misread("SELECT a, 'x' AS b FROM t", parse_query("SELECT a AS b FROM t"))
    "'x' is lost"
    """
    mine, written = _parts(DIALECT.tokenize(sql)), _parts(DIALECT.tokenize(tree.sql(dialect=DIALECT, comments=False)))
    for lost in (mine[0] - written[0], mine[1] - written[1]):
        if lost:
            return f"{min(lost)!r} is lost"
    return "".join(f"{added!r} is added" for added in sorted(written[0] - mine[0])[:1])


def _parts(found: list[Token]) -> tuple[Counter[str], Counter[str]]:
    """Count the literals of a text, and its names; what is called is no name, for many functions have several."""
    literals = Counter(
        _literal(token.text, before.token_type)
        for before, token in pairwise([found[0], *found])
        if token.token_type in _LITERALS
    )
    names = Counter(
        token.text.lower()
        for token, following in pairwise([*found, found[-1]])
        if token.token_type is TokenType.IDENTIFIER
        or (
            token.token_type is TokenType.VAR
            and following.token_type is not TokenType.L_PAREN
            and token.text.lower() not in _WORDS
        )
    )
    return literals, names


def _literal(text: str, before: TokenType) -> str:
    """Give a number as it is written in one way, without a sign, which may stand inside the literal of an interval or before it."""
    if before is TokenType.DOT:  # .5
        text = f".{text}"
    if before is TokenType.INTERVAL and (whole := _WITH_UNIT.fullmatch(text)):
        text = whole["number"]
    try:
        return str(abs(Decimal(text)).normalize())
    except InvalidOperation:
        return text
