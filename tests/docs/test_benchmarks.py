"""The page about benchmarks says what the kept figures say, and nothing that is not fit to be published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from runnel.bench import dashboard, growth, latency, sustained
from runnel.bench.workplace import Workplace
from scripts.benchmark_charts import bars, lines
from scripts.benchmark_pages import BLOCK, KEPT, NONE, PAGE, charts, kept_figures, page

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.fixture(scope="module")
def measured() -> dict[str, Mapping[str, Any]]:
    """Give figures as a run on Spark would keep them."""
    load = dashboard.Load(1_000, 20, epochs=1, warm=0, rounds=1)
    with Workplace("duckdb") as place:
        found = [
            dashboard.measure(place, load),
            growth.measure(place, [1_000, 2_000], load),
            sustained.measure(place, sustained.Load(1_000, 0, 0.2, 50, warm=0)),
            latency.measure(place, latency.Load(1_000, 50, 0.2, 0)),
        ]
    published = {"engine": "spark", "command": "runnel bench"}
    return {one["benchmark"]: json.loads(json.dumps({**one, **published})) for one in found}


def test_the_page_is_made_from_the_kept_figures() -> None:
    kept = kept_figures()
    assert PAGE.read_text() == page(PAGE.read_text(), kept), "run `make bench-docs`"
    for name, drawing in charts(kept).items():
        assert (KEPT / f"{name}.svg").read_text() == drawing, "run `make bench-docs`"


def test_all_kept_figures_are_shown() -> None:
    assert kept_figures().keys() <= {found[1] for found in BLOCK.findall(PAGE.read_text())}


def test_a_block_holds_the_command_the_table_and_the_chart(measured: dict[str, Mapping[str, Any]]) -> None:
    text = "before\n<!-- figures: dashboard -->\nold\n<!-- end -->\nafter\n<!-- figures: other -->\n<!-- end -->\n"
    made = page(text, measured)
    assert "old" not in made
    assert made.startswith("before\n<!-- figures: dashboard -->\n```sh\nrunnel bench\n```\n")
    assert "| all seven, whole epoch |" in made
    assert "![dashboard](benchmarks/dashboard.svg)" in made
    assert made.endswith(f"<!-- figures: other -->\n{NONE}<!-- end -->\n")
    assert page(made, measured) == made


@pytest.mark.parametrize("wrong", [{"verified": False}, {"engine": "duckdb"}])
def test_figures_that_are_not_fit_are_refused(measured: dict[str, Mapping[str, Any]], wrong: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="measure it again"):
        page("<!-- figures: growth -->\n<!-- end -->\n", {"growth": {**measured["growth"], **wrong}})


def test_every_chart_is_a_drawing(measured: dict[str, Mapping[str, Any]]) -> None:
    drawn = charts(measured)
    assert drawn.keys() == {"dashboard", "growth", "sustained", "latency"}
    for drawing in drawn.values():
        assert ElementTree.fromstring(drawing).tag.endswith("svg")


def test_a_bar_is_as_long_as_its_figure_and_a_line_keeps_within_the_frame() -> None:
    lengths = [
        float(rect.attrib["width"])
        for rect in ElementTree.fromstring(bars("a < b", [("x", 10.0), ("y", 40.0)], "ms"))
        if rect.tag.endswith("rect")
    ]
    assert lengths[1] == pytest.approx(4 * lengths[0], rel=0.01)
    drawing = lines("t", {"a": [(1e6, 10.0), (1e8, 1000.0)]}, ("x", "y"), logarithmic=True)
    path = ElementTree.fromstring(drawing).findall("{*}path")[1].attrib["d"]
    numbers = [float(word) for word in path.replace("M", "").replace("L", "").split()]
    assert all(0 <= number <= 720 for number in numbers)
