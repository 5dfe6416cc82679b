"""Starts Spark's Java process without its secrets on a command line, where every user of the machine could read them.

PySpark hands all settings over as arguments. Those that are secret go through a file instead that only this user can read,
and that is gone as soon as Java is up; Spark is told not to show them in its pages and logs either.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext

from runnel.redaction import TELLING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
REDACTION = "spark.redaction.regex"
OPTIONS = "spark.driver.extraJavaOptions"
_SPECIAL = re.compile(r"[\\#!=:\s]")


def redaction(settings: Mapping[str, str], secret: Collection[str]) -> str:
    """Give the pattern by which Spark tells what it must not show: its own, the user's, and these settings by name."""
    names = [re.escape(name) for name in sorted(secret)]
    given = [f"(?:{settings[REDACTION]})"] if REDACTION in settings else []
    plain = TELLING.replace("(?<![a-z])", "").replace("(?![a-z])", "")
    return "(?i)" + "|".join([plain.replace("|sas", ""), "access[.]?key", *names, *given])


def launch(settings: Mapping[str, str], secret: Collection[str]) -> None:
    """Start Java, unless it is up already."""
    if SparkContext._gateway is not None:
        return
    plain = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        if key not in secret:
            plain.set(key, value)
    with _arguments({key: settings[key] for key in secret if key in settings}):
        SparkContext._ensure_initialized(conf=plain)


@contextmanager
def _arguments(hidden: Mapping[str, str]) -> Iterator[None]:
    """Let the next process be started with these settings, by way of files that are there only as long as the block."""
    before = os.environ.get(ARGUMENTS)
    folder = Path(tempfile.mkdtemp(prefix="runnel-start-"))  # its rights are those of this user only
    try:
        given, theirs = _without_file(before or "pyspark-shell")
        if OPTIONS in hidden:
            # Java gets these as arguments in any case, and reads arguments from a file, too.
            _write(folder / "java", hidden[OPTIONS])
            hidden = {**hidden, OPTIONS: f"@{folder / 'java'}"}
        _write(folder / "settings", theirs + "".join(f"{_escaped(k)}={_escaped(v)}\n" for k, v in hidden.items()))
        added = ["--properties-file", str(folder / "settings"), *([] if theirs else ["--load-spark-defaults"])]
        os.environ[ARGUMENTS] = shlex.join([*added, *given])
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            os.environ.pop(ARGUMENTS, None)
        else:
            os.environ[ARGUMENTS] = before


def _without_file(arguments: str) -> tuple[list[str], str]:
    """Give the user's own arguments without a file of settings, and what stands in that file."""
    given = shlex.split(arguments)
    if "--properties-file" not in given[:-1]:
        return given, ""
    at = given.index("--properties-file")
    return given[:at] + given[at + 2 :], Path(given[at + 1]).read_text(encoding="utf-8") + "\n"


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")


def _escaped(text: str) -> str:
    """Write a key or a value as a Java properties file has it."""
    signs = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return _SPECIAL.sub(lambda sign: signs.get(sign[0], f"\\{sign[0]}"), text)
