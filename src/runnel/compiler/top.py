"""The first rows of each group, with some to spare, so that a delete of the first one needs no look at the whole group.

Kept are all rows of a group up to some row in the order. What the change brings beyond that row is ignored, unless the group
is kept whole (`_whole`): a first step finds what lies *near* enough to matter, and often that is nothing. In most groups that is
then all there is to do: it is added to what is kept. The others are *odd*: a group that falls below the count it must give, and is
not whole, is *lost* and read again, only then is the source read at all; one that has grown too large is cut; and where a row
lies level with the last kept one, the whole order has to decide.

For a change of a few rows it is faster to try all of that in one query, which says (`_lost`) where a group ran out after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler import differentiate, passes
from runnel.compiler.emit import GAP, cut, quoted
from runnel.compiler.keyed import key, touched
from runnel.compiler.sharing import shared_join
from runnel.compiler.support import check_keys
from runnel.model import program, types
from runnel.model.identity import identical
from runnel.model.program import Step, Term
from runnel.model.relation import WEIGHT, Column, Kind, Relation

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.compiler.plan import Node, Top
    from runnel.model.program import Role

    Typed = Callable[[Node], tuple[Column, ...]]

WHOLE = "_whole"
LOST = "_lost"
SPARE = 48
SAMPLED = 0.0625
"""The share of rows that is sorted to find out which of the others need not be."""
_ANY = "_any"
_BOOLEAN = types.parse("boolean")
_FACTS = (
    Column("_was", _BOOLEAN),
    Column("_tie", _BOOLEAN),
    Column("_old", types.BIGINT),
    Column("_had", types.BIGINT),
)
"""What is known of a row that lies near: whether its group is kept whole, whether it is level with the last kept row, how often it
is kept already, and how many rows of its group are."""
_W = quoted(WEIGHT)
_ALL = quoted(WHOLE)
_RAN_OUT = quoted(LOST)


def top_steps(name: str, top: Top, typed: Typed) -> tuple[Step, ...]:
    """Give the steps that keep the first rows of each group: what may matter, which groups are odd, which ran out, and the rows."""
    source = passes.run(top.source)
    columns = typed(source)
    check_keys(c for c in columns if c.name in top.keys)
    target = Relation(name, Kind.STAGE, (*columns, Column(WHOLE, _BOOLEAN)))
    state = differentiate.state(source, "new")
    terms = tuple(Term(p.sql, p.deltas, p.reads) for p in differentiate.delta(source))
    writer = _Writer(top, name, columns)
    own: frozenset[tuple[str, Role]] = frozenset({(name, "stored_old")})
    near = Relation(f"{name}.near", Kind.STAGE, (*columns, *_FACTS))
    keys = _keys(top, columns)
    odd = Relation(f"{name}.odd", Kind.STAGE, (*keys, Column(LOST, _BOOLEAN)))
    lost = Relation(f"{name}.lost", Kind.STAGE, keys)
    of_near, of_odd = (program.name(relation.name, "delta") for relation in (near, odd))
    nearing = Step(
        near,
        terms,
        "",
        frozenset(),
        cut(writer.near()),
        own,
        stored=False,
        shared=shared_join(top.source),
        brief=cut(writer.brief()),
        unless=LOST,
    )
    judging = Step(odd, (_all_of(near),), "", frozenset(), cut(writer.odd()), stored=False)
    losing = Step(lost, (_all_of(odd),), "", frozenset(), cut(writer.lost()), stored=False)
    known: frozenset[tuple[str, Role]] = frozenset({(near.name, "delta"), (odd.name, "delta")})
    changed = writer.of_odd(of_near, of_odd).join(cut(writer.changed()))
    slow = Term(changed, frozenset({odd.name}), known | own)
    refilled = Term(writer.refilled(state.sql, lost.name), frozenset({lost.name}), state.reads | {(lost.name, "delta")})
    keeping = Step(
        target,
        (_all_of(near),),
        writer.initial(state.sql),
        state.reads,
        cut(writer.of_even(of_odd)),
        frozenset({(odd.name, "delta")}),
        (slow, refilled),
        # A union may take one of its branches away; a join would be computed twice to take a sample of it.
        grown="" if "-(" in state.sql else writer.grown(state.sql, sampled=len(state.reads) == 1),
    )
    return nearing, judging, losing, keeping


def _all_of(relation: Relation) -> Term:
    """Give what an earlier step found."""
    columns = ", ".join(quoted(n) for n in (*(c.name for c in relation.columns), WEIGHT))
    found: frozenset[tuple[str, Role]] = frozenset({(relation.name, "delta")})
    return Term(f"SELECT {columns} FROM {program.name(relation.name, 'delta')}", frozenset({relation.name}), found)


def _keys(top: Top, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    by_name = {c.name: c for c in columns}
    keys = tuple(Column(key(i), by_name[k].type) for i, k in enumerate(top.keys))
    return keys or (Column(_ANY, types.parse("int")),)


class _Writer:
    """Writes the SQL of one kept top."""

    def __init__(self, top: Top, name: str, columns: tuple[Column, ...]) -> None:
        self.names = top.source.names
        self.shown, self.by = identical(columns)
        self.shown_old, self.by_old = identical(columns, "o.")
        self.listed = ", ".join(quoted(n) for n in self.names)
        self.keys = top.keys
        self.group = ", ".join(quoted(k) for k in top.keys)
        self.partition = f"PARTITION BY {self.group} " if top.keys else ""
        self.order = ", ".join(
            f"{quoted(o.column)} {'DESC' if o.descending else 'ASC'} NULLS {'FIRST' if o.nulls_first else 'LAST'}"
            for o in top.order
        )
        self.hint = "/*+ BROADCAST(k) */ " if top.keys else ""
        self.count = top.count
        self.first = top.order[0]
        self.old = program.name(name, "stored_old")

    def initial(self, state: str) -> str:
        """Write the first rows of every group from the source's rows, and say whether they are all of it.

        Ranks up to one more than is kept are looked at: engines that see that bound right above the ranks sort little else.
        """
        most = self.count + SPARE
        rank = f"rank() OVER ({self.partition}ORDER BY {self.order}) AS `_rank`"
        ranked = f"SELECT {self.listed}, {_W}, {rank} FROM ({self._net(state)})"
        whole = f"count(*) OVER ({self.partition.strip()}) <= {most} AS {_ALL}"
        near = f"SELECT {self.listed}, {_W}, `_rank`, {whole} FROM ({ranked})\nWHERE `_rank` <= {most + 1}"
        return f"SELECT {self.listed}, {_ALL}, {_W}\nFROM ({near})\nWHERE `_rank` <= {most}"

    def grown(self, state: str, *, sampled: bool) -> str:
        """Write the same for rows none of which is taken away again: the first ones are then first before they are added up.

        Equal rows have the same dense rank, which never exceeds the rank they have once they are added up.
        """
        rows = self._bounded(state) if sampled else state
        near = f"SELECT {self.listed}, {_W}, {self._near()} FROM (\n{rows}\n)"
        return self.initial(f"SELECT {self.listed}, {_W} FROM ({near})\nWHERE `_near` <= {self.count + SPARE + 1}")

    def _near(self) -> str:
        return f"dense_rank() OVER ({self.partition}ORDER BY {self.order}) AS `_near`"

    def _bounded(self, state: str) -> str:
        """Write the rows without those that some of the rows already show to lie too far back, so that few are sorted.

        What is the last one to keep of a part of a group lies at or behind the last one to keep of the group, whatever part it is.
        """
        first = quoted(self.first.column)
        last = "min" if self.first.descending else "max"
        keys = "".join(f"{quoted(k)} AS {quoted(key(i))}, " for i, k in enumerate(self.keys))
        some = f"SELECT {self.listed}, {self._near()} FROM (\n{state}\n) WHERE rand() < {SAMPLED}"
        bounds = f"SELECT {keys}{last}({first}) AS `_last` FROM ({some}) WHERE `_near` = {self.count + SPARE + 1}"
        bounds += f" GROUP BY {self.group}" if self.keys else ""
        columns = ", ".join(f"s.{quoted(n)}" for n in self.names)
        on = self._on("s", "b") if self.keys else "true"
        return (
            f"SELECT /*+ BROADCAST(b) */ {columns}, s.{_W} FROM (\n{state}\n) AS s LEFT JOIN ({bounds}) AS b ON {on}\n"
            f"WHERE b.`_last` IS NULL OR s.{first} IS NULL OR s.{first} {'>=' if self.first.descending else '<='} b.`_last`"
        )

    def _net(self, signed: str) -> str:
        total = f"CAST(sum({_W}) AS BIGINT) AS {_W}"
        return f"SELECT {self.shown}, {total} FROM (\n{signed}\n) GROUP BY {self.by} HAVING sum({_W}) > 0"

    def near(self) -> str:
        """Write the changed rows that may lie at or before the last kept row of their group, by the first column of the order."""
        kept = (
            f"SELECT {self.hint}{self.shown_old}, o.{_ALL} AS `_known`, sum(o.{_W}) AS `_old` "
            f"FROM {self.old} AS o{self._touched()}\nGROUP BY {self.by_old}, o.{_ALL} HAVING sum(o.{_W}) > 0"
        )
        first = quoted(self.first.column)
        last = "min" if self.first.descending else "max"
        shown = "".join(f"{quoted(k)} AS {quoted(key(i))}, " for i, k in enumerate(self.keys))
        bounds = (
            f"SELECT {shown}max(`_known`) AS `_open`, count(*) AS `_had`, {last}({first}) AS `_last`, "
            f"max({first} IS NULL) AS `_null` FROM `_kept`" + (f" GROUP BY {self.group}" if self.keys else "")
        )
        joined = f"LEFT JOIN `_bounds` AS b ON {self._on('d', 'b')}" if self.keys else "CROSS JOIN `_bounds` AS b"
        columns = ", ".join(f"d.{quoted(n)}" for n in self.names)
        none = "CAST(0 AS BIGINT)"
        changed = (
            f"SELECT {columns}, {none} AS `_old`, d.{_W} AS `_change` FROM (\n{GAP}\n) AS d\n{joined}\n"
            f"WHERE coalesce(b.`_open`, true) OR coalesce({self._within()}, false)"
        )
        net = (
            f"SELECT {self.shown}, sum(`_old`) AS `_old`, sum(`_change`) AS `_change` FROM (\n"
            f"SELECT {self.listed}, `_old`, {none} AS `_change` FROM `_kept`\nUNION ALL\n{changed}\n) GROUP BY {self.by}"
        )
        found = (
            f"SELECT {columns}, coalesce(b.`_open`, true) AS `_was`, {self._level()} AS `_tie`, d.`_old` AS `_old`, "
            f"coalesce(b.`_had`, {none}) AS `_had`, d.`_change` AS {_W} FROM `_net` AS d\n{joined}\nWHERE d.`_change` <> 0"
        )
        facts = ", ".join(quoted(c.name) for c in _FACTS)
        steps = f"WITH `_kept` AS (\n{kept}\n), `_bounds` AS (\n{bounds}\n), `_net` AS (\n{net}\n)"
        return f"SELECT {self.listed}, {facts}, {_W} FROM ({steps}\n{found})"

    def _touched(self) -> str:
        keys = ", ".join(f"{quoted(k)} AS {quoted(key(i))}" for i, k in enumerate(self.keys))
        return touched("o", self.keys, f"(SELECT DISTINCT {keys} FROM (\n{GAP}\n))")

    def _on(self, rows: str, groups: str) -> str:
        if not self.keys:
            return f"{groups}.{quoted(_ANY)} = 1"
        return " AND ".join(f"{rows}.{quoted(k)} <=> {groups}.{quoted(key(i))}" for i, k in enumerate(self.keys))

    def _level(self) -> str:
        """Write whether a new row may be level with the last kept one; it cannot where the order's column is all a row has."""
        if {*self.keys, self.first.column} >= set(self.names):
            return "false"
        first = f"d.{quoted(self.first.column)}"
        level = f"{first} <=> b.`_last`"
        if not self.first.nulls_first:
            level = f"CASE WHEN b.`_null` THEN {first} IS NULL ELSE {level} END"
        return f"d.`_old` <= 0 AND coalesce({level}, false)"

    def odd(self) -> str:
        """Write which groups need more than that what lies near is added, and which of them ran out."""
        came, went = f"`_old` <= 0 AND `_old` + {_W} > 0", f"`_old` > 0 AND `_old` + {_W} <= 0"
        size = f"max(`_had`) + sum(CASE WHEN {came} THEN 1 WHEN {went} THEN -1 ELSE 0 END) AS `_size`"
        keys = "".join(f"{quoted(k)} AS {quoted(key(i))}, " for i, k in enumerate(self.keys))
        by = f" GROUP BY {self.group}" if self.keys else ""
        groups = f"SELECT {keys}max(`_was`) AS `_was`, max(`_tie`) AS `_tie`, {size} FROM (\n{GAP}\n){by}"
        shown = ", ".join(quoted(key(i)) for i in range(len(self.keys))) or f"1 AS {quoted(_ANY)}"
        short = f"(NOT `_was` AND `_size` < {self.count})"
        return (
            f"SELECT {shown}, {short} AS {_RAN_OUT}, CAST(1 AS BIGINT) AS {_W} FROM (\n{groups}\n)\n"
            f"WHERE {short} OR (NOT `_was` AND `_tie`) OR `_size` > {self.count + 2 * SPARE}"
        )

    def lost(self) -> str:
        """Write which groups ran out."""
        shown = ", ".join(quoted(key(i)) for i in range(len(self.keys))) or quoted(_ANY)
        return f"SELECT {shown}, {_W} FROM (\n{GAP}\n) WHERE {_RAN_OUT}"

    def of_even(self, odd: str) -> str:
        """Write what is near in groups that are not odd: it is the change."""
        columns = ", ".join(f"d.{quoted(n)}" for n in self.names)
        groups = f"LEFT ANTI JOIN {odd} AS g ON {self._on('d', 'g')}"
        return f"SELECT {columns}, d.`_was` AS {_ALL}, d.{_W} FROM (\n{GAP}\n) AS d\n{groups}"

    def of_odd(self, near: str, odd: str) -> str:
        """Write what is near in the others."""
        columns = ", ".join(f"d.{quoted(n)}" for n in self.names)
        return f"SELECT {columns}, d.{_W} FROM {near} AS d\nLEFT SEMI JOIN {odd} AS g ON {self._on('d', 'g')}"

    def _within(self) -> str:
        first = f"d.{quoted(self.first.column)}"
        compared = f"{first} {'>=' if self.first.descending else '<='} b.`_last`"
        return f"{first} IS NULL OR {compared}" if self.first.nulls_first else f"b.`_null` OR {compared}"

    def _kept(self) -> str:
        """Write the rows of the touched groups after the change, as far as they are known: `_was` says what was stored."""
        there = (
            f"SELECT {self.hint}{self.shown_old}, sum(o.{_W}) AS `_old`, sum(o.{_W}) AS `_new`, o.{_ALL} AS `_known` "
            f"FROM {self.old} AS o{self._touched()}\nGROUP BY {self.by_old}, o.{_ALL} HAVING sum(o.{_W}) > 0"
        )
        both = (
            f"SELECT * FROM ({there})\n"
            f"UNION ALL SELECT {self.listed}, CAST(0 AS BIGINT), {_W}, CAST(NULL AS BOOLEAN) FROM (\n{GAP}\n)"
        )
        net = (
            f"SELECT {self.shown}, sum(`_old`) AS `_old`, sum(`_new`) AS `_new`, max(`_known`) AS `_known` "
            f"FROM (\n{both}\n) GROUP BY {self.by}"
        )
        reach = f"max(`_old` > 0) OVER ({self.partition}ORDER BY {self.order} RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"
        known = f"coalesce(max(CASE WHEN `_old` > 0 THEN `_known` END) OVER ({self.partition.strip()}), true)"
        marked = f"SELECT {self.listed}, `_old`, `_new`, {known} AS `_was`, {reach} AS `_reach` FROM (\n{net}\n)"
        return (
            f"SELECT {self.listed}, `_old`, CASE WHEN `_was` OR `_reach` THEN `_new` ELSE CAST(0 AS BIGINT) END AS `_new`, "
            f"`_was` FROM (\n{marked}\n)"
        )

    def _judged(self) -> str:
        """Write for each of those rows how many its group now has, and its rank among them."""
        size = f"sum(CASE WHEN `_new` > 0 THEN 1 ELSE 0 END) OVER ({self.partition.strip()})"
        rank = f"rank() OVER ({self.partition}ORDER BY CASE WHEN `_new` > 0 THEN 0 ELSE 1 END, {self.order})"
        return f"SELECT {self.listed}, `_old`, `_new`, `_was`, {size} AS `_size`, {rank} AS `_rank` FROM (\n{self._kept()}\n)"

    def changed(self, *, told: bool = False) -> str:
        """Write the change: rows that leave; rows that come; and all of a group that is kept whole no longer.

        A group that ran out leaves altogether, because it is filled again; its rows can be `told` by another column.
        """
        lost = f"(NOT `_was` AND `_size` < {self.count})"
        cut = f"(`_size` > {self.count + 2 * SPARE})"
        whole = f"(`_was` AND NOT {cut})"
        kept = f"CASE WHEN {lost} OR `_new` <= 0 OR ({cut} AND `_rank` > {self.count + SPARE}) THEN 0 ELSE `_new` END"
        one, all_ = (f", {lost} AS {_RAN_OUT}", f", max({_RAN_OUT}) AS {_RAN_OUT}") if told else ("", "")
        verdict = (
            f"SELECT {self.listed}, `_old`, `_was`, {whole} AS `_is`, {kept} AS `_new`{one} FROM (\n{self._judged()}\n)"
        )
        return (
            f"SELECT {self.shown}, {_ALL}{all_}, CAST(sum({_W}) AS BIGINT) AS {_W} FROM (\n"
            f"SELECT {self.listed}, CASE WHEN `_side` < 0 THEN `_was` ELSE `_is` END AS {_ALL}, "
            f"CASE WHEN `_side` < 0 THEN -`_old` ELSE `_new` END AS {_W}{f', {_RAN_OUT}' if told else ''} FROM (\n{verdict}\n)\n"
            "LATERAL VIEW explode(array(CAST(-1 AS BIGINT), CAST(1 AS BIGINT))) _sides AS `_side`)\n"
            f"GROUP BY {self.by}, {_ALL} HAVING sum({_W}) <> 0"
        )

    def brief(self) -> str:
        """Write the change straight from the changed rows, and where a group ran out."""
        changed = f"SELECT {self.listed}, {_W} FROM `_changed`".join(cut(self.changed(told=True)))
        return f"SELECT {self.listed}, {_ALL}, {_RAN_OUT}, {_W} FROM (WITH `_changed` AS (\n{GAP}\n)\n{changed})"

    def refilled(self, state: str, lost: str) -> str:
        """Write the first rows of the groups that ran out, from the source."""
        listed = ", ".join(f"s.{quoted(n)}" for n in self.names)
        keys = touched("s", self.keys, program.name(lost, "delta"))
        near = f"SELECT {self.hint}{listed}, s.{_W} FROM (\n{state}\n) AS s{keys}"
        return self.initial(near)
