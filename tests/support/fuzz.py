"""Wrong input of every kind, made from a number: statements, names, values, conditions, arguments and addresses.

A case is a function of its seed, so that one that fails can be made again: `statement(Random(seed))`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

SETUP = (
    "CREATE TABLE IF NOT EXISTS t (id BIGINT, name STRING, total DECIMAL(12,2), at TIMESTAMP, PRIMARY KEY (id))",
    "CREATE TABLE IF NOT EXISTS u (a INT, b DOUBLE, tags MAP<STRING, INT>, s STRUCT<x: INT, y: ARRAY<DATE>>)",
    "CREATE TABLE IF NOT EXISTS `odd name` (`a b` INT, `Select` STRING, raw BINARY, day DATE, PRIMARY KEY (`a b`))",
)

STATEMENTS = (
    "SELECT id, name FROM t WHERE total > 1.5 ORDER BY id LIMIT 10",
    "SELECT * FROM system.relations",
    "SELECT count(*) FROM system.runs r JOIN system.relations l ON r.relation_id = l.relation_id",
    "WITH x AS (SELECT id FROM t) SELECT * FROM x VERSION AS OF 3",
    "VALUES (1, 'a'), (2, 'b')",
    "TABLE t TIMESTAMP AS OF '2024-01-01'",
    "EXPLAIN EXTENDED SELECT 1 FROM t",
    "INSERT INTO t VALUES (1, 'a', 1.5, '2024-01-01 10:00:00')",
    "INSERT INTO t (id, name) VALUES (2, :p), (-3, NULL)",
    "UPSERT INTO t VALUES (1, 'x', 0.01, NULL)",
    "INSERT INTO u SELECT a, b, tags, s FROM u",
    "UPDATE t SET name = 'b', total = total + 1 WHERE id = :p",
    "DELETE FROM t WHERE id IN (1, 2, 3)",
    "MERGE INTO t USING (VALUES (1, 'b')) AS n(id, name) ON t.id = n.id WHEN MATCHED THEN UPDATE SET name = n.name "
    "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (n.id, n.name)",
    "TRUNCATE TABLE u",
    "LOAD INTO t FROM 'nothing/*.csv' FORMAT CSV WITH (header = true)",
    "LOAD INTO t FROM :p",
    "CREATE TABLE IF NOT EXISTS x (id BIGINT NOT NULL COMMENT 'k', v ARRAY<STRUCT<a: INT>>, PRIMARY KEY (id)) "
    "COMMENT 'c' WITH (tablets = 4)",
    "CREATE TABLE y AS SELECT * FROM t",
    "CREATE OR REPLACE TABLE y (id INT DEFAULT 3 CHECK (id > 0))",
    "DROP TABLE IF EXISTS x CASCADE",
    "ALTER TABLE t RENAME TO t",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS extra STRING",
    "ALTER TABLE t ADD COLUMNS (e1 INT, e2 DECIMAL(38,10))",
    "ALTER TABLE t DROP COLUMN extra",
    "ALTER TABLE u ALTER COLUMN a TYPE BIGINT",
    "ALTER TABLE t RENAME COLUMN name TO name",
    "COMMENT ON TABLE t IS 'text'",
    "CREATE ASYNC MATERIALIZED VIEW v AS SELECT id, upper(name) AS n FROM t WHERE total > 0",
    "CREATE MATERIALIZED VIEW v (a, b) PRIMARY KEY (a) AS SELECT id, count(*) FROM t GROUP BY id WITH (tablets = 2)",
    "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1 AS one",
    "DROP MATERIALIZED VIEW IF EXISTS v",
    "ALTER MATERIALIZED VIEW v RENAME TO w",
    "ALTER MATERIALIZED VIEW v PAUSE",
    "ALTER MATERIALIZED VIEW v SET (rows_per_minute = 10)",
    "EXPLAIN MATERIALIZED VIEW v",
    "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT id FROM t",
    "FLUSH v",
    "WAIT FOR v",
    "EXPLAIN INDEX i",
    "CANCEL BUILD v",
    "SHOW PROGRESS v",
    "SHOW TABLES LIKE 't%'",
    "SHOW VIEWS",
    "SHOW INDEXES ON t",
    "SHOW HANDLERS",
    "SHOW JOBS LIKE 'd%'",
    "SHOW RUNNERS",
    "SHOW COMMANDS",
    "SHOW NODES",
    "SHOW REQUESTS",
    "ALTER CLUSTER REMOVE NODE 'x' IGNORE NODES ('y')",
    "ALTER CLUSTER REBUILD NODE 'x' FROM 'dc1'",
    "ALTER CLUSTER CANCEL REQUEST 7",
    "WAIT FOR REQUEST 7",
    "SHOW CREATE TABLE t",
    "CREATE ASYNC UNIQUE INDEX i ON t (name, total DESC) INCLUDE (at) WHERE total > 0",
    "CREATE INDEX j ON t (upper(name)) WITH (tablets = 2)",
    "ALTER INDEX i RESUME",
    "DROP INDEX IF EXISTS i",
    "BUILD INDEXES i, j",
    "CHECK TABLE t",
    "CHECK VIEW v SAMPLE 10",
    "REPAIR INDEX i",
    "CREATE HANDLER h PROCESS v STREAM t BATCH u WITH (epoch_period_s = 1)",
    "ALTER HANDLER h SET (should_run = false)",
    "DROP HANDLER h",
    "COMPACT t",
    "VACUUM t RETAIN 1 HOURS",
    "DESCRIBE t",
    "DESCRIBE system.runs",
)
"""One of every kind of statement; a mistake is made in each."""

NAMES = (
    "", " ", "t", "T", "v", "nosuch", "odd name", "a b", "select", "система", "日本", "ß", "İ", "e\u0301", "\u202etxt",
    "💥", "a.b", "a`b", 'a"b', "a'b", "a;b", "a--b", "x" * 300, "tab\tname", "line\nbreak", "nul\0name",
    "\x1b[31mred", "..", "../up", "/etc/passwd", "system", "system.runs", "_change_type", "_row", "0", "1e5", "NULL",
    "true", "\ud800", "%s", "{x}",
)  # fmt: skip

FRAGMENTS = (
    "(", ")", "((((((", "))))))", ",", ";", "'", '"', "`", "--", "/*", "*/", "\\", "\0", "\n", "NULL", "DEFAULT",
    ":p", ":", "::", "?", "$1", "@", "*", "=", "<>", "1e400", "-1", "0x", "1" * 60, "1.5BD", "9223372036854775808",
    "INTERVAL 1 DAY", "X'0g'", "DATE '2024-13-01'", "TIMESTAMP '9999-12-31 23:59:59-08:00'", "ARRAY<" * 40, "CAST(",
    "AS OF", "WITH (", "LATERAL", "'\ud800'", "e'\\u0000'", "ORDER BY", "UNION ALL", "rand()", "current_timestamp()",
    "VERSION AS OF -1", "VERSION AS OF :p", "IF EXISTS", "SELECT", "FROM", "t", "u.s.x", "s.y[0]", "tags['a']",
    "INT", "DECIMAL(99,5)", "VARCHAR(3)", "CHAR", "TIMESTAMP_NTZ", "VARIANT",
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 10**40, 0.0, -0.0, 1.5, 1e308, math.inf, -math.inf,
    math.nan, "", "a", " 1 ", "2024-01-01", "2024-13-45", "nul\0", "\ud800", "x" * 5000, b"", b"\xff",
    Decimal("1.005"), Decimal("NaN"), Decimal("1e50"), dt.date.min, dt.date.max, dt.datetime.min, dt.datetime.max,
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.time(1), dt.timedelta(1), [], [1, None], ["a"], {}, {"x": 1},
    {"x": {"x": {}}}, {1: 2}, set(), (), (1, 2), object(), uuid.UUID(int=0), np.int64(3), np.float32("nan"),
    np.datetime64("2024-01-01"), pd.NaT, pd.NA, pd.Timestamp.max, complex(1), range(3), Ellipsis, int, print,
)  # fmt: skip

ARGUMENTS = (
    "sql", "query", "status", "check", "compact", "vacuum", "run", "--json", "--debug", "-w", "--warehouse",
    "--help", "-h", "--version", "--where", "--order-by", "--limit", "--columns", "--retain", "--at-least", "-f",
    "-", "--", "t", "nosuch", "id=1", "name=", "=", "id>", "id in (1", "-id", "0", "-5", "1e9", "7d", "-3h", "abc",
    "SELECT", "CHECK TABLE t", "SHOW TABLES", "\udcff", "", " ", "💥", "/dev/null", "/nonexistent", "postgresql://",
    "postgresql://u:p@127.0.0.1:1/x", "http://x", "a" * 5000,
)  # fmt: skip


def name(random: Random) -> str:
    return random.choice(NAMES)


def quoted(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def statement(random: Random) -> str:
    """A statement of some kind, with some mistakes made in it."""
    text = random.choice(STATEMENTS)
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        text = random.choice(MISTAKES)(random, text)
    return text


def _drop_word(random: Random, text: str) -> str:
    words = text.split(" ")
    del words[random.randrange(len(words))]
    return " ".join(words)


def _double_word(random: Random, text: str) -> str:
    words = text.split(" ")
    at = random.randrange(len(words))
    return " ".join([*words[:at], words[at], *words[at:]])


def _swap_words(random: Random, text: str) -> str:
    words = text.split(" ")
    a, b = random.randrange(len(words)), random.randrange(len(words))
    words[a], words[b] = words[b], words[a]
    return " ".join(words)


def _other_word(random: Random, text: str) -> str:
    words = text.split(" ")
    words[random.randrange(len(words))] = random.choice(FRAGMENTS)
    return " ".join(words)


def _other_name(random: Random, text: str) -> str:
    words = text.split(" ")
    spelled = name(random)
    words[random.randrange(len(words))] = quoted(spelled) if random.random() < 0.7 else spelled
    return " ".join(words)


def _insert(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(FRAGMENTS) + text[at:]


def _cut(random: Random, text: str) -> str:
    return text[: random.randrange(len(text) + 1)]


def _other_character(random: Random, text: str) -> str:
    if not text:
        return text
    at = random.randrange(len(text))
    return (
        text[:at]
        + chr(random.choice((0, 9, 10, 27, 34, 39, 40, 41, 59, 92, 96, 0x2028, 0xD800, 0x1F4A5)))
        + text[at + 1 :]
    )


def _append(random: Random, text: str) -> str:
    return f"{text} {random.choice(STATEMENTS)}" if random.random() < 0.5 else f"{text}; {random.choice(STATEMENTS)}"


def _deep(random: Random, text: str) -> str:
    depth = random.choice((50, 3000))
    kind = random.choice(("brackets", "types", "unions", "signs"))
    match kind:
        case "brackets":
            return f"SELECT {'(' * depth}1{')' * depth} FROM t"
        case "types":
            return f"CREATE TABLE deep (a {'ARRAY<' * depth}INT{'>' * depth})"
        case "unions":
            return " UNION ALL ".join(["SELECT id FROM t"] * min(depth, 300))
        case _:
            return f"INSERT INTO t VALUES ({'-' * 2 * (depth // 2)} 1, 'a', 1, NULL)".replace("--", "- -")


MISTAKES: Sequence[Callable[[Random, str], str]] = (
    _drop_word, _drop_word, _double_word, _swap_words, _other_word, _other_word, _other_name, _other_name, _insert,
    _insert, _cut, _other_character, _append, _deep,
)  # fmt: skip


def value(random: Random) -> Any:
    return random.choice(VALUES)


def rows(random: Random) -> Any:
    """What a user might give to `upsert` or `delete`."""
    of_tables = (["id", "name", "total", "at"], ["a b", "Select", "raw", "day"], ["a", "b", "tags", "s"])
    columns: list[Any] = [*itertools.chain(*of_tables), "ID", "nosuch", "", 3, None]
    match random.randrange(8):
        case 0:
            return value(random)
        case 1:
            return [value(random) for _ in range(random.randrange(3))]
        case 2:
            return pa.table({str(c): pa.nulls(2) for c in random.sample(columns, 2)})
        case 3:
            encoded = pa.dictionary(pa.int8(), pa.string())
            kinds = [pa.int64(), pa.string(), pa.float16(), pa.timestamp("ns"), encoded, pa.null()]
            return pa.table({str(c): pa.nulls(1, random.choice(kinds)) for c in random.sample(columns, 3)})
        case 4:
            return pd.DataFrame({c: [value(random)] for c in random.sample(columns, 2)})
        case _:
            wanted = random.choice((*of_tables, columns))
            count = random.randrange(1, 3)
            good: dict[Any, Any] = {"id": 1, "a b": 1, "name": "a", "total": 1, "a": 1, "b": 1.0}
            return [{c: value(random) if random.random() < 0.5 else good.get(c) for c in wanted} for _ in range(count)]


def request(random: Random) -> dict[str, Any]:
    """Arguments of `db.query`."""
    import ebla

    columns = ["id", "name", "total", "at", "a b", "tags", "s", "b", "nosuch", "", "ID"]

    def condition() -> Any:
        match random.randrange(8):
            case 0:
                return ebla.prefix(value(random))
            case 1:
                return ebla.between(value(random), value(random))
            case 2:
                return ebla.one_of([value(random) for _ in range(random.randrange(3))])
            case 3:
                return random.choice((ebla.is_null, ebla.not_null))()
            case _:
                return value(random)

    made: dict[str, Any] = {"where": {random.choice(columns): condition() for _ in range(random.randrange(3))}}
    if random.random() < 0.5:
        made["order_by"] = random.choice(
            ["id", "-total", ["name", "-id"], "nosuch", "", [], ["id", "id"], [3], "-", "--id", value(random)]
        )
    if random.random() < 0.4:
        made["limit"] = random.choice([0, 1, -1, 10**12, "5", 1.5, True, value(random)])
    if random.random() < 0.4:
        made["columns"] = random.choice([["id"], [], ["id", "id"], ["nosuch"], "id", [None], value(random)])
    if random.random() < 0.4:
        made["after"] = random.choice([{}, {"id": 1}, "zzz", b"x", {"id": value(random)}, value(random)])
    if random.random() < 0.2:
        made |= {"at_least": random.choice([0, 1, 10**9, -1, "x", value(random)]), "wait_s": 0.0}
    return made


def command(random: Random) -> list[str]:
    return [random.choice(ARGUMENTS) for _ in range(random.randrange(1, 6))]


def settings(random: Random) -> dict[str, Any]:
    import ebla.base.settings

    known = [n for n in ebla.base.settings.Settings.model_fields if n not in ("storage_root", "nodes", "node")]
    return {random.choice([*known, "nosuch"]): value(random) for _ in range(random.randrange(1, 3))}


def file(random: Random) -> tuple[str, bytes]:
    """The name and bytes of a file to load into `t`."""
    good = {
        "csv": b"id,name,total,at\n1,a,1.50,2024-01-01 10:00:00\n2,,,\n",
        "json": b'{"id": 1, "name": "a", "total": 1.5, "at": "2024-01-01T10:00:00Z"}\n{"id": 2}\n',
        "parquet": _parquet(random),
    }
    kind = random.choice(tuple(good))
    data = bytearray(good[kind])
    for _ in range(random.randrange(4)):
        at = random.randrange(len(data) + 1)
        piece = random.choice(BYTES)
        data[at : at + random.choice((0, 1, 4))] = piece
    if random.random() < 0.1:
        del data[random.randrange(len(data) + 1) :]
    return f"f.{kind}", bytes(data)


def _parquet(random: Random) -> bytes:
    import pyarrow.parquet as pq

    kinds = {"id": pa.int64(), "name": pa.string(), "total": pa.decimal128(12, 2), "at": pa.timestamp("us", "UTC")}
    others = [pa.float64(), pa.int8(), pa.date32(), pa.list_(pa.int32()), pa.binary(), pa.timestamp("ns"), pa.bool_()]
    found = {n: random.choice(others) if random.random() < 0.2 else k for n, k in kinds.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({n: pa.nulls(2, k) for n, k in found.items()}), sink)
    return bytes(sink.getvalue())


BYTES = (
    b"", b"\0", b"\xff\xfe", b"\r", b"\n\n", b'"', b"'", b",", b",,,,", b"{", b"}", b"]", b":", b"\\ud800", b"1e400",
    b"NaN", b"9" * 40, b"-", b"2024-02-30", b"null", b"\xed\xa0\x80", b"{\"id\":3}", b"id", b"PAR1", b" ", b"\t", b"#",
    b"\xc3",
)  # fmt: skip
