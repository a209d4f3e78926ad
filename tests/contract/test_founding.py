"""Founding a cluster: it is named once, whoever races, and a node that means another cluster is refused."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ebla.catalog import topology
from ebla.catalog.store import Catalog
from ebla.cluster import founding, process
from ebla.cluster.config import NodeConfig
from ebla.errors import CatalogError, UsageError
from support.catalogs import put_nodes


def name_of(url: str) -> str | None:
    with contextlib.closing(Catalog.open(url, create=False)) as catalog:
        return catalog.read(topology.cluster_name)


def node_of(url: str, name: str, **said: object) -> NodeConfig:
    return NodeConfig.model_validate({"catalog": url, "name": name, "root": "/data", "spark_master": "none", **said})


def found(url: str, node: str, name: str) -> None:
    founding.agree(node_of(url, node, found=name))


def test_of_founders_that_race_one_names_the_cluster_and_the_others_are_told_both_names(catalog_url: str):
    names = [f"shop{number}" for number in range(4)]
    together = threading.Barrier(len(names))

    def founder(name: str) -> str | None:
        together.wait()
        try:
            found(catalog_url, f"node of {name}", name)
        except UsageError as refused:
            return str(refused)
        return None

    with ThreadPoolExecutor(len(names)) as pool:
        answers = dict(zip(names, pool.map(founder, names), strict=True))
    first = name_of(catalog_url)
    assert [name for name, refusal in answers.items() if refusal is None] == [first]
    for name, refusal in answers.items():
        wanted = f"found: expected a catalog without a cluster, or of cluster {name}, found one of {first}; "
        assert refusal is None or refusal.startswith(wanted)


def test_a_name_that_is_said_again_changes_nothing_whichever_node_says_it(catalog_url: str):
    for node in ("n1", "n1", "n2"):
        found(catalog_url, node, "shop")
    with contextlib.closing(Catalog.open(catalog_url, create=False)) as catalog:
        assert catalog.version() == 1


def test_a_node_joins_the_cluster_that_it_means_and_no_other(empty_catalog: Catalog):
    def join(cluster: str) -> None:
        founding.agree(node_of(empty_catalog.where, "n2", cluster=cluster))

    with pytest.raises(UsageError, match="cluster: expected a catalog of cluster shop, found one without a name; give"):
        join("shop")
    found(empty_catalog.where, "n1", "shop")
    join("shop")
    with pytest.raises(UsageError, match="cluster: expected a catalog of cluster store, found one of shop; give"):
        join("store")


def test_a_node_that_joins_makes_no_catalog(tmp_path: Path):
    with pytest.raises(CatalogError, match="expected an Ebla warehouse, found none"):
        founding.agree(node_of(str(tmp_path / "catalog"), "n1", cluster="shop"))


def test_a_cluster_without_a_name_is_named_by_its_members_alone(empty_catalog: Catalog):
    put_nodes(empty_catalog, "n1")
    with pytest.raises(UsageError, match="expected a catalog without a cluster, found one of n1; leave `found` out"):
        found(empty_catalog.where, "n2", "shop")
    found(empty_catalog.where, "n1", "shop")
    assert name_of(empty_catalog.where) == "shop"


def test_a_node_that_starts_again_does_not_rename_its_cluster(postgres_url: str, tmp_path: Path):
    def start(**said: str) -> None:
        process._opened(node_of(postgres_url, "n1", root=str(tmp_path / "n1"), **said)).close()

    start(found="shop")
    start(found="shop", cluster="shop")
    with pytest.raises(UsageError, match="of cluster store, found one of shop; leave `found` out to join shop"):
        start(found="store")
    start(cluster="shop")
    assert name_of(postgres_url) == "shop"
