"""Opens the sections of encrypted segments with the key that the segment's header names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runnel.connectors.cassandra.log.compression import lz4
from runnel.errors import Terminal, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODES = {"CBC": "CBC", "CTR": "CTR", "CFB": "CFB", "OFB": "OFB"}


class Keys:
    """Secret keys by alias, as a key store holds them (`key_store.read_key_store`)."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Keep the keys; an alias is compared without regard to case, as Java's key stores do."""
        self._keys = {alias.lower(): key for alias, key in keys.items()}

    def open(self, parameters: Mapping[str, Any], data: bytes, length: int) -> bytes:
        """Decrypt and unpack a section; raise `ValueError` where it is not what it says.

        A section is a row of blocks, each encrypted by itself with the same start, each one LZ4 block inside.
        """
        decrypt = self._cipher(parameters)
        blocks: list[bytes] = []
        at = total = 0
        while at < len(data):
            if at + 8 > len(data):
                raise ValueError("a block is too short")
            encrypted, plain = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
            at += 8
            if encrypted > len(data) - at or plain > encrypted:
                raise ValueError("a block is longer than what is left")
            inside = decrypt(data[at : at + encrypted])[:plain]
            at += encrypted
            unpacked = int.from_bytes(inside[:4], "big")
            total += unpacked
            if len(inside) != plain or plain < 4 or total > length:
                raise ValueError("a block has another length than it says")
            blocks.append(lz4(inside[4:], unpacked))
        if total != length:
            raise ValueError("a section has another length than it says")
        return b"".join(blocks)

    def _cipher(self, parameters: Mapping[str, Any]) -> Any:
        alias = str(parameters.get("encKeyAlias"))
        key = self._keys.get(alias.lower())
        if key is None:
            raise Terminal(
                "RUNNEL-CASSANDRA-LOG-KEY",
                f"the key store has no key {alias!r}",
                hint="name the key store of the server",
            )
        name, mode, padding = [*str(parameters.get("encCipher")).split("/"), "", ""][:3]
        if name != "AES" or mode not in _MODES or padding not in ("PKCS5Padding", "NoPadding"):
            raise Terminal("RUNNEL-CASSANDRA-LOG-CIPHER", f"the cipher {parameters.get('encCipher')!r} is not known")
        ciphers = _package("cryptography.hazmat.primitives.ciphers")
        start = bytes.fromhex(str(parameters.get("encIV")))
        whole = ciphers.Cipher(ciphers.algorithms.AES(key), getattr(ciphers.modes, _MODES[mode])(start))

        def decrypt(data: bytes) -> bytes:
            stream = whole.decryptor()
            found: bytes = stream.update(data) + stream.finalize()
            return unpadded(found) if padding == "PKCS5Padding" else found

        return decrypt


def unpadded(data: bytes) -> bytes:
    """Take the padding away that fills the last block of a cipher."""
    count = data[-1] if data else 0
    if not 0 < count <= 16 or data[-count:] != bytes([count]) * count:
        raise ValueError("a block is damaged, or the key is another one")
    return data[:-count]


def _package(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            "RUNNEL-CASSANDRA-PACKAGE",
            "encrypted commit logs need the package cryptography",
            hint="pip install 'runnel[cassandra]'",
        ) from error
