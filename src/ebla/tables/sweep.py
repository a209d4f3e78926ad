"""The sweep removes files of no transaction and no run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, RelationId
from ebla.catalog import reads, topology
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.storage.file_cache import RemoteFileError
from ebla.storage.files import Root, owner
from ebla.storage.roots import Roots

COPIES_AT_ONCE = 100
"""The number of copies without a commit that vacuum removes in one catalog transaction, while writers wait."""


class File(NamedTuple):
    """A file under a node's root."""

    node: NodeId
    path: str
    bytes: int


def sweep(catalog: Catalog, nodes: Roots, relations: Sequence[RelationId] | None = None) -> tuple[int, int, int]:
    """Delete files that the manifest does not name and no open transaction owns: count, bytes, orphans.

    The listing comes first and the catalog second. A file that was listed and whose transaction is still open is
    still being written; one whose transaction committed is named by then; any other can never be read. A relation of
    which copies are being made is left for the next sweep. Roots of nodes that left are swept, too, while they name
    their nodes; a root that does not is left alone: it is another's by now, or its disk is gone.
    """
    wanted = None if relations is None else {f"r{r}" for r in relations}
    with catalog.reading() as connection:
        members = topology.members(connection).values()
    every = nodes.of({member.id: member.root for member in members})
    roots = {node: root for node, root in every.items() if root.is_writable}
    listed: dict[NodeId, list[tuple[str, int, bool]]] = {}
    for node, root in roots.items():
        with contextlib.suppress(RemoteFileError):  # a node that does not answer is left for the next sweep
            listed[node] = root.listing()
    with catalog.reading() as connection:
        at_work = tx.open_transactions(connection)
        copied = _copied_now(connection)
        named: Mapping[NodeId, set[str]] = {node: reads.named_paths(connection, node) for node in every}
    hit("sweep.read")
    anywhere = set[str]().union(*named.values())
    removed: list[File] = []
    copies: list[File] = []
    for node, entries in listed.items():
        root = roots[node]
        # Files before the folders that they lie in, so that they are counted.
        for path, length, folder in sorted(entries, key=lambda entry: entry[2]):
            number = owner(path)
            inside = path.split("/", 1)[0]
            if number is None or number in at_work or path in named[node] or (wanted and inside not in wanted):
                continue
            if inside in copied:  # under the name of the transaction that wrote it first
                continue
            if folder:
                root.remove_tree(path)
            elif path in anywhere:
                copies.append(File(node, path, length))
            elif root.remove(path):
                removed.append(File(node, path, length))
    removed += _remove_copies(catalog, roots, copies)
    owners = [number for file in removed if (number := owner(file.path)) is not None]
    with catalog.reading() as connection:
        committed = tx.committed_among(connection, owners)
    return len(removed), sum(file.bytes for file in removed), sum(number not in committed for number in owners)


def _copied_now(connection: Connection) -> set[str]:
    """The folders of relations of which copies are being made."""
    return {f"r{relation}" for relation in tx.copied_now(connection)}


def _remove_copies(catalog: Catalog, roots: Mapping[NodeId, Root], files: Sequence[File]) -> list[File]:
    """Remove copies of runs that only other nodes are said to have; those that were removed.

    Such a copy may be made good at any time, and named. So the catalog is asked once more, and no copy is begun before
    the files are gone.
    """
    removed = []
    for at in range(0, len(files), COPIES_AT_ONCE):
        some = files[at : at + COPIES_AT_ONCE]
        with catalog.writing() as connection:
            copied = _copied_now(connection)
            named = {n: reads.named_paths(connection, n, [f.path for f in some]) for n in {f.node for f in some}}
            for file in some:
                is_kept = file.path in named[file.node] or file.path.split("/", 1)[0] in copied
                if not is_kept and roots[file.node].remove(file.path):
                    removed.append(file)
    return removed
