"""What writing needs beside reading: who writes, leases of transactions, and what a write brings to indexes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebla.base.activities import Activities, Progress
from ebla.base.ids import NodeId, TransactionId
from ebla.catalog.lag import Lag
from ebla.tables.leases import Leases
from ebla.tables.read_access import ReadAccess

if TYPE_CHECKING:
    from ebla.tables.upkeep import IndexMaintainer


def unwatched(what: str, part: float | None) -> None:
    """Progress is not shown."""


@dataclass(kw_only=True, slots=True, eq=False)
class WriteAccess(ReadAccess):
    """Statements, epochs, builds and compaction have it. It begins nothing in the background and ends nothing."""

    leases: Leases
    lag: Lag
    maintainer: IndexMaintainer | None
    """Computes the entries of indexes of tables that are written to. A context that only reads has none."""
    holder: str
    node: NodeId
    """The host id of the node that this process is."""
    activities: Activities = field(default_factory=Activities)
    progress: Progress = unwatched

    @contextlib.contextmanager
    def at_work(self, what: str) -> Iterator[None]:
        """Say what is being done (`epoch of card`) for as long as it takes, and keep the files that it fetches."""
        with self.activities.doing(what), self.storage.nodes.reading():
            yield

    def kept_alive(self, transaction: TransactionId) -> contextlib.AbstractContextManager[None]:
        """Renew a transaction's lease in the background while its work goes on."""
        return self.leases.renewed(transaction)

    @property
    def index_maintainer(self) -> IndexMaintainer:
        assert self.maintainer is not None, "a context that only reads keeps no index"
        return self.maintainer
