"""What a commit asks for and what it changes, as values.

A `Decision` is made by pure code from what it read. `requires` says under which conditions it still holds;
the catalog checks them in the same database transaction that applies `updates`, and then gives the decision
the next version. A requirement that fails says "expected X, found Y".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebla.base.ids import NodeId, RelationId, RunId, TaskId, Term, TransactionId, Version
from ebla.model.access import PutGrant, PutUser, RemoveUser
from ebla.model.failure import Failure
from ebla.model.lifecycle.index import Permission
from ebla.model.lifecycle.view import ViewState
from ebla.model.relation import Column, Constraint, Kind, Run, RunState
from ebla.model.scopes import Scope, of_relation
from ebla.model.segments import Segment
from ebla.model.tablets import TokenRange
from ebla.model.tasks import Build, Task
from ebla.model.topology_changes import ROWS_ONLY as TOPOLOGY_ROWS_ONLY
from ebla.model.topology_changes import TopologyUpdate, TransitionUpdate
from ebla.model.work import WorkKind as WorkKind  # noqa: PLC0414 - `c.WorkKind`, for those who make decisions

# ---- requirements ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveVersionIs:
    """No exclusive commit has happened since the decision read its state, in the scopes that it was made from.

    No scopes: in none at all.
    """

    version: Version
    scopes: frozenset[Scope] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOpen:
    transaction: TransactionId


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaWithinOne:
    """The relation lives, and its schema is at most one state newer than the one the writer planned with."""

    relation: RelationId
    schema_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpen:
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressIs:
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TermIs:
    lease: str
    holder: str
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWritesSince:
    """No data commit has touched the relation after this version: the writer has compared its keys with all before."""

    relation: RelationId
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsLive:
    """Every one of these runs is still visible, so folding them loses nothing."""

    relation: RelationId
    runs: frozenset[RunId]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReaderBelow:
    """No living pin and no open transaction needs a version older than this one."""

    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoffsAre:
    """The last folds that hold these tablets reach up to these versions."""

    relation: RelationId
    cutoffs: Mapping[TokenRange, Version]


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksOpen:
    """Every one of these tasks is there and not aborted: their workers still may."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsStaged:
    """Every one of these runs is still staged: no commit has made it visible, and no truncation has ended it."""

    relation: RelationId
    runs: frozenset[RunId]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsBegin:
    """What a view covers of these tokens begins with these segments; a chunk may have added more.

    With `exactly`, nothing was added either: the position is the one that the chunk started from.
    """

    view: RelationId
    tokens: TokenRange
    segments: tuple[Segment[str], ...]
    exactly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingLeftToBuild:
    """The view is there and not built, and no task of it is left.

    Not even an aborted one: another will take its place.
    """

    view: RelationId


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexesFollow:
    """Every index of the base is in the state that the writer planned with, or one step further; none is gone."""

    base: RelationId
    planned: Mapping[RelationId, Permission]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexIs:
    """The index is in this state since this version, and is built from what the base was at that one."""

    index: RelationId
    state: Permission
    since: Version
    read_version: Version | None


RunRequirement = NoWritesSince | RunsLive | RunsStaged | CutoffsAre

SessionRequirement = TransactionOpen | SessionOpen | ProgressIs | TermIs | NoReaderBelow

Requirement = (
    ExclusiveVersionIs
    | SchemaWithinOne
    | RunRequirement
    | SessionRequirement
    | TasksOpen
    | SegmentsBegin
    | NothingLeftToBuild
    | IndexesFollow
    | IndexIs
)

# ---- updates --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRuns:
    """Make runs visible from the commit's version on.

    `level1_if_empty` names tablets whose run becomes level 1 if the tablet has no visible run at commit time,
    and level 0 otherwise: a bulk load into empty tablets needs no folding, and never loses to a concurrent writer.
    """

    runs: tuple[Run, ...]
    level1_if_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRuns:
    relation: RelationId
    runs: frozenset[RunId]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCopies:
    """Copies of runs were made on nodes.

    One of a run that the manifest does not have any more, or that belongs on its node no longer, is not added: a sweep
    takes the file.
    """

    relation: RelationId
    copies: tuple[tuple[RunId, NodeId], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCutoff:
    """Level 0 is folded up to this version in these tablets."""

    relation: RelationId
    tablets: tuple[TokenRange, ...]
    cutoff: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRunState:
    runs: frozenset[RunId]
    state: RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    transaction: TransactionId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProgress:
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRelation:
    """The identifier is given by the commit; `CommitRecord.relation` returns it.

    `number` is one that `transactions.begin_new` has taken: the relation's first files are there already.
    `reads` are the relations that a view reads.
    """

    name: str
    kind: Kind
    tablets: int
    replication: int
    columns: tuple[Column, ...]
    placement: tuple[tuple[NodeId, ...], ...]
    comment: str | None
    options: Mapping[str, object]
    number: RelationId | None = None
    reads: tuple[RelationId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRelation:
    relation: RelationId


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameRelation:
    relation: RelationId
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRelationComment:
    relation: RelationId
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetColumns:
    """Replace the relation's columns; the schema version grows by one, or by two if no write may commit that was
    planned without them."""

    relation: RelationId
    columns: tuple[Column, ...]
    outdates_writes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConstraints:
    """Replace a table's constraints; the schema version grows by one, so that writers learn of it."""

    relation: RelationId
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateRelation:
    relation: RelationId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHorizon:
    """Forget snapshots before `horizon`: the runs that ended at or before it are removed from the manifest."""

    relation: RelationId
    horizon: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlacement:
    relation: RelationId
    placement: tuple[tuple[NodeId, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTabletMap:
    """The relation and its indexes have this many tablets from now on; their placement follows.

    It must fit what they hold: every run of level 1 lies in one tablet, and level 0 is folded up to one version in all
    of a tablet. What views cover of the relation is cut where a tablet is, and so are their tasks.
    """

    relation: RelationId
    tablets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    session: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutHandler:
    """A handler as it shall be; `settings` is a JSON object. Names are compared as they are."""

    name: str
    settings: str
    should_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveHandler:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DictionaryChange:
    """A row that a commit changed: its key as a JSON list (`null`: any row), and the changed columns (`*`: all)."""

    relation: RelationId
    version: Version
    key: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDictionaryChanges:
    changes: tuple[DictionaryChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetDictionaryChanges:
    """Every view has read this input up to the version."""

    relation: RelationId
    version: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBuild:
    """A view or index is to be built, by these tasks. All of them name the view.

    `of_created`: they name none yet, and mean the relation that the same commit has created before this update.
    """

    build: Build
    tasks: tuple[Task, ...]
    of_created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterBuild:
    """Another pace from now on, all of it as given. Nothing happens where the view is built already."""

    view: RelationId
    rows_per_minute: int | None
    chunk_rows: int | None
    concurrency: int | None = None
    on_hold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTasks:
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTasks:
    """For ever: no update takes it back. Tasks that are gone stay gone."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishTasks:
    """Remove tasks that are done. One that was aborted meanwhile stays, to be replaced."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTasks:
    """Remove tasks whose place others have taken."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverSegment:
    """A chunk was read: one more segment behind those that are there."""

    view: RelationId
    tokens: TokenRange
    segment: Segment[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceSegments:
    """An epoch was applied to the first `seen` segments. What chunks added behind them stays."""

    view: RelationId
    tokens: TokenRange
    seen: int
    segments: tuple[Segment[str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetSegments:
    """Start over: the base was truncated, or the build is to be done again."""

    view: RelationId


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkBuilt:
    """The view can be read. What only its build needed goes."""

    view: RelationId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProcessingBase:
    base: RelationId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndex:
    """The relation that this commit has created before is an index of the base.

    It begins with `delete_only`. A deferred one is `absent` until a user asks for it: no writer maintains it.
    """

    base: RelationId
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIndexState:
    """The next state of an index. One that is to be filled begins empty, and this version is the one that is read.

    `absent` removes the index and all that it has.
    """

    index: RelationId
    state: Permission
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetViewState:
    """The next state of a view, with the failure that led to it."""

    view: RelationId
    state: ViewState
    failure: Failure | None = None


IndexUpdate = CreateIndex | SetIndexState

BuildingUpdate = (
    CreateBuild
    | AlterBuild
    | CreateTasks
    | AbortTasks
    | FinishTasks
    | RemoveTasks
    | CoverSegment
    | ReplaceSegments
    | ForgetSegments
    | MarkBuilt
    | SetViewState
    | SetProcessingBase
)

RunUpdate = AddRuns | AddCopies | EndRuns | SetCutoff | SetRunState

SessionUpdate = EndTransaction | OpenSession | CloseSession | SetProgress

UserUpdate = PutUser | RemoveUser | PutGrant

HandlerUpdate = PutHandler | RemoveHandler | LogDictionaryChanges | ForgetDictionaryChanges

RelationUpdate = (
    DropRelation
    | RenameRelation
    | SetRelationComment
    | SetColumns
    | SetConstraints
    | TruncateRelation
    | SetHorizon
    | SetPlacement
    | SetTabletMap
)

Update = (
    CreateRelation
    | RelationUpdate
    | RunUpdate
    | SessionUpdate
    | HandlerUpdate
    | IndexUpdate
    | BuildingUpdate
    | TopologyUpdate
    | TransitionUpdate
    | UserUpdate
)

ROWS_ONLY = (
    AddRuns,
    AddCopies,
    EndRuns,
    SetCutoff,
    SetRunState,
    EndTransaction,
    SetProgress,
    OpenSession,
    CloseSession,
    LogDictionaryChanges,
    ForgetDictionaryChanges,
    CreateTasks,
    AbortTasks,
    FinishTasks,
    RemoveTasks,
    CoverSegment,
    ReplaceSegments,
    ForgetSegments,
    SetProcessingBase,
    *TOPOLOGY_ROWS_ONLY,
)
"""Updates that leave the shape as it is (`ebla.catalog.memory`). All others advance its counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A change of the catalog, decided and not yet committed. `exclusive` ones are topology and schema commits.

    `guards` are the scopes that an exclusive decision was made from, none for everything; `moves` those that it moves
    beyond what its updates say. `work` says what it is to those who ask the history: nothing reads that in the reason.
    """

    reason: str
    updates: tuple[Update, ...]
    requires: tuple[Requirement, ...] = ()
    exclusive: bool = False
    guards: frozenset[Scope] = frozenset()
    moves: frozenset[Scope] = frozenset()
    relation: RelationId | None = None
    transaction: TransactionId | None = None
    work: WorkKind | None = None


def on_relation(relation: RelationId, reason: str, update: Update) -> Decision:
    """A decision that was made from one relation alone, and changes it."""
    return Decision(reason=reason, relation=relation, updates=(update,), guards=frozenset({of_relation(relation)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    version: Version
    committed_at: int
    relation: RelationId | None = None
