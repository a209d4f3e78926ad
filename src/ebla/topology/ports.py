"""Where the topology's effects attach. What is decided is a function of the catalog; what is done goes through these.

The same services run in a process, on its `Context`, and in the simulation, on a model of processes, threads and files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol

from ebla.base.ids import NodeId, TabletId, TransactionId
from ebla.base.services import Scheduler
from ebla.base.settings import Settings
from ebla.catalog.leadership import Leadership
from ebla.catalog.store import Catalog
from ebla.model.relation import Relation
from ebla.storage.node_files import Files
from ebla.tables.leases import Leases


class Roots(Protocol):
    """The storage roots of nodes."""

    def files(self) -> Files:
        """The files of all nodes that may hold replicas."""
        ...


class Host(Protocol):
    """The process that a service of the topology runs in."""

    @property
    def catalog(self) -> Catalog: ...

    settings: Settings
    services: Scheduler
    leadership: Leadership
    leases: Leases
    holder: str
    node: NodeId

    @property
    def nodes(self) -> Roots: ...

    def kept_alive(self, transaction: TransactionId) -> AbstractContextManager[None]: ...

    def at_work(self, what: str) -> AbstractContextManager[None]: ...


class Threads(Protocol):
    """Work beside the services of a process."""

    def begin(self, work: Callable[[], None]) -> None:
        """Begin a piece of work, which handles its own errors."""
        ...

    def close(self) -> None:
        """Begin nothing more, and wait for what has begun."""
        ...


class Cutter(Protocol):
    """What prepares runs for a resize."""

    def cut(self, relation: Relation, tablets: Collection[TabletId]) -> int:
        """Cut the level 1 runs of some tablets that cross the coming ones; how many there were."""
        ...

    def fold(self, relation: Relation) -> int:
        """Fold level 0; how many runs were folded."""
        ...
