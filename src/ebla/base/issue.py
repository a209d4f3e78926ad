"""A problem of a statement as a value: what, how bad, where, and what to do.

Codes never change their meaning: scripts and editors compare them. `docs/reference/issues.md` lists them all.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ebla import errors as e
from ebla.errors import UsageError


class Severity(StrEnum):
    ERROR = "error"
    """The statement would be refused, or would never work."""
    WARNING = "warning"
    """The statement works, and is probably not what was meant."""
    NOTE = "note"
    """The statement works; this is worth knowing."""


class Code(StrEnum):
    # phase 1: syntax
    SYNTAX = "syntax"
    """The statement does not parse."""
    UNSUPPORTED_STATEMENT = "unsupported-statement"
    """The first word begins no statement of Ebla."""
    DUPLICATE_OPTION = "duplicate-option"
    """An option of `WITH (…)` is given twice."""
    # phase 2: names and structure
    RESERVED_NAME = "reserved-name"
    """The name is empty, too long, or one that Ebla uses itself."""
    DUPLICATE_TABLE = "duplicate-table"
    """A table is created, or renamed, under a name that is taken."""
    DUPLICATE_VIEW = "duplicate-view"
    """A view is created, or renamed, under a name that is taken."""
    DUPLICATE_INDEX = "duplicate-index"
    """An index is created under a name that is taken."""
    DUPLICATE_HANDLER = "duplicate-handler"
    """A handler is created under a name that is taken."""
    DUPLICATE_INPUT = "duplicate-input"
    """A handler names an input twice."""
    REPEATED_VIEW = "repeated-view"
    """A handler names a view twice."""
    DUPLICATE_COLUMN = "duplicate-column"
    """Two columns of a table, of a view or of a key have the same name."""
    UNKNOWN_TABLE = "unknown-table"
    """There is no table or view of this name when the statement runs."""
    UNKNOWN_VIEW = "unknown-view"
    """There is no view of this name when the statement runs."""
    UNKNOWN_INDEX = "unknown-index"
    """There is no index of this name when the statement runs."""
    UNKNOWN_HANDLER = "unknown-handler"
    """There is no handler of this name when the statement runs."""
    NOT_A_TABLE = "not-a-table"
    """A view stands where only a table can: views are changed by the system alone."""
    IN_USE = "in-use"
    """What views need is dropped or renamed."""
    SYSTEM_INPUT = "system-input"
    """A view reads a system table."""
    VERSIONED_INPUT = "versioned-input"
    """A view reads an input `AS OF` a version or a time."""
    DEFINED_LATER = "defined-later"
    """A view reads what a later statement of the script creates."""
    DEPENDENCY_CYCLE = "dependency-cycle"
    """Views read each other, or a view reads itself."""
    HANDLER_WITHOUT_VIEWS = "handler-without-views"
    """A handler processes no view."""
    HANDLER_WITHOUT_INPUTS = "handler-without-inputs"
    """A handler has no input."""
    VIEW_IN_TWO_HANDLERS = "view-in-two-handlers"
    """A view belongs to another handler already."""
    UNUSED_INPUT = "unused-input"
    """No view of the handler reads this input."""
    MISSING_INPUT = "missing-input"
    """A view of the handler reads an input that the handler does not list."""
    # phase 3: columns
    UNKNOWN_ALIAS = "unknown-alias"
    """A column is qualified with a name that no table in `FROM` has."""
    UNKNOWN_COLUMN = "unknown-column"
    """No table in `FROM` has this column."""
    AMBIGUOUS_COLUMN = "ambiguous-column"
    """Several tables in `FROM` have this column."""
    COLUMN_COUNT = "column-count"
    """The list of output columns is shorter or longer than the query's."""
    NOT_DETERMINISTIC = "not-deterministic"
    """The query's result changes by itself: it uses chance, the clock, or the session."""
    JOIN_TYPE = "join-type"
    """A comparison of columns of different kinds of types, which converts every row, or fails on one."""
    UNKNOWN_KEY_COLUMN = "unknown-key-column"
    """`PRIMARY KEY` names no column of the table or view."""
    KEY_NOT_IMPLIED = "key-not-implied"
    """Two rows of the view could have the same declared key."""
    # phase 4: analysis by Spark
    SPARK = "spark"
    """Spark refuses the query."""
    UNSUPPORTED_TYPE = "unsupported-type"
    """A column has a type that cannot be stored."""
    # notes
    FULL_REFRESH = "full-refresh"
    """A change of this input recomputes the whole view. An error with `refresh = 'incremental'`."""

    @property
    def severity(self) -> Severity:
        """How bad it is, unless an option of the statement makes it worse."""
        return _MILDER.get(self, Severity.ERROR)


_MILDER = {
    Code.UNUSED_INPUT: Severity.WARNING,
    Code.MISSING_INPUT: Severity.WARNING,
    Code.JOIN_TYPE: Severity.WARNING,
    Code.FULL_REFRESH: Severity.NOTE,
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Issue:
    """`line` and `column` count from 1 in the whole script; `offset` is the same place in characters from 0."""

    offset: int
    line: int
    column: int
    code: Code
    severity: Severity
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code.value,
            "severity": self.severity.value,
            "line": self.line,
            "column": self.column,
            "offset": self.offset,
            "message": self.message,
            "hint": self.hint,
        }


def ordered(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """The issues by place; equal ones once."""
    return tuple(sorted(set(issues)))


def has_errors(issues: Iterable[Issue]) -> bool:
    return any(i.severity is Severity.ERROR for i in issues)


def strict(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """The same issues, warnings as errors."""
    return tuple(replace(i, severity=Severity.ERROR) if i.severity is Severity.WARNING else i for i in issues)


def render(issues: Sequence[Issue], text: str, *, line: int = 1, column: int = 1) -> str:
    """The issues, each with its line of the text and a caret. `line` and `column` say where the text begins."""
    lines = text.split("\n")
    # The first line of a statement in the middle of a script keeps its columns.
    lines[0] = " " * (column - 1) + lines[0]
    return "\n".join(_one(issue, lines, line) for issue in issues)


def _one(issue: Issue, lines: Sequence[str], first: int) -> str:
    parts = [f"{issue.severity} {issue.code} at line {issue.line}, column {issue.column}: {issue.message}"]
    if 0 <= issue.line - first < len(lines):
        line = lines[issue.line - first].rstrip("\r")
        number = str(issue.line)
        # Tabs stay tabs, so that the caret stands under its character however wide they are.
        before = "".join("\t" if c == "\t" else " " for c in line[: issue.column - 1])
        parts += [f"  {number} | {line}", f"  {' ' * len(number)} | {before}^"]
    if issue.hint:
        parts.append(f"  hint: {issue.hint}")
    return "\n".join(parts)


def did_you_mean(name: str, names: Iterable[str], what: str) -> str:
    """A hint that names the nearest known name, or the first of them."""
    spelled = {k.lower(): k for k in names}
    near = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    if near:
        return f"did you mean {spelled[near[0]]}?"
    if not spelled:
        return f"there are no {what} yet"
    listed = sorted(spelled.values())
    more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
    return f"{what} are {', '.join(listed[:10])}{more}"


_CLASSES: dict[Code, type[UsageError]] = {
    Code.SYNTAX: e.SqlError,
    Code.UNSUPPORTED_STATEMENT: e.SqlError,
    Code.AMBIGUOUS_COLUMN: e.SqlError,
    Code.SPARK: e.SqlError,
    Code.UNSUPPORTED_TYPE: e.TypeMismatchError,
}


def as_error(issues: Sequence[Issue], rendered: str) -> UsageError:
    """One exception for all issues. Its class is that of the first error."""
    first = next(i for i in issues if i.severity is Severity.ERROR)
    name = first.code.value
    kind = _CLASSES.get(first.code, UsageError)
    if name.startswith("unknown-"):
        kind = e.UnknownNameError
    elif name.startswith(("duplicate-", "repeated-")):
        kind = e.DuplicateNameError
    error = kind(rendered)
    if isinstance(error, e.SqlError):
        error.line, error.column = first.line, first.column
    error.issues = tuple(issues)
    return error
