"""Names of every kind for the generated schema and queries: capitals, quotes, words of SQL, spaces, other alphabets.

A *naming* gives each table and column of the plain schema the name that is stored. A column that two tables share has
one name in both, perhaps in two cases. `spelled` writes a plain query with those names, its aliases renamed as well,
and spells each mention in any case. The plain query is the oracle's, over the same rows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ebla.sql.lex import Kind, StatementText, Token, lex, quote
from support.view_queries import KEYS, TABLES, Sql

WORDS = [
    *("Id", "W_ID", "select", "From", "group by", "order", "TABLE", "null", "Größe", "STRASSE", "straße", "ÄÖÜ"),
    *("Ωμέγα", "имя", "名前", "😀", "a`b", 'q"q', "x.y", "it's", "per%cent", "semi;colon", "-- no remark", "a, b"),
    *("(p)", "[0]", "0", "_at", "_weight", "sign", "at", "c0", "c1", "stored", "came", "r", "v", "n", "k", "leaf_0"),
    *("input_0", "rows_", "*", "count", "Sum", "true", "Date", "timestamp", "İstanbul", "ﬁn", "tab\u00a0stop", "end"),
    "sehr langer Name " * 9 + "!",
]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = frozenset({w.lower() for w in WORDS} - {"id", "w_id", "strasse", "_at", "_weight", "c0", "c1", "rows_"})
"""Names that are always quoted: words of SQL among them."""


def variants(name: str) -> list[str]:
    """Spellings that Spark takes for the name: of the same letters in lower case, and of the same length."""
    found = {name, name.lower(), name.upper(), name.title(), name.swapcase()}
    return sorted(n for n in found if n.lower() == name.lower() and len(n) == len(name))


class Spelling:
    """One way of writing names, the same for the same seed; with 0 every name is as it is."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words = list(WORDS)
        self._random.shuffle(self._words)
        self._taken: set[str] = set()
        self.changes = seed != 0

    def name(self, plain: str) -> str:
        """Another name for this one, which no other has; perhaps the same in another case."""
        if not self.changes:
            return plain
        made = plain
        if self._random.random() < 0.6:
            made = next((w for w in self._words if w.lower() not in self._taken), f"{plain} {len(self._taken)}")
        while made.lower() in self._taken:
            made += "_"
        self._taken.add(made.lower())
        return self.case(made)

    def reserve(self, names: Iterable[str]) -> None:
        """Names that no other gets: a common table expression must not hide a table, nor an alias a column."""
        self._taken |= {name.lower() for name in names}

    def case(self, name: str) -> str:
        return self._random.choice(variants(name)) if self.changes else name

    def mention(self, name: str) -> str:
        """The name in a text."""
        spelled = self.case(name)
        may_be_plain = _PLAIN.fullmatch(spelled) is not None and spelled.lower() not in _QUOTED
        if may_be_plain and (not self.changes or self._random.random() < 0.7):
            return spelled
        return quote(spelled)


@dataclass(frozen=True)
class Naming:
    """The names that are stored."""

    seed: int
    tables: Mapping[str, str]
    columns: Mapping[tuple[str, str], str] = field(repr=False)
    """By plain table and column."""

    @cached_property
    def plain_tables(self) -> dict[str, str]:
        """By stored name in lower case."""
        return {stored.lower(): plain for plain, stored in self.tables.items()}

    @cached_property
    def schema(self) -> dict[str, dict[str, str]]:
        """Tables in lower case, with columns and types: what a query is analysed with."""
        return {
            self.tables[table].lower(): {self.columns[table, name]: kind for name, kind in columns.items()}
            for table, columns in TABLES.items()
        }

    @cached_property
    def keys(self) -> dict[str, tuple[str, ...]]:
        return {self.tables[t].lower(): tuple(self.columns[t, k] for k in key) for t, key in KEYS.items()}

    def stored_columns(self, table: str) -> list[str]:
        return [self.columns[table, name] for name in TABLES[table]]

    def stored_row(self, table: str, row: Mapping[str, object]) -> dict[str, object]:
        return {self.columns[table, name]: value for name, value in row.items()}

    def create(self, table: str) -> str:
        """The statement that makes a table."""
        listed = ", ".join(f"{quote(self.columns[table, name])} {kind}" for name, kind in TABLES[table].items())
        key = ", ".join(quote(self.columns[table, name]) for name in KEYS[table])
        return f"CREATE TABLE {quote(self.tables[table])} ({listed}, PRIMARY KEY ({key}))"


def naming(seed: int) -> Naming:
    made = Spelling(seed)
    tables = {table: made.name(table) for table in TABLES}
    # One name of a column in all tables that have it, in a case of its own in each.
    shared = Spelling(seed)
    names = {name: shared.name(name) for name in dict.fromkeys(n for columns in TABLES.values() for n in columns)}
    columns = {(t, n): shared.case(names[n]) for t, of_table in TABLES.items() for n in of_table}
    return Naming(seed=seed, tables=tables, columns=columns)


PLAIN = naming(0)


@dataclass(frozen=True, slots=True)
class Spelled:
    """A query as a user writes it, and the same with plain names."""

    text: str
    plain: Sql
    columns: tuple[tuple[str, str], ...]
    """Names and types of its result."""


def spelled(sql: Sql, names: Naming, seed: int) -> Spelled:
    spelling = Spelling(seed)
    # An alias with the name of a column would hide it: Spark takes `id.x` for a field of the column `id`.
    spelling.reserve([*names.tables.values(), *names.columns.values()])
    own: dict[str, str] = {}
    tokens = lex(StatementText(text=sql.text))
    pieces, at = list[str](), 0
    for place, token in enumerate(tokens):
        stored = _stored(tokens, place, names, own, spelling)
        if stored is not None:
            is_output = tokens[place - 1].key == "AS" and stored == own.get(token.text)
            # An output's own name is the view's: it is written as it is.
            written = quote(stored) if is_output and spelling.changes else spelling.mention(stored)
            pieces += [sql.text[at : token.start], written]
            at = token.end
    pieces.append(sql.text[at:])
    columns = tuple((own.get(name, name), kind) for name, kind in sql.columns)
    return Spelled("".join(pieces), sql, columns)


_ALIAS = re.compile(r"[twop]\d+")


def _stored(tokens: list[Token], place: int, names: Naming, own: dict[str, str], spelling: Spelling) -> str | None:
    """The stored name that a word of a plain query stands for."""
    token, before = tokens[place], tokens[place - 1].key if place else ""
    if token.kind is not Kind.WORD:
        return None
    if _ALIAS.fullmatch(token.text):
        return own.setdefault(token.text, spelling.name(token.text))
    if before in ("FROM", "JOIN") and token.text in names.tables:
        return names.tables[token.text]
    in_using = before == "(" and tokens[place - 2].key == "USING"
    if before == "." or in_using:
        return next((stored for (_, name), stored in names.columns.items() if name == token.text), None)
    return None
