"""A file under the roots of several nodes: as many copies as can be made, and enough of them.

A node whose root cannot be written to takes no part in a write. The run names the nodes that have it, so what the node
lacks is known, and is copied to it when it is back (`ebla.topology.run_copies`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from ebla.base.ids import NodeId
from ebla.errors import StorageError, StorageFullError
from ebla.storage.file_cache import RemoteFileError
from ebla.storage.files import Root, encoded, translated
from ebla.storage.remote_root import RemoteRoot
from ebla.storage.runs import in_threads

log = logging.getLogger("ebla.storage")

BLOCK_BYTES = 4 * 2**20
"""How much of a file is read at a time."""
NEAR_BLOCK_BYTES = 2**18
"""The same on disks of this machine, where a file is compared with its copy."""

_left_out: set[str] = set()
"""The roots that took no part in the last write that they should have had a copy of; said once, until one takes part
again."""


def write(
    table: pa.Table, path: str, roots: Mapping[NodeId, Root], nodes: Sequence[NodeId], least: int
) -> tuple[int, tuple[NodeId, ...]]:
    """Write a file under the root of every node that takes it: its bytes, and these nodes, `least` of them or more.

    Several copies are encoded once, and written and flushed at the same time: a disk is slow to flush, and nodes have
    disks of their own.
    """
    if len(nodes) == 1:
        sizes = list[int]()
        done = _reached(path, roots, nodes, least, lambda root: sizes.append(root.write_parquet(table, path)))
        return sizes[0], done
    content = encoded(table)
    return content.size, _reached(path, roots, nodes, least, lambda root: root.write_bytes(content, path))


def copy(
    source: Root, path: str, roots: Mapping[NodeId, Root], nodes: Sequence[NodeId], least: int
) -> tuple[NodeId, ...]:
    """Copy a file to the root of every node that takes it; these nodes, `least` of them or more."""

    def put(root: Root) -> None:
        if root.location != source.location:
            root.receive(source, path)

    return _reached(path, roots, nodes, least, put)


def _reached(
    path: str, roots: Mapping[NodeId, Root], nodes: Sequence[NodeId], least: int, put: Callable[[Root], None]
) -> tuple[NodeId, ...]:
    def refusal(node: NodeId) -> StorageError | None:
        try:
            put(roots[node])
        except StorageError as error:
            with contextlib.suppress(StorageError):  # a part of it may be there
                roots[node].remove(path)
            return error
        return None

    refusals = zip(nodes, in_threads(refusal, nodes), strict=True)
    failed = {node: error for node, error in refusals if error is not None}
    done = tuple(node for node in nodes if node not in failed)
    if len(done) < min(least, len(nodes)):
        raise _too_few(path, nodes, least, failed)
    for node, reason in failed.items():
        level = logging.DEBUG if roots[node].location in _left_out else logging.WARNING
        log.log(level, "path=%s node=%s expected a copy, found none reason=%s", path, node, reason)
    _left_out.difference_update(roots[node].location for node in done)
    _left_out.update(roots[node].location for node in failed)
    return done


def _too_few(path: str, nodes: Sequence[NodeId], least: int, failed: Mapping[NodeId, StorageError]) -> StorageError:
    if len(nodes) == 1:
        return failed[nodes[0]]
    full = any(isinstance(error, StorageFullError) for error in failed.values())
    what = "; ".join(f"node {node}: {error}" for node, error in failed.items())
    return (StorageFullError if full else StorageError)(
        f"{path}: expected copies on at least {least} of {len(nodes)} nodes, found {len(nodes) - len(failed)}: {what}"
    )


def copy_checked(source: Root, target: Root, path: str, size: int, beside: str) -> None:
    """Copy a file and read the copy again: it must have the bytes of its source, and as many as the manifest says.

    It is written under a name of the copier's own, `beside`, and then renamed: a reader, or another copier of the same
    file, finds it whole. Where that fails, what was there before is untouched, and nothing is left beside it.
    """
    try:
        source.fetch(path)
    except RemoteFileError:
        source.distrust(path)  # the next try is with another copy
        raise
    if isinstance(target, RemoteRoot):
        target.receive_checked(source, path, size, beside)
        return
    try:
        _copy_beside(source, target, path, size, beside)
        target.move(beside, path)
    except BaseException:
        with contextlib.suppress(StorageError):
            target.remove(beside)
        raise
    with translated(target.full(path)):
        target.flush_name(path)


def _copy_beside(source: Root, target: Root, path: str, size: int, beside: str) -> None:
    target.make_place(beside)
    with translated(target.full(beside)):
        _put(source, target, path, beside)
        target.flush_bytes(beside)
        same = _compare(source, target, path, size, beside)
    if same != size:
        raise _other_bytes(target, path, size, f"{same} bytes")


def _put(source: Root, target: Root, path: str, beside: str) -> None:
    if source.local and target.local:
        shutil.copyfile(source.inner(path), target.inner(beside))  # in the kernel, as `cp` does
        return
    with target.filesystem.open_output_stream(target.inner(beside)) as out:
        for block in _blocks(source, path):
            out.write(block)


def _compare(source: Root, target: Root, path: str, size: int, beside: str) -> int:
    """Read a file and its copy, which must have the same bytes; how many.

    Both are read into two buffers that are kept, small ones where the disks are of this machine: they stay in the cache
    of a core. Memory that is taken anew for each block costs more than reading it.
    """
    block = NEAR_BLOCK_BYTES if source.local and target.local else BLOCK_BYTES
    sent, stored, same = bytearray(block), bytearray(block), 0
    with (
        source.filesystem.open_input_stream(source.inner(path)) as ours,
        target.filesystem.open_input_stream(target.inner(beside)) as theirs,
    ):
        while True:
            read = ours.readinto(sent)
            if theirs.readinto(stored) != read or sent != stored:  # what lies behind a last block was equal before
                raise _other_bytes(target, path, size, f"other bytes behind the first {same}")
            if not read:
                return same
            same += read


def _other_bytes(target: Root, path: str, size: int, found: str) -> StorageError:
    return StorageError(
        f"{target.full(path)}: expected a copy of {size} bytes that are those of its source, found {found}; "
        "it was removed: check the disks"
    )


def _blocks(root: Root, path: str) -> Iterator[bytes]:
    with root.filesystem.open_input_stream(root.inner(path)) as read:
        yield from iter(lambda: read.read(BLOCK_BYTES), b"")
