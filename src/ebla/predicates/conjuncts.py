"""Conditions that AND joins, taken apart by their text alone."""

from __future__ import annotations

from collections.abc import Sequence

from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind, StatementText, Token, lex

_DEEPER = {"(": 1, "[": 1, "CASE": 1, ")": -1, "]": -1, "END": -1}


def conjuncts(text: str) -> list[str]:
    """The conditions that must all hold, each without parentheses around it; one, if OR joins some of them."""
    text = bare(text)
    cursor = Cursor(StatementText(text=text))
    ends = condition_ends(cursor)
    if len(ends) == 1 or cursor.tokens[ends[-1]].kind is not Kind.END:
        return [text]
    found: list[str] = []
    for end in ends:
        first, cursor.at = cursor.at, end
        found += conjuncts(cursor.text(first))
        cursor.at += 1  # behind AND
    return found


def bare(text: str) -> str:
    """A condition without parentheses around all of it."""
    tokens = [token for token in lex(StatementText(text=text)) if token.kind is not Kind.END]
    while len(tokens) > 2 and tokens[0].key == "(" and _closes_at(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return text[tokens[0].start : tokens[-1].end] if tokens else ""


def _closes_at(tokens: Sequence[Token]) -> int | None:
    depth = 0
    for at, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth == 0:
            return at
    return None


def condition_ends(cursor: Cursor) -> list[int]:
    """Where each of the conditions that AND joins ends, from the cursor on: one, if OR joins some of them."""
    ends: list[int] = []
    depth = betweens = at = 0
    alternatives = False
    while (token := cursor.peek(at)).kind is not Kind.END:
        if depth == 0:
            if token.key in ("ORDER", "LIMIT"):
                break
            alternatives = alternatives or token.key == "OR"
            if token.key == "BETWEEN":
                betweens += 1
            elif token.key == "AND" and betweens:
                betweens -= 1
            elif token.key == "AND":
                ends.append(cursor.at + at)
        depth += _DEEPER.get(token.key, 0)
        at += 1
    last = cursor.at + at
    return [last] if alternatives else [*ends, last]
