"""What a command shows and where: tables and progress on a terminal, plain lines elsewhere. Logging is set up here only."""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.logging import RichHandler
from rich.table import Table

from runnel.cli.escapes import SafeConsole, escaped
from runnel.cli.values import cell_text
from runnel.errors import RunnelWarning
from runnel.redaction import Redacting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

WIDE = 100_000
log = logging.getLogger("runnel")
_show = warnings.showwarning


def out() -> Console:
    """Give the console of answers (stdout); away from a terminal it never wraps nor cuts."""
    return _console(stderr=False)


def err() -> Console:
    """Give the console of everything that is not the answer (stderr)."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = SafeConsole(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = WIDE
    return console


def set_up_logging(*, debug: bool) -> None:
    """Send runnel's log to stderr: pleasant on a terminal, one dated line per message elsewhere."""
    console = err()
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S")
        handler.setFormatter(_Escaping("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Escaping("%(asctime)s %(levelname)s %(message)s"))
    for one in (handler, logging.lastResort):  # the latter prints what drivers warn of
        if one is not None and not any(isinstance(known, Redacting) for known in one.filters):
            one.addFilter(Redacting())
    log.handlers[:] = [handler]
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    log.propagate = False
    warnings.simplefilter("always", RunnelWarning)
    warnings.showwarning = _warn


class _Escaping(logging.Formatter):
    """Formats messages with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


def _warn(message: Warning | str, category: type[Warning], *where: Any, **named: Any) -> None:
    """Tell runnel's own warnings in the log, without the line of Python that they came up at."""
    if issubclass(category, RunnelWarning):
        log.warning("%s", message)
    else:
        _show(message, category, *where, **named)


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something is going on: a spinner on a terminal, log lines elsewhere; what it gives changes the text."""
    console = err()
    if not console.is_terminal:
        yield log.info
        return
    with console.status(escaped(text)) as spinner:
        yield lambda now: spinner.update(escaped(now))


def rows_table(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> Table:
    """Lay rows out as a table, numbers to the right."""
    listed = list(rows)
    table = Table()
    for name in names:
        values = [row[name] for row in listed if row[name] is not None]
        number = bool(values) and not any(isinstance(v, str | bytes | bool | dict | list) for v in values)
        table.add_column(escaped(name), justify="right" if number else "left", overflow="fold")
    for row in listed:
        table.add_row(*[escaped(cell_text(row[name])) for name in names])
    return table


def facts_table(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Lay facts out under a title; None is left blank, and a column of nothing else is left out."""
    listed = list(rows)
    kept = [at for at in range(len(names)) if not listed or any(row[at] is not None for row in listed)]
    table = Table(title=title, title_justify="left")
    for at in kept:
        table.add_column(names[at], overflow="fold", no_wrap=at == 0)
    for row in listed:
        table.add_row(*["" if row[at] is None else escaped(str(row[at])) for at in kept])
    return table
