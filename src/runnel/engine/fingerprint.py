"""Writes down all that decides what a Python function gives, so that a changed one is told from the same one.

Followed are its code, defaults and closure, the globals that it and the functions inside it load, and what those reach: containers,
objects, classes and modules of the user's own by content or source, installed packages by name and version. What cannot be written
down so that it comes out the same at the next start is refused.
"""

from __future__ import annotations

import datetime
import decimal
import dis
import enum
import fractions
import functools
import hashlib
import importlib.metadata
import logging
import re
import sys
import sysconfig
import uuid
import zoneinfo
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST = 200_000
"""Values that are looked at; a function that reaches more has to say a version."""
_PLAIN = (bool, int, float, complex, str, bytes, decimal.Decimal, fractions.Fraction, range, uuid.UUID, PurePath, slice,
          datetime.date, datetime.time, datetime.timedelta, datetime.timezone, zoneinfo.ZoneInfo)  # fmt: skip
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_UNSAID = (
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__firstlineno__",
    "__static_attributes__",
)


def fingerprint(name: str, value: Any) -> str:
    """Describe a function by a short hash; raise `RUNNEL-FUNCTION-VALUE` where it uses what cannot be described."""
    return hashlib.sha256("\n".join(_Writer(name).parts(value)).encode(errors="surrogatepass")).hexdigest()


class _Writer:
    def __init__(self, function: str) -> None:
        self._function = function
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        self._count = 0

    def parts(self, value: Any, path: str = "") -> Iterator[str]:
        """Give the parts of a description, in an order that is the same at every start."""
        self._count += 1
        if self._count > MOST:
            raise self._refused(path, f"reaches more than {MOST} values")
        if value is None or value is ... or value is NotImplemented or type(value) in _PLAIN:
            yield f"{type(value).__name__} {value!r}"
        elif id(value) in self._seen:
            yield f"again {self._seen[id(value)]}"
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)  # an id is one's own only as long as the value lives
            try:
                yield from self._compound(value, path)
            except RecursionError as error:
                raise self._refused(path, "is nested too deeply") from error

    def _compound(self, value: Any, path: str) -> Iterator[str]:
        kind = type(value)
        if isinstance(value, CodeType):
            yield from self._code(value, path)
        elif isinstance(value, FunctionType):
            yield from self._called(value, path)
        elif isinstance(value, MethodType):
            yield from self._all("method", (value.__func__, value.__self__), path)
        elif isinstance(value, functools.partial):
            yield from self._all("partial", (value.func, value.args, value.keywords), path)
        elif hasattr(value, "__wrapped__") and callable(value):
            yield from self._all("wrapper", (kind.__qualname__, value.__wrapped__), path)
        elif isinstance(value, ModuleType):
            yield from self._module(value, path)
        elif isinstance(value, type):
            yield from self._class(value, path)
        elif isinstance(value, enum.Enum):
            yield from self._all(f"member {value.name}", (kind,), path)
        elif kind in (tuple, list):
            yield from self._all(f"{kind.__name__} {len(value)}", value, path)
        elif kind in (set, frozenset):
            yield f"{kind.__name__} {len(value)}"
            yield from sorted(_digest(_Writer(self._function).parts(item, path)) for item in value)
        elif isinstance(value, dict):
            yield f"{kind.__qualname__} {len(value)}"
            for key, item in value.items():
                yield from self.parts(key, path)
                yield from self.parts(item, f"{path}[{key!r}]"[:200])
        elif isinstance(value, re.Pattern):
            yield f"pattern {value.pattern!r} {value.flags}"
        elif isinstance(value, logging.Logger):
            yield f"logger {value.name}"
        elif isinstance(value, staticmethod | classmethod | property | functools.cached_property):
            inner = [getattr(value, n, None) for n in ("__func__", "fget", "fset", "func")]
            yield from self._all(kind.__name__, inner, path)
        elif isinstance(value, BuiltinFunctionType) or kind.__name__ in (
            "ufunc",
            "method_descriptor",
            "wrapper_descriptor",
        ):
            yield from self._builtin(value, path)
        else:
            yield from self._object(value, path)

    def _all(self, what: str, values: Iterable[Any], path: str) -> Iterator[str]:
        yield what
        for item in values:
            yield from self.parts(item, path)

    def _called(self, value: FunctionType, path: str) -> Iterator[str]:
        if not _own(value.__module__, value.__code__.co_filename):
            yield f"function {value.__module__}.{value.__qualname__} {_version(value.__module__)}"
            return
        yield from self._code(value.__code__, path)
        yield from self._all("defaults", (value.__defaults__, value.__kwdefaults__), path)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            yield f"closure {name}"
            yield from self.parts(*_content(cell), path=name)
        for name in sorted(_globals(value.__code__)):
            if name in value.__globals__:
                yield f"global {name}"
                yield from self.parts(value.__globals__[name], name)

    def _code(self, code: CodeType, path: str) -> Iterator[str]:
        yield f"code {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_flags}"
        yield code.co_exceptiontable.hex()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._code(constant, path)
            else:
                yield _digest(_Writer(self._function).parts(constant, path))

    def _module(self, value: ModuleType, path: str) -> Iterator[str]:
        file = getattr(value, "__file__", None)
        if not _own(value.__name__, file):
            yield f"module {value.__name__} {_version(value.__name__)}"
            return
        if file is None or not str(file).endswith(".py"):
            raise self._refused(path, f"uses the module {value.__name__}, which has no source")
        yield f"module {value.__name__} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}"
        for name, item in sorted(vars(value).items()):
            home = item if isinstance(item, ModuleType) else sys.modules.get(getattr(item, "__module__", None) or "")
            if home is not None and home is not value and _own(home.__name__, getattr(home, "__file__", None)):
                yield f"in it {name}"
                yield from self.parts(home, path)

    def _class(self, value: type, path: str) -> Iterator[str]:
        yield f"class {value.__module__}.{value.__qualname__}"
        home = sys.modules.get(value.__module__)
        if not _own(value.__module__, getattr(home, "__file__", None)):
            yield _version(value.__module__)
            return
        yield from self._all("bases", value.__bases__, path)
        for name, item in vars(value).items():
            if name not in _UNSAID and type(item).__name__ not in (
                "getset_descriptor",
                "member_descriptor",
                "_abc_data",
            ):
                yield f"member {name}"
                yield from self.parts(item, f"{path}.{name}")

    def _object(self, value: Any, path: str) -> Iterator[str]:
        kind = type(value)
        if kind.__module__ == "numpy" and hasattr(value, "tobytes") and not getattr(value.dtype, "hasobject", True):
            yield f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
            return
        home = sys.modules.get(kind.__module__)
        if not _own(kind.__module__, getattr(home, "__file__", None)):
            raise self._refused(path, f"uses a {kind.__module__}.{kind.__qualname__}")
        yield from self.parts(kind, path)
        slots = [n for c in kind.__mro__ for n in _names(getattr(c, "__slots__", ()))]
        held = {n: getattr(value, n) for n in slots if hasattr(value, n)} | dict(getattr(value, "__dict__", {}))
        if isinstance(value, list | tuple | set | frozenset | dict | str | bytes | int | float):
            base: Any = next(
                b for b in (list, tuple, set, frozenset, dict, str, bytes, int, float) if isinstance(value, b)
            )
            held["as it is"] = base(value)
        yield from self.parts(held, path)

    def _builtin(self, value: Any, path: str) -> Iterator[str]:
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or getattr(owner, "__name__", "builtins")
        yield f"builtin {module}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))} {_version(str(module))}"
        if owner is not None and not isinstance(owner, ModuleType | type):
            yield from self.parts(owner, path)

    def _refused(self, path: str, why: str) -> UsageError:
        where = f" by way of {path}" if path else ""
        return UsageError(
            "RUNNEL-FUNCTION-VALUE",
            f"whether {self._function}() has changed cannot be told: it {why}{where}",
            hint='say it yourself: register_function(..., version="1"), another one whenever it gives other values',
        )


def _names(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()


def _content(cell: Any) -> tuple[Any]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ("nothing yet",)


def _globals(code: CodeType) -> set[str]:
    """Give the names of the globals that code loads, and that functions and comprehensions inside it load."""
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in _LOADS}
    return names.union(*(_globals(c) for c in code.co_consts if isinstance(c, CodeType)))


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _own(module: str | None, file: str | None) -> bool:
    """Say whether something is the user's own: neither of Python nor of an installed package."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return False
    if top == "runnel":
        return False
    return not (file and ("site-packages" in file or "dist-packages" in file or file.startswith(_installed())))


@functools.cache
def _version(module: str) -> str:
    """Give the version of the package that a module is of; of Python's own that of Python."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return f"Python {sys.version_info.major}.{sys.version_info.minor}"
    for name in importlib.metadata.packages_distributions().get(top, ()):
        return f"{name} {importlib.metadata.version(name)}"
    return str(getattr(sys.modules.get(top), "__version__", ""))
