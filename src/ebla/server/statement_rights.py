"""What a statement needs of its user: rights on relations, or a role. Values in, values out.

A statement that is not listed needs an administrator, so that a new one is safe before it is thought of here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ebla.errors import RightError
from ebla.model.access import Right, UserRole
from ebla.sql import access_statements as access
from ebla.sql import cluster_statements as cs
from ebla.sql import statements as st
from ebla.sql.lex import Kind, StatementText, Token, lex, unquote_name
from ebla.sql.query import Query, TableRef
from ebla.sql.refs import find

SYSTEM = "system"
GUARDED = frozenset({"users", "grants", "audit"})
"""System tables that only an administrator reads."""
OF_ALL_RELATIONS = frozenset({"history", "transactions"})
"""Those with reasons of commits: who may not read a relation, reads none of them."""

_FUNCTIONS = frozenset({"REFLECT", "JAVA_METHOD", "TRY_REFLECT"})
_FORMATS = frozenset(
    {"parquet", "csv", "json", "orc", "text", "avro", "xml", "binaryfile", "delta", "iceberg", "jdbc", "ebla", "image"}
)


@dataclass(frozen=True, slots=True)
class Need:
    """A right on a relation, or on the one that an index of this name belongs to."""

    right: Right
    relation: str


@dataclass(frozen=True, slots=True)
class NeedRole:
    role: UserRole
    why: str


@dataclass(frozen=True, slots=True)
class NeedAll:
    """SELECT on every relation."""

    why: str
    instead: str


Needs = Need | NeedRole | NeedAll

ANYTHING = NeedRole(UserRole.READER, "this")


def of(statement: st.Statement, user: str) -> Iterator[Needs]:
    """All that a statement of a user needs."""
    match statement:
        case Query():
            yield from _reads(statement.refs)
        case st.Explain(query=query):
            yield from _reads(query.refs)
        case st.Insert(table=table, source=source):
            yield Need(Right.WRITE, table)
            yield from _reads(source.refs)
        case st.Update() | st.Delete() | st.Merge():
            yield from _change(statement)
        case st.Truncate(table=table) | st.Load(table=table):
            yield Need(Right.WRITE, table)
        case st.CreateTable(name=name, query=query) | st.CreateView(name=name, query=query):
            yield NeedRole(UserRole.WRITER, "CREATE")
            if statement.or_replace:
                yield Need(Right.OWN, name)
            yield from _reads(() if query is None else query.refs)
        case access.AlterUser(name=name, role=None) if name.lower() == user.lower():
            yield ANYTHING  # a new token of one's own
        case (
            st.ShowTables()
            | st.ShowViews()
            | st.ShowHandlers()
            | st.ShowJobs()
            | st.ShowIndexes()
            | st.ShowReplication()
            | st.ShowProgress()
            | cs.ShowNodes()
            | cs.ShowRequests()
            | cs.ShowTablets()
            | cs.ShowTransitions()
            | cs.ExplainTablet()
            | cs.ExplainNode()
            | cs.ExplainTask()
            | cs.WaitForRequest()
        ):
            yield ANYTHING
        case _:
            yield from _of_relation(statement)


def _of_relation(statement: st.Statement) -> Iterator[Needs]:
    """Statements about one relation that is there."""
    match statement:
        case st.Describe(name=name, system=is_system):
            yield _system(name) if is_system else Need(Right.SELECT, name)
        case st.ShowCreate(what="handler"):
            yield ANYTHING
        case st.ShowCreate(name=name) | st.ExplainIndex(name=name) | st.Check(name=name):
            yield Need(Right.SELECT, name)
        case st.ExplainView(name=name, create=create):
            yield from (_reads(create.query.refs) if create is not None else (Need(Right.SELECT, name),))
        case st.Flush() | st.WaitFor():
            yield from (Need(Right.SELECT, name) for name in named(statement))
        case (
            st.DropTable()
            | st.DropView()
            | st.DropIndex()
            | st.RenameTable()
            | st.RenameView()
            | st.AddColumns()
            | st.AddConstraint()
            | st.DropConstraint()
            | st.DropColumns()
            | st.RenameColumn()
            | st.AlterColumnType()
            | st.SetDefault()
            | st.SetTableComment()
            | st.SetColumnComment()
            | cs.SetTableOptions()
            | st.CreateIndex()
            | st.BuildIndexes()
            | st.AlterBuild()
            | st.CancelBuild()
            | st.Repair()
            | st.Compact()
            | st.Vacuum()
        ) if named(statement):
            yield from (Need(Right.OWN, name) for name in named(statement))
        case _:
            yield NeedRole(UserRole.ADMIN, type(statement).__name__)


def named(statement: object) -> tuple[str, ...]:
    """The relations that a statement is about, by the names of its fields."""
    for field in ("table", "base", "view", "name", "names", "views"):
        found = getattr(statement, field, None)
        if found:
            return (found,) if isinstance(found, str) else tuple(found)
    return ()


def _reads(refs: Sequence[TableRef]) -> Iterator[Needs]:
    for ref in refs:
        if len(ref.parts) == 1:
            yield Need(Right.SELECT, ref.name)
        elif ref.parts[0].lower() == SYSTEM:
            yield _system(ref.name)


def _system(name: str) -> Needs:
    if name.lower() in GUARDED:
        return NeedRole(UserRole.ADMIN, f"system.{name}")
    if name.lower() in OF_ALL_RELATIONS:
        return NeedAll(f"system.{name}", "GET /v1/history has the commits of the others")
    return ANYTHING


def _change(statement: st.Update | st.Delete | st.Merge) -> Iterator[Needs]:
    """The table that is changed, and those that conditions and values read."""
    yield Need(Right.WRITE, statement.table)
    texts: list[str | None] = []
    match statement:
        case st.Update(assignments=assigned, where=where):
            texts = [where, *(text for _, text in assigned)]
        case st.Delete(where=where):
            texts = [where]
        case st.Merge(source=source, on=on, clauses=clauses):
            yield from _reads(find(f"SELECT * FROM {source}").refs)
            texts = [on]
            for clause in clauses:
                texts += [clause.condition, *clause.values, *(text for _, text in clause.assignments)]
    for text in texts:
        if text is not None:
            yield from _reads(find(f"SELECT {text}").refs)


# ---- what no request may say ----------------------------------------------------------------------------


def refuse_escapes(source: StatementText) -> None:
    """Refuse what leaves the tables for the node's machine: programs, classes of the JVM, files by their paths."""
    tokens = lex(source)
    for at, token in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else token
        if token.kind is Kind.WORD and token.key in _FUNCTIONS and after.key == "(":
            raise _refused(source, token, f"{token.text}(…), which calls the node's Java")
        if token.key == "USING" and after.kind is Kind.STRING:
            raise _refused(source, token, "TRANSFORM … USING, which runs a program on the node")
        if after.key == "." and _is_format(token) and at + 2 < len(tokens) and _is_path(tokens[at + 2]):
            raise _refused(source, token, f"{token.text}.{tokens[at + 2].text}, which reads a file of the node")


def _is_format(token: Token) -> bool:
    return token.kind in (Kind.WORD, Kind.QUOTED) and unquote_name(token.text).lower() in _FORMATS


def _is_path(token: Token) -> bool:
    """Columns are words; a path has characters that must be quoted."""
    return token.kind is Kind.QUOTED


def _refused(source: StatementText, token: Token, what: str) -> RightError:
    line, column = source.place(token.start)
    return RightError(
        f"expected a statement about relations, found {what} (line {line}, column {column}); "
        "no user of a node has this right: run it where the warehouse is open"
    )
