"""The source of a MERGE that is a few rows of literals, and expressions that name its columns.

USING (SELECT literal AS name, …) [AS] alias
USING (VALUES (literal, …), …) [AS] alias (name, …)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ebla.errors import EblaError
from ebla.sql.cursor import Cursor
from ebla.sql.lex import Kind, StatementText, lex, unquote_name
from ebla.sql.literals import Dialect, Literal, NotPlain, Reader, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralSource:
    alias: str
    names: tuple[str, ...]
    rows: Sequence[Sequence[Literal]]


def literal_source(text: str, dialect: Dialect) -> LiteralSource | None:
    """The rows, if all their values are plain literals, of one type in each column; `None` for any other source."""
    cursor = Cursor(StatementText(text=text))
    try:
        if cursor.sees("(", "SELECT"):
            found = _selected(cursor, dialect)
        elif cursor.sees("(", "VALUES"):
            found = _values(cursor, dialect)
        else:
            return None
    except (NotPlain, EblaError):
        return None
    same = all(
        len({_kind(one) for one in column} - {("null", "NoneType")}) < 2 for column in zip(*found.rows, strict=True)
    )
    distinct = len({name.lower() for name in found.names}) == len(found.names)
    return found if same and distinct and cursor.peek().kind is Kind.END else None


def _kind(one: Literal) -> tuple[str, str]:
    return one.kind, type(one.value).__name__


def _selected(cursor: Cursor, dialect: Dialect) -> LiteralSource:
    cursor.at += 2
    names: list[str] = []
    row: list[Literal] = []
    while True:
        row.append(Reader(cursor, dialect).literal())
        cursor.expect("AS")
        names.append(cursor.name("a name"))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    cursor.accept("AS")
    return LiteralSource(alias=cursor.name("an alias"), names=tuple(names), rows=[row])


def _values(cursor: Cursor, dialect: Dialect) -> LiteralSource:
    first = cursor.at + 1
    cursor.skip_group()
    inner = cursor.source.text[cursor.tokens[first].start : cursor.tokens[cursor.at - 2].end]
    cells = rows_of(inner, dialect)
    cursor.accept("AS")
    alias, names = cursor.name("an alias"), cursor.names("a name")
    rows: list[list[Literal]] = []
    for row in cells or ():
        literals = [cell.literal for cell in row if cell.literal is not None]
        if len(literals) != len(names) or len(row) != len(names):
            raise NotPlain
        rows.append(literals)
    if not rows:
        raise NotPlain
    return LiteralSource(alias=alias, names=names, rows=rows)


def equated(condition: str, alias: str, source: LiteralSource) -> tuple[str, str] | None:
    """`alias.column = source.column`, or the other way round, as the two columns; `None` for any other condition."""
    tokens = [token for token in lex(StatementText(text=condition)) if token.kind is not Kind.END]
    if len(tokens) != 7 or [tokens[i].key for i in (1, 3, 5)] != [".", "=", "."]:
        return None
    names = [unquote_name(token.text) if token.kind is Kind.QUOTED else token.text for token in tokens]
    left, right = (names[0], names[2]), (names[4], names[6])
    if left[0] == source.alias:
        left, right = right, left
    return (left[1], right[1]) if left[0] == alias and right[0] == source.alias and alias != source.alias else None


def substituted(text: str, source: LiteralSource, row: Sequence[Literal]) -> str:
    """The text with a row's literals for columns of the source; `NotPlain` if one is named without the alias."""
    cells: Mapping[str, Literal] = dict(zip(source.names, row, strict=True))
    folded = {name.lower() for name in source.names}
    tokens, made, at = lex(StatementText(text=text)), "", 0
    for number, token in enumerate(tokens):
        name = unquote_name(token.text) if token.kind is Kind.QUOTED else token.text
        before = tokens[number - 1].key if number else ""
        if token.kind not in (Kind.WORD, Kind.QUOTED) or (before != "." and name.lower() not in folded):
            continue
        if before != ".":
            raise NotPlain
        qualifier = tokens[number - 2] if number > 1 else token
        if qualifier.text != source.alias:
            continue
        if name not in cells:
            raise NotPlain
        made += f"{text[at : qualifier.start]}({cells[name].text})"
        at = token.end
    return made + text[at:]
