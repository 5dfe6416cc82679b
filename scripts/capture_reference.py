"""Write the table of capture techniques into docs/stores/cassandra.md, read from what the techniques say of themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.capture import ABILITIES

if TYPE_CHECKING:
    from runnel.connectors.deltas.technique import Abilities

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "stores" / "cassandra.md"
BEGIN, END = "<!-- techniques: made by `make docs` -->\n", "<!-- end of techniques -->"
HEAD = """\
| technique | tells | deletes | level of deletes | previous value | expiry | counters | net effects | needs |
|---|---|---|---|---|---|---|---|---|
"""


def table() -> str:
    """Give the table."""
    return HEAD + "".join(_row(technique) for technique in ABILITIES)


def _row(technique: Abilities) -> str:
    flags = [technique.previous, technique.expiry, technique.counters]
    cells = [
        technique.name,
        ", ".join(map(str, technique.operations)),
        _yes(technique.deletes),
        technique.level if technique.deletes else "",
        *map(_yes, flags),
        ", ".join(sorted(effect.value for effect in technique.net_effects)) or "none",
        technique.needs,
    ]
    return f"| {' | '.join(cells)} |\n"


def _yes(flag: bool) -> str:  # noqa: FBT001 - mapped over flags
    return "yes" if flag else "no"


def main() -> None:
    """Write the table between its marks."""
    text = PAGE.read_text()
    made = BEGIN + table() + END
    PAGE.write_text(re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: made, text, flags=re.DOTALL))
    print(f"{PAGE.relative_to(ROOT)}: {len(ABILITIES)} techniques")


if __name__ == "__main__":
    main()
