"""A file under the roots of several nodes: as many copies as can be made, and enough of them.

A node whose root cannot be written to takes no part in a write. The run names the nodes that have it, so what the node
lacks is known, and is copied to it when it is back (`ebla.topology.run_copies`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from ebla.base.ids import NodeId
from ebla.base.pace import PACE
from ebla.errors import StorageError, StorageFullError
from ebla.storage import write_back
from ebla.storage.file_cache import RemoteFileError
from ebla.storage.files import Root, encoded, translated
from ebla.storage.remote_root import RemoteRoot
from ebla.storage.runs import in_threads
from ebla.storage.write_back import PIECE_BYTES

log = logging.getLogger("ebla.storage")

BLOCK_BYTES = 4 * 2**20
"""How much of a file is read at a time."""
NEAR_BLOCK_BYTES = 2**18
"""The same on disks of this machine, where a file is compared with its copy."""

_sendfile: Callable[[int, int, int, int], int] | None = getattr(os, "sendfile", None)
_NOT_SENT = (errno.ENOTSOCK, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""This system sends from files to sockets alone."""

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
    begin_copy(source, target, path, size, beside)
    flush_copy(target, beside)
    end_copy(source, target, path, size, beside)
    flush_names(target, [path])


def begin_copy(source: Root, target: Root, path: str, size: int, beside: str) -> None:
    """Copy a file beside its place. The disk has begun to store it: with many files, begin all before the first ends.

    A node that is reached by its process checks the copy and names it at once.
    """
    try:
        source.fetch(path)
    except RemoteFileError:
        source.distrust(path)  # the next try is with another copy
        raise
    if isinstance(target, RemoteRoot):
        target.receive_checked(source, path, size, beside)
        return
    with _cleaned(target, beside):
        target.make_place(beside)
        with translated(target.full(beside)):
            _put(source, target, path, beside)


def flush_copy(target: Root, beside: str) -> None:
    """Have the disk store a copy. Several at a time: one flush of the file system's journal serves them."""
    if isinstance(target, RemoteRoot):
        return
    with _cleaned(target, beside), translated(target.full(beside)), PACE.turn():
        target.flush_bytes(beside)


def end_copy(source: Root, target: Root, path: str, size: int, beside: str) -> None:
    """Read a flushed copy again, and give it its name."""
    if isinstance(target, RemoteRoot):
        return
    with _cleaned(target, beside):
        with translated(target.full(beside)):
            same = _compare(source, target, path, size, beside)
        if same != size:
            raise _other_bytes(target, path, size, f"{same} bytes")
        target.move(beside, path)


def flush_names(target: Root, paths: Iterable[str]) -> None:
    """The names of files last as long as their bytes: once for each folder that they lie in."""
    for path in {os.path.dirname(path): path for path in paths}.values():
        with translated(target.full(path)):
            target.flush_name(path)


@contextlib.contextmanager
def _cleaned(target: Root, beside: str) -> Iterator[None]:
    """Leave nothing beside where that fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(StorageError):
            target.remove(beside)
        raise


def _put(source: Root, target: Root, path: str, beside: str) -> None:
    """Copy the bytes, in pieces that are on their way to the disk at once."""
    if source.local and target.local:
        with open(source.inner(path), "rb", buffering=0) as read, open(target.inner(beside), "r+b") as out:
            _put_near(read.fileno(), out.fileno(), lasts=target.fsync)
        return
    with (
        source.filesystem.open_input_stream(source.inner(path)) as ours,
        target.filesystem.open_output_stream(target.inner(beside)) as theirs,
    ):
        is_over = False
        while not is_over:
            with PACE.turn():
                block = ours.read(BLOCK_BYTES)
                theirs.write(block)
            is_over = not block


def _put_near(read: int, out: int, *, lasts: bool) -> None:
    """The same between disks of this machine."""
    at, size = 0, 1
    while size:
        with PACE.turn() as alone:
            size = _sent(read, out, at)
            if size and lasts:
                (write_back.finish if alone else write_back.begin)(out, at, size)
        at += size


def _sent(read: int, out: int, at: int) -> int:
    """Copy a piece, in the kernel where it sends from file to file; how many bytes, 0 behind the end."""
    if _sendfile is not None:
        try:
            return _sendfile(out, read, at, PIECE_BYTES)
        except OSError as error:
            if error.errno not in _NOT_SENT:
                raise
    block = os.pread(read, PIECE_BYTES, at)
    done = 0
    while done < len(block):
        done += os.pwrite(out, block[done:], at + done)
    return done


def _compare(source: Root, target: Root, path: str, size: int, beside: str) -> int:
    """Read a file and its copy, which must have the same bytes; how many.

    Both are read into two buffers that are kept, small ones where the disks are of this machine: they stay in the cache
    of a core. Memory that is taken anew for each block costs more than reading it.
    """
    block = min(size + 1, NEAR_BLOCK_BYTES if source.local and target.local else BLOCK_BYTES)
    sent, stored, same = bytearray(block), bytearray(block), 0
    with (
        source.filesystem.open_input_stream(source.inner(path)) as ours,
        target.filesystem.open_input_stream(target.inner(beside)) as theirs,
    ):
        while True:
            with PACE.turn():
                piece, is_over = 0, False
                while piece < PIECE_BYTES and not is_over:
                    read = ours.readinto(sent)
                    if theirs.readinto(stored) != read or sent != stored:  # behind a last block it was equal before
                        raise _other_bytes(target, path, size, f"other bytes behind the first {same}")
                    is_over = not read
                    piece, same = piece + read, same + read
            if is_over:
                return same


def _other_bytes(target: Root, path: str, size: int, found: str) -> StorageError:
    return StorageError(
        f"{target.full(path)}: expected a copy of {size} bytes that are those of its source, found {found}; "
        "it was removed: check the disks"
    )
