"""Where the work of an epoch was done, as its record says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def places_of(epoch: Mapping[str, Any], kind: str) -> set[str]:
    """Give the places at which an epoch did work of a kind."""
    done = epoch.get("work", {}).get(kind, {})
    return {place for place in ("driver", "spark") if done.get(place)}
