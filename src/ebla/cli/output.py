"""Rows for a person or a program: a table on a terminal, aligned text in a pipe, one JSON object with `--json`."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from ebla.values.json_values import instant, to_json

if TYPE_CHECKING:
    from ebla.spark.result import Result

TERMINAL_ROWS_MAX = 1000
"""A terminal shows no more rows than this; a pipe and JSON get all of them."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Rows under named columns, all of them here."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    right: frozenset[str] = frozenset()
    """Columns to align right although they hold text; those that hold only numbers always are."""

    @classmethod
    def of(cls, result: Result) -> Sheet:
        return cls(columns=result.columns, rows=result.rows())


# ---- JSON -----------------------------------------------------------------------------------------------


EXPLAINED = ["plan", "json", "mermaid"]
"""The columns of EXPLAIN MATERIALIZED VIEW: one thing in three forms."""


def sheet_json(sheet: Sheet) -> dict[str, Any]:
    if list(sheet.columns) == EXPLAINED and len(sheet.rows) == 1:
        text, plan, mermaid = sheet.rows[0]
        return {**json.loads(plan), "text": text, "mermaid": mermaid}
    return {"columns": list(sheet.columns), "rows": [[to_json(v) for v in row] for row in sheet.rows]}


def write_json(value: Any, out: TextIO | None = None) -> None:
    """One JSON value on one line."""
    stream = sys.stdout if out is None else out
    plain = (stream.encoding or "utf-8").lower().replace("-", "") != "utf8"
    json.dump(value, stream, ensure_ascii=plain, allow_nan=False)
    stream.write("\n")


# ---- text -----------------------------------------------------------------------------------------------


def to_text(value: Any) -> str:
    """A value as people read it, on one line."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return one_line(value)
        case bytes() | bytearray() | memoryview():
            return "0x" + bytes(value).hex()
        case dt.datetime():
            return instant(value).isoformat(sep=" ")
        case Mapping() | list() | tuple():
            return one_line(json.dumps(to_json(value), ensure_ascii=False))
        case _:
            return one_line(str(to_json(value)))


def one_line(text: str) -> str:
    """Control characters as escapes: a row stays one line, and data cannot talk to the terminal."""
    return _CONTROL.sub(lambda m: _ESCAPES.get(m.group(), f"\\x{ord(m.group()):02x}"), text)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def right_aligned(sheet: Sheet) -> list[bool]:
    """Which columns hold only numbers, or are wanted so."""
    found = []
    for i, name in enumerate(sheet.columns):
        values = [row[i] for row in sheet.rows if row[i] is not None]
        found.append(name in sheet.right or (bool(values) and all(is_number(v) for v in values)))
    return found


def _width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def text_lines(sheet: Sheet) -> list[str]:
    """A table of plain text: a header, a rule, one line per row."""
    if not sheet.columns:
        return []
    cells = [[one_line(name) for name in sheet.columns], *([to_text(v) for v in row] for row in sheet.rows)]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(sheet.columns))]
    right = right_aligned(sheet)
    lines = [_line(row, widths, right) for row in cells]
    lines.insert(1, "  ".join("-" * max(1, width) for width in widths))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        space = " " * (width - _width(cell))
        padded.append(space + cell if is_right else cell + space)
    return "  ".join(padded).rstrip()


def as_document(sheet: Sheet) -> str | None:
    """The only value of a result if it is a text of several lines, such as a query plan: shown as it is."""
    if len(sheet.rows) != 1 or (len(sheet.columns) != 1 and list(sheet.columns) != EXPLAINED):
        return None
    value = sheet.rows[0][0]
    if not isinstance(value, str) or "\n" not in value.strip("\n"):
        return None
    return "\n".join(one_line(line.expandtabs()) for line in value.strip("\n").splitlines())


# ---- showing --------------------------------------------------------------------------------------------


def show(sheet: Sheet, *, as_json: bool) -> None:
    """Write rows to standard output in the form that fits it."""
    if as_json:
        write_json(sheet_json(sheet))
        return
    if not sheet.columns:
        return
    document = as_document(sheet)
    if document is not None:
        print(document)
    elif sys.stdout.isatty():
        _show_on_terminal(sheet)
    else:
        print("\n".join(text_lines(sheet)))


def _show_on_terminal(sheet: Sheet) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, right in zip(sheet.columns, right_aligned(sheet), strict=True):
        table.add_column(Text(one_line(name)), justify="right" if right else "left", overflow="fold")
    for row in sheet.rows[:TERMINAL_ROWS_MAX]:
        table.add_row(*(Text(to_text(v), style="dim" if v is None else "") for v in row))
    Console(file=sys.stdout, highlight=False).print(table)


def note(text: str) -> None:
    """A remark for a person, on standard error; a program that reads it gets none."""
    if sys.stderr.isatty():
        sys.stdout.flush()
        print(text, file=sys.stderr)


def remark(text: str) -> None:
    """What a person must know who reads the result, also where standard error is a log."""
    sys.stdout.flush()
    print(f"note: {one_line(text)}", file=sys.stderr)


def summary(sheet: Sheet, seconds: float) -> str:
    """How many rows, and how long it took."""
    if not sheet.columns:
        return f"done in {seconds:.2f} s"
    count = len(sheet.rows)
    text = f"{count:,} row{'' if count == 1 else 's'} in {seconds:.2f} s"
    if count > TERMINAL_ROWS_MAX and sys.stdout.isatty():
        text += f"; the first {TERMINAL_ROWS_MAX:,} are shown: add a LIMIT, or send the output to a file for all"
    return text
