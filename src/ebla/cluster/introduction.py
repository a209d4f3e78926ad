"""A node shows a living node of the cluster that it has the secret, before it asks the catalog to join.

The catalog answers the request. Without a living node that answers the node goes on: so
the first one founds a cluster, and all come back after they failed together.
"""

from __future__ import annotations

import contextlib
import logging
import ssl

import httpx

from ebla.catalog import processes, topology
from ebla.catalog.store import Catalog
from ebla.cluster import founding
from ebla.cluster.config import NodeConfig
from ebla.errors import UsageError
from ebla.server.rpc import SECRET

log = logging.getLogger("ebla.node")

ASKED_MAX = 3
"""How many nodes are asked until one answers."""
CONNECT_S = 1.0
ANSWER_S = 2.0


def enter(config: NodeConfig) -> None:
    """What a node does before it asks to join: agree on the name of the cluster, and show a living node the secret."""
    founding.agree(config)
    introduce(config)


def introduce(config: NodeConfig) -> None:
    """Raise `UsageError` if a living node refuses this one."""
    with contextlib.closing(founding.opened(config)) as catalog:
        cluster, addresses = str(catalog.cluster_id()), _living(catalog, config.name)
    verify: ssl.SSLContext | bool = True if config.tls_ca is None else ssl.create_default_context(cafile=config.tls_ca)
    headers = {} if config.secret is None else {SECRET: config.secret}
    timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
    with httpx.Client(headers=headers, verify=verify, trust_env=False, timeout=timeout) as client:
        for name, address in list(addresses.items())[:ASKED_MAX]:
            if _is_welcome(client, config, cluster, name, address):
                return


def _living(catalog: Catalog, but: str) -> dict[str, str]:
    """The addresses of other nodes whose processes live, by their names."""
    with catalog.reading() as connection:
        members = topology.members(connection)
        living = processes.alive(connection, catalog.clock())
    found = [members[one.node] for one in living if one.role is processes.Role.NODE and one.node in members]
    return {one.name: one.address for one in found if one.address is not None and one.name != but}


def _is_welcome(client: httpx.Client, config: NodeConfig, cluster: str, name: str, address: str) -> bool:
    """Whether a node takes this one; `False` where it does not answer the question."""
    try:
        answer = client.post(f"{address}/rpc/join", json={"name": config.name, "cluster": cluster})
    except httpx.HTTPError as error:
        log.info("node=%s asks another node reason=%s: %s", config.name, address, str(error) or type(error).__name__)
        return False
    match answer.status_code:
        case httpx.codes.OK:
            return True
        case httpx.codes.UNAUTHORIZED:
            found = "none" if config.secret is None else "another one"
            raise UsageError(
                f"secret: expected the secret of the cluster, which {name} at {address} has, found {found}; "
                "give this node the same `secret`"
            )
        case httpx.codes.BAD_REQUEST:
            raise UsageError(f"{name} at {address}: {answer.json().get('detail')}")
    return False  # of an older release, without a secret, or about to stop
