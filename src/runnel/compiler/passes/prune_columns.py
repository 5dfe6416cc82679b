"""Leaves out columns that nobody above reads, so that scans read, and joins carry, only what is needed."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from runnel.compiler.plan import Input, Node, Scan, Spj, UnionAll


def prune_columns(node: Node) -> Node:
    """Prune below the root; the root's own columns stay."""
    return _prune(node, frozenset(node.names))


def _prune(node: Node, needed: frozenset[str]) -> Node:
    match node:
        case Scan(relation, columns):
            return Scan(relation, tuple(c for c in columns if c in needed))
        case UnionAll(branches):
            return UnionAll(tuple(_prune(branch, needed) for branch in branches))
        case Spj(inputs, where, projections, _, generators):
            kept = tuple(p for p in projections if p.name in needed)
            calls = [g.call for g in generators]
            read = [c for e in (*where, *calls, *(p.expr for p in kept)) for c in e.find_all(exp.Column)]
            below = [
                Input(i.alias, _prune(i.node, frozenset(c.name for c in read if c.table == i.alias))) for i in inputs
            ]
            return replace(node, inputs=tuple(below), projections=kept)
