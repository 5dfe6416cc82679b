r"""How deltas are written and read back: as text, as JSON lines, and with the time first (`oplog`).

>>> from runnel.connectors.deltas.model import Delta, Operation
>>> delta = Delta(Operation.UPD, "School", "Grades", ("Carol",), (), "Mathematic", "9/1", 1349430004096)
>>> print(to_text(delta), to_oplog(delta), sep="\n")
upd/School/Grades/Carol/null/Mathematic:9\/1-1349430004096
1349430004096/School,Grades,Mathematic/Carol:null/upd:9\/1
>>> from_text(to_text(delta)) == from_oplog(to_oplog(delta)) == from_json(to_json(delta)) == delta
True

Inside names and values, `\` stands before a separator and before another `\`, inside keys and clusterings also before a comma
and a bracket. `\n` and `\r` are line ends, `\u` and four digits other control characters. The real name `null` at the
clustering's place is written `\null`. `[]` stands for all keys, and for all rows. A range of rows is `[start[]end)`, with square brackets where the bound is part of it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from runnel.connectors.deltas.model import Delta, Operation, Parts, Span
from runnel.errors import Terminal, UsageError

FORMS = ("text", "json", "oplog")
NONE = "null"
ALL = "[]"
_PART = ","
_BRACKETS = "[]()"
_UNTIL = "[]"
_ESCAPED = re.compile(r"\\(u[0-9a-f]{4}|.)", re.DOTALL)
_LINE_ENDS = {"\n": "\\n", "\r": "\\r"}
_MEANT = {"n": "\n", "r": "\r"}


def _control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


@dataclass(frozen=True)
class Separators:
    """What stands between levels, before a value and before a time; no two may begin alike."""

    level: str = "/"
    value: str = ":"
    time: str = "-"

    def __post_init__(self) -> None:
        given = {"level": self.level, "value": self.value, "time": self.time}
        for name, text in given.items():
            if not text or any(
                c.isalnum() or c in f"\\{_PART}{_BRACKETS}" or (_control(c) and c != "\t") for c in text
            ):
                raise UsageError(
                    "RUNNEL-CAPTURE-SEPARATOR",
                    f"the {name} separator cannot be {text!r}",
                    hint="use punctuation, but no comma, bracket or backslash",
                )
            for other, its in given.items():
                if other != name and its.startswith(text):
                    raise UsageError(
                        "RUNNEL-CAPTURE-SEPARATOR",
                        f"the separators of {name} and {other} cannot be told apart: {text!r} and {its!r}",
                        hint="choose three different ones, such as '/', ':' and '-'",
                    )


STANDARD = Separators()


def to_text(delta: Delta, separators: Separators = STANDARD) -> str:
    """Write a delta as one line, without the line's end."""
    return f"{delta.operation}{separators.level}{_body(delta, separators)}"


def from_text(line: str, separators: Separators = STANDARD) -> Delta:
    """Read what `to_text` wrote."""
    operation, sign, rest = line.partition(separators.level)
    if not sign or operation not in set(map(str, Operation)):
        raise _unreadable(line)
    return _read_body(Operation(operation), rest, separators, line)


def to_snapshot(delta: Delta, separators: Separators = STANDARD) -> str:
    """Write a cell of a snapshot: the same without an operation."""
    return _body(delta, separators)


def from_snapshot(line: str, separators: Separators = STANDARD) -> Delta:
    """Read what `to_snapshot` wrote, as an insertion."""
    return _read_body(Operation.INS, line, separators, line)


def to_oplog(delta: Delta, separators: Separators = STANDARD) -> str:
    """Write a delta with its time first: time, names, identifier, operation."""
    names = [delta.keyspace, delta.table, *([] if delta.column is None else [delta.column])]
    identifier = _key_text(delta.key, separators)
    if delta.cluster is not None:
        identifier += separators.value + cluster_text(delta.cluster, separators)
    operation = str(delta.operation)
    if delta.value is not None:
        operation += separators.value + _escape(delta.value, separators)
    time = "" if delta.time is None else _escape(str(delta.time), separators)
    return separators.level.join([time, _joined(tuple(names), separators), identifier, operation])


def from_oplog(line: str, separators: Separators = STANDARD) -> Delta:
    """Read what `to_oplog` wrote."""
    parts = _split(line, separators.level)
    if len(parts) != 4:
        raise _unreadable(line)
    time, names, identifier, operation = parts
    name, value = _cut(operation, separators.value)
    key, cluster = _cut(identifier, separators.value)
    named = _parts(names)
    if name not in set(map(str, Operation)) or len(named) not in (2, 3):
        raise _unreadable(line)
    return Delta(
        Operation(name),
        named[0],
        named[1],
        _read_key(key),
        None if cluster is None else _read_cluster(cluster, line),
        named[2] if len(named) == 3 else None,
        None if value is None else _unescape(value),
        _time(_unescape(time), line) if time else None,
    )


def to_json(delta: Delta) -> str:
    """Write a delta as one JSON object on one line; what does not apply is left out, `"cluster": null` is the text's `null`."""
    told: dict[str, Any] = {
        "op": str(delta.operation),
        "keyspace": delta.keyspace,
        "table": delta.table,
        "key": delta.key,
    }
    if isinstance(delta.cluster, Span):
        span = delta.cluster
        told["range"] = {"start": span.start, "start_inclusive": span.start_inclusive}
        told["range"] |= {"end": span.end, "end_inclusive": span.end_inclusive}
    elif delta.cluster is not None:
        told["cluster"] = delta.cluster or None
    optional = {
        "column": delta.column,
        "value": delta.value,
        "previous": delta.previous,
        "time": delta.time,
        "ttl": delta.ttl,
    }
    told |= {name: value for name, value in optional.items() if value is not None}
    told |= {name: True for name in ("row", "counter") if getattr(delta, name)}
    return json.dumps(told, ensure_ascii=False)


def from_json(line: str) -> Delta:
    """Read what `to_json` wrote."""
    try:
        told = json.loads(line)
        cluster: Parts | Span | None = None
        if "range" in told:
            span = told["range"]
            cluster = Span(tuple(span["start"]), span["start_inclusive"], tuple(span["end"]), span["end_inclusive"])
        elif "cluster" in told:
            cluster = tuple(told["cluster"] or ())
        optional = {name: told.get(name) for name in ("column", "value", "time", "previous", "ttl")}
        key = tuple(told["key"])
        marks: dict[str, Any] = {name: bool(told.get(name, False)) for name in ("row", "counter")}
        return Delta(Operation(told["op"]), told["keyspace"], told["table"], key, cluster, **optional, **marks)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(line) from error


def write(delta: Delta, form: str, separators: Separators = STANDARD) -> str:
    """Write a delta in one of `FORMS`."""
    if form == "json":
        return to_json(delta)
    return to_oplog(delta, separators) if form == "oplog" else to_text(delta, separators)


def _body(delta: Delta, separators: Separators) -> str:
    parts = [_escape(delta.keyspace, separators), _escape(delta.table, separators), _key_text(delta.key, separators)]
    if delta.cluster is not None:
        parts.append(cluster_text(delta.cluster, separators))
    elif delta.column is not None:
        parts.append(ALL)
    if delta.column is not None:
        parts.append(_escape(delta.column, separators))
    text = separators.level.join(parts)
    if delta.value is not None:
        text += separators.value + _escape(delta.value, separators)
    return text if delta.time is None else f"{text}{separators.time}{delta.time}"


def _read_body(operation: Operation, text: str, separators: Separators, line: str) -> Delta:
    body, time = _cut(text, separators.time)
    place, value = _cut(body, separators.value)
    parts = _split(place, separators.level)
    removal = operation is Operation.DEL
    if not (3 <= len(parts) <= 5 if removal else len(parts) == 5) or (value is None) != removal:
        raise _unreadable(line)
    return Delta(
        operation,
        _unescape(parts[0]),
        _unescape(parts[1]),
        _read_key(parts[2]),
        _read_cluster(parts[3], line) if len(parts) > 3 and parts[2:4] != [ALL, ALL] else None,
        _unescape(parts[4]) if len(parts) > 4 else None,
        None if value is None else _unescape(value),
        None if time is None else _time(time, line),
    )


def _key_text(key: Parts, separators: Separators) -> str:
    return _joined(key, separators) if key else ALL


def _read_key(text: str) -> Parts:
    return () if text == ALL else _parts(text)


def cluster_text(cluster: Parts | Span, separators: Separators = STANDARD) -> str:
    """Write a clustering, the beginning of one, or a range of rows: `[3[]9)`."""
    if isinstance(cluster, Span):
        opening, closing = "[" if cluster.start_inclusive else "(", "]" if cluster.end_inclusive else ")"
        return f"{opening}{_bound(cluster.start, separators)}{_UNTIL}{_bound(cluster.end, separators)}{closing}"
    if not cluster:
        return NONE
    text = _joined(cluster, separators)
    return f"\\{NONE}" if text == NONE else text


def _read_cluster(text: str, line: str) -> Parts | Span:
    if text == NONE:
        return ()
    if text == f"\\{NONE}":
        return (NONE,)
    if text[:1] not in ("[", "("):
        return _parts(text)
    bounds = _split(text[1:-1], _UNTIL)
    if text[-1:] not in ("]", ")") or len(bounds) != 2:
        raise _unreadable(line)
    start, end = map(_read_bound, bounds)
    return Span(start, text[0] == "[", end, text[-1] == "]")


def _bound(parts: Parts, separators: Separators) -> str:
    """Write one end of a range: nothing where it is open, as many commas as parts where all of them are empty."""
    return _joined(parts, separators) if any(parts) else _PART * len(parts)


def _read_bound(text: str) -> Parts:
    return _parts(text) if text.strip(_PART) else ("",) * len(text)


def _joined(parts: Parts, separators: Separators) -> str:
    return _PART.join(_escape(part, separators, _PART + _BRACKETS) for part in parts)


def _parts(text: str) -> Parts:
    return tuple(_unescape(part) for part in _split(text, _PART))


def _escape(text: str, separators: Separators, also: str = "") -> str:
    special = {"\\", *also, *separators.level, *separators.value, *separators.time}
    return "".join(f"\\{c}" if c in special else _LINE_ENDS.get(c) or _plain(c) for c in text)


def _plain(character: str) -> str:
    return f"\\u{ord(character):04x}" if _control(character) else character


def _unescape(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        code = match.group(1)
        return chr(int(code[1:], 16)) if len(code) > 1 else _MEANT.get(code, code)

    return _ESCAPED.sub(meant, text)


def _split(text: str, separator: str) -> list[str]:
    """Split at the separators that stand bare, that is, not escaped."""
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith(separator, at):
            parts.append(text[start:at])
            at = start = at + len(separator)
        else:
            at += 1
    return [*parts, text[start:]]


def _cut(text: str, separator: str) -> tuple[str, str | None]:
    """Cut at the first bare separator."""
    first = _split(text, separator)[0]
    return (first, None) if len(first) == len(text) else (first, text[len(first) + len(separator) :])


def _time(text: str, line: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise _unreadable(line)
    return int(text)


def _unreadable(line: str) -> Terminal:
    shown = line if len(line) <= 80 else line[:77] + "..."
    return Terminal(
        "RUNNEL-CAPTURE-DELTA", f"this is no delta: {shown!r}", hint="were other separators used to write it?"
    )
