"""Which tables a query names, and where.

Theory of operation. A query is skimmed, not parsed: what is neither a parenthesis nor one of a few words
is stepped over. So whatever Spark learns to run, Ebla accepts, and there is no second grammar to keep.
What makes this right is that a relation can only stand in a few places, all visible in the tokens:

- A **frame** is the text between two parentheses (or the whole query). It is a query, a parenthesised
  relation (`FROM (a JOIN b …)`), the arguments of a table function, or an expression. An expression turns
  into a query when SELECT or a set operator appears in it: `((SELECT 1) UNION SELECT 2)`.
- In a query, a relation follows FROM, JOIN, and each comma between FROM and the clause behind it. FROM in
  an expression (`extract(year FROM d)`) and in `IS DISTINCT FROM` is not a clause.
- `WITH` stands only at the beginning of a frame, so the names it brings are in scope exactly until that
  frame ends; the body of a CTE sees the ones before it, and itself only after RECURSIVE.

A word behind `.`, `:` or AS is a name, whatever it says. Should a mention be missed because a column has
the name of a clause, Spark reports an unknown table: a loud error, never a wrong answer. Tests compare
the result with the plans of Spark's own parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto

from ebla.errors import SqlError
from ebla.sql.cursor import Cursor, words
from ebla.sql.expressions import refuse_deep_types, skip_value, version
from ebla.sql.lex import Kind, StatementText, Token, quote, unquote_name
from ebla.sql.query import Query, TableRef

Scope = frozenset[str]
"""The names of CTEs in lower case."""


class Frame(Enum):
    QUERY = auto()
    RELATION = auto()
    ARGUMENTS = auto()
    EXPRESSION = auto()


class Clause(Enum):
    """What may follow: a comma and JOIN bring relations, only JOIN does, or neither."""

    FROM = auto()
    JOINS = auto()
    OTHER = auto()


_SET_OPERATORS = words("UNION EXCEPT INTERSECT MINUS SETMINUS")
_CLAUSES = _SET_OPERATORS | words("SELECT WHERE HAVING LIMIT OFFSET QUALIFY")
_CLAUSES_WITH_BY = words("GROUP ORDER SORT CLUSTER DISTRIBUTE")
_JOIN_WORDS = words("JOIN INNER CROSS LEFT RIGHT FULL OUTER SEMI ANTI NATURAL ON USING LATERAL")
_NO_ALIAS = _CLAUSES | _JOIN_WORDS | {"INSERT"}
_FRAME_ENDS = frozenset({")", ""})
# What the skimming loop stops at; the end of the text has the empty key.
_SIGNIFICANT = _FRAME_ENDS | _CLAUSES | _CLAUSES_WITH_BY | words("( , |> :: FROM JOIN TABLE INSERT LATERAL WINDOW")
_VERSION_WORDS = frozenset({"VERSION", "SYSTEM_VERSION"})
_TIME_WORDS = frozenset({"TIMESTAMP", "SYSTEM_TIME"})


def find(source: StatementText | str) -> Query:
    """A query with its table references."""
    return query_at(Cursor(source if isinstance(source, StatementText) else StatementText(text=source)))


def query_at(cursor: Cursor) -> Query:
    """The query that the rest of a statement is. Moves the cursor to the end."""
    finder = Finder(cursor.source, cursor.tokens)
    finder.at = finder.begin = cursor.at
    start, end = cursor.peek().start, cursor.tokens[-1].end
    finder.whole(Frame.QUERY)
    cursor.at = finder.at
    refs = sorted(finder.refs, key=lambda ref: ref.start)
    text = cursor.source.text[start:end]
    return Query(text=text, refs=tuple(ref.shifted(-start) for ref in refs), source=cursor.source)


def check_expression(source: StatementText) -> None:
    """Raise for what no query could hold, while the place in the user's text is still known."""
    Finder(source).whole(Frame.EXPRESSION)


def rewrite(query: Query, replacement: Callable[[TableRef], str | None]) -> str:
    """The query's text reading other tables: each reference becomes the name that `replacement` gives.

    A table without an alias gets its own name as one, so that `orders.id` still resolves. None leaves the
    reference as it is.
    """
    return "".join(text for text, _ in _pieces(query, replacement))


def users_place(query: Query, replacement: Callable[[TableRef], str | None], position: int) -> int:
    """Where a position in the rewritten text is in the user's own."""
    place = begin = 0
    for text, place in _pieces(query, replacement):
        if position < begin + len(text):
            # Inside a name that was put there, the place is where it was put.
            return place + (position - begin if query.text.startswith(text, place) else 0)
        begin += len(text)
    return len(query.text)


def _pieces(query: Query, replacement: Callable[[TableRef], str | None]) -> Iterator[tuple[str, int]]:
    """The rewritten text in pieces, each with its place in the user's text."""
    at = 0
    for ref in query.refs:
        name = replacement(ref)
        if name is None:
            continue
        yield query.text[at : ref.start], at
        yield ("SELECT * FROM " if ref.select else "") + quote(name), ref.start
        at = ref.end
        if ref.alias is None and ref.alias_at is not None:
            yield query.text[at : ref.alias_at], at
            yield f" AS {quote(ref.name)}", ref.start
            at = ref.alias_at
    yield query.text[at:], at


class Finder(Cursor):
    """Gathers `refs` while it skims."""

    def __init__(self, source: StatementText, tokens: Sequence[Token] | None = None) -> None:
        super().__init__(source, tokens)
        self.refs: list[TableRef] = []
        self.begin = 0

    def whole(self, frame: Frame) -> None:
        refuse_deep_types(self)
        try:
            self.frame(frame, frozenset())
        except RecursionError:
            raise self.too_deep() from None
        if self.sees(")"):
            raise self.error("expected no ) here: there is no ( that it closes", self.peek())

    def too_deep(self) -> SqlError:
        return self.error("expected fewer nested parentheses; split the query with WITH", self.peek())

    # Frames

    def frame(self, frame: Frame, scope: Scope) -> None:
        """Skim up to the closing parenthesis of this frame, or the end."""
        is_query, clause, first = frame is Frame.QUERY, Clause.OTHER, self.at
        if is_query and self.sees("WITH") and self.sees_name(1):
            scope = self.ctes(scope)
            first = self.at
        elif frame is Frame.RELATION:
            self.relation(scope)
            clause = Clause.JOINS
        while True:
            key = self.tokens[self.at].key
            if key not in _SIGNIFICANT:
                self.at += 1
            elif key in _FRAME_ENDS:
                return
            elif key == "(":
                self.group(Frame.QUERY if self.starts_query(1) else Frame.EXPRESSION, scope)
            elif key == "," and clause is Clause.FROM:
                self.at += 1
                self.relation(scope)
            elif key == "|>":
                self.at += 1
                clause = Clause.JOINS
            elif key == "::":
                self.at += 1
                self.skip_type()
            elif key == "," or self.is_name():
                self.at += 1
            elif key == "FROM" and is_query and not self.is_distinct_from():
                self.at += 1
                self.relation(scope)
                clause = Clause.FROM
            elif key == "JOIN" and clause is not Clause.OTHER:
                self.at += 1
                self.relation(scope)
            elif key == "TABLE" and self.table_keyword(frame, first):
                self.table(scope, frame)
            else:
                if key == "INSERT" and is_query and self.peek(1).key in ("INTO", "OVERWRITE"):
                    self.fail("a query", "write INSERT INTO first and the query behind it")
                is_query = is_query or key == "SELECT" or key in _SET_OPERATORS
                clause = Clause.OTHER if self.begins_clause() else clause
                self.at += 1

    def group(self, frame: Frame, scope: Scope) -> None:
        """A frame with its parentheses."""
        opening = self.next()
        self.frame(frame, scope)
        if not self.accept(")"):
            raise self.error("expected ) to close this (, found the end of the statement", opening)

    def ctes(self, scope: Scope) -> Scope:
        """`WITH [RECURSIVE] name [(columns)] [AS] (query), …`; returns the scope of what follows."""
        self.expect("WITH")
        recursive = self.accept("RECURSIVE")
        while True:
            name = self.name("the name of a common table expression").lower()
            if self.sees("(") and self.sees_name(1) and self.peek(2).key in (",", ")"):
                self.names("the name of a column")
            if self.accept("MAX", "RECURSION", "LEVEL"):
                self.at += 1
            self.accept("AS")
            if not self.sees("("):
                self.fail("( and the query of the common table expression")
            self.group(Frame.QUERY, scope | {name} if recursive else scope)
            scope |= {name}
            if not self.accept(","):
                break
        if self.peek().key in ("INSERT", "UPSERT", "UPDATE", "DELETE", "MERGE"):
            self.fail("a query after WITH", "write INSERT INTO t WITH … SELECT …")
        return scope

    # Words in their place

    def is_name(self) -> bool:
        # What stands before the query's first word is not part of it: CREATE MATERIALIZED VIEW v AS FROM t …
        return self.at > self.begin and self.peek(-1).key in (".", ":", "AS")

    def is_distinct_from(self) -> bool:
        return self.peek(-1).key == "DISTINCT" and self.peek(-2).key in ("IS", "NOT")

    def begins_clause(self) -> bool:
        key, after = self.peek().key, self.peek(1).key
        return (
            key in _CLAUSES
            or (key in _CLAUSES_WITH_BY and after == "BY")
            or (key == "LATERAL" and after == "VIEW")
            or (key == "WINDOW" and self.sees_name(1) and self.peek(2).key == "AS")
        )

    def begins_alias(self) -> bool:
        """Whether a name behind a relation is its alias. Most keywords can be one, if little follows."""
        if not self.sees_name():
            return False
        key, after = self.peek().key, self.peek(1)
        if after.key in (",", ")") or after.kind is Kind.END:
            return True
        if key in ("PIVOT", "UNPIVOT"):
            return after.key not in ("(", "INCLUDE", "EXCLUDE")
        return key not in _NO_ALIAS and not self.begins_clause()

    def table_keyword(self, frame: Frame, first: int) -> bool:
        before = self.peek(-1).key
        if frame is Frame.ARGUMENTS:
            return before in ("(", ",", "=>") and (self.sees_name(1) or self.peek(1).key == "(")
        if before in ("ALL", "DISTINCT"):
            before = self.peek(-2).key
        return (self.at == first or before in _SET_OPERATORS) and self.starts_query(0)

    # Relations

    def relation(self, scope: Scope) -> str | None:
        """A table, subquery, function or VALUES; returns its alias."""
        if self.sees("LATERAL"):
            self.at += 1
        if self.sees("("):
            self.relation_group(scope)
        elif self.sees("VALUES") and self.begins_value(1):
            self.at += 1
            self.value(scope)
            while self.accept(","):
                self.value(scope)
        else:
            return self.named_relation(scope)
        return self.tail()[1]

    def relation_group(self, scope: Scope) -> None:
        """`(SELECT …)` or `(a JOIN b)`. VALUES may begin either, and reads as a relation in both."""
        is_query = self.starts_query(1) and self.peek(1).key != "VALUES"
        self.group(Frame.QUERY if is_query else Frame.RELATION, scope)

    def named_relation(self, scope: Scope) -> str | None:
        first = self.peek()
        if not self.sees_name() or self.begins_clause() or first.key == "FROM":
            self.fail(
                "a table, a subquery or a table function",
                "a column with the name of a keyword goes in backquotes",
            )
        parts = self.dotted("a name")
        if self.sees("("):
            if parts[-1].upper() == "IDENTIFIER":
                message = "expected the name of a table, found IDENTIFIER(…); write the name itself"
                raise self.error(message, first)
            self.group(Frame.ARGUMENTS, scope)
            return self.tail()[1]
        version, timestamp = self.time_travel()
        end = self.peek(-1).end
        alias_at, alias = self.tail()
        if len(parts) > 1 or parts[0].lower() not in scope:
            ref = TableRef(parts=parts, start=first.start, end=end, alias=alias, alias_at=alias_at)
            self.add(replace(ref, version=version, timestamp=timestamp), first)
        return alias

    def table(self, scope: Scope, frame: Frame) -> None:
        """The query `TABLE t`, or the argument `TABLE t`, `TABLE (t)`, `TABLE (query)` of a function."""
        keyword = self.next()
        argument = frame is Frame.ARGUMENTS
        if argument and self.sees("(") and self.starts_query(1):
            self.group(Frame.QUERY, scope)
            return
        in_group = argument and self.accept("(")
        first = self.peek()
        parts = self.dotted("the name of a table")
        end = self.peek(-1).end
        if in_group:
            self.expect(")")
        if len(parts) == 1 and parts[0].lower() in scope:
            return
        if argument:
            self.add(TableRef(parts=parts, start=first.start, end=end), first)
        else:
            self.add(TableRef(parts=parts, start=keyword.start, end=end, alias_at=end, select=True), keyword)

    def add(self, ref: TableRef, first: Token) -> None:
        if len(ref.parts) == 2 and ref.parts[0].lower() == "system":
            ref = replace(ref, parts=("system", ref.parts[1]))
        elif len(ref.parts) > 1:
            raise self.error(f"expected the name of a table, or system.<name>, found {'.'.join(ref.parts)}", first)
        self.refs.append(ref)

    def tail(self) -> tuple[int, str | None]:
        """`[WITH (options)] [TABLESAMPLE (…)] [[AS] alias [(columns)]]`: where an alias goes, and it."""
        if self.sees("WITH", "("):
            self.at += 1
            self.skip_group()
        if self.sees("TABLESAMPLE", "("):
            self.at += 1
            self.skip_group()
            if self.sees("REPEATABLE", "("):
                self.at += 1
                self.skip_group()
        alias_at = self.peek(-1).end
        if self.sees("AS") and self.sees_name(1):
            self.at += 1
        elif not self.begins_alias():
            return alias_at, None
        alias = unquote_name(self.next().text)
        if self.sees("("):
            self.skip_group()
        return alias_at, alias

    def value(self, scope: Scope) -> None:
        skip_value(self, lambda is_query: self.group(Frame.QUERY if is_query else Frame.EXPRESSION, scope))

    # Time travel

    def time_travel(self) -> tuple[int | str | None, str | None]:
        """`[FOR] VERSION|SYSTEM_VERSION AS OF n` or `[FOR] TIMESTAMP|SYSTEM_TIME AS OF expression`."""
        ahead = 1 if self.sees("FOR") else 0
        word = self.peek(ahead).key
        if word not in _VERSION_WORDS | _TIME_WORDS:
            return None, None
        if (self.peek(ahead + 1).key, self.peek(ahead + 2).key) != ("AS", "OF"):
            return None, None
        self.at += ahead + 3
        if word in _VERSION_WORDS:
            return version(self), None
        first, before = self.at, len(self.refs)
        self.value(frozenset())
        if len(self.refs) > before:
            raise self.error("expected a time without a query in it", self.tokens[first])
        return None, self.text(first)
