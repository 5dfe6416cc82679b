"""`runnel prepare SOURCE`: makes what a source needs in the server, the publication and the slot, and removes it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runnel.connectors.postgres import slot
from runnel.connectors.postgres.checks import check_settings
from runnel.connectors.postgres.followed import Followed
from runnel.connectors.postgres.publication import read_publication
from runnel.connectors.postgres.server import Server, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.connectors.postgres.settings import SourceSettings


def prepare(settings: SourceSettings, say: Callable[[str], None], *, undo: bool = False) -> None:
    """Make publication and slot, or remove them; doing it twice changes nothing. A publication that the settings name is left alone."""
    server = Server(settings)
    try:
        (_remove if undo else _make)(server, say)
    finally:
        server.close()


def _make(server: Server, say: Callable[[str], None]) -> None:
    check_settings(server)
    followed = Followed(server.settings, server)
    known = followed.now()
    for problem in known.refused.values():
        say(f"left out: {problem}")
    made = followed.publish(server, known)
    say(f"publication {server.settings.publication}: {'has all tables now' if made else 'has all tables'}")
    existed = slot.read_slot(server) is not None
    found = slot.ensure_slot(server)
    say(f"slot {found.name}: {'exists' if existed else 'made; the server keeps its log from here on'}")


def _remove(server: Server, say: Callable[[str], None]) -> None:
    settings = server.settings
    if slot.drop_slot(server):
        say(f"slot {settings.slot}: dropped; the server keeps no log for it any more")
    publication = read_publication(settings, server.rows, server.version())
    if publication.exists and settings.managed:
        server.rows(f"DROP PUBLICATION {quoted(settings.publication)}")
        say(f"publication {settings.publication}: dropped")
