"""Which of Spark's functions are aggregates, which give another value each time, and what sqlglot calls them."""

from __future__ import annotations

from sqlglot import exp

LINEAR_AGGREGATES = {
    "sum": "sum",
    "count": "count",
    "count_if": "count_if",
    "avg": "avg",
    "mean": "avg",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
}
"""Spark's name of each aggregate that is kept as sums, and the one name the compiler uses for it."""

EXTREMA = {
    "min": "min",
    "max": "max",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "some": "max",
    "any": "max",
}
"""Aggregates whose value stands at one end of the order of their argument."""

AGGREGATES = frozenset(
    [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "collect_union",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "every",
        "first",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "kurtosis",
        "last",
        "last_value",
        "listagg",
        "max",
        "max_by",
        "mean",
        "median",
        "min",
        "min_by",
        "mode",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "product",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "schema_of_variant_agg",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "tuple_intersection_agg_double",
        "tuple_intersection_agg_integer",
        "tuple_sketch_agg_double",
        "tuple_sketch_agg_integer",
        "tuple_union_agg_double",
        "tuple_union_agg_integer",
        "var_pop",
        "var_samp",
        "variance",
        "vector_avg",
        "vector_sum",
    ]
)

READ_AGGREGATES = frozenset(
    {*LINEAR_AGGREGATES, *EXTREMA, "max_by", "min_by", "first", "last", "any_value", "grouping", "grouping_id"}
    | {"collect_list", "collect_set", "array_agg"}
)
"""Aggregates that are read as such; the others are kept as written, because sqlglot would write them as another function."""

GENERATORS = frozenset(
    {"explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"}
)

GRAMMAR = frozenset({"array", "dateadd", "date_add", "datediff", "date_diff", "timestampadd", "timestampdiff"})
"""Functions whose arguments are more than expressions (`DAY`), or that could be taken for syntax."""

NON_DETERMINISTIC = frozenset(
    [
        "rand",
        "randn",
        "random",
        "randstr",
        "uniform",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "current_timestamp",
        "now",
        "current_date",
        "curdate",
        "current_time",
        "localtime",
        "localtimestamp",
        "current_timezone",
        "current_user",
        "user",
        "session_user",
        "current_catalog",
        "current_database",
        "current_path",
        "current_schema",
        "version",
        "java_method",
        "reflect",
        "try_reflect",
        "unix_timestamp_now",
        "python_worker_logs",
    ]
)

WITHOUT_BRACKETS = frozenset(
    {"current_date", "current_timestamp", "current_time", "localtime", "localtimestamp"}
    | {"current_user", "session_user", "user", "current_catalog", "current_database", "current_schema"}
)
"""Functions that are called without brackets too, if there is no column of that name."""

_CLASSES: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Avg: "avg",
    exp.Variance: "variance",
    exp.VariancePop: "var_pop",
    exp.Stddev: "stddev",
    exp.StddevPop: "stddev_pop",
    exp.StddevSamp: "stddev_samp",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.ArgMax: "max_by",
    exp.ArgMin: "min_by",
    exp.Any: "any",
    exp.Rand: "rand",
    exp.Randn: "randn",
    exp.Uuid: "uuid",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentTime: "current_time",
    exp.CurrentUser: "current_user",
    exp.Localtimestamp: "localtimestamp",
}


def function_name(node: exp.Expr) -> str:
    """Give a function's name as Spark calls it, in lower case; '' for what is no function."""
    known = _CLASSES.get(type(node))
    if known is not None:
        return known
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()  # `rand`() is rand()
        return "now" if name == "unix_timestamp" and not node.expressions else name
    if isinstance(node, exp.Func):
        return node.sql_name().lower()
    return ""
