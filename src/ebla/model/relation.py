"""What a relation is made of: columns, tablets, runs. Plain values; nothing here reads or writes.

A *relation* (table, view or index) is cut into 2ⁿ *tablets* by the token of its key. A tablet's rows lie in
immutable Parquet files, the *runs*. Level 1 runs hold one resolved row per key, sorted, inside one tablet. Level 0
runs hold the mutations of one commit and may span tablets. For any tablet every visible level 0 run is newer than
level 1, so a read is "level 1 without the keys of level 0, plus the last mutation of each of those keys".
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, Token, TransactionId, Version
from ebla.model.lifecycle.tablet import Replicas, Stage, reads_from, requires_of, writes_to
from ebla.model.tablets import TokenRange, resized, tablet_around

FOREVER = Version(2**62)
"""The `end_version` of what has not ended."""

SPANS_TABLETS = TabletId(-1)
"""The tablet of a level 0 run whose tokens lie in several tablets."""

ROW_TXN = "_row_txn"
ROW_SEQ = "_row_seq"
HIDDEN_KEY = (ROW_TXN, ROW_SEQ)
"""The hidden row id of a table without a primary key: the transaction that inserted the row, and its number there."""

DELETED = "_deleted"
"""The column of a level 0 run that marks a tombstone. A file without it holds upserts only."""

TOKEN = "_token"
"""The column of a level 0 run with the row's token."""

RESERVED = frozenset({*HIDDEN_KEY, DELETED, TOKEN, "_kind", "_version", "_tablet", "_change_type",
                      "_commit_version", "_commit_timestamp", "_metadata"})  # fmt: skip


NAME_MAX = 255

_UNPRINTED = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Classes of characters that no name may have: controls, lone surrogates, separators of lines and paragraphs."""


def unprinted(name: str) -> str | None:
    """Where a name has a control character, as `expected …, found …`; `None`: it has none.

    Such a character ends a line of a log or moves the cursor of the terminal that shows the name, and a database may
    refuse to store it.
    """
    for place, character in enumerate(name, start=1):
        if unicodedata.category(character) in _UNPRINTED:
            return f"expected a name without control characters, found U+{ord(character):04X} as character {place}"
    return None


def misnamed(name: str) -> str | None:
    """What is wrong with a name for a relation, a column or a handler, as `expected …, found …`; `None`: nothing."""
    if (wrong := unprinted(name)) is not None:
        return wrong
    if not name or name.lower().startswith("sys$") or len(name) > NAME_MAX or name != name.strip():
        return f"expected a name of 1 to {NAME_MAX} characters that does not begin with sys$"
    return None


class Kind(StrEnum):
    TABLE = "table"
    VIEW = "view"
    INDEX = "index"

    @property
    def named(self) -> str:
        """For messages."""
        return f"{'an' if self is Kind.INDEX else 'a'} {self.value}"

    @property
    def spelled(self) -> str:
        """The kind in the words of statements, behind CREATE, DROP and ALTER."""
        return "MATERIALIZED VIEW" if self is Kind.VIEW else self.value.upper()


class RunState(StrEnum):
    """`staging` runs are invisible to reads of their relation until a task has processed them."""

    NORMAL = "normal"
    STAGING = "staging"


class RunSource(StrEnum):
    """Who wrote a run. Only `write` runs are changes; `compaction` says the same thing again."""

    WRITE = "write"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """What a column holds where a row gives nothing: the constant as declared, and its value as JSON (`defaults`)."""

    text: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    physical: str
    """The name in Parquet files. It never changes and is never used again, so renaming and dropping touch no file."""
    type: str
    nullable: bool = True
    key_position: int | None = None
    hidden: bool = False
    comment: str | None = None
    default: Default | None = None

    @property
    def required(self) -> bool:
        """Whether every new row must give it a value."""
        return not self.nullable and self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """`CHECK (text)`: no row may make it false."""

    name: str
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the session whose expression it is."""
    checked: bool = True
    """Whether the rows that were there before it fulfil it; new ones must in any case."""


def under_names(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Columns of rows that are not in a file: under the names that users know."""
    return tuple(replace(column, physical=column.name) for column in columns)


class Move(NamedTuple):
    """A tablet in transition: its stage, the node that it leaves, and the one that it comes to."""

    stage: Stage
    leaving: NodeId | None
    pending: NodeId | None

    def after(self, nodes: Sequence[NodeId]) -> tuple[NodeId, ...]:
        """The nodes of the tablet at the end, in the order of now: the pending one in the place of the leaving one."""
        if self.leaving in nodes:
            moved = (self.pending if node == self.leaving else node for node in nodes)
            return tuple(node for node in moved if node is not None)
        return tuple(nodes) if self.pending is None or self.pending in nodes else (*nodes, self.pending)


@dataclass(frozen=True, kw_only=True)
class Relation:
    id: RelationId
    name: str
    kind: Kind
    tablets: int
    replication: int
    schema_version: int
    placement_version: int
    columns: tuple[Column, ...]
    """All columns in order, hidden ones last."""
    placement: tuple[tuple[NodeId, ...], ...]
    """The nodes that hold each tablet, preferred reader first."""
    horizon: Version
    """Snapshots and changes from before this version may be gone."""
    created_version: Version
    comment: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    map_version: Version = Version(0)  # noqa: RUF009
    """Since when it has the tablets that it has now."""
    moves: Mapping[TabletId, Move] = field(default_factory=dict)
    """Its tablets in transition."""

    @cached_property
    def key(self) -> tuple[Column, ...]:
        keyed = [c for c in self.columns if c.key_position is not None]
        return tuple(sorted(keyed, key=lambda c: c.key_position or 0))

    @cached_property
    def placed_by(self) -> tuple[Column, ...]:
        """The columns whose hash is a row's token: the key; of an index, its base's key, so that both lie together."""
        names = self.options.get("placed_by")
        if not isinstance(names, list):
            return self.key
        return tuple(next(c for c in self.key if c.physical == name) for name in names)

    @property
    def identity(self) -> tuple[Column, ...]:
        """The columns that say which row it is: a newer mutation with equal ones replaces it.

        Runs are sorted by the key. For a table or a view that is the same; an index has one entry for each row of its
        base at most, whatever it is sorted by.
        """
        return self.placed_by

    @cached_property
    def descending(self) -> frozenset[str]:
        """The physical names of key columns by which level 1 runs are sorted downwards."""
        names = self.options.get("descending")
        return frozenset(names) if isinstance(names, list) else frozenset()

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        kept = self.options.get("constraints")
        return tuple(Constraint(**one) for one in kept) if isinstance(kept, list) else ()

    @cached_property
    def min_copies(self) -> int:
        """How many replicas of a tablet must have a run before it is committed; the majority of them by default."""
        given = self.options.get("min_copies")
        return given if isinstance(given, int) else self.replication // 2 + 1

    @cached_property
    def visible(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if not c.hidden)

    @property
    def keyless(self) -> bool:
        """True for a table without a primary key, whose rows carry a hidden row id."""
        return any(c.hidden for c in self.key)

    def column(self, name: str) -> Column | None:
        wanted = name.lower()
        return next((c for c in self.columns if c.name.lower() == wanted), None)

    def in_map(self, tablets: int) -> Relation:
        """The same relation with `tablets` tablets. The halves of a tablet in transition are in the same one: runs that
        are cut for a map that is coming go where those of the tablet go."""
        if tablets == self.tablets:
            return self
        moves = resized([self.moves.get(TabletId(tablet)) for tablet in range(self.tablets)], tablets)
        return replace(
            self,
            tablets=tablets,
            placement=resized(self.placement, tablets),
            moves={TabletId(tablet): move for tablet, move in enumerate(moves) if move is not None},
        )

    def replicas(self, tablet: TabletId, which: Replicas) -> tuple[NodeId, ...]:
        """The nodes of one of a tablet's sets of replicas."""
        old, move = self.placement[tablet], self.moves.get(tablet)
        if move is None or which is Replicas.OLD:
            return old
        new = move.after(old)
        return new if which is Replicas.NEW else (*old, *(node for node in new if node not in old))

    def reads_from(self, tablet: TabletId) -> tuple[NodeId, ...]:
        return self.replicas(tablet, reads_from(self._stage(tablet)))

    def writes_to(self, tablet: TabletId) -> tuple[NodeId, ...]:
        """The nodes that a run of a tablet is written to."""
        return self.replicas(tablet, writes_to(self._stage(tablet)))

    def required(self, tablet: TabletId) -> tuple[tuple[NodeId, ...], ...]:
        """The sets of nodes of each of which enough must have a run before it is committed."""
        which = requires_of(self._stage(tablet))
        sets = (Replicas.OLD, Replicas.NEW) if which is Replicas.BOTH else (which,)
        return tuple(self.replicas(tablet, one) for one in sets)

    def _stage(self, tablet: TabletId) -> Stage | None:
        move = self.moves.get(tablet)
        return None if move is None else move.stage

    def replica_sets(self) -> dict[tuple[NodeId, ...], list[TabletId]]:
        """Tablets grouped by the nodes that are written to; with one node there is one group."""
        groups: dict[tuple[NodeId, ...], list[TabletId]] = {}
        for tablet in map(TabletId, range(self.tablets)):
            groups.setdefault(tuple(sorted(self.writes_to(tablet))), []).append(tablet)
        return groups

    def joint_sets(self, having: Collection[TabletId]) -> dict[tuple[NodeId, ...], list[TabletId]]:
        """The same for few rows, which some tablets have: while one of these is written to old and new replicas, they
        take the rows of tablets on some of them, too.

        So a small write has no more files than without a move, and what comes to the new replica next is there already.
        """
        groups = self.replica_sets()
        both = {t for t in self.moves.keys() & set(having) if writes_to(self._stage(t)) is Replicas.BOTH}
        unions = [nodes for nodes, tablets in groups.items() if both.intersection(tablets)]
        unions = [nodes for nodes in unions if not any(set(nodes) < set(other) for other in unions)]
        found: dict[tuple[NodeId, ...], list[TabletId]] = {}
        for nodes, tablets in groups.items():
            over = [other for other in unions if set(nodes) <= set(other)]
            found.setdefault(min(over, key=lambda other: (len(other), other), default=nodes), []).extend(tablets)
        return {nodes: sorted(tablets) for nodes, tablets in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One immutable Parquet file and its copies."""

    id: RunId
    relation: RelationId
    level: int
    tablet: TabletId
    """The tablet in the map that the run was written or read with; `SPANS_TABLETS` if several have its tokens."""
    token_min: Token
    token_max: Token
    rows: int
    tombstones: int
    bytes: int
    path: str
    """Relative to the storage root of each node in `nodes`."""
    nodes: tuple[NodeId, ...]
    transaction: TransactionId
    schema_version: int
    key_min: str | None = None
    """The first key, as JSON; `None` for an empty run."""
    key_max: str | None = None
    state: RunState = RunState.NORMAL
    source: RunSource = RunSource.WRITE
    begin_version: Version = FOREVER
    """The version of the newest commit that it has rows of. A run that was merged from several is visible later."""
    end_version: Version = FOREVER
    spread: str | None = None
    """Which tablets it has rows of (`ebla.model.tablets.spread_of`); `None`: maybe all from its first to its last."""

    @property
    def tokens(self) -> TokenRange:
        return TokenRange(self.token_min, self.token_max)

    def in_map(self, tablets: int) -> Run:
        """The same run for readers of a map of `tablets` tablets."""
        tablet = tablet_around(self.tokens, tablets)
        return replace(self, tablet=SPANS_TABLETS if tablet is None else tablet)
