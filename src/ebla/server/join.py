"""The request of a node that is about to join, as its process brings it to a living one: `/rpc/join`.

A process that says its name and cluster alone shows that it has the secret, before it leaves a trace anywhere; one of
an older release does no more, and writes its request itself. With `node` the receiver writes the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from ebla.base.ids import NodeId
from ebla.model.lifecycle.node import NodeState
from ebla.model.topology import Member
from ebla.topology import admission
from ebla.topology.admission import Candidate

if TYPE_CHECKING:
    from ebla.api.database import Database

Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]


class JoiningNode(BaseModel):
    """What the topology has to know of a node."""

    model_config = ConfigDict(extra="forbid")

    id: Text
    """Its host id."""
    holder: Text
    """Its process, as `system.processes` has it."""
    cluster_name: Text | None = None
    """The name of the cluster that it means."""
    root: Text
    datacenter: Text
    rack: Text
    shards: int = Field(ge=1, le=2**31 - 1)
    address: Text | None = None
    release: str = Field(max_length=100)
    features: list[Text] = Field(max_length=1000)
    replaced: Text | None = None
    """The host id of the node in whose place it comes."""


class Join(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Text
    """Of the node that is about to join."""
    cluster: Text
    """The id of the cluster whose catalog it has."""
    node: JoiningNode | None = None

    @classmethod
    def showing(cls, name: str, cluster: str) -> Self:
        """That a node has the secret, and no more."""
        return cls.model_construct(name=name, cluster=cluster, node=None)

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        node = candidate.node
        """As it is: the receiver looks whether it is as it should be."""
        return cls.model_construct(
            name=node.name,
            cluster=candidate.cluster,
            node=JoiningNode.model_construct(
                id=node.id,
                holder=candidate.holder,
                cluster_name=candidate.cluster_name,
                root=node.root,
                datacenter=node.datacenter,
                rack=node.rack,
                shards=node.shards,
                address=node.address,
                release=node.release,
                features=sorted(node.features),
                replaced=node.replaced,
            ),
        )

    def candidate(self, said: JoiningNode) -> Candidate:
        node = Member(
            id=NodeId(said.id),
            name=self.name,
            root=said.root,
            datacenter=said.datacenter,
            rack=said.rack,
            shards=said.shards,
            state=NodeState.NONE,
            release=said.release,
            features=frozenset(said.features),
            address=said.address,
            replaced=None if said.replaced is None else NodeId(said.replaced),
        )
        return Candidate(node=node, holder=said.holder, cluster=self.cluster, cluster_name=said.cluster_name)


class Joins(BaseModel):
    cluster: str
    takes_requests: bool = True
    """A process of an older release does not say so: it acknowledges the secret alone."""
    request: int | None = None
    """The request that is written; none of a node that is a member already."""


def answer_join(database: Database, body: Join) -> Joins:
    """Write the request of a node, or refuse it."""
    cluster = str(database.context.catalog.cluster_id())
    admission.require_cluster(body.name, body.cluster, cluster)
    if body.node is None:
        return Joins(cluster=cluster)
    handshake = database.background.membership.handshake
    return Joins(cluster=cluster, request=handshake.admit(body.candidate(body.node)))
