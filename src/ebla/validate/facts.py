"""What the validator knows of the warehouse, as plain values, and where statements stand in a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ebla.base.issue import Code, Issue, Severity
from ebla.model.relation import HIDDEN_KEY, RESERVED, Kind, misnamed
from ebla.sql.lex import Kind as Token
from ebla.sql.lex import StatementText, lex, unquote_name
from ebla.sql.query import Query
from ebla.sql.statements import CreateView, Statement

USED_BY_EBLA = "expected another name, found one that Ebla uses itself"

Columns = Mapping[str, str | None]
"""Column to type, in order. `None` is a type that only Spark can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationFacts:
    """A table or view as far as it is known. `columns` are the visible ones; `None` if only Spark can tell them."""

    name: str
    kind: Kind
    columns: Columns | None
    key: tuple[str, ...] = ()
    """Empty for a relation whose rows carry a hidden row id."""
    reads: frozenset[str] = frozenset()
    """What a view reads, in lower case."""
    query: Query | None = None
    """A view's definition."""
    base: str | None = None
    """What an index is on, in lower case."""
    made_by: int | None = None
    """The number of the statement of the script that creates it."""

    def shape_types(self) -> dict[str, str] | None:
        """Columns and types as the analysis of changes wants them, hidden key included; `None` if one is unknown."""
        if self.columns is None:
            return None
        typed = {name: kind for name, kind in self.columns.items() if kind is not None}
        if len(typed) < len(self.columns):
            return None
        return typed if self.key else {**typed, **dict.fromkeys(HIDDEN_KEY, "bigint")}

    def shape_key(self) -> list[str]:
        return list(self.key or HIDDEN_KEY)


Handlers = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Handler to its views and its inputs, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """The warehouse before the first statement. Keys of `relations` are in lower case."""

    relations: Mapping[str, RelationFacts] = field(default_factory=dict)
    handlers: Handlers = field(default_factory=dict)
    system: Mapping[str, Columns] = field(default_factory=dict)
    """System tables; none if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptItem:
    """One statement of a script that parses, and its number there."""

    source: StatementText
    statement: Statement
    number: int = 0

    def issue(self, code: Code, at: int, message: str, hint: str = "", severity: Severity | None = None) -> Issue:
        """An issue at a position in the statement's text."""
        return issue_at(self.source, code, at, message, hint, severity)

    def place_of(self, name: str, *, last: bool = False) -> int:
        """Where the statement mentions a name, first or last; its beginning if nowhere."""
        return place_of(self.source, name, last=last)


def issue_at(
    source: StatementText, code: Code, at: int, message: str, hint: str = "", severity: Severity | None = None
) -> Issue:
    line, column = source.place(at)
    return Issue(
        offset=source.offset + at,
        line=line,
        column=column,
        code=code,
        severity=severity or code.severity,
        message=message,
        hint=hint,
    )


def place_of(source: StatementText, name: str, *, last: bool = False) -> int:
    """Where a text mentions a name, by its tokens. The first word is the verb and is left out."""
    found = [
        token.start
        for token in lex(source)[1:]
        if token.kind in (Token.WORD, Token.QUOTED) and unquote_name(token.text).lower() == name.lower()
    ]
    return found[-1 if last else 0] if found else 0


def is_reserved_name(name: str) -> bool:
    """What no relation, handler or column may be called."""
    return misnamed(name) is not None


def is_reserved_column(name: str) -> bool:
    return is_reserved_name(name) or name.lower() in RESERVED or name.lower().startswith("_ebla_")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStep:
    """A view that a statement defines, and its inputs as they are when that statement runs."""

    item: ScriptItem
    create: CreateView
    inputs: Mapping[str, RelationFacts]
    explained: bool = False
    """EXPLAIN CREATE: nothing is created."""

    def query_issue(self, code: Code, at: int, message: str, hint: str = "", severity: Severity | None = None) -> Issue:
        """An issue at a position in the query's text."""
        return self.item.issue(code, self.create.query_at + at, message, hint, severity)
