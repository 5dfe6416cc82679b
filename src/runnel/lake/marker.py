"""Says in the data folder whose it is, so that no second catalog takes it over and a lost catalog is not made again."""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from pathlib import Path

from pyarrow import fs

from runnel.errors import Place, Terminal, places_named
from runnel.lake import files

NAME = "runnel-state.json"
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
# As this version names files and folders below a relation's, and as earlier ones did.
_OURS = re.compile(r"([0-9a-f]{12}-[0-9a-f]{12}-)?[0-9a-f]{32}(\.parquet)?|part-[0-9a-f]{32}\.parquet")


def read(data: str) -> str | None:
    """Give the id of the state that a data folder belongs to; None where it does not say."""
    system, inside = files.filesystem(f"{data}/{NAME}")
    try:
        with system.open_input_stream(inside) as stream:
            return str(json.loads(stream.read())["state"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Terminal(
            "RUNNEL-DATA-MARK",
            f"it cannot be read which state the data folder belongs to: {error}",
            place=Place(f"{data}/{NAME}"),
            hint="restore this file from a copy",
        ) from error


def claim(data: str, state: str, catalog: str) -> None:
    """Mark a data folder as this state's; refuse one of another state. One that is closed to us is only read, so it stays as it is."""
    known = read(data)
    if known is None:
        try:
            _write(data, json.dumps({"state": state}))
        except Terminal as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _CLOSED:
                raise
        known = read(data)
    if known not in (None, state):
        raise Terminal(
            "RUNNEL-DATA-TAKEN",
            f"the data folder belongs to the state {known}, and this catalog is of the state {state} ({catalog})",
            place=Place(f"{data}/{NAME}"),
            hint="give each catalog a folder of its own: [state] data",
        )


def refuse_lost(data: str, catalog: str) -> None:
    """Refuse to make a catalog for a folder that holds a state already: its own catalog is missing, emptied, or another one."""
    if read(data) is None and not _holds_state(data):
        return
    raise Terminal(
        "RUNNEL-CATALOG-LOST",
        f"the data folder {data} holds a state, and the catalog {catalog} is missing or empty",
        place=Place(f"{data}/{NAME}"),
        hint="restore the catalog from a copy, or correct [state]; to begin anew, remove the data folder yourself",
    )


def _holds_state(data: str) -> bool:
    root = f"{data}/state"
    system, inside = files.filesystem(root)
    with places_named("the data folder cannot be looked into", root):
        found = system.get_file_info(fs.FileSelector(inside, recursive=True, allow_not_found=True))
    # Right below the folder of a relation.
    below = [info.path.removeprefix(inside).lstrip("/").split("/") for info in found]
    return any(len(parts) == 2 and _OURS.fullmatch(parts[1]) for parts in below)


def _write(data: str, text: str) -> None:
    system, inside = files.filesystem(f"{data}/{NAME}")
    with files.disk_errors("the state", f"{data}/{NAME}"):
        if files.is_local(data):
            _write_once(Path(inside), text)
            return
        with system.open_output_stream(inside) as stream:
            stream.write(text.encode())


def _write_once(path: Path, text: str) -> None:
    """Write a file whole, or leave the one that somebody else wrote at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    beside.write_text(text)
    try:
        os.link(beside, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        beside.rename(path)
        return
    beside.unlink()
