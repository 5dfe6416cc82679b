"""How large a text may be: what would take minutes or overflow the stack is refused, with the limit, before it is parsed.

Tokens are scanned one by one, so the scan itself works for any text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from runnel.compiler.resolve import cte_of
from runnel.compiler.spark import DIALECT
from runnel.errors import Terminal

if TYPE_CHECKING:
    from runnel.errors import Place

DEEPEST = 200
"""Levels of brackets and CASE; Python's own stack ends some of them earlier."""
MOST_TERMS = 2_000
"""Terms of one chain of operators: 3,000 took 31 s to compile on two busy cores."""
MOST_BRANCHES = 200
"""Branches of UNION and its like in a text."""
MOST_FOLLOWED = 60
"""Tables that a view which is followed may read, each as often as it is read, those of an outer join twice: a join of 30 took
6 s to compile on two busy cores, 20 left joins 9 s."""
_SHORT = 400
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_OPERATORS = {
    TokenType.AND,
    TokenType.OR,
    TokenType.PLUS,
    TokenType.DASH,
    TokenType.STAR,
    TokenType.SLASH,
    TokenType.DPIPE,
}
_SETS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}
_NEXT = {TokenType.COMMA, TokenType.SEMICOLON, TokenType.SELECT, TokenType.WHEN, TokenType.THEN, TokenType.ELSE}


def check_size(sql: str, place: Place | None = None) -> None:
    """Refuse a text that is nested too deeply, or has too long a chain of operators or of UNIONs."""
    if len(sql) < _SHORT:
        return
    try:
        tokens = DIALECT.tokenize(sql)
    except SqlglotError:
        return  # the parser says what is wrong
    chains, branches = [0], 1
    for token in tokens:
        if token.token_type in _OPENING:
            chains.append(0)
        elif token.token_type in _CLOSING:
            chains = chains[:-1] or [0]
        elif token.token_type in _OPERATORS:
            chains[-1] += 1
        elif token.token_type in _NEXT:
            chains[-1] = 0
        branches += token.token_type in _SETS
        if len(chains) > DEEPEST + 1:
            raise too_deep(place)
        if chains[-1] >= MOST_TERMS:
            raise _too_large(f"a chain of more than {MOST_TERMS:,} terms joined by AND, OR or another operator", place)
        if branches > MOST_BRANCHES:
            raise _too_large(f"more than {MOST_BRANCHES} branches of UNION, EXCEPT and INTERSECT", place)


def too_deep(place: Place | None) -> Terminal:
    """Say that a text is nested too deeply."""
    return Terminal(
        "RUNNEL-VIEW-SIZE",
        f"the SQL is nested too deeply; {DEEPEST} levels of brackets and CASE are allowed, fewer where each takes several steps",
        place=place,
        hint="name parts of it in WITH, or make a view of them",
    )


def _too_large(what: str, place: Place | None) -> Terminal:
    return Terminal(
        "RUNNEL-VIEW-SIZE",
        f"the SQL has {what}",
        place=place,
        hint="write IN (...) for a list of values, put the values into a table and join it, or make several views",
    )


def tables_read(tree: exp.Expr) -> int:
    """Count the tables that a query reads, each as often as it does: one read by a CTE counts for every use of the CTE.

    An outer join counts as one more.
    """
    known: dict[int, int] = {}
    busy: set[int] = set()

    def count(node: exp.Expr) -> int:
        total = 0
        for table in _own_tables(node):
            if isinstance(table, exp.Join):
                total += 1
                continue
            cte = cte_of(table)
            if cte is None or id(cte) in busy:
                total += 1
                continue
            if id(cte) not in known:
                busy.add(id(cte))
                known[id(cte)] = count(cte.this)
                busy.discard(id(cte))
            total += known[id(cte)]
        return total

    return count(tree)


def _own_tables(query: exp.Expr) -> list[exp.Table | exp.Join]:
    """Give the tables and outer joins of a query, but not those inside the CTEs it defines."""
    found: list[exp.Table | exp.Join] = []
    waiting: list[exp.Expr] = [query]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Table) or (isinstance(node, exp.Join) and node.side):
            found.append(node)
        waiting += [child for child in node.iter_expressions() if not isinstance(child, exp.With)]
    return found
