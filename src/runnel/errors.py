"""Every error runnel raises on purpose: one sentence, a stable code, the place, and what to do about it.

Two kinds matter to whoever catches one. A `Terminal` error will come again until somebody changes something; a `Transient`
one may be gone on the next try, and is the only kind that is ever retried.

>>> print(Terminal("RUNNEL-VIEW-COLUMN", "unknown column 'amont'", place=Place("views/a.sql", 3, 8), hint="did you mean 'amount'?"))
RUNNEL-VIEW-COLUMN: unknown column 'amont' (views/a.sql:3:8); did you mean 'amount'?
"""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runnel.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

USAGE = 2
UNREACHABLE = 3
NOT_FINE = 1


WIDEST = 100
"""Characters shown of a line."""


@dataclass(frozen=True)
class Excerpt:
    """One line of the user's text, and which part of it is meant."""

    line: str
    start: int
    length: int = 1

    def underlined(self, number: int | None = None) -> str:
        """Give the line with carets below the part that is meant.

        >>> print(Excerpt("SELECT amont FROM orders", 7, 5).underlined(3))
          3 | SELECT amont FROM orders
            |        ^^^^^
        """
        first = max(0, self.start - WIDEST // 2) if len(self.line) > WIDEST else 0
        line = self.line[first : first + WIDEST].replace("\t", " ").rstrip()
        carets = "^" * max(1, min(self.length, len(line) - self.start + first))
        label = "" if number is None else str(number)
        return f"  {label} | {line}\n  {' ' * len(label)} | {' ' * (self.start - first)}{carets}"


@dataclass(frozen=True)
class Place:
    """Where something was written: a file or a name, and the line and column (from 1) where they are known."""

    file: str
    line: int | None = None
    column: int | None = None
    excerpt: Excerpt | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def underlined(self) -> str:
        """Give the line that is meant with carets below, or '' where it is not at hand."""
        return "" if self.excerpt is None else self.excerpt.underlined(self.line)


class RunnelError(Exception):
    """The root of runnel's errors; `exit_code` is what the command line ends with."""

    exit_code = NOT_FINE

    def __init__(self, code: str, message: str, *, place: Place | None = None, hint: str | None = None) -> None:
        """Say what is wrong (`message`), where (`place`), and what to do (`hint`); `code` never changes between releases."""
        message = redacted(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place
        self.hint = None if hint is None else redacted(hint)
        if place is not None and place.excerpt is not None:
            # Python prints notes below the error's one sentence.
            self.add_note(redacted(place.underlined()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes, as errors kept in what tasks are given do: Python would call `__init__` with the message alone."""
        return _rebuilt, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        what_to_do = f"; {self.hint}" if self.hint else ""
        return f"{self.code}: {redacted(f'{self.message}{where}{what_to_do}')}"


def _rebuilt(kind: type[RunnelError], args: tuple[Any, ...], state: dict[str, Any]) -> RunnelError:
    made = kind.__new__(kind, *args)
    made.__dict__.update(state)
    return made


class RunnelWarning(UserWarning):
    """Something that stops nothing and ought to be known, such as a view whose rows are not of the newest epoch."""


class Terminal(RunnelError):
    """It will fail again until somebody changes something."""


class Transient(RunnelError):
    """It may work on the next try: a lost race, a busy catalog, a server that is away."""


class UsageError(Terminal):
    """The command, the call or the configuration is wrong."""

    exit_code = USAGE


class Unreachable(Transient):
    """A store, the catalog or Spark cannot be reached."""

    exit_code = UNREACHABLE


class Conflict(Transient):
    """Somebody else published first; the work has to be done again on the newer state."""


class Problems(UsageError):
    """Several problems found in one go, so that they can be mended in one go."""

    def __init__(self, problems: Sequence[RunnelError]) -> None:
        """Keep the problems in the order they were found."""
        super().__init__("RUNNEL-PROBLEMS", f"{len(problems)} problems" if len(problems) != 1 else "1 problem")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class Failures(Problems):
    """What failed by itself while everything else was done."""

    def __init__(self, problems: Sequence[RunnelError]) -> None:
        """Keep the problems; when all of them are stores that cannot be reached, the exit code says so."""
        super().__init__(problems)
        self.exit_code = UNREACHABLE if all(isinstance(one, Unreachable) for one in problems) else NOT_FINE


@contextmanager
def places_named(
    what: str, path: object, hint: str = "see that the path is right and its rights allow it"
) -> Iterator[None]:
    """Turn an error of the file system into one that says what could not be done, where and why.

    >>> with places_named("the report cannot be written", "/nowhere/at/all"):
    ...     open("/nowhere/at/all", "w")
    Traceback (most recent call last):
    runnel.errors.UsageError: RUNNEL-PLACE: the report cannot be written: No such file or directory (/nowhere/at/all); see that the path is right and its rights allow it
    """
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        raise UsageError(
            "RUNNEL-PLACE", f"{what}: {error.strerror or error}", place=Place(str(where)), hint=hint
        ) from error
    except ValueError as error:  # so Python refuses a path with a null character, or one no file system can encode
        if not isinstance(error, UnicodeError) and "null" not in str(error):
            raise
        raise UsageError("RUNNEL-PLACE", f"{what}: {error}", place=Place(repr(str(path))), hint=hint) from error


def nearest(name: str, names: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Give the hint "did you mean ...?" for a misspelt name, or None when nothing is near.

    >>> nearest("amont", ["amount", "region"])
    "did you mean 'amount'?"
    """
    found = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=likeness)
    return f"did you mean {found[0]!r}?" if found else None
