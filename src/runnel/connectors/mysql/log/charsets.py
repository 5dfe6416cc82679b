"""Character sets: which of Python's codecs reads the bytes of a collation, by the number that the log has for it.

Only those are listed whose every character is the same as in the server; a column of another one is refused by name.
"""

from __future__ import annotations

from runnel.connectors.mysql.log.problems import BadBytes

BINARY = 63
UTF8 = "utf-8"
LATIN1 = "mysql-latin1"

_COLLATIONS = {
    "ascii": "11 65 1035 1089",
    "cp1250": "26 34 44 66 99 1050 1090",
    "cp1251": "14 23 50-52 1074-1075",
    "cp1256": "57 67 1081 1091",
    "cp1257": "29 58-59 1082-1083",
    "cp850": "4 80 1028 1104",
    "cp852": "40 81 1064 1105",
    "cp866": "36 68 1060 1092",
    "greek": "25 70 1049 1094",
    "hebrew": "16 71 1040 1095",
    "koi8r": "7 74 1031 1098",
    "koi8u": "22 75 1046 1099",
    "latin1": "5 8 15 31 47-49 94 1032 1071",
    "latin2": "2 9 21 27 77 1033 1101",
    "latin5": "30 78 1054 1102",
    "ucs2": "35 90 128-159 640-642 1059 1114 1152 1174 2560-2815",
    "utf16": "54-55 101-124 672-674 1078-1079 1125 1147 2816-3071",
    "utf16le": "56 62 1080 1086",
    "utf32": "60-61 160-183 736-738 1084-1085 1184 1206 3072-3327",
    "utf8mb3": "33 76 83 192-223 576-578 1057 1107 1216 1238 2048-2303",
    "utf8mb4": "45-46 224-247 255-323 608-610 1069-1070 1248 1270 2304-2559",
}
"""The numbers of the collations of each character set, of MariaDB 10.11 and MySQL 8.0 together (they have no number in common)."""
_NAMES = {
    "ascii": UTF8,
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "latin1": LATIN1,
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "utf8mb3": UTF8,
    "utf8mb4": UTF8,
}
"""Python's codecs where they have another name."""


_UNUSED = (0x81, 0x8D, 0x8F, 0x90, 0x9D)
_WINDOWS = {byte: bytes([byte]).decode("cp1252") for byte in range(0x80, 0xA0) if byte not in _UNUSED}
_OTHERWISE: dict[str, dict[int, str]] = {
    LATIN1: _WINDOWS,  # what MySQL calls latin1 is Windows-1252, whose unused bytes are the control characters of the same number
    "cp866": {0x2116: "\u207f", 0xA4: "\u00b2"},
    "iso8859-7": {0x2018: "\u02bd", 0x2019: "\u02bc"},
    "iso8859-8": {0xAF: "\u203e"},
    "koi8-u": {0x2219: "\u2022"},
}
"""Characters that Python reads otherwise than the servers."""


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


CODECS = {number: _NAMES.get(name, name) for name, text in _COLLATIONS.items() for number in _numbers(text)}
BY_NAME = {name: _numbers(text)[0] for name, text in _COLLATIONS.items()} | {"utf8": 33, "binary": BINARY}
"""A collation of each character set, by the name that information_schema has for the set."""


def codec_of(charset: int | None) -> str:
    """Give the codec of a collation; raise for one that is not listed."""
    codec = CODECS.get(charset or 45)
    if codec is None:
        raise BadBytes(f"collation {charset} has a character set that cannot be read")
    return codec


def decoded(value: bytes, charset: int | None = None) -> str:
    r"""Read a text.

    >>> decoded(b"\x80\x81", 8), decoded(b"\x20\xac", 35)
    ('€\x81', '€')
    """
    codec = codec_of(None if charset == BINARY else charset)
    try:
        text = value.decode("latin-1" if codec == LATIN1 else codec)
    except UnicodeDecodeError as error:
        raise BadBytes(f"a text is not {codec}: {error.reason}") from error
    return text.translate(_OTHERWISE[codec]) if codec in _OTHERWISE else text
