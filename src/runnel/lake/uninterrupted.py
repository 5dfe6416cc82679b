"""Work that a signal does not cut short, such as a transaction between its COMMIT and the answer to it."""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
POLL_SECONDS = 0.05


def uninterrupted(work: Callable[[], T]) -> T:
    """Run work to its end even if a signal handler raises, such as Ctrl-C's; what was raised is raised after it.

    Signal handlers run in the main thread, so the work gets another one. A second signal does not wait for it any longer;
    the work itself goes on.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return work()
    # Plain locks: those of `threading` are written in Python, where a handler that raises leaves them half-taken.
    finished = _thread.allocate_lock()
    finished.acquire()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            finished.release()

    interrupt: BaseException | None = None
    _thread.start_new_thread(run, ())
    while True:
        try:
            while not results and not errors:
                # A signal that came to another thread does not end the wait, so its handler would run late.
                finished.acquire(True, POLL_SECONDS)  # noqa: FBT003 - a plain lock has no keyword for it
            break
        except BaseException as error:
            if interrupt is not None:
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if errors:
        raise errors[0]
    return results[0]
