"""What aggregates give over no rows: a correlated subquery over nothing still has one row, and not always one of NULLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from runnel.compiler.functions import EXTREMA, LINEAR_AGGREGATES, function_name
from runnel.compiler.grouping import is_call
from runnel.compiler.support import NotLinear

if TYPE_CHECKING:
    from runnel.compiler.grouping import Call

ZERO = frozenset({"count", "count_if", "approx_count_distinct", "regr_count"})
EMPTY = frozenset({"collect_list", "collect_set", "array_agg"})
NULL = (
    frozenset(
        {
            *LINEAR_AGGREGATES,
            *EXTREMA,
            "max_by",
            "min_by",
            "first",
            "first_value",
            "last",
            "last_value",
            "any_value",
            "mode",
        }
        | {"median", "percentile", "percentile_approx", "approx_percentile", "percentile_cont", "percentile_disc"}
        | {
            "bit_and",
            "bit_or",
            "bit_xor",
            "corr",
            "covar_pop",
            "covar_samp",
            "kurtosis",
            "skewness",
            "try_sum",
            "try_avg",
        }
        | {
            "regr_avgx",
            "regr_avgy",
            "regr_intercept",
            "regr_r2",
            "regr_slope",
            "regr_sxx",
            "regr_sxy",
            "regr_syy",
            "product",
        }
    )
    - ZERO
)
"""What each aggregate gives over no rows; a test asks Spark. Of others (sketches, bitmaps) it is not known."""


def over_no_rows(call: Call) -> exp.Expr | None:
    """Give an aggregate's value over no rows where that is not NULL; raise `NotLinear` where it is not known."""
    node = call.expr
    while isinstance(node, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)) and not is_call(node):
        node = node.this
    name = "collect_set" if isinstance(node, exp.ArrayUniqueAgg) else function_name(node)
    if name in ZERO:
        return exp.Literal.number(0)
    if name in EMPTY:
        return exp.Array(expressions=[])
    if name in NULL:
        return None
    raise NotLinear("subquery in an expression", node, f"{name or 'an aggregate'} in a correlated subquery")
