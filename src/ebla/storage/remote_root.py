"""The storage root of a node whose files only its own machine reaches by path: they come and go through its process.

What is read is fetched into a cache on this machine first (`ebla.storage.file_cache`), and has a path there, which
Spark, DuckDB and Arrow open. What is written is sent to the node, which checks it and gives it its name. Spark never
writes here: scratch lies under a root of this machine.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ebla.base.ids import NodeId
from ebla.errors import StorageError
from ebla.storage.file_cache import BLOCK_BYTES, FileCache, RemoteFile
from ebla.storage.files import ROW_GROUP_ROWS, Root, encoded, translated

DISTRUST_S = 5.0
"""How long a copy is not asked for that was missing or damaged."""


class FileCalls(Protocol):
    """Calls to the processes of other nodes for the files under their roots."""

    def reaches(self, node: NodeId) -> bool:
        """Whether the node's process lives, with its root, and answered when it was last called."""
        ...

    def size(self, node: NodeId, path: str) -> int | None:
        """The bytes of a file; `None`: there is none."""
        ...

    def read(self, node: NodeId, path: str, offset: int) -> AbstractContextManager[RemoteFile]:
        """A file from a place on."""
        ...

    def put(self, node: NodeId, path: str, blocks: Iterator[bytes], checksum: str, beside: str | None) -> None:
        """Write a file; it gets its name when it is whole. `beside`: the name that it has before."""
        ...

    def remove(self, node: NodeId, path: str) -> bool:
        """Remove a file, or a folder with all that is in it; whether there was one."""
        ...

    def listing(self, node: NodeId, under: str) -> list[tuple[str, int, bool]]:
        """What `Root.listing` says there."""
        ...


class RemoteRoot(Root):
    """The root of one node. `location` is where its files lie in the cache."""

    is_remote = True

    def __init__(self, node: NodeId, cache: FileCache, calls: Callable[[], FileCalls | None]) -> None:
        super().__init__(str(cache.directory / node), fsync=False, mask=cache.mask)
        self._node = node
        self._cache = cache
        self._found_calls = calls
        self._distrusted_s: dict[str, float] = {}

    @property
    def _calls(self) -> FileCalls:
        found = self._found_calls()
        if found is None:
            raise StorageError(
                f"node {self._node}: expected to reach its files, found a storage root that is local to its machine, "
                "and a process that is no node with the cluster's secret; connect to a node over HTTP"
            )
        return found

    def _name(self, path: str) -> str:
        return f"{self._node}/{path}"

    # ---- what is there ----------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        found = self._found_calls()
        return found is not None and found.reaches(self._node)

    def size(self, path: str) -> int | None:
        return self._calls.size(self._node, path) if self.is_writable else None

    def sound(self, path: str, size: int) -> bool:
        """Whether the manifest can be believed: the file is here, or its node can be asked for it."""
        calls = self._calls
        if time.monotonic() < self._distrusted_s.get(path, 0.0):
            return False
        return self._cache.has(self._name(path), size) or calls.reaches(self._node)

    def distrust(self, path: str) -> None:
        self._cache.drop(self._name(path))
        self._distrusted_s[path] = time.monotonic() + DISTRUST_S

    def listing(self, under: str = "") -> list[tuple[str, int, bool]]:
        return self._calls.listing(self._node, under)

    # ---- reading ----------------------------------------------------------------------------------------

    def fetch(self, path: str) -> None:
        calls = self._calls
        self._cache.fetch(self._name(path), lambda offset: calls.read(self._node, path, offset))

    def fetch_again(self, path: str) -> None:
        self._cache.drop(self._name(path))
        self.fetch(path)

    def open_parquet(self, path: str) -> pq.ParquetFile:
        self.fetch(path)
        return super().open_parquet(path)

    # ---- writing ----------------------------------------------------------------------------------------

    def make_parent(self, path: str) -> None:
        raise StorageError(f"{path}: expected a storage root of this machine, found that of node {self._node}")

    def write_parquet(self, table: pa.Table, path: str, row_group_rows: int = ROW_GROUP_ROWS) -> int:
        content = encoded(table, row_group_rows)
        self.write_bytes(content, path)
        return int(content.size)

    def write_bytes(self, content: pa.Buffer, path: str) -> None:
        whole = memoryview(content)
        blocks = (bytes(whole[at : at + BLOCK_BYTES]) for at in range(0, len(whole), BLOCK_BYTES))
        self._calls.put(self._node, path, blocks, hashlib.sha256(whole).hexdigest(), None)
        self._cache.put(self._name(path), whole)

    def receive(self, source: Root, path: str) -> None:
        self.receive_checked(source, path, None, None)

    def receive_checked(self, source: Root, path: str, size: int | None, beside: str | None) -> None:
        """Send a file of another root there; the node reads it again before it has its name."""
        source.fetch(path)
        digest, found = hashlib.sha256(), 0
        with translated(source.full(path)):
            for block in _blocks(source, path):
                digest.update(block)
                found += len(block)
        if size is not None and found != size:
            raise StorageError(f"{source.full(path)}: expected {size} bytes to copy, found {found}; check the disks")
        self._cache.drop(self._name(path))
        self._calls.put(self._node, path, _blocks(source, path), digest.hexdigest(), beside)
        self._distrusted_s.pop(path, None)

    def move(self, source: str, target: str) -> None:
        self.make_parent(target)

    def remove(self, path: str) -> bool:
        self._cache.drop(self._name(path))
        return self.is_writable and self._calls.remove(self._node, path)

    def remove_tree(self, path: str) -> None:
        self.remove(path)


def _blocks(root: Root, path: str) -> Iterator[bytes]:
    with root.filesystem.open_input_stream(root.inner(path)) as read:
        yield from iter(lambda: read.read(BLOCK_BYTES), b"")
