"""A TOML document that is asked for its values one by one and remembers every problem it comes across."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

from runnel.config.lines import key_lines, line_of
from runnel.config.secret import Secret, harmless, interpolate, tells_a_secret
from runnel.errors import Place, RunnelError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel.config.lines import Path

T = TypeVar("T")
_WORDS = {str: "a string", int: "a whole number", dict: "a table", list: "a list"}
_AT = re.compile(r"\s*\(at line (\d+), column (\d+)\)")


class Document:
    """The values of one TOML text. Asking for a value that is wrong notes a problem and gives the default."""

    def __init__(self, file: str, text: str, environment: Mapping[str, str]) -> None:
        """Parse the text; a syntax error is the only problem that is raised at once."""
        self.file = file
        self.problems: list[RunnelError] = []
        self.warnings: list[RunnelError] = []
        self._environment = environment
        self._lines = key_lines(text)
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _syntax_error(file, text, error) from error
        self.values: dict[str, Any] = self._resolve((), values)

    def place(self, path: Path) -> Place:
        """Say where a key stands."""
        return Place(self.file, *line_of(self._lines, path))

    def problem(self, code: str, message: str, path: Path, hint: str | None = None) -> None:
        """Remember a problem."""
        self.problems.append(UsageError(f"RUNNEL-CONFIG-{code}", message, place=self.place(path), hint=hint))

    def section(self, path: Path, known: Iterable[str] | None = None) -> dict[str, Any]:
        """Give a table, empty when it is not there; note keys that are not `known`."""
        values = self.values
        for part in path:
            below = values.get(part, {})
            if not isinstance(below, dict):
                self._not_a_table(path)
                return {}
            values = below
        for key in values if known is not None else ():
            self._check_known(path, key, list(known or ()))
        return values

    def get(self, path: Path, kind: type[T], default: T) -> T:
        """Give a value of this kind; a secret passes as the string it hides."""
        values = self.section(path[:-1])
        value = values.get(path[-1], default)
        plain = value.reveal() if isinstance(value, Secret) and kind is str else value
        if isinstance(plain, kind) and not (kind is int and isinstance(plain, bool)):
            return plain
        self.problem("TYPE", f"{'.'.join(path)} must be {_WORDS[kind]}, not {_shown(value)}", path)
        return default

    def secret(self, path: Path, default: str) -> str | Secret:
        """Give a string, still hidden where it is a secret."""
        value = self.section(path[:-1]).get(path[-1], default)
        return value if isinstance(value, Secret) else self.get(path, str, default)

    def _not_a_table(self, path: Path) -> None:
        dotted = ".".join(path)
        said = f"{dotted} must be a table"
        if said not in (problem.message for problem in self.problems):
            self.problem("TYPE", said, path, f"write it as [{dotted}]")

    def _check_known(self, path: Path, key: str, known: list[str]) -> None:
        if key not in known:
            what = f"unknown key {key!r} in [{'.'.join(path)}]" if path else f"unknown section [{key}]"
            self.problem("UNKNOWN", what, (*path, key), nearest(key, known) or f"known are {', '.join(known)}")

    def _resolve(self, path: Path, value: Any) -> Any:
        """Replace variables and hide secrets in everything below `path`."""
        if isinstance(value, dict):
            return {key: self._resolve((*path, key), item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(path, item) for item in value]
        return self._resolve_string(path, value) if isinstance(value, str) else value

    def _resolve_string(self, path: Path, text: str) -> str | Secret:
        try:
            value, from_environment = interpolate(text, self._environment)
        except UsageError as error:
            self.problems.append(UsageError(error.code, error.message, place=self.place(path), hint=error.hint))
            return Secret("")
        if from_environment:
            return Secret(value, harmless=harmless(path[-1], value))
        if not tells_a_secret(path[-1], value):
            return value
        message = f"{'.'.join(path)} holds a secret in plain text"
        hint = f'take it from the environment: {path[-1]} = "${{{re.sub(r"[^A-Z0-9]+", "_", path[-1].upper())}}}"'
        self.warnings.append(UsageError("RUNNEL-CONFIG-SECRET", message, place=self.place(path), hint=hint))
        return Secret(value)


def _syntax_error(file: str, text: str, error: tomllib.TOMLDecodeError) -> UsageError:
    match = _AT.search(str(error))
    message = _AT.sub("", str(error)).removesuffix(" (at end of document)")
    line, column = (int(match.group(1)), int(match.group(2))) if match else (text.count("\n") + 1, None)
    return UsageError(
        "RUNNEL-CONFIG-SYNTAX",
        f"{file} is no TOML: {message[:1].lower()}{message[1:]}",
        place=Place(file, line, column),
        hint="strings stand in quotes, sections in [brackets], each key once",
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
