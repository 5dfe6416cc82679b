"""Random CQL over twelve tables that between them have every construct a commit log can hold.

Statements are text with literals, so that a failing one can be pasted into any client. Keys are few, so that writes meet.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

KEYSPACE = "w"

TYPES = ["CREATE TYPE w.address (street text, zip int, tags frozen<set<text>>)"]

WIDE = [f"c{n:02}" for n in range(70)]

TABLES = {
    "plain": "id int PRIMARY KEY, a int, b bigint, c text, d double, e boolean, f timestamp, g text, h float",
    "natives": "id int PRIMARY KEY, ascii_ ascii, bigint_ bigint, blob_ blob, boolean_ boolean, date_ date, "
    "decimal_ decimal, double_ double, duration_ duration, float_ float, inet_ inet, int_ int, smallint_ smallint, "
    "text_ text, time_ time, timestamp_ timestamp, timeuuid_ timeuuid, tinyint_ tinyint, uuid_ uuid, varint_ varint, "
    "vector_ vector<float, 3>, words vector<text, 2>",
    "rows": "p int, q text, c int, d text, s text static, m map<text, int> static, v int, w text, "
    "PRIMARY KEY ((p, q), c, d)",
    "collections": "p int, c int, l list<int>, s set<text>, m map<int, text>, u address, v text, PRIMARY KEY (p, c)",
    "frozen_": "id int PRIMARY KEY, l frozen<list<int>>, m frozen<map<text, frozen<list<int>>>>, "
    "t tuple<int, text, frozen<set<int>>>, u frozen<address>, n map<frozen<tuple<int, int>>, frozen<address>>",
    "counters": "p int, c int, hits counter, misses counter, total counter static, PRIMARY KEY (p, c)",
    "keys_only": "p int, c text, PRIMARY KEY (p, c)",
    "wide": f"p int, c int, {', '.join(f'{name} int' for name in WIDE)}, PRIMARY KEY (p, c)",
    "ranges": "p int, a int, b text, c timeuuid, v int, PRIMARY KEY (p, a, b, c)",
    "altered": "p int, c int, kept text, comes_and_goes int, PRIMARY KEY (p, c)",
    "expiring": "p int, c int, s text static, v text, l list<int>, PRIMARY KEY (p, c)",
    '"OddNames"': '"P key" text, "C" decimal, d float, e boolean, f blob, "v al" text, "V Al" int, '
    'PRIMARY KEY ("P key", "C", d, e, f)',
}
OPTIONS = {
    "rows": "CLUSTERING ORDER BY (c DESC, d ASC) AND ",
    "ranges": "CLUSTERING ORDER BY (a ASC, b DESC, c DESC) AND ",
    "expiring": "default_time_to_live = 5000 AND ",
    '"OddNames"': 'CLUSTERING ORDER BY ("C" DESC, d ASC, e DESC, f ASC) AND ',
}


def definitions(replication: int = 1) -> list[str]:
    """Give the statements that make the keyspace, its types and its tables."""
    how = f"{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
    keyspace = f"CREATE KEYSPACE {KEYSPACE} WITH replication = {how}"
    return [keyspace, *TYPES, *map(table_definition, TABLES)]


def table_definition(name: str) -> str:
    return f"CREATE TABLE {KEYSPACE}.{name} ({TABLES[name]}) WITH {OPTIONS.get(name, '')}cdc = true"


TIMEUUIDS = [f"{n:08x}-1111-11f0-8080-{0x80808080808 + n * 7:012x}" for n in range(5)]
TEXTS = ["", "a", "b", "lorem ipsum", "ünïcödé ☃", "x" * 200]


@dataclass
class Workload:
    """Makes statements from a seed; while it is `steady`, none that changes a table or a type as a whole."""

    seed: int
    steady: bool = False
    statements: int = 0
    dropped: bool = False
    type_fields: int = 0
    waiting: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def next(self) -> str:
        """Give the next statement."""
        self.statements += 1
        return self.waiting.pop() if self.waiting else self.random.choice(_MAKERS)(self)

    # Values, as CQL literals.

    def key(self) -> int:
        return self.random.randrange(6)

    def integer(self, bits: int = 32) -> int:
        edge = 1 << (bits - 1)
        return self.random.choice([0, 1, -1, edge - 1, -edge, self.random.randrange(-edge, edge)])

    def text(self) -> str:
        return quoted(self.random.choice(TEXTS))

    def real(self) -> str:
        return str(self.random.choice([0.0, -0.0, 1.5, -2.25, 1e30, "NaN", "Infinity", "-Infinity", 0.1]))

    def blob(self) -> str:
        return "0x" + self.random.choice(["", "00", "ff", "00ff10", "80" * 150])

    def boolean(self) -> str:
        return self.random.choice(["true", "false"])

    def decimal(self) -> str:
        return self.random.choice(
            ["0", "1.0", "1.00", "-3.14159", "1E+10", "123456789012345678901234567890.5", "-0.001"]
        )

    def address(self) -> str:
        tags = "{" + ", ".join(sorted({self.text() for _ in range(self.random.randrange(3))})) + "}"
        extra = f", extra{self.type_fields}: {self.integer()}" if self.type_fields else ""
        return f"{{street: {self.text()}, zip: {self.integer()}, tags: {tags}{extra}}}"

    def maybe(self, make: Callable[[], object]) -> str:
        return "null" if self.random.random() < 0.12 else str(make())

    def using(self, *, ttl: bool = True) -> str:
        """Give a USING clause, mostly none: timestamps that tie and that lie in the past, times to live."""
        parts = []
        if self.random.random() < 0.2:
            parts.append(f"TIMESTAMP {self.random.choice([1, 2, 1_700_000_000_000_000, 1_700_000_000_000_001])}")
        if ttl and self.random.random() < 0.2:
            parts.append(f"TTL {self.random.choice([1, 2, 1000, 100_000])}")
        return " USING " + " AND ".join(parts) if parts else ""

    def timestamped(self) -> str:
        return self.using(ttl=False)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def plain(w: Workload) -> str:
    if w.random.random() < 0.15:
        target = w.random.choice(["", "", "a", "c, g", "b, d, h"])
        return f"DELETE {target} FROM w.plain{w.timestamped()} WHERE id = {w.key()}"
    if w.random.random() < 0.4:
        return f"UPDATE w.plain{w.using()} SET a = {w.maybe(w.integer)}, g = {w.maybe(w.text)} WHERE id = {w.key()}"
    if w.random.random() < 0.2:
        return f"INSERT INTO w.plain (id, c) VALUES ({w.key()}, {w.text()}) IF NOT EXISTS"
    values = [
        w.integer,
        lambda: w.integer(64),
        w.text,
        w.real,
        w.boolean,
        lambda: w.random.randrange(10**12),
        w.text,
        w.real,
    ]
    made = ", ".join(w.maybe(value) for value in values)
    return f"INSERT INTO w.plain (id, a, b, c, d, e, f, g, h) VALUES ({w.key()}, {made}){w.using()}"


def natives(w: Workload) -> str:
    choices: dict[str, Callable[[], object]] = {
        "ascii_": lambda: quoted(w.random.choice(["", "abc"])),
        "bigint_": lambda: w.integer(64),
        "blob_": w.blob,
        "boolean_": w.boolean,
        "date_": lambda: quoted(w.random.choice(["1970-01-01", "0001-01-02", "2026-02-28", "1960-05-05"])),
        "decimal_": w.decimal,
        "double_": w.real,
        "duration_": lambda: w.random.choice(["1mo2d3ns", "-1y3mo", "89h4m48s", "P1Y2M", "0s"]),
        "float_": w.real,
        "inet_": lambda: quoted(w.random.choice(["127.0.0.1", "::1", "2001:db8::8a2e:370:7334"])),
        "int_": w.integer,
        "smallint_": lambda: w.integer(16),
        "text_": w.text,
        "time_": lambda: quoted(w.random.choice(["00:00:00", "08:12:54.123456789", "23:59:59.999999999"])),
        "timestamp_": lambda: w.random.choice([0, -1, 1_700_000_000_123, -62_000_000_000_000]),
        "timeuuid_": lambda: w.random.choice(TIMEUUIDS),
        "tinyint_": lambda: w.integer(8),
        "uuid_": lambda: w.random.choice([*TIMEUUIDS, "123e4567-e89b-42d3-a456-426614174000"]),
        "varint_": lambda: w.random.choice([0, 128, -129, 10**30, -(10**37)]),
        "vector_": lambda: "[1.5, -2, 0.25]",
        "words": lambda: f"[{w.text()}, {w.text()}]",
    }
    names = w.random.sample(sorted(choices), w.random.randrange(1, len(choices) + 1))
    if w.random.random() < 0.1:
        names = [name for name in names if name not in ("words",)] or ["int_"]
        return f"DELETE {', '.join(names)} FROM w.natives{w.timestamped()} WHERE id = {w.key()}"
    if w.random.random() < 0.1:
        name = w.random.choice(["int_", "bigint_", "boolean_", "double_", "timestamp_", "uuid_"])
        return f"INSERT INTO w.natives (id, {name}) VALUES ({w.key()}, blobAs{name[:-1]}(0x))"
    values = ", ".join(w.maybe(choices[name]) for name in names)
    return f"INSERT INTO w.natives (id, {', '.join(names)}) VALUES ({w.key()}, {values}){w.using()}"


def rows(w: Workload) -> str:
    partition = f"p = {w.key() % 3} AND q = {w.text()}"
    c, d = w.key(), quoted(w.random.choice(["a", "b", ""]))
    return w.random.choice(
        [
            f"UPDATE w.rows{w.using()} SET v = {w.maybe(w.integer)}, w = {w.text()} WHERE {partition} AND c = {c} AND d = {d}",
            f"INSERT INTO w.rows (p, q, c, d, s, v) VALUES ({w.key() % 3}, {w.text()}, {c}, {d}, {w.text()}, {w.maybe(w.integer)})"
            f"{w.using()}",
            f"INSERT INTO w.rows (p, q, s) VALUES ({w.key() % 3}, {w.text()}, {w.maybe(w.text)}){w.using()}",
            f"UPDATE w.rows{w.using()} SET m[{w.text()}] = {w.integer()}, s = {w.text()} WHERE {partition}",
            f"UPDATE w.rows{w.using()} SET m = {{{w.text()}: 1}} WHERE {partition}",
            f"DELETE s FROM w.rows{w.timestamped()} WHERE {partition}",
            f"DELETE m FROM w.rows{w.timestamped()} WHERE {partition}",
            f"DELETE FROM w.rows{w.timestamped()} WHERE {partition}",
            f"DELETE FROM w.rows{w.timestamped()} WHERE {partition} AND c = {c}",
            f"DELETE FROM w.rows{w.timestamped()} WHERE {partition} AND c = {c} AND d = {d}",
            f"DELETE FROM w.rows{w.timestamped()} WHERE {partition} AND c > {c} AND c <= {c + 2}",
            f"DELETE v FROM w.rows{w.timestamped()} WHERE {partition} AND c = {c} AND d = {d}",
        ]
    )


def collections(w: Workload) -> str:
    where = f"WHERE p = {w.key() % 3} AND c = {w.key() % 3}"
    update = f"UPDATE w.collections{w.using()} SET"
    many = ", ".join(str(w.integer()) for _ in range(w.random.randrange(4)))
    texts = ", ".join(sorted({w.text() for _ in range(w.random.randrange(4))}))
    return w.random.choice(
        [
            f"{update} l = [{many}] {where}",
            f"{update} l = l + [{many}] {where}",
            f"{update} l = [{many}] + l {where}",
            f"{update} s = {{{texts}}} {where}",
            f"{update} s = s + {{{texts}}} {where}",
            f"{update} s = s - {{{texts}}} {where}",
            f"{update} m[{w.key()}] = {w.maybe(w.text)}, v = {w.maybe(w.text)} {where}",
            f"{update} m = m + {{{w.key()}: {w.text()}, 7: 'seven'}} {where}",
            f"{update} m = {{{w.key()}: {w.text()}}} {where}",
            f"{update} u = {w.maybe(w.address)} {where}",
            f"{update} u.zip = {w.maybe(w.integer)} {where}",
            f"DELETE m[{w.key()}] FROM w.collections{w.timestamped()} {where}",
            f"DELETE l, s FROM w.collections{w.timestamped()} {where}",
            f"DELETE u.street FROM w.collections{w.timestamped()} {where}",
            f"DELETE FROM w.collections{w.timestamped()} {where}",
            f"INSERT INTO w.collections (p, c, l, s, m, u, v) VALUES ({w.key() % 3}, {w.key() % 3}, [{many}], {{{texts}}}, "
            f"{{{w.key()}: {w.text()}}}, {w.maybe(w.address)}, {w.maybe(w.text)}){w.using()}",
        ]
    )


def frozen(w: Workload) -> str:
    if w.random.random() < 0.2:
        return f"DELETE n[({w.key()}, 1)], t FROM w.frozen_{w.timestamped()} WHERE id = {w.key()}"
    pair = f"({w.key()}, {w.key()})"
    values = [
        w.maybe(lambda: f"[{w.integer()}, {w.integer()}]"),
        w.maybe(lambda: f"{{{w.text()}: [{w.integer()}], 'z': []}}"),
        w.maybe(lambda: f"({w.maybe(w.integer)}, {w.maybe(w.text)}, {{{w.integer()}}})"),
        w.maybe(w.address),
        w.maybe(lambda: f"{{{pair}: {w.address()}}}"),
    ]
    return f"INSERT INTO w.frozen_ (id, l, m, t, u, n) VALUES ({w.key()}, {', '.join(values)}){w.using()}"


def counters(w: Workload) -> str:
    p, c = w.key(), w.key() % 3
    if w.random.random() < 0.02:
        # What a counter is that is used again after its deletion depends on when the server compacts: another test.
        return f"DELETE FROM w.counters WHERE p = {100 + p}"
    if w.random.random() < 0.3:
        return f"UPDATE w.counters SET total = total + {w.key()} WHERE p = {p}"
    return f"UPDATE w.counters SET hits = hits + {w.integer(16)}, misses = misses - {w.key()} WHERE p = {p} AND c = {c}"


def keys_only(w: Workload) -> str:
    if w.random.random() < 0.3:
        return f"DELETE FROM w.keys_only{w.timestamped()} WHERE p = {w.key()} AND c >= {quoted(w.random.choice('abc'))}"
    return f"INSERT INTO w.keys_only (p, c) VALUES ({w.key()}, {w.text()}){w.using()}"


def wide(w: Workload) -> str:
    """Give a batch whose rows have different columns: that makes subsets of 64 columns and more."""
    parts = []
    for _ in range(w.random.randrange(1, 4)):
        names = w.random.sample(WIDE, w.random.choice([1, 3, 60, 68, 70]))
        values = ", ".join(w.maybe(w.integer) for _ in names)
        parts.append(f"INSERT INTO w.wide (p, c, {', '.join(names)}) VALUES (1, {w.key()}, {values});")
    return f"BEGIN UNLOGGED BATCH {' '.join(parts)} APPLY BATCH"


def ranges(w: Workload) -> str:
    p, a, b, c = w.key() % 2, w.key(), quoted(w.random.choice("abc")), w.random.choice(TIMEUUIDS)
    delete = f"DELETE FROM w.ranges{w.timestamped()} WHERE p = {p}"
    insert = f"INSERT INTO w.ranges (p, a, b, c, v) VALUES ({p}, {a}, {b}, {c}, {w.maybe(w.integer)}){w.using()}"
    return w.random.choice(
        [
            *[insert] * 6,
            f"{delete} AND a > {a} AND a < {a + 3}",
            f"{delete} AND a <= {a // 2}",
            f"{delete} AND a = {a} AND b < {b}",
            f"{delete} AND a = {a} AND b = {b} AND c >= {c}",
            f"{delete} AND a = {a} AND b = {b} AND c < {c}",
            f"{delete} AND (a, b) >= ({a}, {b}) AND (a) < ({a + 1})",
            f"{delete} AND a = {a} AND b = {b}",
            f"BEGIN BATCH {delete} AND a >= 1 AND a < 3; {delete} AND a >= 2 AND a <= 4; {insert}; APPLY BATCH"
            if "USING" not in delete + insert
            else insert,
        ]
    )


def altered(w: Workload) -> str:
    if w.random.random() < 0.02 and not w.steady:
        w.dropped = not w.dropped
        return "ALTER TABLE w.altered " + ("DROP comes_and_goes" if w.dropped else "ADD comes_and_goes int")
    names, values = ["kept"], [w.text()]
    if not w.dropped:
        names, values = [*names, "comes_and_goes"], [*values, w.maybe(w.integer)]
    using = w.using()
    return f"INSERT INTO w.altered (p, c, {', '.join(names)}) VALUES ({w.key()}, {w.key()}, {', '.join(values)}){using}"


def expiring(w: Workload) -> str:
    where = f"WHERE p = {w.key() % 3} AND c = {w.key()}"
    ttl = w.random.choice([1, 2, 3, 600, 0])
    return w.random.choice(
        [
            f"INSERT INTO w.expiring (p, c, v, l) VALUES ({w.key() % 3}, {w.key()}, {w.text()}, [1, 2]) USING TTL {ttl}",
            f"INSERT INTO w.expiring (p, c) VALUES ({w.key() % 3}, {w.key()}) USING TTL {ttl} AND TIMESTAMP 5",
            f"UPDATE w.expiring USING TTL {ttl} SET v = {w.text()}, l = l + [3] {where}",
            f"UPDATE w.expiring USING TTL {ttl} AND TIMESTAMP 5 SET v = {w.text()} {where}",
            f"UPDATE w.expiring USING TIMESTAMP 5 SET v = {w.maybe(w.text)} {where}",
            f"UPDATE w.expiring SET s = {w.text()} WHERE p = {w.key() % 3}",
            f"INSERT INTO w.expiring (p, c, v) VALUES ({w.key() % 3}, {w.key()}, {w.text()})",
        ]
    )


def odd_names(w: Workload) -> str:
    names = '"P key", "C", d, e, f, "v al", "V Al"'
    reals = w.random.choice(["0.0", "-0.0", "NaN", "1.5", "Infinity"])
    key = w.random.choice(["'a'", "'b'"])
    if w.random.random() < 0.25:
        kind = w.random.choice(
            [f'"C" >= {w.decimal()}', f'"C" < {w.decimal()}', f'"C" = {w.decimal()} AND d > {reals}']
        )
        return f'DELETE FROM w."OddNames"{w.timestamped()} WHERE "P key" = {key} AND {kind}'
    values = f"{key}, {w.decimal()}, {reals}, {w.boolean()}, {w.blob()}, {w.maybe(w.text)}, {w.maybe(w.integer)}"
    return f'INSERT INTO w."OddNames" ({names}) VALUES ({values}){w.using()}'


def together(w: Workload) -> str:
    """Give a logged batch over tables that share a key: one mutation with several updates."""
    key = w.key()
    return (
        f"BEGIN BATCH INSERT INTO w.plain (id, a) VALUES ({key}, {w.integer()}); "
        f"INSERT INTO w.frozen_ (id, l) VALUES ({key}, [{w.integer()}]); "
        f"UPDATE w.natives SET int_ = {w.integer()} WHERE id = {key}; APPLY BATCH"
    )


def whole_tables(w: Workload) -> str:
    """Give what changes a table or a type as a whole, now and then."""
    if w.steady:
        return keys_only(w)
    if w.random.random() < 0.05:
        w.waiting.append(table_definition("keys_only"))
        return "DROP TABLE w.keys_only"
    if w.random.random() < 0.05 and w.type_fields < 3:
        w.type_fields += 1
        return f"ALTER TYPE w.address ADD extra{w.type_fields} int"
    if w.random.random() < 0.1:
        return f"TRUNCATE w.{w.random.choice(['plain', 'keys_only', 'ranges', 'collections'])}"
    return keys_only(w)


_MAKERS = [
    *[plain] * 2,
    natives,
    *[rows] * 2,
    *[collections] * 2,
    frozen,
    counters,
    keys_only,
    wide,
    *[ranges] * 2,
    altered,
    expiring,
    odd_names,
    together,
    whole_tables,
]
