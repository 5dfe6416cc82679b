"""The server that these tests share."""

from __future__ import annotations

from tests.servers.postgres import postgres_server

__all__ = ["postgres_server"]
