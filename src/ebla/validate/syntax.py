"""Phase 1: every statement of a script, or the one issue that keeps it from being one."""

from __future__ import annotations

import re

from ebla.base.issue import Code, Issue
from ebla.errors import DuplicateNameError, SqlError, UnknownNameError, UsageError
from ebla.model.relation import Kind as Relation
from ebla.sql.lex import Kind, StatementText, Token, lex, split, unquote_name
from ebla.sql.parse import SUPPORTED, VERBS, parse
from ebla.validate.facts import RelationFacts, ScriptItem, issue_at, place_of


def script_items(text: str) -> tuple[list[ScriptItem], list[Issue], dict[str, RelationFacts]]:
    """The statements that parse, an issue for each that does not, and what those would create, as far as it is known.

    The script goes on behind the next `;`.
    """
    found: list[ScriptItem] = []
    issues: list[Issue] = []
    lost: dict[str, RelationFacts] = {}
    try:
        sources = split(text)
    except SqlError as error:
        # A string or a comment that never ends: nothing behind its beginning can be split into statements.
        endless = _syntax(StatementText(text=text), error)
        issues.append(endless)
        sources = _complete(text[: endless.offset])
    for number, source in enumerate(sources):
        try:
            found.append(ScriptItem(source=source, statement=parse(source), number=number))
        except UsageError as error:
            issues.append(_of_error(source, error))
            made = _created(source, number)
            lost |= {} if made is None else {made.name: made}
    return found, issues, lost


_CREATED = {"TABLE": Relation.TABLE, "VIEW": Relation.VIEW, "INDEX": Relation.INDEX}


def _created(source: StatementText, number: int) -> RelationFacts | None:
    """What a CREATE that does not parse would create: the name behind the kind."""
    tokens = lex(source)
    if tokens[0].key != "CREATE":
        return None
    at = next((i for i, token in enumerate(tokens) if token.key in _CREATED), None)
    if at is None:
        return None
    kind = _CREATED[tokens[at].key]
    words = iter(tokens[at + 1 :])
    named = next((token for token in words if token.key not in ("IF", "NOT", "EXISTS", "ASYNC")), None)
    if named is None or named.kind not in (Kind.WORD, Kind.QUOTED):
        return None
    return RelationFacts(name=unquote_name(named.text), kind=kind, columns=None, made_by=number)


def _complete(text: str) -> list[StatementText]:
    """The statements that a `;` ends."""
    tokens = lex(text)
    sources = split(text)
    return sources if len(tokens) < 2 or tokens[-2].key == ";" else sources[:-1]


def _of_error(source: StatementText, error: UsageError) -> Issue:
    tokens = lex(source)
    first = tokens[0]
    if first.kind is not Kind.WORD or first.key not in VERBS:
        if first.key == "(":
            return _syntax(source, error)
        message = f"expected a statement, found {first.text}"
        return issue_at(source, Code.UNSUPPORTED_STATEMENT, 0, message, f"supported are {SUPPORTED}")
    match error:
        case SqlError():
            return _syntax(source, error)
        case DuplicateNameError():
            return _duplicate(source, tokens, str(error))
        case UnknownNameError():
            found = str(error).rpartition("found ")[2]
            at = place_of(source, found, last=True)
            return issue_at(source, Code.UNKNOWN_KEY_COLUMN, at, *_message_and_hint(str(error), "name a column"))
        case _:
            return issue_at(source, Code.SYNTAX, 0, *_message_and_hint(str(error), "see docs/reference/sql.md"))


def _duplicate(source: StatementText, tokens: list[Token], message: str) -> Issue:
    """The parser says "x is … twice", or "option x is given twice"; the second x is the one to point at."""
    words = message.removeprefix("option ")
    code = Code.DUPLICATE_OPTION if message.startswith("option ") else Code.DUPLICATE_COLUMN
    name = words.partition(" is ")[0].lower()
    places = [
        t.start
        for t in tokens
        if t.kind in (Kind.WORD, Kind.QUOTED, Kind.STRING) and unquote_name(t.text).strip("'\"").lower() == name
    ]
    at = places[1] if len(places) > 1 else 0
    return issue_at(source, code, at, *_message_and_hint(message, "name it once"))


def _syntax(source: StatementText, error: UsageError) -> Issue:
    """The parser knows the place; its message ends with it."""
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    at = 0
    if line is not None and column is not None:
        at = _position(source, line, column)
    message = re.sub(r" \(line \d+, column \d+\)$", "", str(error))
    return issue_at(source, Code.SYNTAX, at, *_message_and_hint(message, "see docs/reference/sql.md for its grammar"))


def _position(source: StatementText, line: int, column: int) -> int:
    """The reverse of `StatementText.place`."""
    if line == source.line:
        return min(max(column - source.column, 0), len(source.text))
    lines = source.text.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - source.line])
    return min(before + column - 1, len(source.text))


def _message_and_hint(message: str, otherwise: str) -> tuple[str, str]:
    said, _, hint = message.partition("; ")
    return said, hint or otherwise
