"""How a node process comes into a cluster: it shows a living node the secret, and asks one to take its request.

Theory of operation. A node first shows the secret, before it leaves a trace in its root or in the catalog. When its
root is marked and its process has its row, it asks a living node to join: that one checks what it can and writes the
request, and the coordinator answers it in the catalog, where this process waits for the answer. A node that does not
answer may have written the request: the next one that is asked finds it. Where no living node answers, this process
writes the request itself, by the same function: so a node joins where all others have failed. It does so, too, where
the node that lives is of an older release, which only acknowledges the secret.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import httpx
from pydantic import ValidationError

from ebla.catalog import processes, topology
from ebla.catalog.store import Catalog
from ebla.cluster import founding
from ebla.cluster.config import NodeConfig
from ebla.cluster.peer import CONNECT_S, calling, with_address
from ebla.errors import EblaError, NodeConflictError, UsageError
from ebla.remote.problems import error_of
from ebla.server.join import Join, Joins
from ebla.topology.admission import Candidate

log = logging.getLogger("ebla.node")

ASKED_MAX = 3
"""How many nodes are asked until one answers."""
SECRET_S = 2.0
"""How long a node may take to look at the secret."""
REQUEST_S = 5.0
"""How long a node may take to write a request."""


class Introduction:
    """The calls of one node before it is a member. A context manager: it calls until the block ends."""

    def __init__(self, config: NodeConfig, client: httpx.Client | None = None) -> None:
        self._config = config
        self._client = client or calling(config.secret, config.tls_ca, SECRET_S)
        self._silent = set[str]()
        """The addresses of nodes that did not answer: they are not waited for again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._client.close()

    def enter(self) -> None:
        """What a node does before it asks to join: agree on the name of the cluster, and show a living node the secret.

        `UsageError`: the node is refused, and has left nothing behind.
        """
        config = self._config
        founding.agree(config)
        with contextlib.closing(founding.opened(config)) as catalog:
            greeting = Join.showing(config.name, catalog.cluster_id())
            others = list(self._others(catalog))
        for name, address in others:
            if self._post(name, address, greeting, SECRET_S) is not None:
                return

    def ask(self, catalog: Catalog, candidate: Candidate) -> int | None:
        """Have a living node write a request to join; the request. `None`: no node that answers does."""
        greeting = Join.showing(candidate.node.name, candidate.cluster)
        asked = Join.of(replace(candidate, cluster_name=self._config.cluster or self._config.found))
        for name, address in self._others(catalog):
            welcome = self._post(name, address, greeting, SECRET_S)
            if welcome is not None and not welcome.takes_requests:
                log.info("node=%s writes its request itself reason=%s is of an older release", greeting.name, name)
                return None
            answer = None if welcome is None else self._post(name, address, asked, REQUEST_S)
            if answer is not None:
                log.info("node=%s asked node=%s request=%s", greeting.name, name, answer.request)
                return answer.request
        log.info("node=%s writes its request itself reason=no living node has taken it", greeting.name)
        return None

    def _others(self, catalog: Catalog) -> Iterator[tuple[str, str]]:
        """The names and addresses of some other nodes whose processes live."""
        with catalog.reading() as connection:
            members = topology.members(connection)
            living = processes.alive(connection, catalog.clock())
        found = {name: address for _, name, address in with_address(members, living) if name != self._config.name}
        some = list(found.items())[:ASKED_MAX]
        yield from ((name, address) for name, address in some if address not in self._silent)

    def _post(self, name: str, address: str, body: Join, timeout_s: float) -> Joins | None:
        """The answer of a node; `None`: it gives none, and another one may. A refusal is raised."""
        try:
            answer = self._client.post(
                f"{address}/rpc/join",
                json=body.model_dump(exclude_none=True),
                timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
            )
            if answer.is_success:
                return Joins.model_validate({"takes_requests": False, **answer.json()})
        except (httpx.HTTPError, ValidationError, ValueError, TypeError) as error:
            reason = str(error) or type(error).__name__
            self._silent.add(address)
            log.info("node=%s asks another node reason=%s: %s", self._config.name, address, reason)
            return None
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            found = "none" if self._config.secret is None else "another one"
            raise UsageError(
                f"secret: expected the secret of the cluster, which {name} at {address} has, found {found}; "
                "give this node the same `secret`"
            )
        if (refused := _refusal(answer, f"{name} at {address}")) is not None:
            raise refused
        return None  # of a release before these calls, without a secret, or about to stop


def _refusal(answer: httpx.Response, whose: str) -> EblaError | None:
    """What a node says that refuses another one; `None`: it could not do what it was asked for."""
    if answer.status_code not in (httpx.codes.BAD_REQUEST, httpx.codes.CONFLICT):
        return None
    error = error_of(answer)
    if isinstance(error, UsageError | NodeConflictError):
        return type(error)(f"{whose}: {error}")
    return None
