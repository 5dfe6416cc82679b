"""What repeated measurements say: their mean, how sure it is, and their slow end."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS = 400


def spread(samples: Sequence[float]) -> dict[str, float | int | list[float]]:
    """Give mean, 95 and 99 % confidence intervals of the mean, and the 95th and 99th percentile.

    >>> found = spread([1.0, 2.0, 3.0])
    >>> found["mean"], [round(edge, 2) for edge in found["interval_95"]], found["percentile_95"]
    (2.0, [-0.48, 4.48], 2.9)
    """
    return {
        "runs": len(samples),
        "mean": statistics.fmean(samples),
        "interval_95": interval(samples, 0.95),
        "interval_99": interval(samples, 0.99),
        "percentile_95": percentile(samples, 0.95),
        "percentile_99": percentile(samples, 0.99),
    }


def interval(samples: Sequence[float], sure: float) -> list[float]:
    """Give the interval in which the mean lies with this probability, by Student's distribution."""
    mean = statistics.fmean(samples)
    if len(samples) < 2:
        return [mean, mean]
    half = student(1 - (1 - sure) / 2, len(samples) - 1) * statistics.stdev(samples) / math.sqrt(len(samples))
    return [mean - half, mean + half]


def percentile(samples: Sequence[float], share: float) -> float:
    """Give the value below which this share of the samples lies, between two of them in proportion."""
    ordered = sorted(samples)
    at = (len(ordered) - 1) * share
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def student(probability: float, freedom: int) -> float:
    """Give the quantile of Student's distribution, for probabilities above one half.

    >>> round(student(0.975, 2), 3), round(student(0.995, 29), 3)
    (4.303, 2.756)
    """
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _distribution(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _distribution(value: float, freedom: int) -> float:
    """Integrate the density from 0; x = sqrt(freedom) tan(angle) makes the range finite and the density cos^(freedom - 1)."""
    angle = math.atan(value / math.sqrt(freedom))
    step = angle / STEPS
    heights = [math.cos(n * step) ** (freedom - 1) for n in range(STEPS + 1)]
    area = step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]))
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    return 0.5 + math.exp(log_scale) * area
