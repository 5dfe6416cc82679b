"""Draws charts as plain SVG: bars for figures side by side, lines for figures over something."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES, ROW, TOP = 720, 250, 90, 24, 44
COLOURS = ("#2f6f9f", "#c4682b", "#5b8a3a", "#8a5b8a")
STYLE = "font-family='system-ui, sans-serif' font-size='13' fill='currentColor'"
Points = Sequence[tuple[float, float]]


def bars(title: str, figures: Sequence[tuple[str, float]], unit: str) -> str:
    """Draw a bar per figure from zero, its value beside it; the first is ours and has its own colour."""
    largest = max(value for _, value in figures)
    parts = [_text(12, 24, title, weight="bold")]
    for at, (label, value) in enumerate(figures):
        y = TOP + at * ROW
        width = (WIDTH - LABELS - VALUES) * value / largest
        colour = COLOURS[0 if at == 0 else 1]
        parts.append(_text(LABELS - 8, y + 15, label, anchor="end"))
        parts.append(f"<rect x='{LABELS}' y='{y + 3}' width='{max(width, 1):.1f}' height='{ROW - 8}' fill='{colour}'/>")
        parts.append(_text(LABELS + width + 6, y + 15, f"{value:,.{_digits(value)}f} {unit}".rstrip()))
    return _svg(TOP + len(figures) * ROW + 12, parts)


def lines(title: str, series: Mapping[str, Points], axes: tuple[str, str], *, logarithmic: bool = False) -> str:
    """Draw a line per series; both axes from zero, or both logarithmic."""
    height, left, right, bottom = 320, 80, 20, 46
    points = [point for line in series.values() for point in line]
    across = _scale([x for x, _ in points], left, WIDTH - right, logarithmic=logarithmic)
    up = _scale([y for _, y in points], height - bottom, TOP + 20, logarithmic=logarithmic)
    parts = [_text(12, 24, title, weight="bold")]
    edge = f"M {left} {TOP + 20} V {height - bottom} H {WIDTH - right}"
    parts.append(f"<path d='{edge}' fill='none' stroke='currentColor' stroke-opacity='0.5'/>")
    for at, (name, line) in enumerate(series.items()):
        path = " L ".join(f"{across(x):.1f} {up(y):.1f}" for x, y in line)
        parts.append(f"<path d='M {path}' fill='none' stroke='{COLOURS[at % 4]}' stroke-width='2'/>")
        parts.append(_text(left + 12 + at * 170, TOP + 12, name, colour=COLOURS[at % 4]))
    parts += [
        _text(across(x), height - bottom + 18, _short(x), anchor="middle") for x in _marks([x for x, _ in points])
    ]
    parts += [_text(left - 6, up(y) + 4, _short(y), anchor="end") for y in _marks([y for _, y in points])]
    parts.append(_text(WIDTH - right, height - 8, axes[0], anchor="end"))
    parts.append(_text(WIDTH - right, TOP + 12, axes[1], anchor="end"))
    return _svg(height, parts)


def _scale(values: Sequence[float], low: float, high: float, *, logarithmic: bool) -> Callable[[float], float]:
    def along(value: float) -> float:
        return math.log10(max(value, 1e-9)) if logarithmic else value

    first = math.floor(along(min(values))) if logarithmic else 0.0
    last = along(max(values)) * (1.0 if logarithmic else 1.05)
    span = (last - first) or 1.0
    return lambda value: low + (high - low) * (along(value) - first) / span


def _marks(values: Sequence[float]) -> list[float]:
    """Give the values to write at an axis: few of those there are, from the least to the greatest."""
    known = sorted(set(values))
    return known if len(known) <= 4 else [known[0], known[len(known) // 2], known[-1]]


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


def _short(value: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if letter == ' k' else size):,.3g}{letter}"
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = "") -> str:
    fill = f" style='fill:{colour}'" if colour else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-weight='{weight}'{fill}>{escape(text)}</text>"


def _svg(height: float, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height:.0f}' {STYLE}>\n{inside}\n</svg>\n"
