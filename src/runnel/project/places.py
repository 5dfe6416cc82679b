"""Says where the work of epochs ran: how much of each kind in the driver, how much on Spark, and what that took there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WORDS = {"step": ("step", "steps"), "read": ("read", "reads"), "keyed": ("keyed function", "keyed functions")}


def summed(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what epochs' records say: how many epochs, their work by kind and place, jobs and tasks (None: not known).

    >>> summed([{"work": {"step": {"driver": 2, "spark": 1, "jobs": 4, "tasks": 9}}, "jobs": 4, "tasks": 9}, {}])
    {'epochs': 1, 'work': {'step': {'driver': 2, 'spark': 1}}, 'jobs': 4, 'tasks': 9}
    """
    made: dict[str, Any] = {"epochs": 0, "work": {}, "jobs": 0, "tasks": 0}
    for record in records:
        if not record.get("work"):
            continue
        made["epochs"] += 1
        for kind, done in record["work"].items():
            into = made["work"].setdefault(kind, {"driver": 0, "spark": 0})
            for place in into:
                into[place] += done.get(place, 0)
        for name in ("jobs", "tasks"):
            known = made[name] is not None and record.get(name) is not None
            made[name] = made[name] + record[name] if known else None
    return made


def in_words(work: Mapping[str, Mapping[str, Any]], jobs: int | None, tasks: int | None) -> str:
    """Say it in one line.

    >>> in_words({"step": {"driver": 2, "spark": 1}, "read": {"driver": 1, "spark": 0}}, 4, 9)
    '2 steps in the driver, 1 on Spark; 1 read in the driver; 4 jobs, 9 tasks'
    >>> in_words({"step": {"driver": 0, "spark": 1}}, None, None)
    '1 step on Spark; its jobs are not known'
    """
    parts = [_kind(kind, done) for kind, done in work.items() if done["driver"] or done["spark"]]
    on_spark = any(done["spark"] for done in work.values())
    if on_spark and (jobs is None or tasks is None):
        parts.append("its jobs are not known")
    elif on_spark:
        parts.append(f"{jobs} {'job' if jobs == 1 else 'jobs'}, {tasks} {'task' if tasks == 1 else 'tasks'}")
    return "; ".join(parts)


def _kind(kind: str, done: Mapping[str, Any]) -> str:
    one, many = _WORDS.get(kind, (kind, kind))
    places = [(done["driver"], "in the driver"), (done["spark"], "on Spark")]
    said = [(number, place) for number, place in places if number]
    first, *others = said
    texts = [f"{first[0]} {one if first[0] == 1 else many} {first[1]}", *(f"{n} {place}" for n, place in others)]
    return ", ".join(texts)
