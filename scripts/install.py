"""Make the development environment: a venv with the locked packages, runnel itself, and Java where there is none.

Runs on the standard library alone, because nothing else is there yet: `python3 scripts/install.py .venv`.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
ASK_FOR_JAVA = "import sys; from runnel.engine.java import find_java; sys.exit(find_java() is None)"


def main(folder: str) -> int:
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        print(f"runnel needs Python 3.11 or newer; this is {found}. Name one: make PYTHON=python3.12", file=sys.stderr)
        return 2
    python = Path(folder) / "bin" / "python"
    if not python.exists():
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True)
    print("installing the locked packages", flush=True)
    pip(python, "-r", str(ROOT / "requirements" / "dev.txt"))
    pip(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    if subprocess.run([str(python), "-c", ASK_FOR_JAVA], check=False).returncode != 0:
        print("no Java 17 or newer found: installing one into the environment", flush=True)
        pip(python, "-r", str(ROOT / "requirements" / "java.txt"))
    return 0


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
