"""Makes, per table and column list, a function that reads the usual rows of an update fast.

The function is Python source written for that column list and compiled: values of fixed width that stand side by side are
taken by one `struct`, lengths and times of one byte without a call, names and the table are constants. What is not
usual (tombstones, times of their own, rows with some of the columns, collections) is left to `rows`, cell by cell, so that
both give the same changes; a test compares them on everything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from runnel.connectors.cassandra import cells
from runnel.connectors.cassandra.log import rows
from runnel.connectors.cassandra.log.errors import BadBody
from runnel.connectors.cassandra.log.rows import Column, RowTimes, Update
from runnel.connectors.cassandra.values.vints import read_unsigned

Reader = Callable[[Update, bytes, int, int], int]
"""(update, data, where the header ends, the update's flags) -> where the update ends"""

LONGEST_RUN = 32
"""Columns that one struct takes at most."""

MOST_COLUMNS = 200
"""Columns up to which a function is made; beyond, making it costs more than it saves."""

_HEAD = """\
def read(u, data, p, flags):
    if flags & 12:
        p = read_head(u, data, p, flags, STATIC)
    elif flags & 16:
        p = p + 1 if data[p] < 128 else read_unsigned(data, p)[1]
    append = u.out.append
    key = u.key
    base = u.ts_base
    end = len(data)
    opened = None
    while True:
        f = data[p]
        p += 1
        if f & 1:
            if opened is not None:
                raise BadBody("a deleted range has no end")
            return p
        # INSERT: a timestamp and all columns; perhaps a time to live, and collections that were deleted before.
        if f & 183 == 36:
"""


def compiled(table: Any, static: Sequence[Column], regular: Sequence[Column], widths: Sequence[int | None]) -> Reader:
    """Give the function for a column list of a table."""
    names: dict[str, Any] = {
        "read_head": rows.read_head,
        "read_row": rows.read_row,
        "read_marker": rows.read_marker,
        "read_cell": rows.read_cell,
        "read_complex": rows.read_complex,
        "read_clustering": rows.read_clustering,
        "read_unsigned": read_unsigned,
        "wrapped": rows.wrapped,
        "BadBody": BadBody,
        "RowTimes": RowTimes,
        "STATIC": tuple(static),
        "REGULAR": tuple(regular),
        "WIDTHS": tuple(widths),
        "T": table,
    }
    lines = [_HEAD]
    lines += _clustering(widths)
    lines += _liveness()
    lines += _columns(regular, names, inserted=True)
    # UPDATE: all columns and nothing of the row's own.
    lines += ["        elif f & 191 == 32:"]
    lines += _clustering(widths)
    lines += ["            row = None"]
    lines += _columns(regular, names, inserted=False)
    lines += [
        "        elif f & 2:",
        "            opened, p = read_marker(u, data, p, f, opened)",
        "        else:",
        "            p = read_row(u, data, p, f, REGULAR)",
    ]
    exec(compile("\n".join(lines), f"<reader of table {table.id}>", "exec"), names)
    made: Reader = names["read"]
    return made


def _indented(text: str, level: int = 3) -> list[str]:
    return ["    " * level + line for line in text.splitlines()]


def _clustering(widths: Sequence[int | None]) -> list[str]:
    """Write what reads the clustering into `ck`; its header is 0 when no value is empty or NULL."""
    if not widths:
        return _indented("ck = ()")
    if len(widths) > rows.BATCH:
        return _indented("ck, p = read_clustering(data, p, WIDTHS)")
    code = ["if data[p]:", "    ck, p = read_clustering(data, p, WIDTHS)", "else:", "    p += 1"]
    for n, width in enumerate(widths):
        if width is not None:
            code += [f"    a{n} = p", f"    p += {width}", f"    c{n} = data[a{n}:p]"]
        else:
            code += ["    n = data[p]", "    if n < 128:", "        a = p + 1", "    else:"]
            code += ["        n, a = read_unsigned(data, p)", "    p = a + n", f"    c{n} = data[a:p]"]
    code += [f"    ck = ({', '.join(f'c{n}' for n in range(len(widths)))},)"]
    return _indented("\n".join(code))


def _liveness() -> list[str]:
    """Write what reads the times of an inserted row; `want` is the flags of a cell that takes them all from the row."""
    return _indented(f"""\
if data[p] == 0:
    ts = base
    p += 1
else:
    ts, p = u.timestamp(data, p)
row = None
if f & 8:
    ttl, p = u.ttl(data, p)
    ldt, p = u.local_deletion_time(data, p)
    want = 26
else:
    ttl = ldt = 0
    want = 8
append(({cells.LIVENESS}, T, key, ck, None, None, None, ts, ttl, ldt))""")


def _columns(columns: Sequence[Column], names: dict[str, Any], *, inserted: bool) -> list[str]:
    """Write what reads all columns: cells of an INSERT have the row's times, those of an UPDATE the update's smallest."""
    lines: list[str] = []
    at = 0
    while at < len(columns):
        run = at
        while run < len(columns) and run - at < LONGEST_RUN and _fixed(columns[run]):
            run += 1
        if run - at > 1:
            lines += _run(columns, range(at, run), names, inserted=inserted)
            at = run
        else:
            lines += _one(columns[at], at, inserted=inserted)
            at += 1
    return lines


def _fixed(column: Column) -> bool:
    return column.width is not None and not column.multicell and not column.counter


def _change(column: Column, value: str, *, inserted: bool) -> str:
    kind = cells.COUNTER if column.counter else cells.SET
    times = "ts, ttl, ldt" if inserted else "base, 0, 0"
    return f"append(({kind}, T, key, ck, {column.name!r}, None, {value}, {times}))"


def _run(columns: Sequence[Column], which: range, names: dict[str, Any], *, inserted: bool) -> list[str]:
    """Write what reads neighbours of fixed width: all at once where their flags are the usual ones, else one by one."""
    flag = "B" if inserted else "H"
    whole = struct.Struct(">" + "".join(f"{flag}{columns[n].width}s" for n in which))
    unpack = f"unpack_{which.start}_{'i' if inserted else 'u'}"
    names[unpack] = whole.unpack_from
    taken = ", ".join(f"f{n}, v{n}" for n in which)
    usual = " == ".join(f"f{n}" for n in which) + (" == want" if inserted else " == 0")
    code = [f"fits = p + {whole.size} <= end", "if fits:", f"    {taken} = {unpack}(data, p)", f"    fits = {usual}"]
    code += ["if fits:", f"    p += {whole.size}"]
    code += [f"    {_change(columns[n], f'v{n}', inserted=inserted)}" for n in which]
    code += ["else:"]
    lines = _indented("\n".join(code))
    for n in which:
        lines += ["    " + line for line in _one(columns[n], n, inserted=inserted)]
    return lines


def _one(column: Column, n: int, *, inserted: bool) -> list[str]:
    """Write what reads one column: the usual cell here, any other through `rows`."""
    if inserted:
        row = ["if row is None:", "    row = RowTimes()", "    row.timestamp, row.ttl, row.ldt = ts, ttl, ldt"]
        row += ["    row.has_timestamp, row.has_ttl = True, want == 26"]
    else:
        row = ["if row is None:", "    row = RowTimes()"]
    if column.multicell:
        return _indented("\n".join([*row, f"p = read_complex(u, data, p, REGULAR[{n}], ck, row, deletion=f & 64)"]))
    usual, skip = ("data[p] == want", 1) if inserted else ("data[p] == 0 and data[p + 1] == 0", 2)
    code = [f"if {usual}:"]
    if column.width is not None:
        code += [f"    a = p + {skip}", f"    p = a + {column.width}"]
    else:
        code += [f"    n = data[p + {skip}]", "    if n < 128:", f"        a = p + {skip + 1}", "    else:"]
        code += [f"        n, a = read_unsigned(data, p + {skip})", "    p = a + n"]
    code += [f"    {_change(column, 'data[a:p]', inserted=inserted)}", "else:"]
    code += ["    " + line for line in row]
    code += [f"    p = read_cell(u, data, p, REGULAR[{n}], ck, row)"]
    return _indented("\n".join(code))
