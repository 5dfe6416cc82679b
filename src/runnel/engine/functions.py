"""Users' own functions: what an engine is told of them, and by what their bodies are told apart.

The state remembers of a function its name and a fingerprint, never the function itself.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import hashlib
import inspect
import re
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, get_type_hints

from runnel.compiler import is_sql_function
from runnel.engine.meaning import check_settings
from runnel.errors import Terminal, UsageError
from runnel.model import types
from runnel.model.ddl import parse_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.engine.base import Engine
    from runnel.lake.entries import ViewEntry
    from runnel.model.types import Type

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
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
    name: str, call: Callable[..., Any], returns: str, arguments: str | None = None, *, pandas: bool = False
) -> UserFunction:
    """Make a function known by that name; `returns` and `arguments` ("a INT, b STRING") are SQL types."""
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
    text = f"{_described(call)}|{type_}|{known}|{pandas}"
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


def _described(value: Any, seen: tuple[CodeType, ...] = ()) -> str:
    """Write down all that decides what a function gives, as far as that can be written down."""
    if isinstance(value, functools.partial):
        return (
            f"partial({_described(value.func, seen)}, {_plain(value.args)}, {_plain(sorted(value.keywords.items()))})"
        )
    code = getattr(value, "__code__", None)
    bound = getattr(value, "__func__", None)
    if bound is not None:
        return f"{_described(bound, seen)} of {_plain(getattr(value.__self__, '__dict__', value.__self__))}"
    if isinstance(code, CodeType):
        if code in seen:
            return "itself"
        return _function(value, code, (*seen, code))
    own = getattr(type(value), "__call__", None)  # noqa: B004
    if isinstance(getattr(own, "__code__", None), CodeType):
        return f"{_described(own, seen)} of {_plain(getattr(value, '__dict__', {}))}"
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}"


def _function(value: Any, code: CodeType, seen: tuple[CodeType, ...]) -> str:
    """Write down a function's body, its defaults, and the values and functions around it that it uses."""
    cells = [_cell(cell, seen) for cell in getattr(value, "__closure__", None) or ()]
    defaults = _plain((value.__defaults__, sorted((value.__kwdefaults__ or {}).items())))
    around = {name: value.__globals__[name] for name in code.co_names if name in value.__globals__}
    used = {name: _described(v, seen) for name, v in around.items() if isinstance(v, FunctionType)}
    used |= {name: repr(v) for name, v in around.items() if isinstance(v, bool | int | float | str | bytes | tuple)}
    return f"{_body(code)}{defaults}{cells}{used}"


def _cell(cell: Any, seen: tuple[CodeType, ...]) -> str:
    try:
        held = cell.cell_contents
    except ValueError:
        return "empty"
    return _described(held, seen) if callable(held) and not isinstance(held, type) else _plain(held)


def _body(code: CodeType) -> str:
    constants = [_body(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return f"{code.co_code.hex()}{constants}{code.co_names}{code.co_varnames[: code.co_argcount]}{code.co_freevars}"


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _plain(value: Any) -> str:
    """Write a value without the address it happens to lie at."""
    return _ADDRESS.sub("", repr(value))


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
