from __future__ import annotations

import pytest

from runnel.config import parse_duration
from runnel.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("5 seconds", 5), ("1 minute", 60), ("1 Minute 30 s", 90), ("1.5h", 5400), ("2 days", 172800),
     (3, 3), (0.25, 0.25), ("0ms", 0)],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "-1s", "1s later", "s", -1, True, None, float("inf")])
def test_anything_else_is_refused(text: str | float) -> None:
    with pytest.raises(UsageError, match="RUNNEL-CONFIG-DURATION"):
        parse_duration(text)
