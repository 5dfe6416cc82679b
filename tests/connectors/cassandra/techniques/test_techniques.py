"""What techniques say of themselves is what they do, and what the documentation says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runnel.connectors.cassandra.capture import ABILITIES
from runnel.connectors.deltas.technique import NetEffect
from scripts.capture_reference import PAGE, table
from tests.connectors.cassandra.ways import WAYS, written

if TYPE_CHECKING:
    from runnel.connectors.deltas.model import Delta
    from runnel.connectors.deltas.technique import Abilities
    from tests.connectors.cassandra.conftest import Shop

WAY_OF = {
    "audit (time)": "audit by time, wrapper",
    "audit (value)": "audit by value, wrapper",
    "trigger": "tracking, wrapper",
}


def test_the_documentation_has_the_table_of_the_techniques() -> None:
    assert table() in PAGE.read_text(), "run `make docs`"


def test_every_technique_has_its_own_name() -> None:
    assert len({technique.name for technique in ABILITIES}) == len(ABILITIES)
    assert all(WAY_OF.get(technique.name, technique.name) in WAYS for technique in ABILITIES)


@pytest.mark.cassandra
@pytest.mark.parametrize("technique", ABILITIES, ids=lambda technique: technique.name)
def test_a_technique_sees_what_it_says_and_has_the_net_effects_it_says(shop: Shop, technique: Abilities) -> None:
    with written(shop, WAY_OF.get(technique.name, technique.name)) as (name, writer):
        effects: set[NetEffect] = set()
        told: list[Delta] = []

        def cycle() -> list[Delta]:
            found = shop.capture(name)
            told.extend(found)
            return found

        writer.set(a=1, b=2, c=3)
        cycle()
        writer.delete("a")
        if not cycle():
            effects.add(NetEffect.DELETION)
        writer.set(d=1)
        writer.set(d=2)
        if [delta.value for delta in cycle()] == ["2"]:
            effects.add(NetEffect.UPDATE_AFTER_INSERTION)
        writer.set(b=5)
        writer.set(b=6)
        if [delta.value for delta in cycle()] == ["6"]:
            effects.add(NetEffect.MULTIPLE_UPDATES)
        writer.set(e=1)
        writer.delete("e")
        if not cycle() and technique.deletes:
            effects.add(NetEffect.DELETION_AFTER_INSERTION)
        whole = _delete_key(shop, name, cycle)
        if whole and all(delta.level == "column" for delta in whole):
            effects.add(NetEffect.GRANULARITY_LOST)
        assert effects == technique.net_effects
        assert {delta.operation for delta in told} == set(technique.operations)
        assert any(delta.previous is not None for delta in told) == technique.previous
        levels = {delta.level for delta in told}
        assert levels == ({"column"} if technique.level == "column" else {"column", "key"})


def _delete_key(shop: Shop, technique: str, cycle: object) -> list[Delta]:
    """Delete the whole key, by the wrapper where the technique needs it."""
    from runnel.connectors.cassandra.techniques.table_writer import TableWriter
    from tests.connectors.cassandra.ways import session_of

    with session_of(shop) as session:
        if technique == "trigger":
            TableWriter(session, shop.keyspace, "t", technique="trigger").delete({"k": "x"})
        else:
            session.execute(f"DELETE FROM {shop.keyspace}.t WHERE k = 'x'")
    assert callable(cycle)
    found: list[Delta] = cycle()
    return found
