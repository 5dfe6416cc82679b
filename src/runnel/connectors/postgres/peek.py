"""Looks into the log without moving the slot, also while another process reads it: through a copy of the slot that ends with the look."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from runnel.connectors.postgres.log.problems import lsn_number, lsn_text
from runnel.connectors.postgres.log.transactions import Assembler
from runnel.connectors.postgres.server import quoted

if TYPE_CHECKING:
    from runnel.connectors.postgres.server import Server
    from runnel.connectors.postgres.window import Wanted

_COPY = "SELECT lsn::text FROM pg_copy_logical_replication_slot(%s, %s, true)"
_PEEK = """
SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s)"""


def nothing_between(server: Server, wanted: Wanted, begin: int, end: int) -> bool:
    """Say whether no followed table was changed between a place and a later one that the log has reached.

    A slot that is past the place already cannot say: then a newer position exists, which has to be asked for instead.
    """
    if server.flushed() < end:
        return False
    settings, name = server.settings, f"{server.settings.slot[:40]}_peek_{secrets.token_hex(4)}"
    ((confirmed,),) = server.rows(_COPY, settings.slot, name)
    try:
        if lsn_number(confirmed) > begin:
            return False
        assembler = Assembler(wanted.has)
        for lsn, data in server.rows(_PEEK, name, lsn_text(end), quoted(settings.publication)):
            found = assembler.add(lsn_number(lsn), bytes(data))
            if found is not None and begin <= found.commit < end and wanted.of(found):
                return False
        return True
    finally:
        server.rows("SELECT pg_drop_replication_slot(%s)", name)
