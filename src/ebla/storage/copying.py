"""Files copied from nodes that have them to nodes that lack them: the one way in which a copy is made later.

Streaming of tablets, repair, `REBUILD NODE` and `REPAIR TABLE` go through it. Several files are copied at a time. Each
is written beside its place, flushed, read again and renamed (`ebla.storage.copies`), so what is there stays as it was
until the new copy is whole. All are written before the first is flushed: by then the disk has stored most of them, and
one flush of the file system's journal serves many. A folder is flushed once, when all have their names in it. A node
whose disk is full gets no more.

Small files on disks of this machine go in bundles. Beside writers a bundle is one piece of the work (`ebla.base.pace`)
where files by themselves would be flushed one after the other: some hundred of a writer's files took as long as
gibibytes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ebla.base.ids import NodeId, RelationId, TransactionId
from ebla.base.pace import PACE
from ebla.errors import StorageError, StorageFullError
from ebla.storage.files import copy_path
from ebla.storage.node_files import Files

log = logging.getLogger("ebla.storage")

SMALL_BYTES = 2**18
"""Files up to this size go in bundles,"""
BUNDLE_FILES = 32
"""of up to this number: 8 MiB at most, as other pieces."""


class Lack(NamedTuple):
    """A file that a node lacks, and the nodes that should have it, in the order in which they are asked."""

    relation: RelationId
    path: str
    bytes: int
    node: NodeId
    sources: Sequence[NodeId]

    @property
    def places(self) -> tuple[NodeId, ...]:
        """The nodes between which it is copied."""
        return (self.node, *self.sources)


Item = tuple[int, Lack]
"""A file, and its number in the names of what lies beside."""


class _Begun(NamedTuple):
    """A file that lies beside its place."""

    lack: Lack
    source: NodeId
    beside: str


@dataclass(slots=True, kw_only=True)
class CopyResult:
    """What became of copies that were wanted."""

    made: int = 0
    failed: dict[NodeId, str] = field(default_factory=dict)
    """Why a node did not take one, or none could be made for it."""
    full: set[NodeId] = field(default_factory=set)
    """The nodes whose disks are full: nothing more is copied to them."""


class Copier:
    """The files that are copied in one transaction, which keeps a sweep from what is written beside."""

    def __init__(
        self,
        files: Files,
        transaction: TransactionId,
        copied: CopyResult | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_over`: asked between files whether to stop."""
        self._files = files
        self._transaction = transaction
        self.copied = CopyResult() if copied is None else copied
        self._is_over = is_over
        self._numbers = itertools.count()

    def require(self, lacks: Sequence[Lack]) -> None:
        """Copy all of these files, as far as that can be done, or say why one could not be."""
        if not all(self.copy(lacks)):
            what = "; ".join(f"node {node}: {reason}" for node, reason in sorted(self.copied.failed.items()))
            raise (StorageFullError if self.copied.full else StorageError)(what or "expected time to copy, found none")

    def copy(self, lacks: Sequence[Lack]) -> list[bool]:
        """Of each file whether it was copied; why not is in `copied`."""
        items = list(zip(self._numbers, lacks, strict=False))
        begun = self._files.together(self._begin_all, self._bundles(items))
        settled = self._files.together(self._settle_all, [those for those in begun if those])
        named = {one.beside for one in self._named([one for those in settled for one in those])}
        return [self._beside(item) in named for item in items]

    def _bundles(self, items: Sequence[Item]) -> list[Sequence[Item]]:
        """What is copied together: small files of this machine, and each other file by itself."""
        near = self._files.near
        small = [item for item in items if item[1].bytes <= SMALL_BYTES and near.issuperset(item[1].places)]
        numbers = {number for number, _ in small}
        bundles = [small[first : first + BUNDLE_FILES] for first in range(0, len(small), BUNDLE_FILES)]
        return [*([item] for item in items if item[0] not in numbers), *bundles]

    def _begin_all(self, bundle: Sequence[Item]) -> list[_Begun]:
        with _one_piece(bundle):
            return [begun for item in bundle if (begun := self._begin(item)) is not None]

    def _settle_all(self, bundle: Sequence[_Begun]) -> list[_Begun]:
        with _one_piece(bundle):
            flushed = self._files.together(self._flush, bundle)
        with _one_piece(bundle):
            return [one for one, lasts in zip(bundle, flushed, strict=True) if lasts and self._settle(one)]

    def _beside(self, item: Item) -> str:
        number, lack = item
        return copy_path(lack.relation, self._transaction, number)

    def _begin(self, item: Item) -> _Begun | None:
        lack = item[1]
        if lack.node in self.copied.full or self._is_over():
            return None
        try:
            source = self._files.source(lack.path, lack.bytes, [node for node in lack.sources if node != lack.node])
            if source is None:
                raise StorageError(f"{lack.path}: expected a sound copy to copy from, found none")
            beside = self._beside(item)
            self._files.copy(lack.path, lack.bytes, source, lack.node, beside)
        except StorageError as error:
            self._note(lack, error)
            return None
        return _Begun(lack, source, beside)

    def _flush(self, one: _Begun) -> bool:
        try:
            self._files.flush(one.lack.node, one.beside)
        except StorageError as error:
            self._note(one.lack, error)
            return False
        return True

    def _settle(self, one: _Begun) -> bool:
        lack = one.lack
        try:
            self._files.settle(lack.path, lack.bytes, one.source, lack.node, one.beside)
        except StorageError as error:
            self._note(lack, error)
            return False
        return True

    def _named(self, settled: Sequence[_Begun]) -> Iterator[_Begun]:
        """Those whose names last."""
        by_node: dict[NodeId, list[_Begun]] = {}
        for one in settled:
            by_node.setdefault(one.lack.node, []).append(one)
        for node, those in by_node.items():
            try:
                self._files.flush_names(node, [one.lack.path for one in those])
            except StorageError as error:
                self._note(those[0].lack, error)
            else:
                yield from those

    def _note(self, lack: Lack, error: StorageError) -> None:
        if isinstance(error, StorageFullError):
            self.copied.full.add(lack.node)
        self.copied.failed[lack.node] = str(error)
        log.warning("path=%s node=%s expected a copy, found none reason=%s", lack.path, lack.node, error)


def _one_piece(bundle: Sequence[object]) -> contextlib.AbstractContextManager[object]:
    """Files of a bundle are one piece; a file by itself may be several."""
    return PACE.turn() if len(bundle) > 1 else contextlib.nullcontext()
