"""A function is the same one exactly when everything it can reach is: what cannot be told is refused, or left to a version."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest

from runnel.engine.functions import user_function
from runnel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fingerprint_of(source: str, **around: Any) -> str:
    """Define `f` by a text, with these globals around it, and give its fingerprint."""
    space: dict[str, Any] = {"__name__": "shop_rules", "functools": functools, "re": re, **around}
    exec(compile(textwrap.dedent(source), "shop_rules.py", "exec"), space)
    call: Callable[..., Any] = space["f"]
    return user_function("f", call, "BIGINT").fingerprint


CHANGES = {
    "a global dict": ("R = {'EUR': 2}\ndef f(c): return R[c]", "R = {'EUR': 3}\ndef f(c): return R[c]"),
    "a list in a dict": ("R = {'a': [1, 2]}\ndef f(c): return R[c]", "R = {'a': [1, 3]}\ndef f(c): return R[c]"),
    "a set": ("S = {1, 2}\ndef f(c): return c in S", "S = {1, 3}\ndef f(c): return c in S"),
    "a global of a nested function": (
        "K = [1]\ndef f(c):\n    def g(): return K[0]\n    return g()",
        "K = [2]\ndef f(c):\n    def g(): return K[0]\n    return g()",
    ),
    "a global of a lambda in a comprehension": (
        "K = {1: 1}\ndef f(c): return [(lambda: K[1])() for _ in c]",
        "K = {1: 2}\ndef f(c): return [(lambda: K[1])() for _ in c]",
    ),
    "a default": ("def f(c, r={'a': 1}): return r[c]", "def f(c, r={'a': 2}): return r[c]"),
    "a closure": (
        "def make(r):\n    return lambda c: r[c]\nf = make({'a': 1})",
        "def make(r):\n    return lambda c: r[c]\nf = make({'a': 2})",
    ),
    "a function that is called": (
        "def g(c): return c + 1\ndef f(c): return g(c)",
        "def g(c): return c + 2\ndef f(c): return g(c)",
    ),
    "a method of a class": (
        "class A:\n    def at(self, c): return c\ndef f(c): return A().at(c)",
        "class A:\n    def at(self, c): return -c\ndef f(c): return A().at(c)",
    ),
    "an attribute of an object": (
        "class A:\n    def __init__(self, r): self.r = r\na = A([1])\ndef f(c): return a.r[0]",
        "class A:\n    def __init__(self, r): self.r = r\na = A([2])\ndef f(c): return a.r[0]",
    ),
    "a pattern": ("P = re.compile('a')\ndef f(c): return bool(P.match(c))", "P = re.compile('b')\ndef f(c): return bool(P.match(c))"),
    "the function below a cache": (
        "@functools.lru_cache\ndef f(c): return c", "@functools.lru_cache\ndef f(c): return c + 1"
    ),
    "an argument of a partial": (
        "f = functools.partial(lambda r, c: r[c], {'a': 1})", "f = functools.partial(lambda r, c: r[c], {'a': 2})"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES.keys())
def test_whatever_a_function_reaches_belongs_to_it(before: str, after: str) -> None:
    assert fingerprint_of(before) == fingerprint_of(before)
    assert fingerprint_of(before) != fingerprint_of(after)


def test_what_a_function_does_not_use_does_not_belong_to_it() -> None:
    text = "K = 1\ndef f(c): return c"
    assert fingerprint_of(text, lock=threading.Lock()) == fingerprint_of(text.replace("1", "2", 1))


def test_a_function_that_calls_itself_has_an_end() -> None:
    text = "def f(c): return g(c)\ndef g(c): return f(c)\nR = {}\nR['self'] = R\ndef h(): return R\n"
    assert fingerprint_of(text) == fingerprint_of(text)
    assert fingerprint_of("R = []\nR.append(R)\ndef f(c): return R") == fingerprint_of(
        "R = []\nR.append(R)\ndef f(c): return R"
    )


@pytest.mark.parametrize("value", [threading.Lock(), sys.stderr, iter([1])], ids=["a lock", "a file", "an iterator"])
def test_what_cannot_be_written_down_is_refused_and_a_version_says_it_instead(value: Any) -> None:
    with pytest.raises(UsageError) as told:
        fingerprint_of("def f(c): return thing", thing=value)
    assert told.value.code == "RUNNEL-FUNCTION-VALUE"
    assert "thing" in told.value.message
    assert "version=" in str(told.value.hint)

    def with_it(c: int) -> Any:
        return value if c else None

    said = [user_function("f", with_it, "BIGINT", version=version).fingerprint for version in ("1", "1", "2")]
    assert said[0] == said[1] != said[2]


def test_a_fingerprint_is_the_same_at_every_start_and_follows_the_users_modules(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "import deeper\nS = {'a', 'b', 'c', 'd'}\ndef rate(c): return c in S and deeper.K\n"
    )
    (tmp_path / "deeper.py").write_text("K = 1\n")
    program = (
        "import json, rules, decimal\nfrom runnel.engine.functions import user_function\n"
        "def f(c): return rules.rate(c), json.dumps(c), decimal.Decimal(c)\n"
        "print(user_function('f', f, 'BIGINT').fingerprint)"
    )
    (tmp_path / "main.py").write_text(program)

    def started() -> str:
        done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = started()
    assert started() == first
    (tmp_path / "deeper.py").write_text("K = 22\n")
    assert started() != first
