"""The name of a cluster: its founder gives it, once, and a node that joins may say which cluster it means."""

from __future__ import annotations

import contextlib

from ebla.base.settings import load
from ebla.catalog import topology
from ebla.catalog.rows import State
from ebla.catalog.store import Catalog
from ebla.cluster.config import NodeConfig
from ebla.errors import UsageError
from ebla.model.changes import Decision
from ebla.model.scopes import TOPOLOGY
from ebla.model.topology_changes import NameCluster


def agree(config: NodeConfig) -> None:
    """Name the cluster that a node founds, or refuse a catalog of another one than it means.

    It is done before the node asks to join: one that is refused leaves nothing behind. Of several founders the first
    one names the cluster; those that say the same name join it, and the others are refused.
    """
    if config.found is None and config.cluster is None:
        return
    with contextlib.closing(opened(config, create=config.found is not None)) as catalog:
        catalog.decide(lambda connection, at: _decide(connection, config))


def opened(config: NodeConfig, *, create: bool = False) -> Catalog:
    """The catalog that a node means."""
    settings = load(**config.connect_settings())
    names = settings.table_names
    return Catalog.open(config.catalog, create=create, retry_s=settings.catalog_retry_s, table_names=names)


def _decide(state: State, config: NodeConfig) -> Decision | None:
    stored, found, cluster = topology.cluster_name(state), config.found, config.cluster
    if cluster is not None and found is None and stored != cluster:
        other = "one without a name" if stored is None else f"one of {stored}"
        raise UsageError(
            f"cluster: expected a catalog of cluster {cluster}, found {other}; give the address of the catalog of "
            f"{cluster}, or the name of the cluster that this node shall join"
        )
    if found is None or stored == found:
        return None
    if stored is not None:
        raise UsageError(
            f"found: expected a catalog without a cluster, or of cluster {found}, found one of {stored}; leave `found` "
            f"out to join {stored}, or give the address of another catalog"
        )
    names = sorted(member.name for member in topology.members(state).values())
    if names and config.name not in names:
        raise UsageError(
            f"found: expected a catalog without a cluster, found one of {', '.join(names)}; leave `found` out to join"
        )
    return Decision(
        reason=f"name the cluster {found}", updates=(NameCluster(name=found),), guards=frozenset({TOPOLOGY})
    )
