"""The barrier: when a new state of the topology holds for all that is at work.

Theory of operation. A process plans with the state that it has seen. So a step that must not meet work of the state
before the last one waits until each live member follows the version of the last step, and no transaction on the
relation is open that began under an older one. Work in a session, such as copies, holds no barrier up: its commits
require the session, which the step that ends its stage has closed. A transaction whose session is closed is waited for
like any other.

A transaction that is in the way for longer than a grace period is aborted; its client starts over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ebla.base.ids import NodeId, TransactionId, Version
from ebla.model.lifecycle.node import is_member
from ebla.model.topology import Topology


class Open(NamedTuple):
    """An open transaction, as the barrier sees it."""

    transaction: TransactionId
    began_under: Version
    """The last change of schema or topology when it began."""


def blind(topology: Topology, version: Version) -> list[NodeId]:
    """The live members that have not seen a version yet."""
    return sorted(
        node.id
        for node in topology.members.values()
        if is_member(node.state) and node.id in topology.alive and topology.seen.get(node.id, 0) < version
    )


def holds(topology: Topology, version: Version) -> bool:
    """Whether nothing is at work that does not know the step of this version."""
    older = topology.oldest_open is not None and topology.oldest_open < version
    return not older and not blind(topology, version)


def late(found: Iterable[Open], version: Version, stepped_at: int, now: int, grace_us: int) -> list[TransactionId]:
    """The transactions that have kept the barrier of a version waiting for too long: they are to be aborted."""
    if now < stepped_at + grace_us:
        return []
    return [one.transaction for one in found if one.began_under < version]
