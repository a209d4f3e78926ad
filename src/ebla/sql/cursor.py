"""A place in the tokens of one statement, with the small questions that all parsers ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ebla.errors import SqlError
from ebla.sql.lex import Kind, StatementText, Token, lex, unquote_name, unquote_string


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATOR_WORDS = words("AND OR NOT IS IN LIKE ILIKE RLIKE BETWEEN DIV")


class Cursor:
    """Reads tokens from left to right; `at` is the index of the next one."""

    def __init__(self, source: StatementText, tokens: Sequence[Token] | None = None) -> None:
        self.source = source
        self.tokens = lex(source) if tokens is None else tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> Token:
        """A token before or behind the cursor; beyond both ends it is END."""
        index = self.at + ahead
        return self.tokens[index] if 0 <= index < len(self.tokens) else self.tokens[-1]

    def next(self) -> Token:
        token = self.peek()
        if token.kind is not Kind.END:
            self.at += 1
        return token

    def sees(self, *keys: str) -> bool:
        """Whether the next tokens are these: words in upper case, or operators."""
        return all(self.peek(ahead).key == key for ahead, key in enumerate(keys))

    def accept(self, *keys: str) -> bool:
        if not self.sees(*keys):
            return False
        self.at += len(keys)
        return True

    def expect(self, *keys: str) -> None:
        for key in keys:
            if not self.accept(key):
                self.fail(key)

    def sees_name(self, ahead: int = 0) -> bool:
        return self.peek(ahead).kind in (Kind.WORD, Kind.QUOTED)

    def name(self, what: str) -> str:
        if not self.sees_name():
            self.fail(what)
        return unquote_name(self.next().text)

    def names(self, what: str) -> tuple[str, ...]:
        """`(a, b, …)`"""
        self.expect("(")
        names = [self.name(what)]
        while self.accept(","):
            names.append(self.name(what))
        self.expect(")")
        return tuple(names)

    def dotted(self, what: str) -> tuple[str, ...]:
        parts = [self.name(what)]
        while self.accept("."):
            parts.append(self.name(what))
        return tuple(parts)

    def string(self, what: str) -> str:
        """A string; adjacent ones are one string, as in Spark."""
        if self.peek().kind is not Kind.STRING:
            self.fail(what)
        value = ""
        while self.peek().kind is Kind.STRING:
            value += unquote_string(self.next().text)
        return value

    def finish(self) -> None:
        if self.peek().kind is not Kind.END:
            self.fail("the end of the statement")

    def skip_group(self) -> None:
        """Past a balanced `( … )`."""
        opening = self.peek()
        self.expect("(")
        depth = 1
        while depth:
            key = self.tokens[self.at].key
            if key == "(":
                depth += 1
            elif key == ")":
                depth -= 1
            elif key == "":
                raise self.error("expected ) to close this (, found the end of the statement", opening)
            self.at += 1

    def skip_type(self) -> None:
        """Past a type: `DECIMAL(12, 2)`, `MAP<STRING, ARRAY<INT>>`. Words behind the first stay."""
        if self.peek().kind is not Kind.WORD:
            self.fail("a type")
        self.at += 1
        if self.sees("("):
            self.skip_group()
        elif self.sees("<"):
            self._skip_angles()

    def _skip_angles(self) -> None:
        opening, depth = self.peek(), 0
        while True:
            token = self.next()
            if token.kind is Kind.END:
                raise self.error("expected > to close this <, found the end of the statement", opening)
            depth += {"<": 1, ">": -1, "<>": 0}.get(token.key, 0)
            if depth == 0:
                return

    def starts_query(self, ahead: int) -> bool:
        """Whether a query begins there. An expression may begin with a column named `from` or `table`."""
        key, after = self.peek(ahead).key, self.peek(ahead + 1)
        name_follows = self.sees_name(ahead + 1) and after.key not in _OPERATOR_WORDS
        match key:
            case "SELECT":
                return after.key not in (",", ")", ".")
            case "WITH" | "TABLE":
                return name_follows
            case "FROM":
                return name_follows or after.key == "("
            case "VALUES":
                return self.begins_value(ahead + 1)
            case _:
                return False

    def begins_value(self, ahead: int) -> bool:
        token = self.peek(ahead)
        return (
            token.kind in (Kind.STRING, Kind.NUMBER)
            or token.key in ("(", "-", "+", ":", "?", "NULL", "TRUE", "FALSE")
            or (token.kind is Kind.WORD and self.peek(ahead + 1).key == "(")
            or (token.kind is Kind.WORD and self.peek(ahead + 1).kind is Kind.STRING)
        )

    def text(self, first: int) -> str:
        """The user's text from the token with that index up to the cursor."""
        return self.source.text[self.tokens[first].start : self.tokens[self.at - 1].end]

    def part(self, first: int) -> StatementText:
        """The same text, knowing its place in the script."""
        start = self.tokens[first].start
        line, column = self.source.place(start)
        return StatementText(text=self.text(first), offset=self.source.offset + start, line=line, column=column)

    def error(self, message: str, token: Token) -> SqlError:
        return self.source.error(message, token.start)

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        token = self.peek()
        found = "the end of the statement" if token.kind is Kind.END else token.text
        raise self.error(f"expected {expected}, found {found}" + (f"; {hint}" if hint else ""), token)
