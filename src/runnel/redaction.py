"""Keeps secrets out of everything that is printed, logged or stored: each one that is known is looked for and replaced.

Whoever reads a secret makes it known here (`runnel.config.Secret` does so by itself), and whatever leaves the process as
text goes through `redacted`: errors, log records, tracebacks, what the catalog keeps of a failure.

>>> know("hunter2SECRET"); redacted("no host 'p@hunter2SECRET@h'"); forget()
"no host 'p@***@h'"
"""

from __future__ import annotations

import logging
import re
import threading
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, unquote_plus

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = "***"
SHORTEST = 4
"""Shorter texts are not looked for: they stand in every other word."""
ANYWHERE = 8
"""Texts of this length are looked for inside words, too."""

TELLING = (
    r"password|passwd|passphrase|passcode|secret|token|credential|signature|(?<![a-z])pwd"
    r"|(?:api|access|private|account|storage|encryption|master)[_.\-]?key(?![a-z])|(?<![a-z])sas(?![a-z])"
)
"""What a key is called whose value ought not to be seen."""
_TELLING = re.compile(TELLING, re.IGNORECASE)
_SCHEME = re.compile(r"^([a-z][a-z0-9+.\-]*:)+//", re.IGNORECASE)
_ADDRESS = re.compile(r"[^:/@]*(:\d*)?")
_PAIR = re.compile(r"""([\w.\-]+)\s*=\s*("[^"]*"|'(?:[^'\\]|\\.)*'|[^&;,\s]+)""")
_CUT = re.compile(r"[@/:?#&=;,\s]+")

_lock = threading.Lock()
_known: set[str] = set()
_pattern: re.Pattern[str] | None = None


def know(value: str, *, whole: bool = True) -> None:
    """Make a secret known; of a URL its password and the parameters that tell one, else all of it where it is `whole`."""
    global _pattern
    found = {text for part in secrets_in(value) for text in _forms(part)}
    if whole and not _SCHEME.match(value):
        found |= set(_forms(value))
    with _lock:
        if not found <= _known:
            _known.update(found)
            longest_first = sorted(_known, key=len, reverse=True)
            _pattern = re.compile("|".join(map(_looked_for, longest_first)))


def forget() -> None:
    """Know no secret any more; for tests."""
    global _pattern
    with _lock:
        _known.clear()
        _pattern = None


def redacted(text: str) -> str:
    """Give a text with every known secret replaced."""
    return text if _pattern is None else _pattern.sub(HIDDEN, text)


def plainly(value: Any) -> Any:
    """Give plain data (of JSON, say) with every known secret in its texts replaced."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: plainly(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [plainly(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def scrub(error: BaseException) -> None:
    """Replace known secrets in an error of somebody else's, and in those it came of: callers print whole chains."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.args = plainly(one.args)
        own = vars(one) if hasattr(one, "__dict__") else {}
        own.update({name: redacted(value) for name, value in own.items() if isinstance(value, str)})
        todo += [one.__cause__, one.__context__, *(v for v in own.values() if isinstance(v, BaseException))]


def traceback_of(error: BaseException) -> str:
    """Write an error with its traceback, without secrets."""
    return redacted("".join(traceback.format_exception(error)))


class Redacting(logging.Filter):
    """Takes known secrets out of log records, with what came of their arguments and errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without secrets."""
        if _pattern is None:
            return True
        record.msg, record.args = redacted(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text, record.exc_info = traceback_of(record.exc_info[1]).rstrip("\n"), None
        return True


def tells(key: str) -> bool:
    """Say whether a value under this key ought not to be seen.

    >>> tells("password"), tells("spark.ssl.keyPassword"), tells("fs.s3a.access.key"), tells("key"), tells("keyspace")
    (True, True, True, False, False)
    """
    return bool(_TELLING.search(key))


def secrets_in(text: str) -> list[str]:
    """Find the secrets in a URL or in a list of parameters, as they are written.

    >>> secrets_in("postgresql://me:p@ss@h/db?sslpassword=q&x=1"), secrets_in("host=h password='a b'"), secrets_in("plain")
    (['p@ss', 'q'], ['a b'], [])
    """
    found = [value for key, value in _pairs(text) if tells(key)]
    user_info = user_info_of(text)
    if user_info is not None and ":" in user_info:
        user, password = user_info.split(":", 1)
        # One that anybody would guess is shown with the user's name anyway.
        found = [password, *found] if password not in ("", user) else found
    return [value for value in found if value]


def user_info_of(url: str) -> str | None:
    """Give what stands before the host of a URL: all up to the last `@` before its parameters, also where one is unescaped."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return None
    place, _, _ = (rest := url[scheme.end() :]).partition("?")
    if "@" not in place:
        if _ADDRESS.fullmatch(place.split("/")[0]):
            return None  # what stands behind the question mark are parameters, an @ in them or not
        place = rest
    before, at, _ = place.rpartition("@")
    in_path = "/" in before and _ADDRESS.fullmatch(before.split("/")[0])  # http://host:80/a@b
    return before if at and not in_path else None


def normal(url: str) -> str:
    """Give a URL whose user and password are escaped, so that no driver takes a part of the password for the host.

    >>> normal("postgresql://me:p@ss@h/db"), normal("postgresql://me:p%40s@h/db")
    ('postgresql://me:p%40ss@h/db', 'postgresql://me:p%40s@h/db')
    """
    user_info = user_info_of(url)
    if user_info is None:
        return url
    start = _SCHEME.match(url)
    assert start is not None
    user, colon, password = user_info.partition(":")
    escaped = f"{_escaped(user)}{colon}{_escaped(password)}"
    return f"{url[: start.end()]}{escaped}{url[start.end() + len(user_info) :]}"


def shown(url: str) -> str:
    """Give a URL as it may be seen.

    >>> shown("postgresql://me:p@ss@h:1/db?user=a&password=b")
    'postgresql://me:***@h:1/db?user=a&password=***'
    """
    user_info = user_info_of(url)
    if user_info is not None and ":" in user_info:
        url = url.replace(f"{user_info}@", f"{user_info.split(':', 1)[0]}:{HIDDEN}@", 1)
    return redacted(
        _PAIR.sub(lambda pair: f"{pair[0][: pair.start(2) - pair.start()]}{HIDDEN}" if tells(pair[1]) else pair[0], url)
    )


def _escaped(text: str) -> str:
    """Escape what is not escaped yet; a `%` that begins no escape stands for itself."""
    return quote(unquote(text) if re.search(r"%[0-9a-fA-F]{2}", text) else text, safe="")


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for key, value in _PAIR.findall(text):
        yield key, value[1:-1] if value[:1] in "\"'" and value[-1:] == value[:1] and len(value) > 1 else value


def _forms(value: str) -> Iterator[str]:
    """Give the ways in which a secret may come up: as written, decoded, encoded, or cut where a driver would cut a URL."""
    whole = {value, unquote(value), unquote_plus(value), quote(value, safe=""), value.strip()}
    pieces = {piece for piece in _CUT.split(value) if len(piece) >= ANYWHERE}
    for text in whole | pieces:
        if len(text) >= SHORTEST:
            yield text
            if repr(text)[1:-1] != text:
                yield repr(text)[1:-1]


def _looked_for(text: str) -> str:
    return re.escape(text) if len(text) >= ANYWHERE else rf"(?<!\w){re.escape(text)}(?!\w)"


# Whoever uses the package as a library has handlers of their own.
logging.getLogger("runnel").addFilter(Redacting())
