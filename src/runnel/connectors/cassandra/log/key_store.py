"""Reads the secret keys of a Java key store of type JCEKS, which is where Cassandra has the keys of encrypted logs.

A key lies in it as a serialized Java object whose contents are encrypted with the password. Only what such an object
consists of is read: strings and byte arrays in the fields of plain classes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any

from runnel.errors import Place, Terminal

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC = 0xCECECECE
_SECRET = 3
_WHITENER = b"Mighty Aphrodite"
_LARGEST = 16 << 20
_MOST_ROUNDS = 5_000_000


def read_key_store(path: Path, password: str) -> dict[str, bytes]:
    """Give the secret keys of a store by alias; other entries are passed over.

    A store that is damaged, of another kind, or not opened by this password is refused with `RUNNEL-CASSANDRA-KEYSTORE`.
    """
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    try:
        return _Store(data, password).keys()
    except (ValueError, IndexError, KeyError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise Terminal(
            "RUNNEL-CASSANDRA-KEYSTORE",
            f"the key store cannot be read ({error})",
            place=Place(str(path)),
            hint="it has to be of type JCEKS, and the password its own",
        ) from error


class _Store:
    def __init__(self, data: bytes, password: str) -> None:
        if not 32 <= len(data) <= _LARGEST:
            raise ValueError("it has another size")
        self.password = password
        self.words = _Bytes(data[:-20])
        digest = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + data[:-20], usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-20:]):
            raise ValueError("it is damaged, or the password is another one")

    def keys(self) -> dict[str, bytes]:
        words = self.words
        if words.number(4) != _MAGIC or words.number(4) not in (1, 2):
            raise ValueError("it is of another kind")
        found: dict[str, bytes] = {}
        for _ in range(words.number(4)):
            tag, alias, _when = words.number(4), words.text(), words.number(8)
            if tag == _SECRET:
                found[alias] = self._secret()
            elif tag == 2:
                self._certificate()
            elif tag == 1:
                words.take(words.number(4))
                for _ in range(words.number(4)):
                    self._certificate()
            else:
                raise ValueError("an entry is of an unknown kind")
        return found

    def _certificate(self) -> None:
        self.words.text()
        self.words.take(self.words.number(4))

    def _secret(self) -> bytes:
        sealed = _Objects(self.words).read()
        parameters, contents = sealed["encodedParams"], sealed["encryptedContent"]
        key = _Objects(_Bytes(_unsealed(self.password, parameters, contents))).read()["key"]
        if not isinstance(key, bytes):
            raise ValueError("an entry holds no key")
        return key


def _unsealed(password: str, parameters: Any, contents: Any) -> bytes:
    """Decrypt by PBEWithMD5AndTripleDES; the parameters are a salt and a number of rounds, in DER."""
    if not isinstance(parameters, bytes) or not isinstance(contents, bytes) or parameters[0] != 0x30:
        raise ValueError("an entry has no parameters")
    words = _Bytes(parameters[2:])
    words.expect(b"\x04\x08")
    salt = words.take(8)
    words.expect(b"\x02")
    rounds = words.number(words.number(1))
    if not 0 < rounds <= _MOST_ROUNDS:
        raise ValueError("an entry has an impossible number of rounds")
    halves = [salt[:4], salt[4:]]
    if halves[0] == halves[1]:
        # Java's own way of telling equal halves apart, kept as it is.
        a, b, _, d = halves[0]
        halves[0] = bytes([d, a, b, d])
    derived = b""
    for half in halves:
        digest = half
        for _ in range(rounds):
            digest = hashlib.md5(digest + password.encode("ascii"), usedforsecurity=False).digest()
        derived += digest
    return _triple_des(derived[:24], derived[24:], contents)


def _triple_des(key: bytes, start: bytes, data: bytes) -> bytes:
    try:
        algorithms = import_module("cryptography.hazmat.decrepit.ciphers.algorithms")
    except ImportError:
        algorithms = import_module("cryptography.hazmat.primitives.ciphers.algorithms")
    ciphers = import_module("cryptography.hazmat.primitives.ciphers")
    stream = ciphers.Cipher(algorithms.TripleDES(key), ciphers.modes.CBC(start)).decryptor()
    found: bytes = stream.update(data) + stream.finalize()
    if not found or not 0 < found[-1] <= 8:
        raise ValueError("an entry is not opened by this password")
    return found[: -found[-1]]


class _Bytes:
    """Bytes that are read from left to right, never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.at:
            raise ValueError("it ends too early")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def expect(self, wanted: bytes) -> None:
        if self.take(len(wanted)) != wanted:
            raise ValueError("it has another form")


_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY = 0x70, 0x71, 0x72, 0x73, 0x74, 0x75
_BLOCK_END = 0x78
_PRIMITIVE_WIDTHS = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}


class _Class:
    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[tuple[str, str]] = []
        self.above: _Class | None = None


class _Objects:
    """A Java object stream with one object in it."""

    def __init__(self, words: _Bytes) -> None:
        self.words = words
        self.handles: list[Any] = []
        words.expect(b"\xac\xed\x00\x05")

    def read(self) -> dict[str, Any]:
        found = self._content()
        if not isinstance(found, dict):
            raise ValueError("an entry is no object")
        return found

    def _content(self) -> Any:
        kind = self.words.number(1)
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            return self.handles[self.words.number(4) - 0x7E0000]
        if kind == _STRING:
            self.handles.append(self.words.text())
            return self.handles[-1]
        if kind == _CLASS:
            return self._described()
        if kind == _OBJECT:
            return self._object()
        if kind == _ARRAY:
            return self._array()
        raise ValueError("an entry holds an object of an unknown kind")

    def _described(self) -> _Class:
        made = _Class(self.words.text())
        self.words.take(8)
        self.handles.append(made)
        flags = self.words.number(1)
        if flags & 0x0D:
            raise ValueError("an entry holds an object that writes itself")
        for _ in range(self.words.number(2)):
            kind, name = chr(self.words.number(1)), self.words.text()
            if kind in "[L":
                self._content()
            made.fields.append((name, kind))
        self.words.expect(bytes([_BLOCK_END]))
        above = self._content()
        made.above = above if isinstance(above, _Class) else None
        return made

    def _object(self) -> dict[str, Any]:
        described = self._content()
        made: dict[str, Any] = {}
        self.handles.append(made)
        lines: list[_Class] = []
        while isinstance(described, _Class):
            lines.insert(0, described)
            described = described.above
        for line in lines:
            for name, kind in line.fields:
                width = _PRIMITIVE_WIDTHS.get(kind)
                made[name] = self._content() if width is None else self.words.number(width)
        return made

    def _array(self) -> bytes:
        described = self._content()
        if not isinstance(described, _Class) or described.name != "[B":
            raise ValueError("an entry holds an array of something else than bytes")
        self.handles.append(None)
        place = len(self.handles) - 1
        self.handles[place] = self.words.take(self.words.number(4))
        return bytes(self.handles[place])
