"""Tokens of Spark SQL, and the statements of a script.

Spark decides what an expression means; Ebla only has to know where strings, names and comments begin and
end, so that a `;`, a comma or a FROM inside one of them is never mistaken for the real thing. The rules
are those of Spark's own lexer: `'…'` and `"…"` are strings with backslash escapes and doubled quotes,
`r'…'` is a string without escapes, backquotes hold names, `--` comments run to the end of the line (or
over it, after a backslash), and `/* */` comments nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ebla.errors import SqlError


class Kind(StrEnum):
    WORD = "word"
    QUOTED = "quoted"
    STRING = "string"
    NUMBER = "number"
    OP = "op"
    END = "end"


class Token(NamedTuple):
    """One token, `text[start:end]` as written; `key` is what the parser compares with."""

    kind: Kind
    text: str
    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementText:
    """One statement of a script and where it begins there: `line` and `column` count from 1."""

    text: str
    offset: int = 0
    line: int = 1
    column: int = 1

    def place(self, position: int) -> tuple[int, int]:
        """Line and column, in the whole script, of a position in `text`."""
        before = self.text[:position]
        lines = before.count("\n")
        if lines == 0:
            return self.line, self.column + position
        return self.line + lines, position - before.rindex("\n")

    def error(self, message: str, position: int) -> SqlError:
        line, column = self.place(position)
        return SqlError(message, line=line, column=column)


_TOKEN = re.compile(
    r"""
    (?:\s++ | --(?:\\\n|[^\r\n])*+)*+
    (?: (?P<comment>/\*)
    | (?P<string>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]++|\\.|'')*' | "(?:[^"\\]++|\\.|"")*")
    | (?P<quoted>`(?:[^`]++|``)*`)
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?!\w))
    | (?P<word>\w+)
    | (?P<op><=>|::|\|>|\|\||->|=>|<=|>=|<>|!=|==|.)
    )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_OPENERS = {"'": "a string", '"': "a string", "`": "a quoted name"}
_KINDS: dict[str | None, Kind] = {kind.value: kind for kind in Kind}


def lex(source: StatementText | str) -> list[Token]:
    """The tokens of a text without its comments, and an END token behind the last one."""
    source = source if isinstance(source, StatementText) else StatementText(text=source)
    text = source.text
    tokens: list[Token] = []
    at = 0
    while match := _TOKEN.match(text, at):
        group = match.lastgroup
        assert group is not None
        start, at = match.span(group)
        if group == "comment":
            at = _comment_end(source, start)
            continue
        raw, kind = text[start:at], _KINDS[group]
        if raw in _OPENERS:
            raise source.error(f"expected {raw} to close {_OPENERS[raw]}, found the end of the text", start)
        tokens.append(Token(kind, raw, raw.upper() if kind is Kind.WORD else raw, start, at))
    for torn in _SURROGATE.finditer(text):
        if not any(t.kind is Kind.QUOTED and t.start < torn.start() < t.end for t in tokens):  # names say it themselves
            raise source.error("expected characters, found half of one (a lone surrogate)", torn.start())
    end = tokens[-1].end if tokens else len(text)
    tokens.append(Token(Kind.END, "", "", end, end))
    return tokens


def _comment_end(source: StatementText, start: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(source.text, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise source.error("expected */ to close a comment, found the end of the text", start)


def split(text: str) -> list[StatementText]:
    """The statements of a script, separated by `;`. Empty ones and comments around them are dropped."""
    statements: list[StatementText] = []
    line, line_start, counted = 1, 0, 0
    for start, end in _spans(lex(text)):
        if lines := text.count("\n", counted, start):
            line += lines
            line_start = text.rindex("\n", counted, start) + 1
        counted = start
        statements.append(StatementText(text=text[start:end], offset=start, line=line, column=start - line_start + 1))
    return statements


def _spans(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    first: Token | None = None
    last: Token | None = None
    for token in tokens:
        if token.kind is Kind.END or token.key == ";":
            if first is not None and last is not None:
                yield first.start, last.end
            first = last = None
        else:
            first = first or token
            last = token


_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))|(['\"])\5", re.DOTALL)


def unquote_string(raw: str) -> str:
    """The value of a string token, as Spark reads it."""
    if raw[0] in "rR":
        return raw[2:-1]
    quote_mark = raw[0]

    def value(match: re.Match[str]) -> str:
        short, long, octal, letter, doubled = match.groups()
        if short or long:
            return chr(int(short or long, 16))
        if octal:
            return chr(int(octal, 8))
        if letter:
            return _ESCAPES.get(letter, letter)
        return doubled if doubled == quote_mark else doubled * 2

    return _ESCAPE.sub(value, raw[1:-1])


def unquote_name(raw: str) -> str:
    """The name that a word or a backquoted token stands for."""
    return raw[1:-1].replace("``", "`") if raw.startswith("`") else raw


def name_pattern(pattern: str) -> re.Pattern[str]:
    """What `LIKE 'pattern'` of a SHOW statement matches: `%` and `*` are any text, `_` is one character.

    Case does not count, as in names; a backslash before one of the three takes its meaning away.
    """
    made = ""
    for piece in re.findall(r"\\[%_*\\]|.", pattern, re.DOTALL):
        made += {"%": ".*", "*": ".*", "_": "."}.get(piece) or re.escape(piece[-1])
    return re.compile(made, re.DOTALL | re.IGNORECASE)


def quote(name: str) -> str:
    """A name in backquotes, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What a parser could take for the next part of a statement.
_WORDS = frozenset(
    """ADD AFTER ALL ALTER AND AS ASC BATCH BY CASE CASCADE CHANGEFEED CHECK COLUMN COMMENT CONSTRAINT CONSUMER CREATE
    CROSS DEFAULT DESC DISTINCT DROP ELSE END EXISTS FALSE FIRST FOR FROM FULL GENERATED GROUP HAVING IF IN INCLUDE
    INDEX INNER INPUT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL NULLS ON OR ORDER OUTER PRIMARY PROCESS REFERENCES
    REPLACE RIGHT SELECT SET STREAM SYSTEM TABLE THEN TO TRUE UNION UNIQUE USING VALUES VIEW WHEN WHERE WITH
    """.split()  # noqa: SIM905
)


def name_text(name: str) -> str:
    """A name as a statement may have it, in backquotes where it must be."""
    return name if _PLAIN.fullmatch(name) and name.upper() not in _WORDS else quote(name)


def quote_string(value: str) -> str:
    """A string literal, whatever characters it has."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
