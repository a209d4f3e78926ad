"""A relation that is queried, as the catalog says it is at one version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ebla.base.ids import NodeId, Version
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.predicates.access import AccessPath
from ebla.predicates.select import IndexVocabulary
from ebla.query.overlay import Divisions
from ebla.query.paths import spoken_of
from ebla.query.view_freshness import ViewFreshness
from ebla.storage import runs as rf
from ebla.storage.files import Root


@dataclass(frozen=True, kw_only=True)
class PreparedRelation:
    """What the catalog says of a relation at one version.

    The snapshots may be of an older version since which nothing of theirs has changed.
    """

    version: Version
    shape: tuple[int, int]
    """The shape of the catalog at that version: its schema and its topology."""
    relation: Relation
    paths: tuple[tuple[AccessPath, Snapshot], ...]
    """The relation itself comes first."""
    roots: Mapping[NodeId, Root]
    fresh: ViewFreshness | None
    """The freshness of a view."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Indexes that are not among the paths, and why."""
    divisions: Divisions = field(default_factory=dict, compare=False)
    """Of the snapshots, as far as queries have asked."""

    def distrust_damaged(self) -> bool:
        """Distrust copies that are not what the catalog says, so that others are read; whether there were any."""
        return any(rf.distrust_damaged(snapshot, self.roots) for _, snapshot in self.paths)

    def spoken(self, settings: Callable[[], Mapping[str, str]]) -> IndexVocabulary:
        """What indexes have besides the relation's columns, as far as it means the same under a session's settings."""
        paths = [path for path, _ in self.paths if path.settings]
        return spoken_of(paths, settings()) if paths else IndexVocabulary()
