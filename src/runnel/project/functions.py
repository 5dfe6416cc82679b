"""Registers users' functions, and makes the views anew that were computed with another body of one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from runnel.pipeline.definitions import replace_views
from runnel.pipeline.plan import Definition
from runnel.pipeline.update import update

if TYPE_CHECKING:
    from runnel.engine.functions import UserFunction
    from runnel.lake.entries import ViewEntry
    from runnel.pipeline.runtime import Runtime

log = logging.getLogger("runnel")


def register(runtime: Runtime, function: UserFunction) -> list[str]:
    """Let SQL call a function; say which views were made anew because it is another one than before.

    Views that waited for it go on. One that calls other functions too, which are not registered yet, waits for those.
    """
    runtime.engine.register(function)
    known = runtime.functions
    views = [v for v in runtime.lake.snapshot().views.values() if function.name in v.functions]
    ready = [v for v in views if v.functions.keys() <= known.keys()]
    said = _make_anew(runtime, function, [v for v in ready if _differs(runtime, v)])
    waiting = [v.name for v in ready if v.error and not _differs(runtime, v)]
    if waiting:
        update(runtime, waiting)
    return said


def _differs(runtime: Runtime, view: ViewEntry) -> bool:
    """Say whether a view was computed with other functions, or under other settings, than there are here."""
    known = runtime.functions
    other = any(known[name] != fingerprint for name, fingerprint in view.functions.items())
    return other or dict(view.settings) != runtime.engine.meaning


def _make_anew(runtime: Runtime, function: UserFunction, views: list[ViewEntry]) -> list[str]:
    if not views:
        return []
    plan = replace_views(runtime, [Definition(v.name, v.sql, dict(v.properties)) for v in views])
    said = [
        f"view {name} made anew: the function {function.name}() is another one"
        if name in plan.made
        else f"event view {name} goes on with another function {function.name}()"
        for name in plan.programs
    ]
    for text in said:
        log.info(text)
    return said
