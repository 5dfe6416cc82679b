"""Users' own functions: what an engine is told of them, and by what their bodies are told apart.

The state remembers of a function its name and a fingerprint, never the function itself.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from runnel.compiler import is_sql_function
from runnel.engine.fingerprint import fingerprint
from runnel.engine.meaning import check_settings
from runnel.errors import Terminal, UsageError
from runnel.model import types
from runnel.model.ddl import parse_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.engine.base import Engine
    from runnel.lake.entries import ViewEntry
    from runnel.model.types import Type

_OF_PYTHON: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    decimal.Decimal: "decimal(38,18)",
    datetime.date: "date",
    datetime.datetime: "timestamp",
}


@dataclass(frozen=True)
class UserFunction:
    """A function that SQL may call: the same arguments always give the same value.

    With `pandas` it takes and gives whole columns as pandas Series. `arguments` is None where nobody said their types.
    """

    name: str
    call: Callable[..., Any]
    returns: Type
    arguments: tuple[Type, ...] | None
    pandas: bool
    fingerprint: str


def user_function(
    name: str,
    call: Callable[..., Any],
    returns: str,
    arguments: str | None = None,
    *,
    pandas: bool = False,
    version: str | None = None,
) -> UserFunction:
    """Make a function known by that name; `returns` and `arguments` ("a INT, b STRING") are SQL types.

    Where a `version` is given, it alone says whether the function is the same one.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UsageError("RUNNEL-FUNCTION-NAME", f"{name!r} is no name of a function", hint="use letters, digits and _")
    if is_sql_function(name):
        raise UsageError("RUNNEL-FUNCTION-NAME", f"SQL has a function {name}() already", hint="choose another name")
    if not callable(call):
        raise UsageError("RUNNEL-FUNCTION-CALL", f"what is registered as {name} is no function", hint="give a callable")
    given = (
        tuple(c.type for c in parse_columns(arguments)[0]) if arguments is not None else _hinted(call, pandas=pandas)
    )
    type_ = types.parse(returns)
    known = ",".join(str(t) for t in given) if given is not None else "?"
    body = fingerprint(name, call) if version is None else f"version {version}"
    text = f"{body}|{type_}|{known}|{pandas}"
    return UserFunction(name.lower(), call, type_, given, pandas, hashlib.sha256(text.encode()).hexdigest()[:16])


def _hinted(call: Callable[..., Any], *, pandas: bool) -> tuple[Type, ...] | None:
    """Take the types of the arguments from annotations, where each has one that SQL knows."""
    if pandas:
        return None
    try:
        hints = get_type_hints(call)
        names = list(inspect.signature(call).parameters)
    except (TypeError, ValueError, NameError):
        return None
    found = [_OF_PYTHON.get(hints.get(name)) for name in names]
    return tuple(types.parse(t) for t in found if t is not None) if None not in found else None


def check_functions(engine: Engine, view: ViewEntry) -> None:
    """See that an engine knows the functions a view calls, with the bodies that it was computed with, and means the same."""
    check_settings(engine, view)
    for name, known in view.functions.items():
        here = engine.functions.get(name)
        if here is None:
            raise Terminal(
                "RUNNEL-FUNCTION-MISSING",
                f"the function {name}() is not registered here, and the view cannot go on without it",
                hint=f"call project.register_function({name!r}, ...); nothing is lost meanwhile",
            )
        if here.fingerprint != known:
            raise Terminal(
                "RUNNEL-FUNCTION-OTHER",
                f"the function {name}() is another one here than the view was computed with",
                hint="register the same one everywhere; registering it makes the view anew",
            )
