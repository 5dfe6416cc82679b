"""The replication slot: the server's memory of how far its log was read. It moves when the state holds what it passes, never before."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.connectors.postgres.client import told
from runnel.connectors.postgres.log.problems import lsn_number, lsn_text
from runnel.errors import Terminal, Transient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runnel.connectors.postgres.server import Server
    from runnel.connectors.postgres.settings import SourceSettings

_SLOT = """
SELECT to_jsonb(s), current_database() FROM pg_replication_slots s WHERE s.slot_name = %s"""


@dataclass(frozen=True)
class Slot:
    """A slot as the server describes it; `kept` is where the log begins that it holds back."""

    name: str
    confirmed: int
    kept: int
    status: str
    reader: int | None
    wrong: str = ""


def read_slot(server: Server) -> Slot | None:
    """Give the slot of a source; None where it does not exist."""
    found = server.rows(_SLOT, server.settings.slot)
    if not found:
        return None
    plain, database = found[0]
    wrong = ""
    if plain["slot_type"] != "logical" or plain["plugin"] != "pgoutput":
        wrong = f"is of another kind ({plain['slot_type']} {plain['plugin'] or ''})".replace(" )", ")")
    elif plain["database"] != database:
        wrong = f"is of the database {plain['database']}"
    return Slot(
        plain["slot_name"],
        _place(plain["confirmed_flush_lsn"]),
        _place(plain["restart_lsn"]),
        plain.get("wal_status") or "",
        plain["active_pid"],
        wrong,
    )


def _place(text: Any) -> int:
    return lsn_number(text) if text else 0


def ensure_slot(server: Server) -> Slot:
    """Give the slot, made if it does not exist yet; a transaction that is open prevents that until it ends."""
    if read_slot(server) is None:
        with waiting_for_others(server.settings):
            server.rows("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", server.settings.slot)
    return check_slot(server, None)


@contextmanager
def waiting_for_others(settings: SourceSettings) -> Iterator[None]:
    """Say what is waited for, where the place of a new slot is not reached in time."""
    try:
        with told(settings):
            yield
    except Transient as error:
        if error.code != "RUNNEL-POSTGRES-BUSY":
            raise
        raise Transient(
            "RUNNEL-POSTGRES-BUSY",
            f"{settings.label}: a snapshot waits for transactions that have written something and are still open",
            hint="end them (pg_stat_activity, pg_prepared_xacts), also those of other databases; it is tried again",
        ) from error


def drop_slot(server: Server) -> bool:
    """Drop the slot, if it exists and is ours; say whether it did. One that somebody reads is left, with an error."""
    found = read_slot(server)
    if found is None or found.wrong:
        return False
    server.rows("SELECT pg_drop_replication_slot(%s)", found.name)
    return True


def renew_slot(server: Server) -> Slot:
    """Give a slot that can be read from now on: one that lost its log makes room for another."""
    found = read_slot(server)
    if found is not None and found.status == "lost":
        drop_slot(server)
    return ensure_slot(server)


def check_slot(server: Server, begin: int | None) -> Slot:
    """Give the slot; raise unless it has the log from a position on."""
    settings, slot = server.settings, read_slot(server)
    if slot is None:
        raise _gone(settings, "does not exist any more")
    if slot.wrong:
        hint = "choose another name: slot = ..."
        raise Terminal("RUNNEL-POSTGRES-SLOT", f"{settings.label}: the slot {slot.name} {slot.wrong}", hint=hint)
    if slot.status == "lost":
        raise _gone(settings, "is lost: the server deleted the log that it needs (wal_status is lost)")
    if begin is not None and slot.confirmed > begin:
        raise _gone(settings, f"was moved to {lsn_text(slot.confirmed)} by somebody else, past {lsn_text(begin)}")
    return slot


def _gone(settings: SourceSettings, what: str) -> Terminal:
    return Terminal(
        "RUNNEL-POSTGRES-SLOT",
        f"{settings.label}: the slot {settings.slot} {what}: changes since then cannot be read",
        hint=f"`runnel rebuild {settings.name}` makes another and reads all tables again; a larger max_slot_wal_keep_size keeps"
        " the log for longer",
    )


def advance(server: Server, place: int) -> None:
    """Move the slot while nobody reads it."""
    slot = check_slot(server, None)
    if slot.confirmed < place:
        server.rows("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", slot.name, lsn_text(place))


def lag_of(server: Server, slot: Slot) -> int:
    """Give how many bytes of the log a slot holds back."""
    return max(0, server.flushed() - slot.kept)
