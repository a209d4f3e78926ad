"""What a write asks of the indexes of its relation: `ebla.indexes` answers, and `tables` knows no more of it.

A write finds the indexes and their states at its beginning (`Upkeep`), and its commit requires that none of them has
gone further than one step. Which entries its rows bring, and whether a unique index takes them, says the maintainer
(`IndexMaintainer`), which the context carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from sqlalchemy import Connection

from ebla.base.ids import RelationId, Version
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import Relation
from ebla.model.snapshot import Snapshot
from ebla.relations.indexes import Index, IndexCache

if TYPE_CHECKING:
    from ebla.tables.commit import Commit


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """The indexes of a relation as a transaction found them."""

    base: Relation
    indexes: tuple[Index, ...] = ()
    planned: dict[RelationId, Permission] = field(default_factory=dict)

    @classmethod
    def read(cls, indexes: IndexCache, connection: Connection, base: Relation) -> Upkeep:
        found = indexes.of_base(connection, base)
        return cls(
            base=base,
            indexes=tuple(i for i in found if i.maintained),
            planned={i.id: i.state for i in found if i.state is not Permission.ABSENT},
        )

    def requirement(self) -> c.IndexesFollow:
        return c.IndexesFollow(base=self.base.id, planned=self.planned)


class IndexMaintainer(Protocol):
    """Makes the entries of a write's rows. Its commit has a follower, a sink of its own, for each index."""

    def follow_rows(self, commit: Commit, table: pa.Table, kinds: pa.Array, *, emptied: bool) -> None:
        """Add what settled rows on the driver do to each index. `emptied`: nothing of the old rows stays."""
        ...

    def follow_files(self, commit: Commit, before: Snapshot | None, *, emptied: bool) -> None:
        """The same for rows that lie in the write's files; `before` is the relation as the transaction found it."""
        ...

    def refuse_shared(self, commit: Commit, since: Version, until: Version) -> None:
        """Raise `Overtaken` if a value of a unique index is also in what others wrote between two versions."""
        ...
