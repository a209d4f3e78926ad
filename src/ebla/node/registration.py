"""The nodes of a process: each has a storage root that is no other node's, and is a member or asks to become one."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version as release
from pathlib import Path

from sqlalchemy import Connection

from ebla.base.ids import NodeId, Version
from ebla.base.settings import Settings
from ebla.catalog import topology
from ebla.catalog.store import FILE, Catalog, is_postgres
from ebla.errors import CatalogError, NodeConflictError
from ebla.model import changes as c
from ebla.model.lifecycle.node import NodeState, is_member, may_hold
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import FEATURES, Member
from ebla.model.topology_changes import AddNode
from ebla.storage.files import Root
from ebla.tables.context import Context

log = logging.getLogger("ebla.topology")

DEFAULT_ROOT = "./data"


def register(catalog: Catalog, settings: Settings) -> tuple[Member, ...]:
    """Look whether this process's nodes are members; those that have to ask for it. In a catalog without a node they
    found the cluster.

    A node that is registered with another storage root is refused. A root belongs to one node of one catalog, and holds
    no other root: a file that is swept there belongs to no other catalog.
    """
    # A warehouse's own data directory is recorded relative to it, so that the warehouse can be moved.
    own = settings.storage_root
    wanted = {settings.node: DEFAULT_ROOT if own is None else _absolute(own)}
    wanted |= {node: _absolute(root) for node, root in settings.nodes.items()}

    with catalog.reading() as connection:
        before = topology.members(connection)
    registered = before.get(NodeId(settings.node))
    if own is None and registered is not None:
        wanted[settings.node] = registered.root  # settings without a root mean the registered one

    asking: list[Member] = []

    def decide(connection: Connection, at: Version) -> c.Decision | None:
        stored = topology.members(connection)
        asking[:] = _strangers(stored, wanted)
        _refuse_shared_roots(catalog, {**{n: k.root for n, k in stored.items() if may_hold(k.state)}, **wanted})
        if stored or not asking:
            return None
        founders = [AddNode(node=replace(node, state=NodeState.NORMAL)) for node in asking]
        reason = f"found the cluster with {', '.join(sorted(wanted))}"
        asking.clear()
        return c.Decision(reason=reason, updates=tuple(founders), guards=frozenset({TOPOLOGY}))

    catalog.decide(decide, node=NodeId(settings.node))
    for name, root in wanted.items():
        place = Root(catalog.located(root), mask=settings.file_mask)
        if name != settings.node and NodeId(name) in before and not place.is_there:
            log.warning("node=%s expected its storage root, found none at %s; the node is down", name, place.location)
            continue
        place.claim({"cluster": catalog.cluster_id(), "node": name})
    return tuple(asking)


def living(context: Context) -> frozenset[NodeId]:
    """The nodes that live with a process: its own, if their storage roots are there."""
    mine = {NodeId(context.settings.node), *map(NodeId, context.settings.nodes)}
    return frozenset(node for node, root in context.roots().items() if node in mine and root.owner() is not None)


def _strangers(stored: Mapping[NodeId, Member], wanted: Mapping[str, str]) -> list[Member]:
    """The nodes that the topology has not heard of; any other must be a member, with the same root."""
    found = []
    for name, root in wanted.items():
        member = stored.get(NodeId(name))
        if member is None:
            found.append(_new(name, root))
        elif member.state is NodeState.LEFT:
            raise NodeConflictError(
                f"node {name}: expected a node that may join, found one that left; its id is never accepted again: "
                "use another id and a fresh storage root"
            )
        elif not is_member(member.state):
            raise NodeConflictError(
                f"node {name}: expected a node that has not asked to join, found a join that did not end; "
                "begin anew with another id and a fresh storage root"
            )
        elif member.root != root:
            raise NodeConflictError(
                f"node {name}: expected storage root {member.root}, found {root}; "
                "use the registered root, or another node id for this one"
            )
    return found


def _new(name: str, root: str) -> Member:
    return Member(
        id=NodeId(name),
        name=name,
        root=root,
        shards=os.cpu_count() or 1,
        state=NodeState.NONE,
        release=release("ebla"),
        features=FEATURES,
    )


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
