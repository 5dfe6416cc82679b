"""The `files` source: files are taken whole, once, in the order of their names, across tables too.

Only a Parquet file of more than twice `max_rows` is taken in parts, over several epochs. A position is, for each table, the last file
that is done, how many were done by then and a fingerprint of their names, which came too late, and how far a file in parts is done. A file that is not whole yet holds back only what comes after it in its own table. What is read is what was
planned: a file that appears in between is late, even if its name is inside the range.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from runnel.connectors.base import ChangeSet, Offset, TableInfo
from runnel.connectors.files.decode import decode, parquet_schema
from runnel.connectors.files.late import fingerprint, late_names
from runnel.connectors.files.listing import File, Inspection, Listing, folders, half, inspect, listing
from runnel.connectors.files.settings import Settings, read_settings
from runnel.errors import Place, RunnelError, Terminal, Unreachable
from runnel.model import types
from runnel.model.ddl import spelled
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from runnel import config


def open_source(source: config.Source, folder: Path) -> FilesSource:
    """Open the folder that `[sources.NAME]` names."""
    return FilesSource(read_settings(source, folder))


class FilesSource:
    """Reads a folder of change files."""

    HAS_BEFORE_IMAGE: ClassVar[bool] = False
    TRANSACTIONS: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        """Read nothing yet."""
        self.settings = settings
        self._tables: dict[str, TableInfo] = {}
        self._initial: Offset | None = None
        self._looked_at: dict[str, tuple[tuple[int, int], Inspection]] = {}
        self._planned: tuple[Offset, Offset, list[Piece]] | None = None

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables whose columns are known: from the settings, else from their first whole Parquet file."""
        self._require_folder()
        for name, folder in folders(self.settings).items():
            if name not in self._tables:
                info = self._describe(name, folder)
                if info is not None:
                    self._tables[name] = info
        return tuple(self._tables[name] for name in sorted(self._tables))

    def initial_offset(self) -> Offset:
        """Give the position before the first file, or after the last one with `start = "latest"`."""
        if self._initial is None and self.settings.start == "latest":
            listed = {name: listing(self.settings, name, folder) for name, folder in folders(self.settings).items()}
            self._initial = {
                name: {"file": found.names[-1], "files": len(found.names), "names": fingerprint(found.names)}
                for name, found in listed.items()
                if found.names
            }
        return self._initial or {}

    def latest_offset(self, start: Offset, max_rows: int) -> Offset:
        """Give the position after the next whole files, cut between files so that they hold about `max_rows`.

        A Parquet file of more than twice as many rows is cut itself.
        Raises `RUNNEL-FILES-HALF` when a half-written file is all that waits.
        """
        self._require_folder()
        listed = self._listed()
        waiting = [self._waiting(start, found) for found in listed.values()]
        pieces, blocked = self._take(_merged(waiting), max_rows)
        if not pieces:
            if blocked:
                raise half(*blocked[0])
            return start
        if not pieces[0].ends:
            end = _with_part(start, pieces[0])
            self._planned = (dict(start), end, pieces)
            return dict(end)
        taken = [piece.file for piece in pieces]
        last = {file.table: file.name for file in taken}
        count = Counter(file.table for file in taken)
        end = dict(start)
        for table, name in last.items():
            late, unsure = late_names(start.get(table, {}), listed[table])
            before = [name for name in listed[table].upto(_last(start, table)) if name not in {*late, *unsure}]
            done = fingerprint([*before, *(file.name for file in taken if file.table == table)])
            end[table] = {"file": name, "files": len(before) + count[table], "names": done}
            end[table] |= ({"late": late} if late else {}) | ({"unsure": unsure} if unsure else {})
        self._planned = (dict(start), end, pieces)
        return dict(end)

    def read(self, start: Offset, end: Offset) -> Iterator[ChangeSet]:
        """Give the changes of the files in (start, end], in the order of their names."""
        known = {table.name: table for table in self.tables()}
        if self._planned is not None and self._planned[:2] == (start, end):
            for piece in self._planned[2]:
                if not piece.file.path.exists():
                    raise self._gone(piece.file.table, piece.file.name)
                yield from decode(piece.file, known[piece.file.table], self.settings, piece.rows)
            return
        ranges = []
        for name, found in self._listed().items():
            last = _last(end, name)
            if last > _last(start, name) and last not in found.names:
                raise self._gone(name, last)
            ranges.append(self._between(start, end, found))
        for piece in _merged(ranges):
            yield from decode(piece.file, known[piece.file.table], self.settings, piece.rows)

    def commit(self, end: Offset) -> None:
        """Forget what was looked at; the files stay, they belong to whoever wrote them."""
        self._looked_at.clear()

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether these files are done: `{"orders": "0007.jsonl"}`, or a position as the state keeps it."""
        asked = {table: at if isinstance(at, dict) else {"file": at} for table, at in wanted.items()}
        return all(_reached(have, table) >= _reached(asked, table) for table in asked)

    def lag(self, start: Offset) -> Mapping[str, Any]:
        """Say how many files and bytes wait, which are only half there, and which came too late to be read in order."""
        listed = self._listed()
        waiting = [file for name, found in listed.items() for file in found.after(_last(start, name))]
        halves = [file.shown for file in waiting if self._look(file).half is not None]
        passed = {name: late_names(start.get(name, {}), found) for name, found in listed.items()}
        late, unsure = (
            [file.shown for name, found in listed.items() for file in found.files(passed[name][at])] for at in (0, 1)
        )
        said = {"files": len(waiting), "bytes": sum(file.bytes for file in waiting), "half": halves, "late": late}
        return said | ({"unsure": unsure} if unsure else {})

    def close(self) -> None:
        """Nothing is held open."""

    def _describe(self, name: str, folder: Path) -> TableInfo | None:
        columns, file, found = self.settings.schemas.get(name), None, list[File]()
        if columns is None:
            found = listing(self.settings, name, folder).files()
            file = next((file for file in found if file.format == "parquet" and self._look(file).half is None), None)
            columns = _columns(file) if file is not None else None
        if columns is None:
            text = next((file for file in found if file.format != "parquet"), None)
            if text is None and name not in (self.settings.tables or (self.settings.table,)):
                return None
            raise self._no_schema(name, text)
        try:
            check_columns(name, columns, key := self.settings.keys.get(name, ()))
        except RunnelError as error:
            place = Place(file.shown) if file else None
            raise Terminal(error.code, error.message, place=place, hint=error.hint) from error
        return TableInfo(name, columns, spelled(key, columns), self.settings.references.get(name, ()))

    def _listed(self) -> dict[str, Listing]:
        known = {table.name for table in self.tables()}
        return {
            name: listing(self.settings, name, folder)
            for name, folder in folders(self.settings).items()
            if name in known
        }

    def _waiting(self, start: Offset, found: Listing) -> list[Piece]:
        """Give what comes after a position: the rest of a file in parts first; what came before its name meanwhile is late."""
        part = _part(start, found.table)
        pieces = [Piece(file) for file in found.after(_last(start, found.table))]
        if part is None:
            return pieces
        left = [piece for piece in pieces if piece.file.name >= part["file"]]
        if not left or left[0].file.name != part["file"]:
            raise self._gone(found.table, part["file"])
        return [self._rest(left[0].file, part), *left[1:]]

    def _rest(self, file: File, part: Mapping[str, Any]) -> Piece:
        if file.bytes != part["bytes"]:
            raise Terminal(
                "RUNNEL-FILES-CHANGED",
                f"{file.shown} was changed after {part['rows']} of its rows were taken",
                place=Place(file.shown),
                hint="bring the file back as it was; write changes as new files",
            )
        return Piece(file, range(part["rows"], self._look(file).rows))

    def _between(self, start: Offset, end: Offset, found: Listing) -> list[Piece]:
        """Give what lies in (start, end] of a table."""
        last, part = _last(end, found.table), _part(end, found.table)
        if _reached(start, found.table) >= _reached(end, found.table):
            return []
        pieces = self._waiting(start, found)
        whole = [piece for piece in pieces if piece.file.name <= last]
        if part is None:
            return whole
        cut = next((piece for piece in pieces if piece.file.name == part["file"]), None)
        if cut is None:
            raise self._gone(found.table, part["file"])
        begin = cut.rows.start if cut.rows is not None else 0
        return [*whole, Piece(self._rest(cut.file, part).file, range(begin, part["rows"]), ends=False)]

    def _take(self, waiting: Iterable[Piece], max_rows: int) -> tuple[list[Piece], list[tuple[File, str]]]:
        taken: list[Piece] = []
        blocked: list[tuple[File, str]] = []
        rows = 0
        for piece in waiting:
            file = piece.file
            if file.table in (other.table for other, _ in blocked):
                continue
            seen = self._look(file)
            if seen.half is not None:
                blocked.append((file, seen.half))
                continue
            left = piece.rows or range(seen.rows)
            rows += len(left)
            if taken and rows > max_rows:
                break
            if file.format == "parquet" and len(left) > 2 * max_rows:
                return [Piece(file, left[:max_rows], ends=False)], blocked
            taken.append(piece)
        return taken, blocked

    def _look(self, file: File) -> Inspection:
        """Inspect a file unless it is the very one that was inspected before."""
        version, known = (file.bytes, file.changed), self._looked_at.get(file.shown)
        if known is None or known[0] != version:
            known = self._looked_at[file.shown] = (version, inspect(file, self.settings.delimiter))
        return known[1]

    def _require_folder(self) -> None:
        if not self.settings.path.is_dir():
            raise Unreachable(
                "RUNNEL-FILES-FOLDER",
                f"sources.{self.settings.name}: the folder {self.settings.shown} is not there",
                hint="make it, or change 'path'; it is looked for from the project's folder",
            )

    def _gone(self, table: str, name: str) -> Terminal:
        message = f"{name} of {table} was removed while it was being read"
        return Terminal(
            "RUNNEL-FILES-GONE", message, hint="put it back; files may go once `runnel status` counts them as done"
        )

    def _no_schema(self, table: str, file: File | None) -> Terminal:
        what = f"{file.shown} is a text file" if file else f"{table} has no files yet"
        return Terminal(
            "RUNNEL-FILES-SCHEMA",
            f"sources.{self.settings.name}: nothing tells the columns of {table}: {what}",
            place=Place(file.shown) if file else None,
            hint=f'write them down: schema = {{ {table} = "id BIGINT, ..., PRIMARY KEY (id)" }}',
        )


@dataclass(frozen=True)
class Piece:
    """A file to read, or some of its rows (counted from 0); `ends` says that the file is done with them."""

    file: File
    rows: range | None = None
    ends: bool = True


def _part(offset: Offset, table: str) -> Mapping[str, Any] | None:
    part: Mapping[str, Any] | None = offset.get(table, {}).get("part")
    return part


def _with_part(start: Offset, piece: Piece) -> Offset:
    """Give the position after a piece that does not end its file."""
    assert piece.rows is not None
    part = {"file": piece.file.name, "rows": piece.rows.stop, "bytes": piece.file.bytes}
    return {**start, piece.file.table: {**start.get(piece.file.table, {}), "part": part}}


def _reached(offset: Offset, table: str) -> tuple[str, float]:
    """Give how far a position is, so that positions can be compared."""
    done, part = (_last(offset, table), math.inf), _part(offset, table)
    return done if part is None else max(done, (part["file"], part["rows"]))


def _last(offset: Offset, table: str) -> str:
    name: str = offset.get(table, {}).get("file", "")
    return name


def _merged(ranges: Iterable[list[Piece]]) -> Iterator[Piece]:
    return heapq.merge(*ranges, key=lambda piece: (piece.file.name, piece.file.table))


def _columns(file: File) -> tuple[Column, ...]:
    try:
        return tuple(Column(field.name, types.from_arrow(field.type)) for field in parquet_schema(file))
    except RunnelError as error:
        raise Terminal(
            error.code, f"{file.shown}: {error.message}", place=Place(file.shown), hint=error.hint
        ) from error
