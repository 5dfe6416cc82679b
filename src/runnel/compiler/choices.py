"""Finds what SQL leaves open in a query: which columns of its result may hold one value or another, and why.

It reads the user's own tree and shares nothing with the rest of the compiler, for it decides what `verify` may not compare.
A *family* is a set of output columns whose values, taken together, are determined as a bag: `ORDER BY a LIMIT 3` determines
column `a` and leaves open which of the rows with equal `a` come along; `row_number() OVER (PARTITION BY p ORDER BY o)` is
determined together with `p` and `o`, and all columns but it are determined without it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.forms import readable
from runnel.compiler.parse import parse_query
from runnel.compiler.resolve import cte_of, table_name
from runnel.errors import RunnelError, Terminal
from runnel.model.relation import find_relation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runnel.model.relation import Relation

MOST_FAMILIES = 4
ORDERLESS = frozenset({"sort_array", "array_sort", "size", "array_size", "cardinality", "array_max", "array_min"})
"""Functions of an array that do not depend on its order."""
BY_PLACE = frozenset({"row_number", "ntile", "lag", "lead"})
BY_END = frozenset({"last", "last_value", "nth_value"})
"""Windows that give all rows with equal order keys the same value, if their frame goes by RANGE."""
BY_ANY = frozenset(
    {"first", "first_value", "any_value", "collect_list", "collect_set", "array_agg", "listagg", "string_agg"}
)
"""Windows whose value depends on which of equal rows comes first, whatever the frame."""
AGGREGATES_OF_ANY = frozenset(
    {"any_value", "first", "first_value", "last", "last_value", "max_by", "min_by", "mode", "histogram_numeric"}
)
COLLECTING = frozenset({"collect_list", "collect_set", "array_agg", "listagg", "string_agg"})


@dataclass(frozen=True)
class Choices:
    """What a query leaves open: `columns` by name, the `reasons`, and the `families` of columns that are determined.

    No family at all means that not even the number of rows is determined.
    """

    columns: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    families: tuple[tuple[str, ...], ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything is open."""
        return bool(self.reasons)


NOTHING_OPEN = Choices()


def open_choices(
    sql: str, relations: Mapping[str, Relation], columns: Sequence[str], *, loose: bool = False
) -> Choices:
    """Say what of a query's result, whose columns have these names, is open.

    With `loose`, `last_value` and `nth_value` over ties count as open even where all equal rows must have the same value.
    """
    try:
        tree = parse_query(readable(sql))
    except Terminal:
        return NOTHING_OPEN  # Spark alone reads it
    finder = _Finder(relations, loose)
    reasons = tuple(dict.fromkeys(finder.reasons(tree)))
    if not reasons:
        return NOTHING_OPEN
    try:
        shape = finder.query(tree)
    except (_Unknown, RunnelError, RecursionError):
        return Choices(tuple(columns), reasons)
    if len(shape.names) != len(columns):
        return Choices(tuple(columns), reasons)
    whole = frozenset(range(len(columns)))
    if whole in shape.families:
        return NOTHING_OPEN
    families = [f for f in shape.families if not any(f < other for other in shape.families)]
    best = max(families, key=len, default=frozenset())
    return Choices(
        tuple(columns[i] for i in sorted(whole - best)),
        reasons,
        tuple(tuple(columns[i] for i in sorted(family)) for family in families),
    )


class _Unknown(Exception):
    """A form that is not understood here: nothing is known to be determined."""


@dataclass(frozen=True)
class _Shape:
    """A query's output names, and which sets of positions are determined."""

    names: tuple[str, ...]
    families: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class _Family:
    """What is determined inside a SELECT: columns of its sources as (source, name), and whole expressions."""

    columns: frozenset[tuple[str, str]]
    exprs: frozenset[exp.Expr] = frozenset()


@dataclass
class _Scope:
    """The sources of a SELECT by alias, each with its column names."""

    sources: dict[str, tuple[str, ...]]
    families: list[_Family]
    single: Relation | None = None
    """The one base table it reads, if that is all it reads."""

    def meant(self, column: exp.Column) -> set[tuple[str, str]]:
        """Give the columns that a name may stand for; none where it belongs to a query around, or is a field."""
        parts = [part.name.lower() for part in column.parts]
        for at, part in enumerate(parts[:-1]):
            if part in self.sources:
                return {(part, name) for name in parts[at + 1 :] if name in self.sources[part]}
        return {(alias, name) for name in parts for alias, names in self.sources.items() if name in names}


@dataclass(frozen=True)
class _Finder:
    relations: Mapping[str, Relation]
    loose: bool

    # -- what is open by itself

    def reasons(self, tree: exp.Expr) -> Iterable[str]:
        """List the places of a text that leave a choice open, ties granted."""
        for node in tree.walk():
            if isinstance(node, exp.Query) and (node.args.get("limit") or node.args.get("offset")):
                order = node.args.get("order")
                by = _text(order) if order is not None else "no order"
                yield f"{by} with LIMIT leaves open which of equal rows are among the first"
            elif self._open_window(node):
                yield f"{_text(node)} depends on which of rows with equal order keys comes first"
            elif _open_aggregate(node):
                yield f"{_text(node)} may be any of several values, or in any order"

    def _open_window(self, node: exp.Expr) -> bool:
        if not isinstance(node, exp.Window):
            return False
        name = _name(_call(node))
        spec = node.args.get("spec")
        rows = spec is not None and str(spec.args.get("kind", "")).upper() == "ROWS"
        whole = rows and spec is not None and spec.args.get("start") == spec.args.get("end") == "UNBOUNDED"
        ordered = node.args.get("order") is not None or node.args.get("alias") is not None
        if name in BY_END:
            return self.loose or rows or not ordered
        return name in BY_PLACE or name in BY_ANY or (rows and not whole)

    # -- queries

    def query(self, node: exp.Expr) -> _Shape:
        """Give what a query determines."""
        if isinstance(node, exp.Subquery):
            return self._limited(node, self._renamed(node, self.query(node.this)), None)
        if isinstance(node, exp.SetOperation):
            return self._limited(node, self._set(node), None)
        if isinstance(node, exp.Select):
            return self._select(node)
        raise _Unknown

    def _set(self, node: exp.SetOperation) -> _Shape:
        left, right = self.query(node.left), self.query(node.right)
        if len(left.names) != len(right.names) or node.args.get("by_name"):
            raise _Unknown
        whole = frozenset(range(len(left.names)))
        if isinstance(node, exp.Union) and not node.args.get("distinct"):
            pairs = itertools.product(left.families, right.families)
            return _Shape(left.names, _few(one & other for one, other in pairs))
        return _Shape(left.names, (whole,) if whole in left.families and whole in right.families else ())

    def _renamed(self, node: exp.Expr, shape: _Shape) -> _Shape:
        alias = node.args.get("alias")
        given = [c.name.lower() for c in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if given and len(given) != len(shape.names):
            raise _Unknown
        return _Shape(tuple(given), shape.families) if given else shape

    def _select(self, select: exp.Select) -> _Shape:
        if select.args.get("distinct") is not None and select.args["distinct"].args.get("on") is not None:
            raise _Unknown
        scope = self._scope(select)
        windows = self._windows(select)
        for part in ("where", "having"):
            if select.args.get(part) is not None:
                self._keep(scope, [select.args[part].this], select)
        group = select.args.get("group")
        if group is not None:
            self._keep(scope, _group_keys(select, group), select)
        scope.families += [f for w in windows for f in self._ranked(scope, select, w)]
        if select.args.get("qualify") is not None:
            self._keep(scope, [select.args["qualify"].this], select)
        outputs = self._outputs(select, scope)
        names = tuple(name for name, _ in outputs)
        exprs = [expr for _, expr in outputs]
        families = _few(
            frozenset(i for i, e in enumerate(exprs) if self._closed(e, scope, f, select)) for f in scope.families
        )
        if select.args.get("distinct") is not None:
            families = tuple(f for f in families if len(f) == len(exprs))
        return self._limited(select, _Shape(names, families), (scope, exprs))

    def _limited(self, node: exp.Expr, shape: _Shape, select: tuple[_Scope, list[exp.Expr]] | None) -> _Shape:
        """Leave of a query with LIMIT what its order determines."""
        if node.args.get("limit") is None and node.args.get("offset") is None:
            return shape
        order = node.args.get("order")
        items = [o.this.unnest() for o in order.expressions] if order is not None else []
        positions = {self._position(item, shape.names, select[1] if select else []) for item in items}
        if select is not None and None in positions:
            scope = select[0]
            hidden = [item for item in items if self._position(item, shape.names, select[1]) is None]
            self._keep(scope, hidden, node)
            if not scope.families:
                return _Shape(shape.names, ())
        elif None in positions:
            raise _Unknown
        keys = frozenset(p for p in positions if p is not None)
        if select is not None and self._is_unique(select[0], node, items):
            return _Shape(shape.names, tuple(f for f in shape.families if keys <= f))
        return _Shape(shape.names, _few(f & keys for f in shape.families if keys <= f))

    def _position(self, item: exp.Expr, names: Sequence[str], exprs: Sequence[exp.Expr]) -> int | None:
        if isinstance(item, exp.Literal) and item.is_int and 1 <= int(item.this) <= len(names):
            return int(item.this) - 1
        if isinstance(item, exp.Column) and not item.table and item.name.lower() in names:
            return list(names).index(item.name.lower())
        return next((i for i, e in enumerate(exprs) if e == item), None)

    # -- FROM

    def _scope(self, select: exp.Select) -> _Scope:
        scope = _Scope({}, [_Family(frozenset())])
        items = [select.args["from_"].this] if select.args.get("from_") is not None else []
        joins = list(select.args.get("joins") or [])
        for item in (*items, *(j.this for j in joins)):
            self._add(scope, item, select)
        if len(items) == 1 and not joins and not select.args.get("laterals"):
            scope.single = self._base(items[0])
        for join in joins:
            if join.args.get("using") or join.args.get("method"):
                names = {i.name.lower() for i in join.args.get("using") or []}
                shared = [exp.column(n) for n in names or set().union(*scope.sources.values())]
                self._keep(scope, shared, select)
            if join.args.get("on") is not None:
                self._keep(scope, [join.args["on"]], select)
        for lateral in select.args.get("laterals") or []:
            self._generate(scope, lateral, select)
        return scope

    def _base(self, item: exp.Expr) -> Relation | None:
        if not isinstance(item, exp.Table) or not isinstance(item.this, exp.Identifier) or cte_of(item) is not None:
            return None
        return find_relation(self.relations.values(), table_name(item))

    def _add(self, scope: _Scope, item: exp.Expr, select: exp.Select) -> None:
        if any(item.args.get(part) for part in ("pivots", "sample", "joins")):
            raise _Unknown
        if isinstance(item, (exp.Lateral, exp.Unnest)) and not isinstance(item.this, exp.Query):
            self._generate(scope, item, select)
            return
        base = self._base(item)
        if base is not None:
            names = tuple(c.name.lower() for c in base.rows)
            shape = self._renamed(item, _Shape(names, (frozenset(range(len(names))),)))
        elif isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            cte = cte_of(item)
            if cte is None or cte.find_ancestor(exp.With).args.get("recursive"):  # type: ignore[union-attr]
                raise _Unknown
            shape = self._renamed(item, self._renamed(cte, self.query(cte.this)))
        elif isinstance(item, exp.Subquery):
            shape = self.query(item)
        else:
            raise _Unknown
        alias = item.alias_or_name.lower() or f"#{len(scope.sources)}"
        if alias in scope.sources:
            raise _Unknown
        scope.sources[alias] = shape.names
        scope.families = [
            _Family(family.columns | {(alias, shape.names[i]) for i in more})
            for family in scope.families
            for more in shape.families
        ][:MOST_FAMILIES]

    def _generate(self, scope: _Scope, lateral: exp.Expr, select: exp.Select) -> None:
        alias = lateral.args.get("alias")
        names = tuple(c.name.lower() for c in alias.columns) if isinstance(alias, exp.TableAlias) else ()
        if not names:
            raise _Unknown
        self._keep(scope, [lateral.this, *lateral.expressions] if lateral.this else lateral.expressions, select)
        called = f"#{len(scope.sources)}" if alias is None or not alias.name else alias.name.lower()
        scope.sources[called] = names
        scope.families = [
            _Family(family.columns | {(called, name) for name in names}, family.exprs) for family in scope.families
        ]

    # -- expressions

    def _keep(self, scope: _Scope, conditions: Iterable[exp.Expr], select: exp.Expr) -> None:
        """Keep the families by which these are determined: who filters or groups by something open leaves the rest open."""
        wanted = list(conditions)
        scope.families = [f for f in scope.families if all(self._closed(c, scope, f, select) for c in wanted)]

    def _closed(self, expr: exp.Expr, scope: _Scope, family: _Family, select: exp.Expr) -> bool:
        """Say whether a family determines an expression."""
        bare = expr.unalias()
        if bare in family.exprs:
            return True
        if isinstance(bare, exp.Column):
            if not self._meant_outputs(bare, scope, select):
                return scope.meant(bare) <= family.columns
            return all(self._closed(e, scope, family, select) for e in self._meant_outputs(bare, scope, select))
        if isinstance(bare, exp.Query):
            inside = self.query(bare)
            whole = frozenset(range(len(inside.names))) in inside.families
            return whole and all(scope.meant(c) <= family.columns for c in bare.find_all(exp.Column))
        if isinstance(bare, exp.Window):
            bare = _spelled_out(bare, select)
            if self._open_window(bare) and not self._is_unique(scope, select, _window_keys(bare)):
                return False
        elif _open_aggregate(bare):
            return False
        return all(self._closed(child, scope, family, select) for child in bare.iter_expressions())

    def _meant_outputs(self, column: exp.Column, scope: _Scope, select: exp.Expr) -> list[exp.Expr]:
        """Give what an output alias stands for, where no source has a column of that name."""
        if column.table or scope.meant(column) or not isinstance(select, exp.Select):
            return []
        return [
            e.this for e in select.expressions if isinstance(e, exp.Alias) and e.alias.lower() == column.name.lower()
        ]

    def _outputs(self, select: exp.Select, scope: _Scope) -> list[tuple[str, exp.Expr]]:
        found: list[tuple[str, exp.Expr]] = []
        for item in select.expressions:
            star = item if isinstance(item, exp.Star) else item.this if isinstance(item, exp.Column) else None
            if isinstance(star, exp.Star):
                if any(star.args.get(part) for part in ("except_", "replace", "rename", "except")):
                    raise _Unknown
                if any(j.args.get("using") or j.args.get("method") for j in select.args.get("joins") or []):
                    raise _Unknown
                wanted = item.table.lower() if isinstance(item, exp.Column) else ""
                for alias, names in scope.sources.items():
                    if not wanted or alias == wanted:
                        found += [(n, exp.column(exp.to_identifier(n), table=exp.to_identifier(alias))) for n in names]
            elif isinstance(item, exp.Aliases):
                raise _Unknown
            else:
                found.append((item.alias_or_name.lower(), item.unalias()))
        return found

    # -- windows

    def _windows(self, select: exp.Select) -> list[exp.Window]:
        parts = [*select.expressions, *([select.args["qualify"]] if select.args.get("qualify") else [])]
        return list(dict.fromkeys(w for part in parts for w in part.find_all(exp.Window)))

    def _ranked(self, scope: _Scope, select: exp.Select, window: exp.Window) -> list[_Family]:
        """Give the families of a row_number: with the keys of its window it is determined, ties or not."""
        spelled = _spelled_out(window, select)
        if _name(_call(window)) != "row_number" or self._is_unique(scope, select, _window_keys(spelled)):
            return []
        keys = _window_keys(spelled)
        if not any(all(self._closed(k, scope, f, select) for k in keys) for f in scope.families):
            return []
        columns = {found for k in keys if isinstance(k, exp.Column) for found in scope.meant(k)}
        return [_Family(frozenset(columns), frozenset({*keys, window}))]

    def _is_unique(self, scope: _Scope, select: exp.Expr, keys: Sequence[exp.Expr]) -> bool:
        """Say whether no two rows have equal values of these, as far as declared keys or a grouping tell."""
        if not isinstance(select, exp.Select):
            return False
        group = select.args.get("group")
        if group is not None:
            plain = not any(group.args.get(p) for p in ("grouping_sets", "cube", "rollup"))
            return plain and all(k in keys for k in _group_keys(select, group))
        if scope.single is None or not scope.single.key:
            return False
        names = {k.name.lower() for k in keys if isinstance(k, exp.Column)}
        return {k.lower() for k in scope.single.key} <= names


def _few(families: Iterable[frozenset[int]]) -> tuple[frozenset[int], ...]:
    return tuple(dict.fromkeys(families))[:MOST_FAMILIES]


def _group_keys(select: exp.Select, group: exp.Expr) -> list[exp.Expr]:
    found = list(group.expressions)
    for part in ("grouping_sets", "cube", "rollup"):
        found += [e for sets in group.args.get(part) or [] for e in sets.find_all(exp.Column)]
    if group.args.get("all"):
        raise _Unknown
    return [
        select.expressions[int(k.this) - 1].unalias()
        if isinstance(k, exp.Literal) and k.is_int and 0 < int(k.this) <= len(select.expressions)
        else k
        for k in found
    ]


def _window_keys(window: exp.Window) -> list[exp.Expr]:
    order = window.args.get("order")
    return [*window.args.get("partition_by", []), *(o.this for o in (order.expressions if order is not None else []))]


def _spelled_out(window: exp.Window, select: exp.Expr) -> exp.Window:
    """Give a window with the definition its name stands for."""
    alias = window.args.get("alias")
    if alias is None:
        return window
    for named in select.args.get("windows") or []:
        if named.name.lower() == alias.name.lower():
            spelled = window.copy()
            for part in ("partition_by", "order", "spec"):
                spelled.set(part, named.args.get(part))
            spelled.set("alias", None)
            return spelled
    raise _Unknown


def _call(window: exp.Window) -> exp.Expr:
    call: exp.Expr = window.this
    while isinstance(call, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
        call = call.this
    return call


def _name(call: exp.Expr) -> str:
    """Give the name of a function in Spark's spelling, as far as this module needs it."""
    match call:
        case exp.AnyValue():
            return "any_value"
        case exp.ArgMax():
            return "max_by"
        case exp.ArgMin():
            return "min_by"
        case exp.ArrayAgg():
            return "collect_list"
        case exp.ArrayUniqueAgg():
            return "collect_set"
        case exp.GroupConcat():
            return "listagg"
        case exp.Anonymous():
            return str(call.this).lower()
        case exp.Func():
            return call.sql_name().lower()
    return ""


def _open_aggregate(node: exp.Expr) -> bool:
    """Say whether an aggregate (not a window) leaves open which value, or which order of values, it gives."""
    name = _name(node)
    if name not in AGGREGATES_OF_ANY and name not in COLLECTING:
        return False
    parent = node.parent
    while isinstance(parent, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)):
        if isinstance(parent, exp.WithinGroup) and _ordered_by_itself(node, parent):
            return False
        parent = parent.parent
    if isinstance(parent, exp.Window):
        return False
    if name == "mode" and isinstance(node, exp.Anonymous) and len(node.expressions) > 1:
        return False
    return not (name in COLLECTING and isinstance(parent, exp.Func) and _name(parent) in ORDERLESS)


def _ordered_by_itself(call: exp.Expr, within: exp.WithinGroup) -> bool:
    """Say whether values are listed in an order of their own: equal ones may change places then. A collation calls others equal too."""
    argument = next(iter(call.expressions), None) if isinstance(call, exp.Anonymous) else call.this
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    order = within.expression
    collated = order.find(exp.Collate) or any(_name(one) == "collate" for one in order.find_all(exp.Func))
    return isinstance(order, exp.Order) and not collated and any(o.this == argument for o in order.expressions)


def _text(node: exp.Expr, most: int = 80) -> str:
    text = node.sql(dialect="spark", comments=False)
    return text if len(text) <= most else text[: most - 3] + "..."
