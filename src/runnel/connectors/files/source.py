"""The `files` source: files are taken whole, once, in the order of their names, across tables too.

Only a file of more than twice `max_rows` rows is taken in parts, over several epochs. A position is, for each table, the last file that is
done, how many were done by then and a fingerprint of their names, which came too late, and how far a file in parts is done. A file that is
not whole yet holds back only what comes after it in its own table. What is read is what was planned: a file that appears in between is late,
even if its name is inside the range.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.connectors.base import ChangeSet, Offset, Partition, TableInfo
from runnel.connectors.files.decode import Part, decode, parquet_schema
from runnel.connectors.files.late import fingerprint, late_names
from runnel.connectors.files.listing import SAMPLE, File, Inspection, Listing, folders, half, inspect, listing
from runnel.connectors.files.open_files import OpenFiles
from runnel.connectors.files.parts import Span, Spot, changed, check_begin, cut, lines_left
from runnel.connectors.files.row_reader import footer_checksum
from runnel.connectors.files.settings import Settings, read_settings
from runnel.connectors.guarded import translated
from runnel.errors import Place, RunnelError, Terminal, Unreachable
from runnel.model import types
from runnel.model.ddl import spelled
from runnel.model.relation import Column, check_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from runnel import config
    from runnel.connectors.skips import SourceState


RUN = 250_000
"""Rows of a Parquet file that one task reads at a time: some seconds of decoding."""


def open_source(source: config.Source, folder: Path, state: SourceState | None = None) -> FilesSource:
    """Open the folder that `[sources.NAME]` names."""
    return FilesSource(read_settings(source, folder))


class FilesSource:
    """Reads a folder of change files."""

    def __init__(self, settings: Settings) -> None:
        """Read nothing yet."""
        self.settings = settings
        self._tables: dict[str, TableInfo] = {}
        self._named = {*settings.schemas, *(settings.tables or ()), *([settings.table] if settings.table else [])}
        self._undescribed: dict[str, RunnelError] = {}
        self._initial: Offset | None = None
        self._looked_at: dict[tuple[str, str], tuple[tuple[int, int], Inspection]] = {}
        self._planned: tuple[Offset, Offset, list[Piece]] | None = None
        self._files = OpenFiles()
        self._checked: dict[tuple[str, str], tuple[int, int]] = {}

    def tables(self) -> tuple[TableInfo, ...]:
        """Give the tables whose columns are known: from the settings, else from their first whole Parquet file."""
        self._require_folder()
        undescribed: dict[str, RunnelError] = {}
        for name, folder in folders(self.settings).items():
            if name in self._tables:
                continue
            try:
                info = self._describe(name, folder)
            except (RunnelError, OSError) as error:
                if name in self._named:
                    raise
                # Whoever put that folder there must not hold back the others.
                undescribed[name] = translated(f"sources.{self.settings.name}", error)
                continue
            if info is not None:
                self._tables[name] = info
        self._undescribed = undescribed
        if self._undescribed and not self._tables:
            raise next(iter(self._undescribed.values()))
        return tuple(self._tables[name] for name in sorted(self._tables))

    def problems(self) -> tuple[RunnelError, ...]:
        """Give the errors of folders that nobody named and that cannot be read as tables; their files wait."""
        self.tables()
        return tuple(self._undescribed.values())

    def advice(self) -> tuple[str, ...]:
        """Give nothing: there is no server whose settings could be better."""
        return ()

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

    def latest_offset(self, start: Offset, max_rows: int, *, single: bool = False) -> Offset:
        """Give the position after the next whole files, cut between files so that they hold about `max_rows`, or after one file (`single`).

        A file of more than twice as many rows is cut itself.
        Raises `RUNNEL-FILES-HALF` when a half-written file is all that waits.
        """
        self._require_folder()
        listed = self._listed()
        waiting = [self._waiting(start, found) for found in listed.values()]
        pieces, blocked = self._take(_merged(waiting), max_rows, 1 if single else max_rows)
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
        for piece in self._pieces(start, end):
            yield from decode(piece.file, known[piece.file.table], self.settings, piece.part, self._files)

    def partitions(self, start: Offset, end: Offset) -> list[Partition]:
        """Give the files in (start, end] one by one; a large Parquet file as several runs of rows."""
        known = {table.name: table for table in self.tables()}
        return [
            Partition(
                part.file.table,
                self._estimate(part),
                partial(_read, part, known[part.file.table], self.settings),
                trusted=self.settings.trusted,
            )
            for piece in self._pieces(start, end)
            for part in self._runs(piece)
        ]

    def _pieces(self, start: Offset, end: Offset) -> Iterator[Piece]:
        """Give what lies in (start, end], in the order of the names; what was planned is looked for when its turn comes."""
        if self._planned is not None and self._planned[:2] == (start, end):
            for piece in self._planned[2]:
                if not piece.file.path.exists():
                    raise self._gone(piece.file.table, piece.file.name)
                yield piece
            return
        ranges = []
        for name, found in self._listed().items():
            last = _last(end, name)
            if last > _last(start, name) and last not in found.names:
                raise self._gone(name, last)
            ranges.append(self._between(start, end, found))
        yield from _merged(ranges)

    def _runs(self, piece: Piece) -> list[Piece]:
        if piece.file.format != "parquet":
            return [piece]
        rows = piece.part if isinstance(piece.part, range) else range(self._look(piece.file).rows)
        if len(rows) <= RUN:
            return [piece]
        begins = range(rows.start, rows.stop, RUN)
        return [Piece(piece.file, range(begin, min(begin + RUN, rows.stop))) for begin in begins]

    def _estimate(self, piece: Piece) -> int:
        if isinstance(piece.part, range):
            return len(piece.part)
        if piece.part is not None and piece.part.end is not None:
            return piece.part.end.line - piece.part.begin.line
        return max(1, self._look(piece.file).rows - (piece.part.begin.line if piece.part is not None else 0))

    def cells(self) -> None:
        """Say that changes are rows."""

    def commit(self, end: Offset) -> None:
        """Forget what was looked at, but for a file in parts; the files stay, they belong to whoever wrote them."""
        parts = {(table, part["file"]) for table in end if (part := _part(end, table)) is not None}
        self._looked_at = {file: seen for file, seen in self._looked_at.items() if file in parts}
        self._checked = {file: version for file, version in self._checked.items() if file in parts}
        self._files.close(keep=lambda file: (file.table, file.name) in parts)

    def covers(self, have: Offset, wanted: Offset) -> bool:
        """Say whether these files are done: `{"orders": "0007.jsonl"}`, or a position as the state keeps it."""
        asked = {table: at if isinstance(at, dict) else {"file": at} for table, at in wanted.items()}
        return all(_reached(have, table) >= _reached(asked, table) for table in asked)

    def end_offset(self) -> Offset:
        """Give the last file of each table that exists now: `{"orders": "0007.jsonl"}`."""
        self._require_folder()
        return {name: found.names[-1] for name, found in self._listed().items() if found.names}

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
        """Close files that were left open in the middle."""
        self._files.close()

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
        """Give what is left of a file in parts, if what was taken of it is as it was."""
        if file.format == "parquet":
            if file.bytes != part["bytes"] or part.get("footer", seen := footer_checksum(file.path)) != seen:
                raise changed(file, f"{part['rows']} of its rows")
            return Piece(file, range(part["rows"], self._look(file).rows))
        begin = Spot.of(part)
        if self._checked.get((file.table, file.name)) != file.version:
            check_begin(file, begin, self._files)
            self._checked[file.table, file.name] = file.version
        return Piece(file, Span(begin))

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
        return [*whole, _upto(cut, part)]

    def _take(self, waiting: Iterable[Piece], max_rows: int, enough: int) -> tuple[list[Piece], list[tuple[File, str]]]:
        """Choose pieces of about `enough` rows, at least one; a first one of more than twice `max_rows` is cut."""
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
            left = self._left(piece, seen, 2 * max_rows)
            rows += left
            if taken and rows > enough:
                break
            if left > 2 * max_rows and (part := self._cut(piece, max_rows)) is not None:
                return [part], blocked
            taken.append(piece)
        return taken, blocked

    def _left(self, piece: Piece, seen: Inspection, most: int) -> int:
        """Give how many rows are left of a file; above `most` it need not be exact. Lines are counted, where the first ones are not all."""
        if isinstance(piece.part, range):
            return len(piece.part)
        begin = piece.part.begin if piece.part is not None else Spot()
        if piece.file.format == "parquet" or not (piece.file.zipped or piece.file.bytes > SAMPLE):
            return max(1, seen.rows - begin.line)
        return lines_left(piece.file, begin, seen.rows if piece.file.zipped else None, most, self._files)

    def _cut(self, piece: Piece, rows: int) -> Piece | None:
        """Give the first rows of a piece as one that does not end its file; None where it cannot be cut."""
        if piece.file.format == "parquet":
            first = piece.part.start if isinstance(piece.part, range) else 0
            return Piece(piece.file, range(first, first + rows), ends=False)
        begin = piece.part.begin if isinstance(piece.part, Span) else Spot()
        end = cut(piece.file, begin, rows, self.settings.delimiter, self._files)
        return None if end is None else Piece(piece.file, Span(begin, end), ends=False)

    def _look(self, file: File) -> Inspection:
        """Inspect a file unless it is the very one that was inspected before."""
        known = self._looked_at.get((file.table, file.name))
        if known is None or known[0] != file.version:
            known = self._looked_at[file.table, file.name] = (file.version, inspect(file, self.settings.delimiter))
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


def _read(piece: Piece, table: TableInfo, settings: Settings) -> Iterator[ChangeSet]:
    """Read a piece, wherever this is called."""
    return decode(piece.file, table, settings, piece.part)


@dataclass(frozen=True)
class Piece:
    """A file to read, or a part of it; `ends` says that the file is done with it."""

    file: File
    part: Part | None = None
    ends: bool = True


def _part(offset: Offset, table: str) -> Mapping[str, Any] | None:
    part: Mapping[str, Any] | None = offset.get(table, {}).get("part")
    return part


def _upto(piece: Piece, part: Mapping[str, Any]) -> Piece:
    """Give a piece up to a position inside its file."""
    if piece.file.format == "parquet":
        first = piece.part.start if isinstance(piece.part, range) else 0
        return Piece(piece.file, range(first, part["rows"]), ends=False)
    begin = piece.part.begin if isinstance(piece.part, Span) else Spot()
    return Piece(piece.file, Span(begin, Spot.of(part)), ends=False)


def _with_part(start: Offset, piece: Piece) -> Offset:
    """Give the position after a piece that does not end its file."""
    part: dict[str, Any] = {"file": piece.file.name}
    if isinstance(piece.part, range):
        part |= {"rows": piece.part.stop, "bytes": piece.file.bytes, "footer": footer_checksum(piece.file.path)}
    elif piece.part is not None and piece.part.end is not None:
        part |= piece.part.end.as_position()
    return {**start, piece.file.table: {**start.get(piece.file.table, {}), "part": part}}


def _reached(offset: Offset, table: str) -> tuple[str, float]:
    """Give how far a position is, so that positions can be compared."""
    done, part = (_last(offset, table), math.inf), _part(offset, table)
    return done if part is None else max(done, (part["file"], part.get("at", part.get("rows", 0))))


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
