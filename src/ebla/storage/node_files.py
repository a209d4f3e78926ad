"""The files of runs under the roots of nodes, as copies are made of them from one node to another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from ebla.base.ids import NodeId
from ebla.storage import copies
from ebla.storage import runs as rf
from ebla.storage.files import Root

T = TypeVar("T")
R = TypeVar("R")


class Files(Protocol):
    """Files of nodes. Paths are relative to the root of each node."""

    @property
    def writable(self) -> frozenset[NodeId]:
        """The nodes whose roots can be written to."""
        ...

    @property
    def near(self) -> frozenset[NodeId]:
        """The nodes whose disks are of this machine."""
        ...

    def size(self, node: NodeId, path: str) -> int | None:
        """The bytes of a file; `None`: there is none."""
        ...

    def source(self, path: str, size: int, among: Collection[NodeId]) -> NodeId | None:
        """The first of some nodes that has a sound copy of a file."""
        ...

    def copy(self, path: str, size: int, source: NodeId, target: NodeId, beside: str) -> None:
        """Copy a file beside its place; `StorageError`: there is none. `beside`: a name of the copier's own."""
        ...

    def flush(self, target: NodeId, beside: str) -> None:
        """Have the disk store such a copy; `StorageError`: there is none."""
        ...

    def settle(self, path: str, size: int, source: NodeId, target: NodeId, beside: str) -> None:
        """Check such a copy, which is flushed, and give it its name; `StorageError`: there is none."""
        ...

    def flush_names(self, node: NodeId, paths: Sequence[str]) -> None:
        """Have the names of files on a node last; before that nothing may say that they are there."""
        ...

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Do something with several files at a time."""
        ...


class NodeFiles:
    """Files under storage roots."""

    def __init__(self, roots: Mapping[NodeId, Root]) -> None:
        self._roots = roots

    @property
    def writable(self) -> frozenset[NodeId]:
        return frozenset(node for node, root in self._roots.items() if root.is_writable)

    @property
    def near(self) -> frozenset[NodeId]:
        return frozenset(node for node, root in self._roots.items() if root.local and not root.is_remote)

    def size(self, node: NodeId, path: str) -> int | None:
        return self._roots[node].size(path)

    def source(self, path: str, size: int, among: Collection[NodeId]) -> NodeId | None:
        found = (node for node in among if node in self._roots and self._roots[node].sound(path, size))
        return next(found, None)

    def copy(self, path: str, size: int, source: NodeId, target: NodeId, beside: str) -> None:
        copies.begin_copy(self._roots[source], self._roots[target], path, size, beside)

    def flush(self, target: NodeId, beside: str) -> None:
        copies.flush_copy(self._roots[target], beside)

    def settle(self, path: str, size: int, source: NodeId, target: NodeId, beside: str) -> None:
        copies.end_copy(self._roots[source], self._roots[target], path, size, beside)

    def flush_names(self, node: NodeId, paths: Sequence[str]) -> None:
        copies.flush_names(self._roots[node], paths)

    def together(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return rf.in_threads(function, items)
