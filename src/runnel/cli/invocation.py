"""How a command begins and ends: `--project` and `--debug` anywhere, every error as one sentence, the promised exit codes.

No traceback is ever printed without `--debug`, whatever went wrong.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from runnel.cli.terminal import err
from runnel.errors import Place, Problems, RunnelError, UsageError
from runnel.redaction import redacted, traceback_of

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
UNEXPECTED = 1


class RunnelGroup(TyperGroup):
    """The top of the command line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - the signature is typer's
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002
        **extra: Any,
    ) -> Any:
        """Run one command and end with its exit code."""
        given = list(sys.argv[1:] if args is None else args)
        code = self._ended(hoisted(given), debug="--debug" in given, prog_name=prog_name, **extra)
        return sys.exit(code) if standalone_mode else code

    def _ended(self, args: list[str], *, debug: bool, **extra: Any) -> int:
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except (KeyboardInterrupt, typer.Abort):
            err().print("interrupted")
            return INTERRUPTED
        except RunnelError as error:
            return tell(error, debug=debug)
        except Exception as error:
            if isinstance(error, OSError) and error.filename is not None:
                return tell(_of_place(error), debug=debug)
            if hasattr(error, "format_message"):
                return _tell_usage(error)
            return _tell_unexpected(error, debug=debug)
        return code if isinstance(code, int) else 0


def hoisted(args: Sequence[str]) -> list[str]:
    """Move `--project DIR` and `--debug` to the front, so that they may stand anywhere before a `--`.

    >>> hoisted(["show", "takings", "--project", "shop", "--debug"])
    ['--project', 'shop', '--debug', 'show', 'takings']
    """
    front: list[str] = []
    rest: list[str] = []
    left = list(args)
    while left:
        arg = left.pop(0)
        if arg == "--":
            rest += [arg, *left]
            break
        if arg == "--project" and left:
            front += [arg, left.pop(0)]
        elif arg == "--debug" or arg.startswith("--project="):
            front.append(arg)
        else:
            rest.append(arg)
    return front + rest


def tell(error: RunnelError, *, debug: bool = False) -> int:
    """Print an error (each one of several) to stderr and give the exit code."""
    for one in error.problems if isinstance(error, Problems) else (error,):
        where = f" ({one.place})" if one.place else ""
        _print(f"error: {one.message}{where}", one.hint, one.code, one.place.underlined() if one.place else "")
    if debug:
        err().print(traceback_of(error), end="")
    return error.exit_code


def _of_place(error: OSError) -> RunnelError:
    """Give the sentence for an error of the file system that nobody below has put in words."""
    hint = "see that it is there and its rights allow it"
    return UsageError("RUNNEL-PLACE", str(error.strerror or error), place=Place(str(error.filename)), hint=hint)


def _tell_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "runnel"
    message = error.format_message().strip().rstrip(".")
    _print(f"error: {message[:1].lower()}{message[1:]}", f"see {path} --help", "RUNNEL-USAGE")
    return int(error.exit_code)


def _tell_unexpected(error: Exception, *, debug: bool) -> int:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if debug:
        err().print(traceback_of(error), end="")
    _print(
        f"error: something unexpected happened: {what}", None if debug else "run again with --debug", "RUNNEL-INTERNAL"
    )
    return UNEXPECTED


def _print(sentence: str, hint: str | None, code: str, excerpt: str = "") -> None:
    console = err()
    sentence, hint, excerpt = redacted(sentence), redacted(hint or ""), redacted(excerpt)
    console.print(sentence, style="bold red" if console.is_terminal else None)
    if excerpt:
        console.print(excerpt)
    if hint:
        console.print(f"  hint: {hint}")
    console.print(f"  code: {code}")
