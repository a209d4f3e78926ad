"""Another process of the cluster, as one process knows it: which ones there are, and how they are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import httpx

from ebla.base.certificates import verification
from ebla.base.ids import NodeId
from ebla.catalog.processes import Process, Role
from ebla.model.topology import Member
from ebla.server.rpc import SECRET

CONNECT_S = 1.0
LEFT_ALONE_S = 2.0
"""How long a node is not called that could not be reached."""


class Peer:
    """What a process knows of another one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.builds = False
        self.topology = 0
        """The version that it said to follow."""
        self.is_called = False
        self.again = False
        self.alone_until_s = 0.0


def with_address(members: Mapping[NodeId, Member], living: Iterable[Process]) -> Iterator[tuple[Process, str, str]]:
    """The node processes that live and can be called, each with the name and the address of its node."""
    for process in living:
        member = members.get(process.node)
        if process.role is Role.NODE and member is not None and member.address is not None:
            yield process, member.name, member.address


def calling(secret: str | None, ca_file: str | None, timeout_s: float) -> httpx.Client:
    """A client for calls to other nodes, which shows them the secret of the cluster and checks their certificates."""
    return httpx.Client(
        headers={} if secret is None else {SECRET: secret},
        verify=verification(ca_file),
        trust_env=False,
        timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
    )
