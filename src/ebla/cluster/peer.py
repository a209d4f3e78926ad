"""Another process of the cluster, as one process knows it."""

from __future__ import annotations

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
