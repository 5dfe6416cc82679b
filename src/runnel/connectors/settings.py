"""One way to check the settings of a source or target: every problem is reported at once, with its line and a hint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.config import parse_duration, reveal
from runnel.errors import Problems, RunnelError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runnel import config


@dataclass(frozen=True)
class Kinds:
    """What a store's settings may be, by key; those in `others` are checked by whoever reads them."""

    strings: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys there are."""
        return (*self.strings, *self.choices, *self.numbers, *self.flags, *self.others)

    @property
    def plain(self) -> tuple[str, ...]:
        """The keys whose value is taken as it is written."""
        return (*self.strings, *self.choices, *self.numbers, *self.flags)


class Check:
    """Reads the settings of one section and remembers what is wrong with them.

    >>> from runnel.config import Source
    >>> from runnel.errors import Place
    >>> check = Check(Source("s", "x", {"prt": 1}, Place("runnel.toml", 3)), Kinds(numbers=("port",)))
    >>> check.done()
    Traceback (most recent call last):
    runnel.errors.Problems: RUNNEL-CONFIG-UNKNOWN: sources.s: unknown key 'prt' (runnel.toml:3); did you mean 'port'?
    """

    def __init__(self, section: config.Source | config.Target, kinds: Kinds) -> None:
        """Check what every store's settings are checked for: known keys, types and choices."""
        self.section = section
        self.values: dict[str, Any] = reveal(dict(section.settings))
        self.problems: list[RunnelError] = []
        self._kinds = kinds
        for key, value in self.values.items():
            self._check(key, value)

    def _check(self, key: str, value: Any) -> None:
        kinds = self._kinds
        if key not in kinds.keys:
            self.problem(
                "UNKNOWN",
                f"unknown key {key!r}",
                key,
                nearest(key, kinds.keys) or f"known are {', '.join(kinds.keys)}",
            )
        elif key in (*kinds.strings, *kinds.choices) and not isinstance(value, str):
            self.problem("TYPE", f"{key!r} must be a string, not {value!r}", key)
        elif key in kinds.flags and not isinstance(value, bool):
            self.problem("TYPE", f"{key!r} must be true or false, not {value!r}", key)
        elif key in kinds.numbers and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            self.problem("TYPE", f"{key!r} must be a whole number of 1 or more, not {value!r}", key)
        elif key in kinds.choices and value not in kinds.choices[key]:
            hint = nearest(value, kinds.choices[key]) or f"one of {', '.join(kinds.choices[key])}"
            self.problem("VALUE", f"{key!r} cannot be {value!r}", key, hint)

    def problem(self, code: str, message: str, key: str, hint: str | None = None) -> None:
        """Note what is wrong with a key."""
        message = f"{self.section.label}: {message}"
        self.problems.append(UsageError(f"RUNNEL-CONFIG-{code}", message, place=self.section.at(key), hint=hint))

    def done(self) -> None:
        """Raise `Problems` with everything that was noted."""
        if self.problems:
            raise Problems(self.problems)

    def plain(self) -> dict[str, Any]:
        """Give the values that are taken as they are written."""
        return {key: self.values[key] for key in self._kinds.plain if key in self.values}

    def required(self, examples: Mapping[str, str]) -> None:
        """Note the keys that are missing or empty, with an example of each."""
        for key, example in examples.items():
            if not self.values.get(key):
                self.problem("MISSING", f"{key!r} is missing", key, f"for example: {example}")

    def names(self, key: str) -> tuple[str, ...]:
        """Give one string or a list of them; none where the key is not set."""
        value = self.values.get(key, ())
        listed = [value] if isinstance(value, str) else value
        if key not in self.values:
            return ()
        if isinstance(listed, list) and listed and all(isinstance(name, str) and name for name in listed):
            return tuple(listed)
        self.problem("TYPE", f"{key!r} must be a list of names", key)
        return ()

    def text(self, key: str) -> str:
        """Give a string that must not be shown where it is not one."""
        if not isinstance(self.values[key], str):
            self.problem("TYPE", f"{key!r} must be a string", key)
        return str(self.values[key])

    def durations(self, keys: Iterable[str]) -> dict[str, float]:
        """Give those of these lengths of time that are set, in seconds."""
        found = {}
        for key in keys:
            if key in self.values:
                try:
                    found[key] = parse_duration(self.values[key], place=self.section.at(key))
                except UsageError as error:
                    self.problems.append(error)
        return found
