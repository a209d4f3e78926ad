"""The nodes of a process are registered in the catalog, each with a storage root that is no other node's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.base.settings import Settings
from ebla.catalog import topology
from ebla.catalog.store import FILE, Catalog, is_postgres
from ebla.errors import CatalogError, NodeConflictError
from ebla.model import changes as c
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import Member
from ebla.model.topology_changes import AddNode
from ebla.storage.files import Root

DEFAULT_ROOT = "./data"


def join(catalog: Catalog, settings: Settings) -> None:
    """Register this process's nodes; one that is registered with another storage root is refused.

    A root belongs to one node of one catalog, and holds no other root: a file that is swept there belongs to no other
    catalog.
    """
    # A warehouse's own data directory is recorded relative to it, so that the warehouse can be moved.
    own = settings.storage_root
    wanted = {settings.node: DEFAULT_ROOT if own is None else _absolute(own)}
    wanted |= {node: _absolute(root) for node, root in settings.nodes.items()}

    with catalog.reading() as connection:
        registered = topology.members(connection).get(NodeId(settings.node))
    if own is None and registered is not None:
        wanted[settings.node] = registered.root  # settings without a root mean the registered one

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        stored = topology.members(connection)
        fresh = []
        for name, root in wanted.items():
            node = NodeId(name)
            if node not in stored:
                fresh.append(AddNode(node=Member(id=node, name=name, root=root, shards=os.cpu_count() or 1)))
            elif stored[node].root != root:
                raise NodeConflictError(
                    f"node {name}: expected storage root {stored[node].root}, found {root}; "
                    "use the registered root, or another node id for this one"
                )
        _refuse_shared_roots(catalog, {**{n: k.root for n, k in stored.items()}, **wanted})
        if not fresh:
            return None
        joined = f"join {', '.join(sorted(wanted))}"
        return c.Decision(reason=joined, updates=tuple(fresh), guards=frozenset({TOPOLOGY}))

    catalog.decide(decide, node=NodeId(settings.node))
    for name, root in wanted.items():
        place = Root(catalog.located(root), mask=settings.file_mask)
        place.claim({"cluster": catalog.cluster_id(), "node": name})


def refuse_foreign_root(where: str, settings: Settings) -> None:
    """Before a catalog is created: one that could not use its storage root would be left behind empty."""
    if is_postgres(where) or "://" in where:
        return
    try:
        if (Path(where) / FILE).exists():
            return
    except (OSError, ValueError) as error:
        raise CatalogError(f"{where!r}: expected a directory to keep a warehouse in, found: {error}") from error
    own = settings.storage_root
    roots = {settings.node: str(Path(where) / "data") if own is None else _absolute(own)}
    roots |= {node: _absolute(root) for node, root in settings.nodes.items()}
    _refuse_nested(roots)
    for name, place in roots.items():
        if Root(place).owner() is not None:
            raise NodeConflictError(
                f"node {name}: expected a storage root of its own, found {place} of another warehouse"
            )


def _refuse_shared_roots(catalog: Catalog, roots: Mapping[str, str]) -> None:
    cluster = catalog.cluster_id()
    places = {name: catalog.located(root) for name, root in roots.items()}
    _refuse_nested(places)
    for name, place in places.items():
        owner = None if "://" in place else Root(place).owner()
        if owner is not None and owner != {"cluster": cluster, "node": name}:
            whose = "another warehouse" if owner.get("cluster") != cluster else f"node {owner.get('node')}"
            raise NodeConflictError(f"node {name}: expected a storage root of its own, found {place} of {whose}")


def _refuse_nested(roots: Mapping[str, str]) -> None:
    try:
        places = {name: os.path.realpath(root) for name, root in roots.items() if "://" not in root}
    except ValueError as error:
        raise CatalogError(f"storage root: expected a path, found one with {error}") from error
    for name, place in places.items():
        for other, theirs in places.items():
            if name != other and (place == theirs or place.startswith(theirs.rstrip("/") + "/")):
                raise NodeConflictError(
                    f"node {name}: expected a storage root of its own, found {place} in that of node {other}"
                )


def _absolute(root: str) -> str:
    return root if "://" in root else str(Path(root).absolute())
