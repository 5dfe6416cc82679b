"""Texts that Spark reads and our parser does not: brought into a form it reads, or bound to their tables token by token.

What is bound by tokens is never looked into: Spark says what it means, and such a view is recomputed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from runnel.model import program
from runnel.model.tokens import tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.model.program import Role
    from runnel.model.relation import Relation
    from runnel.model.tokens import Token

_OF_A_CALL = frozenset({"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION"})
_CLAUSES = frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "QUALIFY",
        "ON",
        "USING",
        "SET",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "MINUS",
        "VALUES",
    ]
)
_SET_OPERATORS = frozenset(["UNION", "EXCEPT", "INTERSECT", "MINUS"])
_AFTER_A_QUERY = _SET_OPERATORS | frozenset(["ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"])
_BEFORE_A_QUERY = (
    _SET_OPERATORS
    | _CLAUSES
    | frozenset(
        ["AS", "IN", "EXISTS", "JOIN", "LATERAL", "ALL", "DISTINCT", "AND", "OR", "NOT", "THEN", "ELSE", "WHEN"]
    )
)
_AFTER_A_TABLE = _CLAUSES | frozenset(
    [
        "JOIN",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "CROSS",
        "NATURAL",
        "SEMI",
        "ANTI",
        "LATERAL",
        "TABLESAMPLE",
        "PIVOT",
        "UNPIVOT",
    ]
)


def readable(sql: str) -> str:
    """Give a text as our parser reads it, where that is only a matter of form.

    >>> readable("TABLE z"), readable("VALUES (1, 'a')")
    ('SELECT * FROM z', "SELECT * FROM VALUES (1, 'a')")
    >>> readable("WITH c AS (SELECT 1) TABLE c UNION ALL (VALUES (2))")
    'WITH c AS (SELECT 1) SELECT * FROM c UNION ALL (SELECT * FROM VALUES (2))'
    >>> readable("SELECT stack(1, 2, 3) AS (values, b), (table) FROM t WHERE a IN (values)")  # columns
    'SELECT stack(1, 2, 3) AS (values, b), (table) FROM t WHERE a IN (values)'
    >>> readable("SELECT k FROM IDENTIFIER('shop.z') -- IDENTIFIER('a')")
    "SELECT k FROM `shop`.`z` -- IDENTIFIER('a')"
    """
    found = [token for token in tokens(sql) if token.kind != "comment" and token.text != ";"]
    for at in range(len(found) - 1, -1, -1):
        token = found[at]
        if token.text.upper() not in ("TABLE", "VALUES") or token.kind != "word" or not _begins_query(found, at):
            continue
        if token.text.upper() == "VALUES":
            if _begins_rows(found, at + 1):
                sql = f"{sql[: token.start]}SELECT * FROM {sql[token.start :]}"
        elif _names_a_table(found, at + 1):
            sql = f"{sql[: token.start]}SELECT * FROM{sql[token.end :]}"
    return _identifiers(sql)


def _begins_query(found: list[Token], at: int) -> bool:
    """Return whether a query may begin here: where the text does, in a bracket that is not a call's, after UNION or a WITH."""
    before = found[at - 1].text.upper() if at else ""
    if before in ("ALL", "DISTINCT") and at > 1:
        before = found[at - 2].text.upper()
    if before == "(":
        return at < 2 or found[at - 2].kind == "symbol" or found[at - 2].text.upper() in _BEFORE_A_QUERY
    if before == ")":
        opens = _opening(found, at - 1)
        return opens > 1 and found[0].text.upper() == "WITH" and found[opens - 1].text.upper() == "AS"
    return before == "" or before in _SET_OPERATORS


def _opening(found: list[Token], at: int) -> int:
    """Return the place of the bracket that the one here closes."""
    depth = 0
    for back in range(at, -1, -1):
        depth += (found[back].text == ")") - (found[back].text == "(")
        if not depth:
            return back
    return -1


def _begins_rows(found: list[Token], at: int) -> bool:
    """Return whether rows begin here: after a column called `values` there is never a bracket or a literal."""
    return at < len(found) and (found[at].text == "(" or found[at].kind == "string" or found[at].text[0].isdigit())


def _names_a_table(found: list[Token], at: int) -> bool:
    """Return whether a table's name follows, and nothing that would make the word before it a column."""
    while at < len(found) and found[at].kind in ("word", "name"):
        if at + 1 >= len(found) or found[at + 1].text == ")" or found[at + 1].text.upper() in _AFTER_A_QUERY:
            return True
        if found[at + 1].text == "(":
            return found[at].text.upper() == "IDENTIFIER"
        if found[at + 1].text != ".":
            return False
        at += 2
    return False


def _identifiers(sql: str) -> str:
    """Write the tables that `IDENTIFIER('...')` names."""
    found = [token for token in tokens(sql) if token.kind != "comment"]
    for at in range(len(found) - 5, -1, -1):
        before, word, opens, text, closes = found[at : at + 5]
        if word.text.upper() != "IDENTIFIER" or before.text.upper() not in ("FROM", "JOIN", ","):
            continue
        parts = text.text[1:-1].split(".")
        if opens.text == "(" and closes.text == ")" and text.kind == "string" and all(p.isidentifier() for p in parts):
            name = ".".join(program.quote(part) for part in parts)
            sql = sql[: word.start] + name + sql[closes.end :]
    return sql


def only_spark_reads(sql: str) -> bool:
    """Say whether a text has what our parser cannot read and Spark can: paths into variants, pipes, `$$` strings."""
    found = [token.text for token in tokens(sql) if token.kind != "comment"]
    pairs = set(pairwise(found))
    path = any(a == ":" and (b.isidentifier() or b[0] in "`[") for a, b in pairs)
    return path or ("|", ">") in pairs or any(text[0] == "$" and len(text) > 1 for text in found)


def bind_by_tokens(sql: str, relations: Mapping[str, Relation], role: Role) -> tuple[str, frozenset[str]] | None:
    """Put role names in the place of the tables a text reads; None where that cannot be told with certainty."""
    every = list(tokens(sql))
    found = [token for token in every if token.kind != "comment" and token.text != ";"]
    if not found or any(t.text.startswith("/*") and not t.text.endswith("*/") for t in every if t.kind == "comment"):
        return None
    by_name = _by_name(relations)
    edits: list[tuple[int, int, str]] = []
    read: set[str] = set()
    for at in _table_places(found):
        end = at + 1
        while end + 1 < len(found) and found[end].text == ".":
            end += 2
        if end < len(found) and found[end].text == "(" and found[at].kind == "word":
            continue  # a function that gives rows
        name = ".".join(token.name for token in found[at:end:2]).lower()
        if name in _defined(found):
            if name in by_name:
                return None
            continue
        relation = by_name.get(name)
        if relation is None:
            return None
        read.add(relation.name)
        alias = "" if _has_alias(found, end) else f" AS {found[end - 1].text}"
        edits.append((found[at].start, found[end - 1].end, program.name(relation.name, role) + alias))
    inputs = {f"{name}__{role}".lower() for name in read for role in program.ROLES}
    if any(token.kind in ("word", "name") and token.name.lower() in inputs for token in found):
        return None
    bound = sql[: found[-1].end]
    for start, stop, name in reversed(edits):
        bound = bound[:start] + name + bound[stop:]
    return bound, frozenset(read)


def _by_name(relations: Mapping[str, Relation]) -> dict[str, Relation]:
    """Find relations by their whole names, and by the last part where only one has it."""
    found = {relation.name.lower(): relation for relation in relations.values()}
    short: dict[str, list[Relation]] = {}
    for relation in relations.values():
        short.setdefault(relation.name.lower().rpartition(".")[2], []).append(relation)
    return {**{name: same[0] for name, same in short.items() if len(same) == 1}, **found}


def _table_places(found: list[Token]) -> list[int]:
    """Give where a FROM, a JOIN or a comma between tables is followed by a name."""
    places = []
    clause, outer = "", []
    for at, token in enumerate(found[:-1]):
        word = token.text.upper() if token.kind in ("word", "symbol") else ""
        if word == "(":
            outer.append(clause)
            clause = found[at - 1].text.upper() if at else ""
        elif word == ")":
            clause = outer.pop() if outer else ""
        elif word in _CLAUSES and clause not in _OF_A_CALL and not (word == "FROM" and _is_distinct_from(found, at)):
            clause = word
        elif word == "JOIN":
            clause = "FROM"
        begins = clause == "FROM" and word in ("FROM", "JOIN", ",")
        if (
            begins
            and found[at + 1].kind in ("word", "name")
            and found[at + 1].text.upper() not in ("LATERAL", "VALUES")
        ):
            places.append(at + 1)
    return places


def _is_distinct_from(found: list[Token], at: int) -> bool:
    before = [token.text.upper() for token in found[max(0, at - 3) : at]]
    return before[-1:] == ["DISTINCT"] and before[-2:-1] in (["IS"], ["NOT"])


def _defined(found: list[Token]) -> set[str]:
    """Give every name that may be the one of a common table expression: those before `AS (`, with columns or without."""
    names = set()
    for at, token in enumerate(found[:-1]):
        if token.text.upper() != "AS" or found[at + 1].text != "(" or not at:
            continue
        back = at - 1
        if found[back].text == ")":
            while back and found[back].text != "(":
                back -= 1
            back -= 1
        names.add(found[back].name.lower())
    return names


def _has_alias(found: list[Token], at: int) -> bool:
    if at >= len(found) or found[at].kind not in ("word", "name"):
        return False
    return found[at].kind == "name" or found[at].text.upper() not in _AFTER_A_TABLE
