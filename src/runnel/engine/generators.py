"""Rewrites Spark's generators (`explode` and its kin) as DuckDB's `unnest` inside a lateral subquery."""

from __future__ import annotations

from sqlglot import exp

GENERATING = (exp.Lateral, exp.Explode, exp.Posexplode, exp.Inline, exp.Stack, exp.Anonymous)
"""Nodes without one of which a query has no generator."""


def rewrite_generators(tree: exp.Expr) -> None:
    """Replace every generator in FROM, in LATERAL VIEW and (those of one column) in the SELECT list."""
    for select in list(tree.find_all(exp.Select)):
        views = select.args.get("laterals") or []
        kept = [_lateral(view) for view in views]
        select.set("laterals", [])
        for lateral in kept:
            select.append("joins", exp.Join(this=lateral))
    for lateral in list(tree.find_all(exp.Lateral)):
        if not isinstance(lateral.this, exp.Subquery):
            lateral.replace(_lateral(lateral))
    for table in list(tree.find_all(exp.Table)):
        if _generator(table.this):
            table.replace(_derived(table))
    for node in list(tree.find_all(exp.Func)):
        if _generator(node) and _outer(node) and not isinstance(node.parent, exp.Lateral):
            node.replace(_unnest(_or_null(node.this)))


def _lateral(view: exp.Lateral) -> exp.Lateral:
    names = [c.name for c in view.args["alias"].args.get("columns") or []] if view.args.get("alias") else []
    name = view.alias or "_generated"
    outer = bool(view.args.get("outer")) or _outer(view.this)
    return exp.Lateral(this=_rows(view.this, names, outer=outer), alias=_alias(name, view.this, names))


def _derived(table: exp.Table) -> exp.Subquery:
    alias = table.args.get("alias")
    names = [c.name for c in alias.args.get("columns") or []] if alias else []
    rows = _rows(table.this, names, outer=_outer(table.this))
    rows.set("alias", _alias(table.alias or "_generated", table.this, names))
    return rows


def _alias(name: str, generator: exp.Expr, names: list[str]) -> exp.TableAlias:
    plain = isinstance(generator, exp.Explode)
    given = names or ((["pos"] if _positioned(generator) else []) + ["col"] if plain else [])
    return exp.TableAlias(this=exp.to_identifier(name), columns=[exp.to_identifier(n) for n in given])


def _rows(generator: exp.Expr, names: list[str], *, outer: bool) -> exp.Subquery:
    """Write the rows one call makes; whether it goes through a map is told by the number of names."""
    return exp.Subquery(this=exp.Select(expressions=_columns(generator, names, outer=outer)))


def _columns(generator: exp.Expr, names: list[str], *, outer: bool) -> list[exp.Expr]:
    source = generator.this
    if isinstance(generator, exp.Inline) or _named(generator) in ("inline", "inline_outer"):
        source = generator.this if isinstance(generator, exp.Inline) else generator.expressions[0]
        depth = exp.PropertyEQ(this=exp.to_identifier("max_depth"), expression=exp.Literal.number(2))
        return [exp.Anonymous(this="unnest", expressions=[_or_null(source) if outer else source.copy(), depth])]
    if isinstance(generator, exp.Stack):
        return _stacked(generator)
    positioned = _positioned(generator)
    if len(names) - positioned == 2 or isinstance(source, (exp.Map, exp.VarMap, exp.ToMap)):
        parts: list[exp.Expr] = [exp.Anonymous(this=f, expressions=[source.copy()]) for f in ("map_keys", "map_values")]
    else:
        parts = [source.copy()]
    if positioned:
        places = exp.Anonymous(this="range", expressions=[_length(parts[0])])
        parts = [exp.cast(places, "int[]", dialect="duckdb"), *parts]
    return [_unnest(_or_null(part) if outer else part) for part in parts]


def _stacked(generator: exp.Stack) -> list[exp.Expr]:
    values = list(generator.expressions)
    rows = int(generator.this.name)
    width = -(-len(values) // rows)
    values += [exp.Null()] * (rows * width - len(values))
    columns = [exp.Array(expressions=[v.copy() for v in values[at::width]]) for at in range(width)]
    return [_unnest(column) for column in columns]


def _unnest(source: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="unnest", expressions=[source])


def _or_null(source: exp.Expr) -> exp.Expr:
    """One NULL in place of no elements."""
    some = exp.GT(this=_length(source), expression=exp.Literal.number(0))
    return exp.Case(ifs=[exp.If(this=some, true=source.copy())], default=exp.Array(expressions=[exp.Null()]))


def _length(source: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="len", expressions=[source.copy()])


def _named(node: object) -> str:
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def _generator(node: object) -> bool:
    return isinstance(node, (exp.Explode, exp.Posexplode, exp.Inline, exp.Stack)) or _named(node) == "inline_outer"


def _positioned(node: exp.Expr) -> bool:
    return isinstance(node, exp.Posexplode)


def _outer(node: exp.Expr) -> bool:
    return isinstance(node, exp.ExplodeOuter) or _named(node) == "inline_outer"
