"""The affected-keys rule: what the change touches is computed again, key by key, and compared with what is stored.

`change = op(new rows with a touched key) - stored rows with a touched key`. The operator is plain SQL over plain rows, so
windows, percentiles or EXCEPT ALL need no rule of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.compiler import differentiate, passes
from runnel.compiler.emit import GAP, cut, quoted
from runnel.compiler.sharing import shared_join
from runnel.compiler.support import check_keys
from runnel.model import program
from runnel.model.identity import identical
from runnel.model.program import Step, Term
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runnel.compiler.emit import Piece
    from runnel.compiler.plan import Feed, Keyed, Node
    from runnel.model.program import Role, Shared

    Shapes = dict[str, tuple[Column, ...]]
    Typed = Callable[[Node], tuple[Column, ...]]
    Analyse = Callable[[str, dict[str, tuple[Column, ...]]], tuple[Column, ...]]

_W = quoted(WEIGHT)


def keyed_step(name: str, kind: Kind, keyed: Keyed, typed: Typed, analyse: Analyse) -> Step:
    """Give the step that keeps a keyed operator's rows under this name."""
    nodes = [passes.run(feed.node) for feed in keyed.feeds]
    shapes = {rows_of(feed): typed(node) for feed, node in zip(keyed.feeds, nodes, strict=True)}
    check_keys(c for feed in keyed.feeds for c in shapes[rows_of(feed)] if c.name in feed.keys)
    feeds = ", ".join(f"{quoted(feed.name)} AS (SELECT * FROM {quoted(rows_of(feed))})" for feed in keyed.feeds)
    columns = analyse(f"SELECT * FROM (WITH {feeds}\n{keyed.sql})", shapes)
    target = Relation(name, kind, tuple(Column(n, c.type) for n, c in zip(keyed.names, columns, strict=True)))
    states = [differentiate.state(node, "new") for node in nodes]
    terms = [term for feed, node in zip(keyed.feeds, nodes, strict=True) for term in _key_terms(feed, node)]
    reads: frozenset[tuple[str, Role]] = frozenset().union(*(state.reads for state in states))
    return Step(
        target,
        tuple(terms),
        _initial(keyed, states, shapes),
        reads,
        cut(_around(target, keyed, states, shapes)),
        reads | {(name, "stored_old")},
        shared=_shared(keyed),
    )


def _shared(keyed: Keyed) -> Shared | None:
    """Find the touched keys from the change of a join, where the one feed is a join that others may read too."""
    shared = shared_join(keyed.feeds[0].node) if len(keyed.feeds) == 1 else None
    if shared is None:
        return None
    term = shared.term
    return replace(shared, term=replace(term, sql=_keys_of(keyed.feeds[0], term.sql)))


def _key_terms(feed: Feed, node: Node) -> list[Term]:
    return [Term(_keys_of(feed, piece.sql), piece.deltas, piece.reads) for piece in differentiate.delta(node)]


def _keys_of(feed: Feed, sql: str) -> str:
    names = [f"{quoted(own)} AS {quoted(key(i))}" for i, own in enumerate(feed.keys)] or ["1 AS `_any`"]
    return f"SELECT {', '.join(names)} FROM (\n{sql}\n)"


def rows_of(feed: Feed) -> str:
    """Name a feed's rows where only their types are asked for."""
    return f"{feed.name}__rows"


def key(number: int) -> str:
    """Name a key's column where keys of several feeds meet."""
    return f"_key_{number + 1}"


def plain_rows(columns: Sequence[Column], signed: str, keep: str = "") -> str:
    """Write the rows that signed rows add up to, each as often as it occurs; `keep` restricts them first."""
    names = ", ".join(quoted(c.name) for c in columns)
    listed, by = identical(columns, "s.")
    hint = "/*+ BROADCAST(k) */ " if keep else ""
    net = (
        f"SELECT {hint}{listed}, sum(s.{_W}) AS {_W}\n  FROM (\n{signed}\n) AS s{keep}"
        f"\n  GROUP BY {by} HAVING sum(s.{_W}) > 0"
    )
    return (
        f"SELECT {names} FROM (\n  {net})\n"
        f"  LATERAL VIEW explode(sequence(CAST(1 AS BIGINT), CAST({_W} AS BIGINT))) _copies AS `_copy`"
    )


def _initial(keyed: Keyed, states: list[Piece], shapes: Shapes) -> str:
    feeds = [
        f"{quoted(feed.name)} AS (\n{plain_rows(shapes[f'{feed.name}__rows'], state.sql)}\n)"
        for feed, state in zip(keyed.feeds, states, strict=True)
    ]
    return f"SELECT {_names(keyed.names)}, CAST(1 AS BIGINT) AS {_W}\nFROM (WITH {', '.join(feeds)}\n{keyed.sql})"


def _around(target: Relation, keyed: Keyed, states: list[Piece], shapes: Shapes) -> str:
    """Write the change: the touched keys' rows as they are now, minus those stored."""
    feeds = []
    if keyed.keys:
        keys = ", ".join(quoted(key(i)) for i in range(len(keyed.keys)))
        feeds.append(f"`_keys` AS (SELECT DISTINCT {keys} FROM (\n{GAP}\n))")
    for feed, state in zip(keyed.feeds, states, strict=True):
        rows = plain_rows(shapes[rows_of(feed)], state.sql, touched("s", feed.keys))
        feeds.append(f"{quoted(feed.name)} AS (\n{rows}\n)")
    old = program.name(target.name, "stored_old")
    listed = ", ".join(f"o.{quoted(n)}" for n in keyed.names)
    hint = "/*+ BROADCAST(k) */ " if keyed.keys else ""
    names = _names(keyed.names)
    shown, by = identical(target.columns)
    return (
        f"SELECT {shown}, CAST(sum({_W}) AS BIGINT) AS {_W}\n"
        f"FROM (WITH {', '.join(feeds)}\n"
        f"SELECT {names}, CAST(1 AS BIGINT) AS {_W} FROM (\n{keyed.sql}\n)\n"
        f"UNION ALL\nSELECT {hint}{listed}, -o.{_W} AS {_W} FROM {old} AS o{touched('o', keyed.keys)})\n"
        f"GROUP BY {by} HAVING sum({_W}) <> 0"
    )


def touched(alias: str, keys: Sequence[str], name: str = "`_keys`") -> str:
    """Write the restriction of rows to touched keys; none without keys."""
    if not keys:
        return ""
    on = " AND ".join(f"{alias}.{quoted(own)} <=> k.{quoted(key(i))}" for i, own in enumerate(keys))
    return f"\n  LEFT SEMI JOIN {name} AS k ON {on}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(quoted(n) for n in names)
