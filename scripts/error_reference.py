"""Write docs/reference/errors.md: every error code of the package, what it says and what it advises, read from the source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "errors.md"
CODE = re.compile(r"RUNNEL(-[A-Z0-9]+)+")
HEAD = """\
# Error codes

Every error is one sentence with a stable code, the place where it was found, and a hint. `Transient` errors may be gone on
the next try and are the only ones that are retried; the others come again until something is changed. On the command
line, exit code 2 means that the call or the configuration is wrong (`UsageError`, `Problems`), 3 that a store or Spark
cannot be reached (`Unreachable`), and 1 everything else.

This page is made from the source by `make docs`.
"""


MAKERS = {"refused": "Terminal"}
"""Functions that make errors of another kind than `UsageError`."""


@dataclass(frozen=True)
class Found:
    code: str
    kind: str
    says: str


def main() -> None:
    by_area: dict[str, dict[str, Found]] = defaultdict(dict)
    for path in sorted((ROOT / "src" / "runnel").rglob("*.py")):
        for found in errors(path):
            area = found.code.split("-")[1]
            known = by_area[area].get(found.code)
            if known is None or len(found.says) > len(known.says):
                by_area[area][found.code] = found
    lines = [HEAD]
    for area in sorted(by_area):
        lines += [f"## {area.capitalize()}", "", "| code | kind | says |", "|---|---|---|"]
        lines += [f"| `{f.code}` | {f.kind} | {f.says} |" for _, f in sorted(by_area[area].items())]
        lines += [""]
    PAGE.write_text("\n".join(lines))
    print(f"{PAGE.relative_to(ROOT)}: {sum(map(len, by_area.values()))} codes")


def errors(path: Path) -> list[Found]:
    """Find the calls that name a code: an error's class, or a function that makes the error."""
    found = []
    tree = ast.parse(path.read_text())
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        texts = assigned(function)
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.args]:
            code = code_of(call)
            if code is None:
                continue
            kind = name_of(call.func)
            says = next((text for node in call.args[1:] if (text := template(node, texts))), "")
            found.append(
                Found(code, kind if kind[:1].isupper() else MAKERS.get(kind, "UsageError"), says.replace("|", "\\|"))
            )
    return found


def code_of(call: ast.Call) -> str | None:
    first = call.args[0]
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return None
    if CODE.fullmatch(first.value):
        return first.value
    # Settings are checked through `problem("TYPE", ...)`, which adds the area.
    return f"RUNNEL-CONFIG-{first.value}" if name_of(call.func) == "problem" else None


def assigned(function: ast.FunctionDef) -> dict[str, ast.expr]:
    texts: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts[node.targets[0].id] = node.value
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
            texts |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return texts


def template(node: ast.expr, texts: dict[str, ast.expr]) -> str:
    if isinstance(node, ast.Name) and node.id in texts and not isinstance(texts[node.id], ast.Name):
        return template(texts[node.id], {})
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
    return ""


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    main()
