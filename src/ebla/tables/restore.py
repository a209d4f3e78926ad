"""A warehouse that is made of a backup (`ebla.tables.backup`), in the same place as before or in another one.

Files go under the roots first, and the catalog is filled last, in one transaction. A restore that was killed has made
an empty warehouse, and can be begun again. Nodes keep their host ids; where their roots are is said anew. So a
warehouse of one machine becomes one whose catalog lies in PostgreSQL, and the other way round.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ebla.base.failpoint import hit
from ebla.base.ids import NodeId, Version
from ebla.catalog import dump, topology
from ebla.catalog.failures import without_password
from ebla.catalog.store import Catalog, is_postgres
from ebla.errors import CorruptRunError, NodeConflictError, UsageError
from ebla.storage.copies import copy_checked
from ebla.storage.files import Owner, Root
from ebla.tables.backup import FILES, Backup, read_head

SAID_FILES = 100
"""Progress is said after this many files."""


def restore(
    place: str, where: str, roots: Mapping[str, str], *, mask: int, progress: Callable[[str, float], None]
) -> Backup:
    """Make a warehouse of a backup, in an empty place; `roots`: the storage root of each node, by its name."""
    folder = Path(place).absolute()
    head = read_head(folder)
    if head["schema"] != dump.schema_number():
        raise UsageError(
            f"{folder}: expected a backup with schema {dump.schema_number()} of the catalog, found {head['schema']}; "
            "restore it with the release that made it, and open the warehouse with this one"
        )
    rows = folder / str(head["catalog"])
    nodes = dump.nodes(rows)
    placed = _placed(nodes, roots, where)
    names = dump.table_names(rows)
    with contextlib.closing(Catalog.open(where, create=True, mask=mask, table_names=names)) as catalog:
        if catalog.read(topology.members):
            raise UsageError(f"{without_password(where)}: expected no warehouse there, found one; choose another place")
        targets = {node.id: _claimed(catalog.located(placed[node.id]), head["cluster"], node, mask) for node in nodes}
        copied = _put(Root(str(folder / FILES)), targets, list(dump.copies(rows)), progress)
        hit("restore.copied")
        with catalog.writing() as connection:
            dump.fill(connection, rows, placed)
    return Backup(version=Version(head["version"]), files=head["files"], bytes=head["bytes"], copied=copied)


def _placed(nodes: Sequence[dump.DumpedNode], roots: Mapping[str, str], where: str) -> dict[NodeId, str]:
    """Where each node keeps its files from now on: as it is said, or, in a directory, below it."""
    names = {node.name for node in nodes}
    unknown = sorted(set(roots) - names)
    if unknown:
        raise UsageError(f"root of {unknown[0]}: expected a node of the backup, {', '.join(sorted(names))}")
    without = sorted(names - set(roots))
    if without and is_postgres(where):
        raise UsageError(
            f"expected a storage root for each node of the backup, found none for {', '.join(without)}; "
            "say roots={name: path}, on the command line --root name=path"
        )
    return {node.id: _place(node, roots.get(node.name), where) for node in nodes}


def _place(node: dump.DumpedNode, root: str | None, where: str) -> str:
    if root is not None:
        return str(Path(root).absolute())
    return node.root if node.root.startswith("./") else str(Path(where) / f"data-{node.name}")


def _claimed(location: str, cluster: str, node: dump.DumpedNode, mask: int) -> Root:
    owner = Root(location, mask=mask).claim({"cluster": cluster, "node": node.id, "name": node.name})
    if (owner["cluster"], owner["node"]) != (cluster, node.id):
        raise NodeConflictError(
            f"node {node.name}: expected a fresh storage root or its own, found {location} of another; choose another"
        )
    return Root(location, mask=mask, owner=Owner(cluster, node.id))


def _put(
    source: Root,
    targets: Mapping[NodeId, Root],
    copies: Sequence[tuple[NodeId, str, int]],
    progress: Callable[[str, float], None],
) -> int:
    """Copy the files to the roots of their nodes; how many were not there."""
    copied = 0
    for number, (node, path, size) in enumerate(copies):
        if number % SAID_FILES == 0:
            progress(f"restore: {number:,} of {len(copies):,} files", number / len(copies))
        if source.size(path) != size:
            raise CorruptRunError(
                f"{source.full(path)}: expected a file of {size} bytes, found {source.size(path)}; use another backup"
            )
        if targets[node].size(path) != size:
            copy_checked(source, targets[node], path, size, f"{path}.{uuid.uuid4().hex}")
            copied += 1
    return copied
