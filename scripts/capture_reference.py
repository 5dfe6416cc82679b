"""Write the table of capture techniques into docs/stores/cassandra.md, read from what the techniques say of themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connectors.cassandra.capture import CLASSES

if TYPE_CHECKING:
    from runnel.connectors.cassandra.technique import Technique

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "stores" / "cassandra.md"
BEGIN, END = "<!-- techniques: made by `make docs` -->\n", "<!-- end of techniques -->"
HEAD = """\
| technique | tells | deletes | level of deletes | previous value | expiry | counters | net effects | needs |
|---|---|---|---|---|---|---|---|---|
"""


def table() -> str:
    """Give the table."""
    return HEAD + "".join(_row(technique) for technique in CLASSES)


def _row(technique: type[Technique]) -> str:
    flags = [technique.SEES_PREVIOUS, technique.SEES_EXPIRY, technique.SEES_COUNTERS]
    cells = [
        technique.NAME,
        ", ".join(map(str, technique.OPERATIONS)),
        _yes(technique.SEES_DELETES),
        technique.GRANULARITY if technique.SEES_DELETES else "",
        *map(_yes, flags),
        ", ".join(sorted(effect.value for effect in technique.NET_EFFECTS)) or "none",
        technique.NEEDS,
    ]
    return f"| {' | '.join(cells)} |\n"


def _yes(flag: bool) -> str:  # noqa: FBT001 - mapped over flags
    return "yes" if flag else "no"


def main() -> None:
    """Write the table between its marks."""
    text = PAGE.read_text()
    made = BEGIN + table() + END
    PAGE.write_text(re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: made, text, flags=re.DOTALL))
    print(f"{PAGE.relative_to(ROOT)}: {len(CLASSES)} techniques")


if __name__ == "__main__":
    main()
