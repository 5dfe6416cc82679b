"""Semi-join reduction: finds, in the text of a query, by which keys each large input is looked up.

A large input that is joined by equality to something small need not be read whole: only rows whose join columns are among
the small side's keys can matter. `plan` says in which order to look what up; each look-up makes one more input small.
A look-up may give more rows than are needed, never fewer: the query keeps all of its conditions.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from runnel.compiler.spark import DIALECT

if TYPE_CHECKING:
    from collections.abc import Iterator

Derivations = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Lookup:
    """A reading of `source`, called `name` in the reduced text: the rows whose `columns` are among the keys that `keys` gives.

    Where the keys are columns of an input as they are, `plain` names the input and these columns.
    """

    name: str
    source: str
    columns: tuple[str, ...]
    keys: str
    plain: tuple[str, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Reduced:
    """A query after its look-ups, and the columns of its inputs that it names (None: all of them)."""

    sql: str
    lookups: tuple[Lookup, ...]
    columns: frozenset[str] | None

    def keeps(self, column: str) -> bool:
        """Whether a column of an input is of any use to the query."""
        return self.columns is None or column.lower() in self.columns


@functools.lru_cache(maxsize=4096)
def plan(sql: str, derived: Derivations, large: frozenset[str]) -> Reduced | None:
    """Plan the look-ups that make every input in `large` small; None where one of them must be read whole.

    `derived` are inputs defined by SQL over others; they are written into the text.
    """
    tree = _inlined(sqlglot.parse_one(sql, dialect=DIALECT), dict(derived))
    if any(table.args.get("joins") for table in tree.find_all(exp.Table)) or any(
        join.args.get("using") for join in tree.find_all(exp.Join)
    ):
        return None
    work = _Work(tree)
    work.open = [table for table in work.tables() if table.name in large]
    for number, table in enumerate(work.open):
        _rename(table, f"{table.name}@{number}")
    while work.open and work.one_more():
        pass
    if work.open:
        return None
    return Reduced(tree.sql(dialect=DIALECT, comments=False), tuple(work.lookups), _columns(tree))


def _inlined(tree: exp.Expr, derived: dict[str, str]) -> exp.Expr:
    for table in list(tree.find_all(exp.Table)):
        if table.name in derived:
            inner = _inlined(sqlglot.parse_one(derived[table.name], dialect=DIALECT), derived)
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
            table.replace(exp.Subquery(this=inner, alias=alias.copy()))
    return tree


def _rename(table: exp.Table, name: str) -> None:
    """Give a reading of an input a name of its own; what the text calls its columns by stays."""
    if not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    table.meta["source"] = table.name
    table.set("this", exp.to_identifier(name, quoted=True))


def _columns(tree: exp.Expr) -> frozenset[str] | None:
    stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
    for star in stars:
        select = star.find_ancestor(exp.Select)
        if select is None or any(isinstance(source, exp.Table) for source in _sources(select).values()):
            return None
    # A field of a struct is written like a column of a table, so every part of a name may be the column's.
    return frozenset(part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts)


def _sources(select: exp.Select) -> dict[str, exp.Expr]:
    """Give what a SELECT reads from, by the names it calls them by."""
    begin = select.args.get("from_")
    found = [begin.this] if begin else []
    found += [join.this for join in select.args.get("joins") or ()]
    return {source.alias_or_name.lower(): source for source in found}


@dataclass(frozen=True)
class _Tie:
    """A column of one source that equals a column of another in every row that counts."""

    source: str
    column: str
    other: str
    key: str


@dataclass
class _Work:
    """The state of planning: readings of large inputs that are still `open`, and the look-ups that closed the others."""

    tree: exp.Expr
    open: list[exp.Table] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the common table expressions, and how often each is read."""
        self.shared = {cte.alias.lower(): cte for cte in self.tree.find_all(exp.CTE)}
        names = [table.name.lower() for table in self.tree.find_all(exp.Table)]
        self.uses = {name: names.count(name) for name in self.shared}

    def tables(self) -> Iterator[exp.Table]:
        """Give every reading of an input."""
        return (t for t in self.tree.find_all(exp.Table) if t.name.lower() not in self.shared)

    def one_more(self) -> bool:
        """Close some open reading by a tie to something small; False where there is no such tie."""
        for select in self.tree.find_all(exp.Select):
            ties = list(_ties(select))
            sources = _sources(select) if ties else {}
            for name, other in dict.fromkeys((tie.source, tie.other) for tie in ties):
                if name not in sources or other not in sources or self._large(sources[other]):
                    continue
                pairs = {tie.column.lower(): tie.key for tie in ties if (tie.source, tie.other) == (name, other)}
                if self._large(sources[name]) and self._close(sources[name], sources[other], pairs):
                    return True
        return False

    def _large(self, source: exp.Expr) -> bool:
        return any(any(table is one for one in self.open) for table in self._inside(source, set()))

    def _inside(self, source: exp.Expr, seen: set[str]) -> Iterator[exp.Table]:
        for table in source.find_all(exp.Table):
            name = table.name.lower()
            if name not in self.shared:
                yield table
            elif name not in seen:
                yield from self._inside(self.shared[name].this, seen | {name})

    def _close(self, source: exp.Expr, other: exp.Expr, pairs: dict[str, str]) -> bool:
        closed = False
        for table, columns in self._reached(source, tuple(pairs)):
            if any(table is one for one in self.open):
                keys = [pairs[name] for name in pairs if columns.get(name)]
                looked = tuple(columns[name] for name in pairs if columns.get(name))
                source_name = str(table.meta["source"])
                plain = (other.name, tuple(keys)) if self._as_it_is(other) else None
                self.lookups.append(Lookup(table.name, source_name, looked, self._keys(other, keys), plain))
                self.open = [one for one in self.open if one is not table]
                closed = True
        return closed

    def _as_it_is(self, other: exp.Expr) -> bool:
        """Say whether a source is an input, all of it."""
        return isinstance(other, exp.Table) and other.name.lower() not in self.shared and not _listed(other)

    def _keys(self, other: exp.Expr, keys: list[str]) -> str:
        """Write the query for the keys of a small source."""
        alias = other.alias_or_name
        chosen = [
            exp.alias_(exp.column(exp.to_identifier(k, quoted=True), exp.to_identifier(alias, quoted=True)), f"k{i}")
            for i, k in enumerate(keys)
        ]
        query = exp.select(*chosen).distinct().from_(other.copy())
        needed = self._needed(other)
        ctes = [cte.copy() for name, cte in self.shared.items() if name in needed]
        if ctes:
            query.set("with_", exp.With(expressions=ctes))
        return str(query.sql(dialect=DIALECT, comments=False))

    def _needed(self, source: exp.Expr) -> set[str]:
        found: set[str] = set()
        todo = [source]
        while todo:
            for table in todo.pop().find_all(exp.Table):
                name = table.name.lower()
                if name in self.shared and name not in found:
                    found.add(name)
                    todo.append(self.shared[name].this)
        return found

    def _reached(self, source: exp.Expr, names: tuple[str, ...]) -> Iterator[tuple[exp.Table, dict[str, str]]]:
        """Give the readings whose own columns are what a source shows under these names, with those columns."""
        if _listed(source) or source.args.get("joins"):
            return
        if isinstance(source, exp.Table):
            shared = self.shared.get(source.name.lower())
            if shared is None:
                yield source, {name: name for name in names}
            elif self.uses[source.name.lower()] == 1:
                yield from self._reached(shared.this, names)
        elif isinstance(source, exp.Subquery):
            yield from self._reached(source.this, names)
        elif isinstance(source, exp.Union) and not any(
            source.args.get(part) for part in ("limit", "offset", "by_name")
        ):
            shown = _shown(source)
            places = {name: shown.index(name.lower()) for name in names if name.lower() in shown}
            for branch in (source.left, source.right):
                have = _shown(branch)
                inner = {name: have[at] for name, at in places.items() if at < len(have) and have[at]}
                for table, columns in self._reached(branch, tuple(dict.fromkeys(inner.values()))):
                    yield table, {name: columns[one] for name, one in inner.items() if columns.get(one)}
        elif isinstance(source, exp.Select):
            yield from self._through(source, names)

    def _through(self, select: exp.Select, names: tuple[str, ...]) -> Iterator[tuple[exp.Table, dict[str, str]]]:
        sources = _sources(select)
        per_source: dict[str, dict[str, str]] = {}
        for name in names:
            column = _plain(select, name)
            if column is None or not _separable(select, column):
                continue
            only = len(sources) == 1 and not select.args.get("laterals")
            at = column.table.lower() or (next(iter(sources)) if only else "")
            if at in sources and not _padded(select, at):
                per_source.setdefault(at, {})[name] = column.name
        for at, inner in per_source.items():
            for table, columns in self._reached(sources[at], tuple(dict.fromkeys(inner.values()))):
                found = {name: columns[one] for name, one in inner.items() if columns.get(one)}
                if found:
                    yield table, found


def _listed(source: exp.Expr) -> bool:
    """Say whether a source's columns are given other names by its alias."""
    alias = source.args.get("alias")
    return bool(alias and alias.columns)


def _shown(query: exp.Expr) -> list[str]:
    """Give the names of a query's columns, lower case; '' where it has none."""
    while isinstance(query, (exp.Subquery, exp.Union)):
        query = query.this if isinstance(query, exp.Subquery) else query.left
    if not isinstance(query, exp.Select) or any(one.is_star for one in query.expressions):
        return []
    return [one.alias_or_name.lower() for one in query.expressions]


def _plain(select: exp.Select, name: str) -> exp.Column | None:
    """Give the column that a SELECT shows by a name, where it is nothing but a column."""
    if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star):
        return exp.column(name) if len(_sources(select)) == 1 else None
    for one in select.expressions:
        if one.alias_or_name.lower() == name.lower():
            inner = one.unalias().unnest()
            return inner if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star) else None
    return None


def _separable(select: exp.Select, column: exp.Column) -> bool:
    """Say whether rows of other values of a column can be left out before this SELECT instead of behind it."""
    if any(select.args.get(part) for part in ("limit", "offset", "qualify")):
        return False
    group = select.args.get("group")
    if group is not None:
        if any(group.args.get(part) for part in ("grouping_sets", "cube", "rollup", "totals", "all")):
            return False
        if not any(_same(one.unnest(), column) for one in group.expressions):
            return False
    elif any(call.find_ancestor(exp.Window, exp.Select) is select for call in select.find_all(exp.AggFunc)):
        return False
    windows = [w for w in select.find_all(exp.Window) if w.find_ancestor(exp.Select) is select]
    return all(any(_same(one, column) for one in w.args.get("partition_by") or ()) for w in windows)


def _same(one: exp.Expr, column: exp.Column) -> bool:
    return (
        isinstance(one, exp.Column)
        and one.name.lower() == column.name.lower()
        and (one.table.lower() == column.table.lower() or not one.table or not column.table)
    )


def _padded(select: exp.Select, source: str) -> bool:
    """Say whether leaving rows of a source out could turn a partner into NULLs."""
    for join in select.args.get("joins") or ():
        side, kind = join.side.upper(), join.kind.upper()
        if side in ("RIGHT", "FULL") or kind not in ("", "INNER", "CROSS", "SEMI", "ANTI", "OUTER") or join.method:
            return True
        if (side == "LEFT" or kind in ("ANTI", "SEMI")) and join.this.alias_or_name.lower() == source:
            return True
    return False


def _ties(select: exp.Select) -> Iterator[_Tie]:
    """Give who may be looked up by whose keys, by the conditions of a SELECT's joins."""
    joins = select.args.get("joins") or []
    known = {join.kind.upper() for join in joins} <= {"", "INNER", "CROSS", "SEMI", "ANTI", "OUTER"}
    if not joins or not known or any(join.side.upper() in ("RIGHT", "FULL") or join.method for join in joins):
        return
    plain = all(join.kind.upper() in ("", "INNER", "CROSS", "SEMI") for join in joins) and all(
        join.side.upper() != "LEFT" or join.kind.upper() == "SEMI" for join in joins
    )
    padded = {
        j.this.alias_or_name.lower() for j in joins if j.side.upper() == "LEFT" and j.kind.upper() in ("", "OUTER")
    }
    for join in joins:
        right = join.this.alias_or_name.lower()
        for one, other in _equalities(join.args.get("on")):
            for here, there in ((one, other), (other, one)):
                if here.table.lower() == right and there.table and there.table.lower() not in {right} | padded:
                    yield _Tie(right, here.name, there.table.lower(), there.name)
                    if plain:
                        yield _Tie(there.table.lower(), there.name, right, here.name)
    where = select.args.get("where")
    if where is not None and all(not join.side and join.kind.upper() in ("", "INNER", "CROSS") for join in joins):
        for one, other in _equalities(where.this):
            if one.table and other.table and one.table.lower() != other.table.lower():
                yield _Tie(one.table.lower(), one.name, other.table.lower(), other.name)
                yield _Tie(other.table.lower(), other.name, one.table.lower(), one.name)


def _equalities(condition: exp.Expr | None) -> Iterator[tuple[exp.Column, exp.Column]]:
    if condition is None:
        return
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _equalities(condition.this)
        yield from _equalities(condition.expression)
    elif isinstance(condition, exp.Or):
        # What holds whichever side is true.
        others = {_pair(*pair) for pair in _equalities(condition.expression)}
        yield from (pair for pair in _equalities(condition.this) if _pair(*pair) in others)
    elif isinstance(condition, (exp.EQ, exp.NullSafeEQ)):
        one, other = condition.this.unnest(), condition.expression.unnest()
        if isinstance(one, exp.Column) and isinstance(other, exp.Column):
            yield one, other


def _pair(one: exp.Column, other: exp.Column) -> frozenset[tuple[str, str]]:
    return frozenset((column.table.lower(), column.name.lower()) for column in (one, other))
