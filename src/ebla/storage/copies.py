"""A file under the roots of several nodes: as many copies as can be made, and enough of them.

A node whose root cannot be written to takes no part in a write. The run names the nodes that have it, so what the node
lacks is known, and is copied to it when it is back (`ebla.topology.streaming`).
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from ebla.base.ids import NodeId
from ebla.errors import StorageError, StorageFullError
from ebla.storage.files import Root, translated

log = logging.getLogger("ebla.storage")

BLOCK_BYTES = 4 * 2**20

_left_out: set[str] = set()
"""The roots that took no part in the last write that they should have had a copy of; said once, until one takes part
again."""


def write(
    table: pa.Table, path: str, roots: Mapping[NodeId, Root], nodes: Sequence[NodeId], least: int
) -> tuple[int, tuple[NodeId, ...]]:
    """Write a file under the root of every node that takes it: its bytes, and these nodes, `least` of them or more."""
    first: list[tuple[Root, int]] = []

    def put(root: Root) -> None:
        if first:
            first[0][0].copy_to(root, path)
        else:
            first.append((root, root.write_parquet(table, path)))

    done = _reached(path, roots, nodes, least, put)
    return first[0][1], done


def copy(
    source: Root, path: str, roots: Mapping[NodeId, Root], nodes: Sequence[NodeId], least: int
) -> tuple[NodeId, ...]:
    """Copy a file to the root of every node that takes it; these nodes, `least` of them or more."""

    def put(root: Root) -> None:
        if root.location != source.location:
            source.copy_to(root, path)

    return _reached(path, roots, nodes, least, put)


def _reached(
    path: str, roots: Mapping[NodeId, Root], nodes: Sequence[NodeId], least: int, put: Callable[[Root], None]
) -> tuple[NodeId, ...]:
    failed: dict[NodeId, StorageError] = {}
    for node in nodes:
        try:
            put(roots[node])
        except StorageError as error:
            failed[node] = error
            with contextlib.suppress(StorageError):  # a part of it may be there
                roots[node].remove(path)
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
    """Copy a file and read the copy again: it must have the bytes that were read, and as many as the manifest says.

    It is written under a name of the copier's own, `beside`, and then renamed: a reader, or another copier of the same
    file, finds it whole. Where that fails, what was there before is untouched, and nothing is left beside it.
    """
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
        with (
            source.filesystem.open_input_stream(source.inner(path)) as read,
            target.filesystem.open_output_stream(target.inner(beside)) as out,
        ):
            sent = _summed(iter(lambda: read.read(BLOCK_BYTES), b""), out.write)
        target.flush_bytes(beside)
        with target.filesystem.open_input_stream(target.inner(beside)) as again:
            stored = _summed(iter(lambda: again.read(BLOCK_BYTES), b""))
    if sent != stored or sent[0] != size:
        raise StorageError(
            f"{target.full(path)}: expected a copy of {size} bytes with the checksum {sent[1]:08x}, "
            f"found {stored[0]} bytes with {stored[1]:08x}; it was removed: check the disk"
        )


def _summed(blocks: Iterable[bytes], then: Callable[[bytes], object] = lambda block: None) -> tuple[int, int]:
    """How many bytes there are, and their checksum."""
    length = checksum = 0
    for block in blocks:
        length, checksum = length + len(block), zlib.crc32(block, checksum)
        then(block)
    return length, checksum
