from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from runnel.config import Source
from runnel.connectors import open_source
from runnel.errors import Place

if TYPE_CHECKING:
    from pathlib import Path

    from runnel.connectors import ChangeSet
    from runnel.connectors import Source as OpenSource

ORDERS = "id BIGINT, region STRING, amount DECIMAL(12,2), PRIMARY KEY (id)"


class Feed:
    """A folder of change files that a test writes, and the source that reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "feed").mkdir()

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / "feed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    def rows(self, name: str, *rows: Any) -> Path:
        return self.write(name, "".join(json.dumps(row) + "\n" for row in rows))

    def open(self, **settings: Any) -> OpenSource:
        settings = {"path": "feed", "schema": {"orders": ORDERS}} | settings
        return open_source(Source("shop", "files", settings, Place("runnel.toml", 1)), self.folder)

    def read(self, **settings: Any) -> list[ChangeSet]:
        source = self.open(**settings)
        return list(source.read({}, source.latest_offset({}, 1_000_000)))

    def signed(self, **settings: Any) -> list[dict[str, Any]]:
        """Give all rows; every change set has to be a signed one."""
        sets = self.read(**settings)
        assert all(changes.keyed is None for changes in sets)
        return [row for changes in sets if changes.signed is not None for row in changes.signed.to_pylist()]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)
