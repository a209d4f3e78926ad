"""What a statement says, as values.

Names are kept as written (the catalog compares them without regard to case). Queries and expressions are
kept as the user's text: Spark reads them, not Ebla. The one thing known about a query is where it names
tables (`Query.refs`), because those names are replaced by the views of a snapshot before Spark sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ebla.sql.access_statements import AlterUser, CreateUser, DropUser, Grant, ShowGrants, ShowUsers
from ebla.sql.cluster_statements import ClusterStatement, WaitForRequest
from ebla.sql.lex import StatementText
from ebla.sql.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    query: Query
    mode: Literal["extended", "formatted", "cost", "codegen"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpec:
    """`[CONSTRAINT name] CHECK (text)`"""

    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """A column as declared; `type` is the user's text. A primary key column is never nullable."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    checks: tuple[CheckSpec, ...] = ()
    default: str | None = None
    """The text of a constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """`options` has lower-case names; its values are int, float, str, bool or None.

    `query` gives the columns and rows of `CREATE TABLE … AS`, which declares no columns.
    """

    name: str
    columns: tuple[ColumnSpec, ...] = ()
    primary_key: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    query: Query | None = None
    comment: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    checks: tuple[CheckSpec, ...] = ()
    """All of them, those of single columns too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConstraint:
    table: str
    check: CheckSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DropConstraint:
    table: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """`cascade` drops the views that need it, too."""

    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    table: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumns:
    """With `if_not_exists`, columns that are there already stay as they are."""

    table: str
    columns: tuple[ColumnSpec, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumns:
    table: str
    columns: tuple[str, ...]
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    table: str
    column: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterColumnType:
    table: str
    column: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault:
    """`default` is the text of a constant; `None` for `DROP DEFAULT`."""

    table: str
    column: str
    default: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTableComment:
    table: str
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetColumnComment:
    table: str
    column: str
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables:
    """`like` is a pattern of names, as in `ebla.sql.lex.name_pattern`; so it is for views, indexes and handlers."""

    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate:
    """The statement that creates what is there."""

    what: Literal["table", "view", "index", "handler"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """`system` is true for `DESCRIBE system.<name>`."""

    name: str
    system: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """`width` is how many values each row of VALUES has; None where only Spark can tell."""

    table: str
    columns: tuple[str, ...] | None
    source: Query
    upsert: bool = False
    width: int | None = None


Assignments = tuple[tuple[str, str], ...]
"""Column and expression text, in the order written."""

Places = tuple[StatementText, ...]
"""The texts of expressions, each with its place in the script, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    table: str
    alias: str | None
    assignments: Assignments
    where: str | None
    places: Places = field(default=(), compare=False, repr=False)
    """Where the assigned expressions stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    table: str
    alias: str | None
    where: str | None


Matched = Literal["matched", "not_matched", "not_matched_by_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """One WHEN of a MERGE. `star` is `UPDATE SET *` or `INSERT *`; `columns` is None if none are listed."""

    matched: Matched
    action: Literal["update", "delete", "insert"]
    condition: str | None = None
    assignments: Assignments = ()
    columns: tuple[str, ...] | None = None
    values: tuple[str, ...] = ()
    star: bool = False
    places: Places = field(default=(), compare=False, repr=False)
    """Where the expressions that are assigned or inserted stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """`source` is the user's text after USING, alias included; `source_alias` is the name it goes by."""

    table: str
    alias: str | None
    source: str
    source_alias: str | None
    on: str
    clauses: tuple[MergeClause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`format` is None when the file names decide; `options` as in `CreateTable`.

    `parameter` names the parameter whose value is the path, in place of `path`. An asynchronous one does not wait
    until staged rows are visible.
    """

    table: str
    path: str = ""
    parameter: str | None = None
    format: Literal["parquet", "csv", "json"] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    asynchronous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    table: str | None = None
    retain_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """`columns` renames the query's outputs where given; `options` as in `CreateTable`."""

    name: str
    query: Query
    columns: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    asynchronous: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    query_at: int = 0
    """Where the query begins in the statement's text; `name_at`: the name."""
    name_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameView:
    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowViews:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """Bring these views, or all, up to every write committed before."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Return when these views are built and can be read."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerInput:
    """An input of a handler; `at` and `end` are its place in the statement's text."""

    name: str
    batch: bool
    changefeed: str | None = None
    at: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateHandler:
    """`views` and `inputs` may be empty: the validator says so. `view_places` are the views' places in the text."""

    name: str
    views: tuple[str, ...]
    inputs: tuple[HandlerInput, ...]
    consumer: str | None = None
    if_not_exists: bool = False
    asynchronous: bool = False
    options: Mapping[str, object] = field(default_factory=dict)
    name_at: int = 0
    view_places: tuple[int, ...] = ()
    source: StatementText | None = field(default=None, compare=False, repr=False)
    """The statement's text, in which the places are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropHandler:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterHandler:
    """`ALTER HANDLER h SET (name = value, …)`"""

    name: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowHandlers:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs:
    """`SHOW JOBS | RUNNERS | COMMANDS`"""

    what: Literal["jobs", "runners", "commands"]
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterBuild:
    """`ALTER MATERIALIZED VIEW v | INDEX i PAUSE | RESUME | SET (name = value, …)`: how fast it is built.

    `on_hold` is true for PAUSE and false for RESUME, which have no options.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    on_hold: bool | None = None
    of: Literal["view", "index"] = "view"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelBuild:
    """Build a view or an index no further: it goes, with all that was built."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexItem:
    """A column or an expression of an index's key, as written; `at` is its place in the statement's text."""

    text: str
    column: str | None
    """The name, where it is a column and nothing else."""
    descending: bool = False
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndex:
    """`options` as in `CreateTable`; `where` is the text of a condition."""

    name: str
    table: str
    items: tuple[IndexItem, ...]
    include: tuple[str, ...] = ()
    where: str | None = None
    unique: bool = False
    if_not_exists: bool = False
    asynchronous: bool = False
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIndex:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowProgress:
    """How far builds are; without a name, all of them."""

    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildIndexes:
    """Build the deferred indexes of a table or view, and go on with those whose build was interrupted."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowIndexes:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowReplication:
    """How many copies relations have, and how many are missing."""

    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Compare an index or a view with its definition, or a table's files with the catalog; `percent` of it if given."""

    what: Literal["index", "view", "table"]
    name: str
    percent: float | None = None
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    what: Literal["index", "view", "table"]
    name: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainIndex:
    name: str


UserStatement = CreateUser | AlterUser | DropUser | Grant | ShowUsers | ShowGrants
IndexStatement = CreateIndex | DropIndex | BuildIndexes | ShowIndexes | ExplainIndex
CheckStatement = Check | Repair
ColumnStatement = AddColumns | DropColumns | RenameColumn | AlterColumnType

TableDefinition = (
    CreateTable
    | DropTable
    | RenameTable
    | ColumnStatement
    | AddConstraint
    | DropConstraint
    | SetDefault
    | SetTableComment
    | SetColumnComment
)
"""Statements that create, alter or drop a table."""
HandlerStatement = CreateHandler | DropHandler | AlterHandler | ShowHandlers | ShowJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainView:
    """How a view is maintained; `create` for a view that does not exist yet."""

    name: str
    create: CreateView | None = None


BuildStatement = AlterBuild | CancelBuild | ShowProgress

WaitStatement = Flush | WaitFor | WaitForRequest
"""Statements that only wait: they may be begun again."""

ViewStatement = CreateView | DropView | RenameView | ShowViews | Flush | WaitFor | ExplainView | BuildStatement

Statement = (
    ViewStatement
    | HandlerStatement
    | IndexStatement
    | ClusterStatement
    | UserStatement
    | CheckStatement
    | Query
    | Explain
    | TableDefinition
    | ShowTables
    | ShowReplication
    | ShowCreate
    | Describe
    | Insert
    | Update
    | Delete
    | Merge
    | Truncate
    | Load
    | Compact
    | Vacuum
)
