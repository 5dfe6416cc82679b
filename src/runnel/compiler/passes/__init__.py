"""Rewrites of a plan that keep its rows: one function per file, in the order of `PASSES`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.compiler.passes.drop_joins import drop_joins
from runnel.compiler.passes.merge_derived import merge_derived
from runnel.compiler.passes.prune_columns import prune_columns
from runnel.compiler.passes.push_filters import push_filters

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.compiler.plan import Node

PASSES: tuple[Callable[[Node], Node], ...] = (merge_derived, drop_joins, push_filters, prune_columns)


def run(node: Node) -> Node:
    """Apply every pass once."""
    for rewrite in PASSES:
        node = rewrite(node)
    return node
