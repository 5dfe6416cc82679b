"""Finds what changes although no row does: functions of chance and of the moment, and texts that Spark takes for a moment.

`DATE 'today'`, and every other constant text that becomes a date or a timestamp, is today's date in Spark.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import NON_DETERMINISTIC, WITHOUT_BRACKETS, function_name
from runnel.model.tokens import tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from runnel.model.relation import Relation
    from runnel.model.tokens import Token

MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE | re.DOTALL)
"""Texts that Spark takes for a moment where it needs a date or a timestamp; a time zone may follow."""
_OF_TIME = re.compile(r"date|time|day|month|year|week|quarter|hour|minute|second|trunc|unix|extract|window")
_ONE_TYPE = frozenset({"coalesce", "nvl", "ifnull", "nullif", "greatest", "least", "if", "iff", "nvl2", "lag", "lead"})
"""Functions that bring their arguments to one type."""
_CONDITIONAL = ("if", "iff", "nvl2")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between)


def unsteady(tree: exp.Expr, relations: Mapping[str, Relation]) -> Iterator[tuple[exp.Expr, str]]:
    """Give each unsteady piece of a query that no function's name shows, with what to call it."""
    columns = {c.name.lower() for relation in relations.values() for c in relation.rows}
    columns |= {i.name.lower() for i in tree.find_all(exp.Identifier) if not isinstance(i.parent, exp.Column)}
    times = {c.name.lower() for relation in relations.values() for c in relation.rows if c.type.name in _TIMES}
    for node in tree.walk():
        match node:
            case exp.Column() if not node.table and node.name.lower() in WITHOUT_BRACKETS - columns:
                yield node, node.name.lower()
            case exp.Literal() if node.is_string and MOMENT.fullmatch(str(node.this)) and _as_time(node, tree, times):
                yield node, f"'{node.this}' as a moment"
            case exp.Anonymous() if function_name(node) == "aes_encrypt" and not _steady_cipher(node.expressions):
                yield node, "aes_encrypt() with a random initial vector"


def unsteady_words(sql: str) -> Iterator[str]:
    """Give what may be unsteady in a text that our parser does not read, word by word; rather too much than too little."""
    found = [token for token in tokens(sql) if token.kind != "comment"]
    for before, token in pairwise([None, *found]):
        if token is not None and _unsteady_word(before, token, found):
            yield token.name.lower()


def _unsteady_word(before: Token | None, token: Token, found: list[Token]) -> bool:
    if token.kind == "string":
        return MOMENT.fullmatch(token.text.strip("'\"")) is not None
    if token.kind not in ("word", "name"):
        return False
    name, at = token.name.lower(), found.index(token)
    called = at + 1 < len(found) and found[at + 1].text == "("
    if name == "unix_timestamp":
        return called and at + 2 < len(found) and found[at + 2].text == ")"
    if called and (name in NON_DETERMINISTIC or name == "aes_encrypt"):
        return True
    qualified = before is not None and before.text.upper() in (".", ":", "AS")
    return name in WITHOUT_BRACKETS and not qualified


def _as_time(literal: exp.Expr, tree: exp.Expr, times: Collection[str]) -> bool:
    """Say whether a text becomes a date or a timestamp where it is."""
    node, parent = literal, literal.parent
    while isinstance(parent, exp.Paren):
        node, parent = parent, parent.parent
    match parent:
        case exp.Cast() | exp.TryCast():
            return _is_time(parent.to)
        case exp.If() if isinstance(parent.parent, exp.Case):
            return node is not parent.this and any(_of_time(one, tree, times) for one in _results(parent.parent))
        case exp.Case():
            return any(_of_time(one, tree, times) for one in _results(parent))
        case exp.Func() if _OF_TIME.search(function_name(parent)):
            return True
        case exp.Func() if function_name(parent) in _ONE_TYPE:
            besides = list(parent.iter_expressions())[function_name(parent) in _CONDITIONAL :]
            return any(_of_time(one, tree, times) for one in besides if one is not node)
    if isinstance(parent, _COMPARISONS):
        return any(_of_time(one, tree, times) for one in parent.iter_expressions() if one is not node)
    return False


def _results(case: exp.Expr) -> list[exp.Expr]:
    return [one.args["true"] for one in case.args["ifs"]] + ([case.args["default"]] if case.args.get("default") else [])


def _is_time(to: exp.Expr) -> bool:
    return str(to.this).rpartition(".")[2].upper().startswith(("DATE", "TIME"))


def _of_time(node: exp.Expr, tree: exp.Expr, times: Collection[str], seen: frozenset[str] = frozenset()) -> bool:
    """Say whether an expression may be a date or a timestamp: by its columns, casts and functions, through aliases too."""
    for part in node.walk():
        if isinstance(part, (exp.Cast, exp.TryCast)) and _is_time(part.to):
            return True
        if isinstance(part, exp.Func) and _OF_TIME.search(function_name(part)):
            return True
        if isinstance(part, exp.Column):
            name = part.name.lower()
            if name in times:
                return True
            named = [a.this for a in tree.find_all(exp.Alias) if a.alias.lower() == name and name not in seen]
            if any(_of_time(one, tree, times, seen | {name}) for one in named):
                return True
    return False


def _steady_cipher(arguments: list[exp.Expr]) -> bool:
    """Say whether `aes_encrypt(text, key, mode, padding, initial vector)` draws no random vector."""
    mode = arguments[2] if len(arguments) > 2 else None
    if isinstance(mode, exp.Literal) and str(mode.this).upper() == "ECB":
        return True
    vector = arguments[4] if len(arguments) > 4 else None
    return vector is not None and vector.find(exp.Column) is None and str(getattr(vector, "this", "")) != ""
