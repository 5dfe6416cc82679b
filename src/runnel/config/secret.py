"""Secrets: values that can be used and never seen. They come from `${NAME}`, or stand under a telling key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from runnel.errors import UsageError
from runnel.redaction import know, secrets_in, tells

_HARMLESS = frozenset(
    [
        "cdc_raw",
        "catalog",
        "cluster",
        "data",
        "database",
        "datacenter",
        "file",
        "files",
        "folder",
        "format",
        "host",
        "hosts",
        "keyspace",
        "master",
        "name",
        "path",
        "port",
        "project",
        "region",
        "schema",
        "table",
        "tables",
        "timeout",
        "topic",
        "type",
        "user",
        "username",
        "zone",
    ]
)
_VARIABLE = re.compile(r"\$(\$)?\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Secret:
    """A string that prints as `***`; `reveal()` gives it to whoever has to send it.

    It is taken out of all that is printed, logged or stored, too; of one that is `harmless` only what is secret in a URL.

    >>> Secret("hunter2"), f"{Secret('hunter2')}", Secret("hunter2").reveal()
    (***, '***', 'hunter2')
    """

    __slots__ = ("_value",)

    def __init__(self, value: str, *, harmless: bool = False) -> None:
        """Hide `value`."""
        self._value = value
        know(value, whole=not harmless)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._value,)

    def reveal(self) -> str:
        """Give the hidden string."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


def reveal(value: Any) -> Any:
    """Give a setting with every secret in it, however deep, as the plain string.

    >>> reveal({"hosts": ["a"], "password": Secret("x")})
    {'hosts': ['a'], 'password': 'x'}
    """
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {name: reveal(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(reveal(item) for item in value)
    return value


def tells_a_secret(key: str, value: str) -> bool:
    """Say whether a string under this key ought not to be seen.

    >>> tells_a_secret("password", "x"), tells_a_secret("url", "mysql://me:x@h/db"), tells_a_secret("key", "id")
    (True, True, False)
    """
    return bool(value) and (tells(key) or bool(secrets_in(value)))


def harmless(key: str, value: str) -> bool:
    """Say whether a value of the environment under this key may come up in messages: a host, a path, a number.

    >>> harmless("hosts", "a.example"), harmless("port", "5432"), harmless("password", "5432"), harmless("note", "abcd")
    (True, True, False, False)
    """
    return not tells(key) and (key.lower() in _HARMLESS or value.lower() in ("true", "false") or value.isdigit())


def interpolate(text: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """Replace each `${NAME}` by its variable and say whether there was one; `$${` stands for `${` itself.

    Raises `RUNNEL-CONFIG-VARIABLE` that names the variable when it is not set.
    """
    found = False

    def value(match: re.Match[str]) -> str:
        nonlocal found
        escaped, name = match.groups()
        if escaped:
            return match.group()[1:]
        found = True
        if not _NAME.fullmatch(name):
            message, hint = f"{match.group()!r} names no environment variable", "write ${NAME}, or $${ for ${ itself"
        elif name not in environment:
            message, hint = f"the environment variable {name} is not set", f"set it: export {name}=..."
        else:
            return environment[name]
        raise UsageError("RUNNEL-CONFIG-VARIABLE", message, hint=hint)

    return _VARIABLE.sub(value, text), found
