"""Reads CQL text with definitions (`schema = "x.cql"`) into the rows that `system_schema` would hold.

For logs without their own definitions. What `DESCRIBE ... WITH INTERNALS` prints is what it reads: a table needs its id
(`WITH ID = ...`), because a log names tables by nothing else.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import Any

from runnel.connectors.cassandra.schema.tables import SchemaRows
from runnel.errors import Place, Terminal

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|//[^\n]*|/\*.*?\*/)
      | (?P<text>'(?:[^']|'')*'|\$\$.*?\$\$)
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>-?[0-9][0-9.eE+-]*)
      | (?P<sign>[^\s])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A word of CQL: `name` is what an identifier stands for."""

    kind: str
    text: str
    line: int

    @property
    def name(self) -> str:
        """The identifier: in lower case unless it is quoted."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text.lower()


def tokens(text: str) -> list[Token]:
    """Cut CQL into its words."""
    found, line = [], 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match.group(), line))
        line += match.group().count("\n")
    return found


def parse_schema(text: str, *, file: str = "schema", keyspace: str | None = None) -> SchemaRows:
    """Read the definitions of a text; statements that define no table or type are passed over.

    >>> rows = parse_schema("CREATE TABLE k.t (id int PRIMARY KEY, v text) WITH ID = 5bc52802-de25-35ed-aeab-188eecebb090")
    >>> [(row["column_name"], row["kind"], row["type"]) for row in rows.columns]
    [('id', 'partition_key', 'int'), ('v', 'regular', 'text')]
    """
    schema = _Schema(file, keyspace)
    statement: list[Token] = []
    for token in [*tokens(text), Token("sign", ";", 0)]:
        if token.text == ";" and token.kind == "sign":
            if statement:
                schema.take(statement)
            statement = []
        else:
            statement.append(token)
    return schema.rows()


class _Words:
    """A statement that is read from left to right."""

    def __init__(self, found: list[Token], file: str) -> None:
        self.found = found
        self.file = file
        self.at = 0

    def refuse(self, reason: str) -> Terminal:
        line = self.found[min(self.at, len(self.found) - 1)].line
        return Terminal("RUNNEL-CASSANDRA-SCHEMA", reason, place=Place(self.file, line))

    def peek(self, *words: str) -> bool:
        here = self.found[self.at : self.at + len(words)]
        return len(here) == len(words) and all(
            token.kind not in ("quoted", "text") and token.text.lower() == word
            for token, word in zip(here, words, strict=True)
        )

    def skip(self, *words: str) -> bool:
        if self.peek(*words):
            self.at += len(words)
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.skip(word):
            raise self.refuse(f"{word.upper()} was expected")

    def next(self) -> Token:
        if self.at >= len(self.found):
            raise self.refuse("the statement ends too early")
        self.at += 1
        return self.found[self.at - 1]

    def name(self) -> str:
        token = self.next()
        if token.kind not in ("word", "quoted"):
            raise self.refuse(f"a name was expected, not {token.text!r}")
        return token.name

    def type(self) -> str:
        """Read a type: a name, and what stands in angle brackets behind it."""
        first = self.next()
        text, depth = first.text, 0
        if first.kind == "text":
            return text
        while self.peek("<") or self.peek(".") or depth:
            token = self.next()
            depth += {"<": 1, ">": -1}.get(token.text, 0)
            text += ", " if token.text == "," else token.text
            if token.text == ".":
                text += self.next().text
        return text

    @property
    def more(self) -> bool:
        return self.at < len(self.found)


@dataclass
class _Table:
    row: dict[str, Any]
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)


class _Schema:
    def __init__(self, file: str, keyspace: str | None) -> None:
        self.file = file
        self.keyspace = keyspace
        self.tables: dict[tuple[str, str], _Table] = {}
        self.types: dict[tuple[str, str], dict[str, Any]] = {}

    def rows(self) -> SchemaRows:
        tables = list(self.tables.values())
        return SchemaRows(
            [table.row for table in tables],
            [column for table in tables for column in table.columns.values()],
            [column for table in tables for column in table.dropped.values()],
            list(self.types.values()),
        )

    def take(self, statement: list[Token]) -> None:
        words = _Words(statement, self.file)
        if words.skip("use"):
            self.keyspace = words.name()
        elif words.skip("create", "table") or words.skip("create", "columnfamily"):
            self._create_table(words)
        elif words.skip("create", "type"):
            self._create_type(words)
        elif words.skip("alter", "table") or words.skip("alter", "columnfamily"):
            self._alter_table(words)
        elif words.skip("alter", "type"):
            self._alter_type(words)
        elif words.skip("drop"):
            self._drop(words)

    def _qualified(self, words: _Words) -> tuple[str, str]:
        words.skip("if", "not", "exists")
        words.skip("if", "exists")
        name = words.name()
        if words.skip("."):
            return name, words.name()
        if self.keyspace is None:
            raise words.refuse(f"{name} has no keyspace: write one before it, or USE one")
        return self.keyspace, name

    def _create_type(self, words: _Words) -> None:
        keyspace, name = self._qualified(words)
        words.expect("(")
        fields: list[tuple[str, str]] = []
        while not words.skip(")"):
            fields.append((words.name(), words.type()))
            words.skip(",")
        self.types[keyspace, name] = _type_row(keyspace, name, fields)

    def _alter_type(self, words: _Words) -> None:
        keyspace, name = self._qualified(words)
        row = self.types.get((keyspace, name))
        if row is None:
            raise words.refuse(f"there is no type {keyspace}.{name}")
        fields = list(zip(row["field_names"], row["field_types"], strict=True))
        if words.skip("add"):
            words.skip("if", "not", "exists")
            fields.append((words.name(), words.type()))
        elif words.skip("rename"):
            words.skip("if", "exists")
            renamed = dict(_renames(words))
            fields = [(renamed.get(field_name, field_name), type_) for field_name, type_ in fields]
        self.types[keyspace, name] = _type_row(keyspace, name, fields)

    def _create_table(self, words: _Words) -> None:
        keyspace, name = self._qualified(words)
        table = _Table({"keyspace_name": keyspace, "table_name": name, "id": None, "flags": ["compound"]})
        words.expect("(")
        while not words.skip(")"):
            if words.skip("primary", "key"):
                _primary_key(table, words)
            else:
                column = words.name()
                table.columns[column] = _column_row(table.row, column, words.type())
                _column_options(table.columns[column], words)
            words.skip(",")
        while words.more:
            self._table_option(table, words)
        if table.row["id"] is None:
            raise Terminal(
                "RUNNEL-CASSANDRA-SCHEMA",
                f"table {keyspace}.{name} has no id",
                place=Place(self.file, words.found[0].line),
                hint="write WITH ID = ... as DESCRIBE TABLE ... WITH INTERNALS prints it",
            )
        self.tables[keyspace, name] = table

    def _table_option(self, table: _Table, words: _Words) -> None:
        if words.skip("clustering", "order", "by"):
            words.expect("(")
            while not words.skip(")"):
                column = words.name()
                if column not in table.columns:
                    raise words.refuse(f"there is no column {column}")
                table.columns[column]["clustering_order"] = "desc" if words.skip("desc") else "asc"
                words.skip("asc")
                words.skip(",")
        elif words.skip("compact", "storage"):
            raise words.refuse("tables with COMPACT STORAGE cannot be read")
        elif words.skip("id", "="):
            table.row["id"] = uuid.UUID(words.next().text.strip("'"))
        elif words.skip("cdc", "="):
            table.row["cdc"] = words.next().text.strip("'").lower() == "true"
        elif words.skip("gc_grace_seconds", "="):
            table.row["gc_grace_seconds"] = int(words.next().text)
        else:
            words.next()

    def _table(self, words: _Words) -> _Table:
        keyspace, name = self._qualified(words)
        if (keyspace, name) not in self.tables:
            raise words.refuse(f"there is no table {keyspace}.{name}")
        return self.tables[keyspace, name]

    def _alter_table(self, words: _Words) -> None:
        table = self._table(words)
        if words.skip("add"):
            words.skip("if", "not", "exists")
            bracket = words.skip("(")
            while words.more and not words.skip(")"):
                column = words.name()
                table.columns[column] = _column_row(table.row, column, words.type())
                _column_options(table.columns[column], words)
                if not words.skip(",") and not bracket:
                    break
        elif words.skip("drop"):
            words.skip("if", "exists")
            _drop_columns(table, words)
        elif words.skip("rename"):
            words.skip("if", "exists")
            for old, new in _renames(words):
                table.columns[new] = table.columns.pop(old) | {"column_name": new}
        elif words.skip("with"):
            while words.more:
                self._table_option(table, words)

    def _drop(self, words: _Words) -> None:
        if words.skip("table"):
            self.tables.pop(self._qualified(words), None)
        elif words.skip("type"):
            self.types.pop(self._qualified(words), None)
        elif words.skip("keyspace"):
            words.skip("if", "exists")
            gone = words.name()
            self.tables = {at: table for at, table in self.tables.items() if at[0] != gone}
            self.types = {at: type_ for at, type_ in self.types.items() if at[0] != gone}


def _type_row(keyspace: str, name: str, fields: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "keyspace_name": keyspace,
        "type_name": name,
        "field_names": [field_name for field_name, _ in fields],
        "field_types": [type_ for _, type_ in fields],
    }


def _column_row(table: dict[str, Any], name: str, type_: str) -> dict[str, Any]:
    return {
        "keyspace_name": table["keyspace_name"],
        "table_name": table["table_name"],
        "column_name": name,
        "type": type_,
        "kind": "regular",
        "position": -1,
        "clustering_order": "none",
    }


def _column_options(column: dict[str, Any], words: _Words) -> None:
    while words.more and not words.peek(",") and not words.peek(")"):
        if words.skip("static"):
            column["kind"] = "static"
        elif words.skip("primary", "key"):
            column |= {"kind": "partition_key", "position": 0}
        elif words.skip("("):
            while not words.skip(")"):
                words.next()
        else:
            words.next()


def _primary_key(table: _Table, words: _Words) -> None:
    words.expect("(")
    partition = [words.name()] if not words.skip("(") else _names(words)
    words.skip(",")
    parts = [("partition_key", n, name) for n, name in enumerate(partition)]
    parts += [("clustering", n, name) for n, name in enumerate(_names(words))]
    for kind, position, name in parts:
        if name not in table.columns:
            raise words.refuse(f"there is no column {name}")
        order = "asc" if kind == "clustering" else "none"
        table.columns[name] |= {"kind": kind, "position": position, "clustering_order": order}


def _names(words: _Words) -> list[str]:
    found = []
    while not words.skip(")"):
        found.append(words.name())
        words.skip(",")
    return found


def _renames(words: _Words) -> list[tuple[str, str]]:
    found = []
    while words.more:
        old = words.name()
        words.expect("to")
        found.append((old, words.name()))
        words.skip("and")
    return found


def _drop_columns(table: _Table, words: _Words) -> None:
    names = _names(words) if words.skip("(") else [words.name()]
    while words.skip(","):
        names.append(words.name())
    microseconds = int(words.next().text) if words.skip("using", "timestamp") else 0
    for name in names:
        if name not in table.columns:
            raise words.refuse(f"there is no column {name}")
        row = table.columns.pop(name)
        table.dropped[name] = row | {"dropped_time": microseconds // 1000}
