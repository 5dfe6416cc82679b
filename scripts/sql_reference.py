"""Write docs/reference/sql.md: what each feature of SQL is maintained by, read from the compiler's support table.

Which functions there are is read from `tests/fixtures/functions`, where tests compare every one of them.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.compiler.forms import readable
from runnel.compiler.parse import parse_query
from runnel.compiler.savings import SAVINGS
from runnel.compiler.support import ABOUT, BY_FEATURE, SUPPORT, Support, findings
from runnel.compiler.top import SPARE
from runnel.model.program import Strategy
from tests.compiler.function_cases import FORMS_OF_KINDS, Views, uses

if TYPE_CHECKING:
    from tests.compiler.function_cases import Use

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "sql.md"

BOTH_WAYS = ("unix_timestamp",)
"""Functions that are deterministic with arguments and not without."""
SPARK_VERSION = "4.3"
NOTHING = "nothing beside the view"

HEAD = """\
# SQL in views

A view is one `SELECT` in Spark's SQL. Everything Spark can compute and that depends on the tables alone is accepted; most of it
is kept *incrementally*, the rest is *recomputed* and says so. Nothing is ever approximated to make it incremental.
`runnel explain VIEW` prints the strategy of each part of a view, and `runnel check` the strategy of each view.

This page is made by `make docs` from the table that the compiler itself goes by.
"""

SECTIONS: dict[Strategy, tuple[str, str]] = {
    Strategy.LINEAR: (
        "Incremental, row by row (`linear`)",
        "Only the changed rows are computed with, joined with what they meet. The cost goes by the size of the change.",
    ),
    Strategy.KEYS: (
        "Incremental, by what is touched (`keys`)",
        "The keys, groups or partitions that a change touches are looked at again, and compared with what is stored. The cost\n"
        "goes by the change and by the size of what it touches; the column says where less is enough.",
    ),
    Strategy.FULL: (
        "Recomputed (`full`)",
        "The view is computed again whenever a table it reads has changed. Only the difference is stored, so whoever reads\n"
        "its changes, and every view over it, still sees the change alone. `explain`, `status` and the epoch records say `full`.",
    ),
    Strategy.REFUSED: (
        "Refused",
        "These values change although no row does, so no stored view could be right.",
    ),
}

FORMS = """\
## Forms that are not followed

Some features have forms that are read by Spark and not by the compiler, for example a correlated subquery with a `LIMIT`
of its own. Such a view is recomputed, and reported with the code in the table. With `mode = incremental` it is refused
instead (`RUNNEL-VIEW-NOT-INCREMENTAL`), with the place in the text and the hint. These codes never change their meaning.

| feature | code | what to write instead |
|---|---|---|
"""

FUNCTIONS = """\
## Every built-in function

All {count} functions and operators of Spark {version}'s `SHOW FUNCTIONS`, each as it is kept in its usual form. `make test-functions` uses each of
the {compared} deterministic ones in views over a table that changes, and compares the views with Spark's own answer after every batch, once
with small steps in the driver and once with all of them on Spark. Every function may be the argument of any other, and aggregates may be used
as windows.

| kept | functions |
|---|---|
"""

BY_FEATURE_OF = {
    "project": "in any expression, row by row",
    "aggregate": "sums per group; with DISTINCT, a count per group and value",
    "minimum or maximum": BY_FEATURE["minimum or maximum"].reason,
    "aggregate function": BY_FEATURE["aggregate function"].reason,
    "window function": BY_FEATURE["window function"].reason,
    "lateral or generator": BY_FEATURE["lateral or generator"].reason,
    "grouping sets": BY_FEATURE["grouping sets"].reason,
    "non-deterministic function": f"refused: {BY_FEATURE['non-deterministic function'].reason}",
}
"""What the page says of functions of a feature, in its order."""

KEYS = """\
## What keys and foreign keys spare

`PRIMARY KEY (...)` and `FOREIGN KEY (...) REFERENCES t (...)` are written in `CREATE TABLE`, in the `schema` of a source, and in the
column list of `project.create_table`; a foreign key of one column may stand at its column, `customer_id INT REFERENCES customers (id)`.
It references the whole key of a table, by columns of the same types. NULL in one of its columns refers to nothing.

- Between managed tables a foreign key is *enforced*: a transaction after which it would not hold is refused
  (`RUNNEL-FOREIGN-KEY-BROKEN`) and names the row. Only what changed is looked up. Deleting a referenced row, or changing its key,
  looks for rows that refer to it, which reads that column of the other table.
- `RELY` says that it always holds, after every epoch, because somebody else sees to it: nothing is checked, views rest on it. A
  promise that is broken makes views wrong until they are refreshed in full; `runnel verify` shows it. Give it for the tables
  of a source only if their changes arrive in transactions.
- `NOT ENFORCED` only writes it down. So does a foreign key of an outside source without `RELY`.

An enforced foreign key is declared with its table. It can be given up later, but not added: rows that are there were never checked.

`explain` lists what keys and foreign keys spare a view, each with a word that never changes its meaning:

| word | by | what is not needed |
|---|---|---|
"""

TAIL = f"""\
## Choices that SQL leaves open

SQL often allows several answers: which of two equal rows `row_number()` counts first, which rows `LIMIT` takes when the order
has ties, in which order `collect_list` collects, which value `any_value` or `first` gives, which of two modes. A view must not change while
its tables do not, so the choice is made once, always in a way the text allows:

- orders are completed by the remaining columns, ascending, NULLs first, unless the order holds a key;
- `any_value`, `first` and `last` as aggregates give the smallest value, `mode` the smallest of the modes;
- `collect_list` and `collect_set` collect in ascending order;
- `max_by` and `min_by` break ties by the value they give;
- maps keep the order of their entries as they were written; comparisons (`verify`) do not go by it.

`runnel verify` runs the text as it was written: the columns that it determines must be equal to the view's. All columns are compared with the
text with these choices made, and the report says which columns are open and why.

## LIMIT and extremes keep spare rows

A `LIMIT`, a `min` or a `max` keeps the first rows of each group and some more: {SPARE} when a group is read, up to {2 * SPARE} as rows come. A
deleted first row is replaced from those; the table is read again only for a group that has run out of them, and then just
for that group.

## Approximate aggregates

`approx_count_distinct` and `percentile_approx` are computed again for the groups a change touches, by Spark's own function. The
answer is the one Spark gives over the same rows; it is as exact as Spark's.

## What Spark's SQL does not have

Quantified comparisons (`> ALL (SELECT ...)`, `= ANY (SELECT ...)`) do not exist in Spark's SQL. Write `> (SELECT max(...) ...)`,
`IN (SELECT ...)` or `NOT EXISTS (...)`. `DISTINCT ON` does not exist either; write
`QUALIFY row_number() OVER (PARTITION BY ... ORDER BY ...) = 1`, or a filter on `row_number()` around a subquery where Spark
is older than 4.1.

## When the SQL is wrong

An error is one sentence with a code, the file, line and column, and the nearest valid name. The command line shows the line
too, with the offending text underlined; a Python traceback shows the same below the sentence:

```text
error: unknown column 'amont' (views/shop.sql:5:8)
  5 |        amont FROM orders
    |        ^^^^^
  hint: did you mean 'amount'?
  code: RUNNEL-VIEW-COLUMN
```

All codes stand in [error codes](errors.md).
"""


def page() -> str:
    """Give the whole page."""
    parts = [HEAD]
    parts += [_section(strategy) for strategy in SECTIONS]
    parts += [FORMS + "\n".join(_form(row) for row in SUPPORT if _has_form(row)) + "\n"]
    parts += [functions_section()]
    parts += [KEYS + "\n".join(f"| `{s.word}` | a {s.key} ... | {s.reason} |" for s in SAVINGS) + "\n", TAIL]
    return "\n".join(parts)


def _section(strategy: Strategy) -> str:
    title, text = SECTIONS[strategy]
    rows = [row for row in SUPPORT if row.strategy is strategy]
    if strategy in (Strategy.LINEAR, Strategy.KEYS):
        lines = ["| feature | covers | what is kept |", "|---|---|---|"]
        lines += [f"| {row.feature} | {_cell(ABOUT[row.feature])} | {_cell(row.reason) or NOTHING} |" for row in rows]
    else:
        lines = ["| feature | covers | why | code | what to write instead |", "|---|---|---|---|---|"]
        lines += [
            f"| {row.feature} | {_cell(ABOUT[row.feature])} | {_cell(row.reason)} | `{row.code}` | {_cell(row.hint)} |"
            for row in rows
        ]
    return "\n".join([f"## {title}", "", text, "", *lines, ""])


def functions_section() -> str:
    """Give the table of all functions, by what the compiler finds in a use of each."""
    groups: dict[str, list[str]] = {feature: [] for feature in BY_FEATURE_OF}
    recomputed: dict[str, list[str]] = defaultdict(list)
    codes = {use.function: use.text for use in uses("recomputed")}
    for kind in FORMS_OF_KINDS:
        for use in uses(kind):
            code = codes.get(use.function) if kind != "unsteady" else None
            group = recomputed[code] if code else groups[feature_of(kind, use)]
            shown = f"{use.function}()" if use.function in BOTH_WAYS and kind == "unsteady" else use.function
            if not any(shown in names for names in (*groups.values(), *recomputed.values())):
                group.append(shown)
    lines = [f"| {BY_FEATURE_OF[feature]} | {_names(names)} |" for feature, names in groups.items()]
    lines[-1:-1] = [f"| recomputed, `{code}` | {_names(names)} |" for code, names in sorted(recomputed.items())]
    out: dict[str, list[str]] = defaultdict(list)
    for use in uses("left_out"):
        out[use.text].append(use.function)
    lines += [f"| not used in views: {reason} | {_names(names)} |" for reason, names in out.items()]
    every = {use.function for kind in (*FORMS_OF_KINDS, "left_out") for use in uses(kind)}
    compared = {use.function for kind in FORMS_OF_KINDS if kind != "unsteady" for use in uses(kind)}
    head = FUNCTIONS.format(count=len(every), version=SPARK_VERSION, compared=len(compared))
    return head + "\n".join(lines) + "\n"


def feature_of(kind: str, use: Use) -> str:
    """Give the feature that decides how a function is kept: the last one found in its use that the page knows."""
    found = [f.support.feature for f in findings(parse_query(readable(Views(FORMS_OF_KINDS[kind], (use,)).sql())))]
    known = [feature for feature in BY_FEATURE_OF if feature in found]
    if use.function in ("grouping", "grouping_id"):
        return "grouping sets"
    return known[-1] if known else "project"


def _names(names: list[str]) -> str:
    return ", ".join(f"`{_cell(name)}`" for name in names)


def _has_form(row: Support) -> bool:
    return row.strategy in (Strategy.LINEAR, Strategy.KEYS) and bool(row.code)


def _form(row: Support) -> str:
    return f"| {row.feature} | `{row.code}` | {_cell(row.hint)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(ROOT)}: {len(SUPPORT)} features")


if __name__ == "__main__":
    main()
