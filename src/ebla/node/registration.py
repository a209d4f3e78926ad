"""The nodes of a process: each has a storage root that is no other node's, and is a member or asks to become one.

A node is known by its host id, which lies in its storage root together with its name (`Root.owner`). A name may be
given again when the node that had it has left; a host id never is. So the root of a node that left is refused, and that
of a join that did not end: each begins anew with a fresh one.

A root is marked before the catalog hears of its node, and never again: a member whose root does not name it is down.
Its disk is gone, or another one is mounted in its place.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as release
from pathlib import Path

from ebla.base.ids import NodeId
from ebla.base.settings import Settings
from ebla.catalog import topology
from ebla.catalog.store import FILE, Catalog, is_postgres
from ebla.errors import CatalogError, NodeConflictError
from ebla.model import changes as c
from ebla.model.lifecycle.node import NodeState, is_member, may_hold
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology import FEATURES, LOCAL, LOCAL_ROOTS, Member, features_in_use, is_local, is_next_to
from ebla.model.topology_changes import AddNode, SetNodeBuild
from ebla.storage.files import MARKER, Owner, Root
from ebla.storage.roots import place_of

log = logging.getLogger("ebla.topology")

DEFAULT_ROOT = "./data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The nodes of a process."""

    node: NodeId
    """The node that the setting `node` names."""
    roots: Mapping[NodeId, str]
    """The recorded storage roots of all nodes of the process."""
    asking: tuple[Member, ...]
    """The nodes of the process that are no members yet."""


def register(catalog: Catalog, settings: Settings) -> Registration:
    """Look whether this process's nodes are members; in a catalog without a node they found the cluster.

    A node that is registered with another storage root is refused. A root belongs to one node of one catalog, and holds
    no other root: a file that is swept there belongs to no other catalog.
    """
    wanted, cluster = _wanted(catalog, settings), catalog.cluster_id()
    while True:
        stored = catalog.read(topology.members)
        wanted = _as_registered(stored, wanted)
        held = {member.name: member.root for member in stored.values() if may_hold(member.state)}
        strangers = _strangers(catalog, cluster, stored, wanted, settings)
        _refuse_nested({**{n: catalog.located(r) for n, r in held.items()}, **_places(catalog, wanted)})
        _refuse_local_roots(stored, wanted)
        _refuse_far_release(stored, settings.node)
        asking = [_claimed(place_of(catalog, node.root), cluster, node, settings.file_mask) for node in strangers]
        if stored:
            break
        _found(catalog, asking)
    by_name = {member.name: member for member in stored.values() if is_member(member.state)}
    for name in wanted:
        if name in by_name:
            _warn_if_down(place_of(catalog, by_name[name].root), Owner(cluster, by_name[name].id), name)
    _refresh_builds(catalog, settings, stored, [by_name[name] for name in wanted if name in by_name])
    nodes = by_name | {member.name: member for member in asking}
    roots = {nodes[name].id: nodes[name].root for name in wanted}
    return Registration(node=nodes[settings.node].id, roots=roots, asking=tuple(asking))


def _places(catalog: Catalog, wanted: Mapping[str, str]) -> dict[str, str]:
    return {name: place_of(catalog, root) for name, root in wanted.items()}


def _as_registered(stored: Mapping[NodeId, Member], wanted: Mapping[str, str]) -> dict[str, str]:
    """A root that is registered as local to its machine stays so, whether that is said again or not."""
    local = {member.name: member.root for member in stored.values() if is_member(member.state)}
    return {name: LOCAL + root if local.get(name) == LOCAL + root else root for name, root in wanted.items()}


def _refuse_local_roots(stored: Mapping[NodeId, Member], wanted: Mapping[str, str]) -> None:
    """Refuse a root that other members could not reach: they are of an older release."""
    if stored and LOCAL_ROOTS not in features_in_use(stored.values()):
        for name, root in wanted.items():
            if is_local(root):
                raise NodeConflictError(
                    f"node {name}: expected every member to have the feature {LOCAL_ROOTS}, which a local storage root "
                    "needs, found one without it; upgrade all nodes first"
                )


def _refuse_far_release(stored: Mapping[NodeId, Member], name: str) -> None:
    """Refuse a build that is more than one step away from that of another member."""
    own = release("ebla")
    for other in stored.values():
        if is_member(other.state) and other.name != name and not is_next_to(own, other.release or own):
            raise NodeConflictError(
                f"node {name}: expected a release one step from {other.release}, which node {other.name} has, at most, "
                f"found {own}; upgrade all nodes one step after the other"
            )


def _refresh_builds(
    catalog: Catalog, settings: Settings, stored: Mapping[NodeId, Member], own: Sequence[Member]
) -> None:
    """Say which release, features and address members of this process have now, where that is new.

    A build that lacks what the cluster uses is refused: it was started with an older release than before.
    """
    if catalog.read_only is not None:
        return
    updates = []
    for member in own:
        if missing := sorted(features_in_use(stored.values()) - FEATURES):
            raise NodeConflictError(
                f"node {member.name}: expected every feature that the cluster uses, found release {release('ebla')} "
                f"without {', '.join(missing)}; start it with release {member.release} or a newer one"
            )
        address = settings.address if member.name == settings.node else None
        build = SetNodeBuild(node=member.id, release=release("ebla"), features=FEATURES, address=address)
        before = replace(build, release=member.release, features=member.features, address=address and member.address)
        updates += [build] if build != before else []
    if updates:
        reason = f"release {release('ebla')} on {', '.join(member.name for member in own)}"
        decision = c.Decision(reason=reason, updates=tuple(updates), guards=frozenset({TOPOLOGY}))
        catalog.decide(lambda connection, at: decision)


def _claimed(place: str, cluster: str, node: Member, mask: int) -> Member:
    """A node whose root is marked as its own. An id that another process of it has put there first is its id."""
    owner = Root(place, mask=mask).claim({"cluster": cluster, "node": node.id, "name": node.name})
    if owner["cluster"] != cluster:
        raise _of_its_own(node.name, place, "another warehouse")
    return replace(node, id=NodeId(owner["node"]))


def _found(catalog: Catalog, nodes: Sequence[Member]) -> None:
    """Found the cluster with these nodes, unless others have."""
    founders = tuple(AddNode(node=replace(node, state=NodeState.NORMAL)) for node in nodes)
    reason = f"found the cluster with {', '.join(sorted(node.name for node in nodes))}"
    decision = c.Decision(reason=reason, updates=founders, guards=frozenset({TOPOLOGY}))
    catalog.decide(lambda connection, at: None if topology.members(connection) else decision)


def _warn_if_down(place: str, owner: Owner, name: str) -> None:
    if not Root(place, owner=owner).is_writable:
        marker = json.dumps(owner._asdict())
        log.warning(
            "node=%s expected its storage root, found none of it at %s; the node is down: bring its disk back, or, if "
            "the disk is there and lacks its file %s alone, write %s into that", name, place, MARKER, marker
        )  # fmt: skip


def _wanted(catalog: Catalog, settings: Settings) -> dict[str, str]:
    """The names of this process's nodes with their storage roots, as they are recorded.

    A warehouse's own data directory is recorded relative to it, so that the warehouse can be moved. Settings without a
    root mean the registered one.
    """
    if settings.storage_root is not None:
        root = _absolute(settings.storage_root)
        root = LOCAL + root if settings.local_root and not is_local(root) else root
    else:
        with catalog.reading() as connection:
            registered = topology.members(connection).get(topology.host_id(connection, settings.node))
        root = DEFAULT_ROOT if registered is None else registered.root
    return {settings.node: root} | {name: _absolute(node.root) for name, node in settings.nodes.items()}


def _strangers(
    catalog: Catalog, cluster: str, stored: Mapping[NodeId, Member], wanted: Mapping[str, str], settings: Settings
) -> list[Member]:
    """The nodes that the topology has not heard of; any other must be a member, with the same root."""
    found = []
    by_name = {member.name: member for member in stored.values() if member.state is not NodeState.LEFT}
    for name, root in wanted.items():
        member, place = by_name.get(name), place_of(catalog, root)
        if member is not None and is_member(member.state):
            if member.root != root:
                raise NodeConflictError(
                    f"node {name}: expected storage root {member.root}, found {root}; "
                    "use the registered root, or another name for this node"
                )
            continue
        owner = None if "://" in place else Root(place).owner()
        if owner is not None and owner["cluster"] != cluster:
            raise _of_its_own(name, place, "another warehouse")
        before = None if owner is None else stored.get(NodeId(owner["node"]))
        if before is not None and before.state is NodeState.LEFT:
            raise NodeConflictError(
                f"node {name}: expected a fresh storage root, found {place} of node {before.name} ({before.id}), which "
                "left; its id is never accepted again"
            )
        if before is not None and before != member:
            raise _of_its_own(name, place, f"node {before.name}")
        if member is not None:
            raise NodeConflictError(
                f"node {name}: expected a fresh storage root, found {place} of a join that did not end; "
                "begin anew with another root, under a name of its own"
            )
        found.append(_new(name, root, owner, stored, settings))
    return found


def _new(
    name: str, root: str, owner: Mapping[str, str] | None, stored: Mapping[NodeId, Member], settings: Settings
) -> Member:
    """A node that asks to join; its root may have an id from a process that died before it could ask."""
    dead, own = settings.replaces.get(name), settings.nodes.get(name)
    replaced = next((m.id for m in stored.values() if dead in (m.name, m.id)), None) if dead else None
    if dead and replaced is None:
        raise NodeConflictError(f"node {name}: expected a node of the cluster to replace, found none called {dead}")
    return Member(
        id=NodeId(str(uuid.uuid4()) if owner is None else owner["node"]),
        name=name,
        root=root,
        datacenter=(own and own.datacenter) or settings.datacenter,
        rack=(own and own.rack) or settings.rack,
        shards=(own and own.shards) or settings.shards,
        address=settings.address if name == settings.node else None,
        state=NodeState.NONE,
        release=release("ebla"),
        features=FEATURES,
        replaced=replaced,
    )


def _of_its_own(name: str, place: str, whose: str) -> NodeConflictError:
    return NodeConflictError(f"node {name}: expected a storage root of its own, found {place} of {whose}")


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
    roots |= {name: _absolute(node.root) for name, node in settings.nodes.items()}
    _refuse_nested(roots)
    for name, place in roots.items():
        if Root(place).owner() is not None:
            raise _of_its_own(name, place, "another warehouse")


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
