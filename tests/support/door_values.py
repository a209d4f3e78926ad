"""Values and texts of every type for the suites over all doors: ends of ranges, near misses, and what was once cut."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

ATOMS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)", "decimal(38,0)",
         "decimal(38,38)", "string", "binary", "date", "timestamp", "timestamp_ntz")  # fmt: skip

NOTABLE = {
    "boolean": ["true", "F", "yes", "0", " TRUE ", "on", "2", "", "wahr"],
    "numbers": ["0", "-0", "+7", " 7 ", "7.0", "7.", ".5", "1e3", "1E+2", "15e-1", "127", "128", "-128", "-129",
                "32768",
                "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
                "16777217", "0.1", "1.005", "1.239", "9999999.99", "10000000", "9" * 38, "9" * 39, "0." + "9" * 38,
                "0." + "9" * 39, "1" + "0" * 38 + ".4", "1.4", "1e400", "-1e400", "1e39", "1e-400", "1e-46", "4.9e-324",
                "1.7976931348623157e308", "3.4028235e38", "3.5e38", "NaN", "nan", "-nan", "inf", "-Infinity", "+INF",
                "0x10", "1_000", "1,000", "1 000", "1d", "1f", "१२", "--1", "1e", "e1", ".", "+", "", "NULL", "1L"],
    "string": ["", " ", "a", "naïve 🙂", "'", "\"", "\\", "?", "\x00", "a\tb", "\ufffd", "NULL"],
    "binary": ["", "QUI=", "QUI", "Q", "@@@", "QUJD", "4142", "äö"],
    "times": ["2024-01-05", "2024-1-5", "2024-01-05 13:45:00", "2024-01-05 00:00:00", "2024-01-05T00:00", "2024",
              "2024-01", "2024-02-30", "2023-02-29", "2024-02-29", "24-01-05", "20240105", "05.01.2024", "today", "now",
              "epoch", "13:45", "24:00", "2024-01-05 24:00:00", "2024-01-05 23:59:60", "2024-01-05T", "2024-01-05T13",
              "2024-01-05 13:45", "2024-01-05T13:45:07.1", "2024-01-05 13:45:07.123456", "2024-01-05 13:45:07.1234567",
              "2024-01-05 13:45:07.1234560", "2024-01-05T13:45:07Z", "2024-01-05 13:45:07+05:00",
              "2024-01-05 13:45:07 +0530", "2024-01-05 13:45:07 Europe/Berlin", "2024-03-31 02:30:00 Europe/Berlin",
              "2024-10-27 02:30:00 Europe/Berlin", "2024-01-05 13:45:07 PST", "2024-01-05 13:45:07+19:00",
              "0001-01-01", "0000-12-31", "-0044-03-15", "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59-08:00",
              "10000-01-01", "+12345-06-07 08:09:10", "294247-01-10 04:00:54.775807", "294247-01-10 04:00:54.775808",
              "5881580-07-11", "5881580-07-12", "1582-10-10", " 2024-01-05 ", "", "1704462300"],
}  # fmt: skip


def notable(sql_type: str) -> list[str]:
    """Texts worth trying for a type: its own, and some of every other type."""
    kind = sql_type.partition("(")[0]
    own = {"boolean": "boolean", "string": "string", "binary": "binary", "date": "times"}.get(kind, "numbers")
    own = "times" if kind.startswith("timestamp") else own
    return [*NOTABLE[own], *(text for name, texts in NOTABLE.items() if name != own for text in texts[:6])]


def value_of(sql_type: str) -> st.SearchStrategy[Any]:
    """Python values that a column of the type holds."""
    kind = sql_type.partition("(")[0]
    match kind:
        case "boolean":
            return st.booleans()
        case "tinyint" | "smallint" | "int" | "bigint":
            bits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}[kind]
            return st.integers(-(2**bits), 2**bits - 1)
        case "float":
            return st.floats(width=32)
        case "double":
            return st.floats()
        case "decimal":
            precision, scale = map(int, sql_type[8:-1].split(","))
            most = 10**precision - 1
            return st.integers(-most, most).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))
        case "string":
            return st.text(st.characters(exclude_categories=["Cs"]))
        case "binary":
            return st.binary(max_size=8)
        case "date":
            return st.dates()
        case "timestamp":
            return st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))
        case _:
            return st.datetimes()


def text_of(value: Any) -> str:
    """A text that says a value, as files have it."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def texts_of(sql_type: str) -> st.SearchStrategy[str]:
    """Texts that say a value of the type, and texts that nearly do."""
    said = value_of(sql_type).map(text_of)
    cut = st.tuples(
        said, st.integers(0, 40), st.sampled_from(["", "0", "5", " ", "-", ".", "e", "Z", "+", "x", "٣"])
    ).map(lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :])
    return st.one_of(said, st.sampled_from(notable(sql_type)), cut)
