"""Node processes whose roots no other process reaches: each finds its own root at the path that all of them have."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from ebla.cluster import local_cluster
from ebla.demo.cluster.story import started
from ebla.storage.roots import CACHE
from support.clusters import sql
from support.warehouse import eventually

pytestmark = pytest.mark.process

NODES = ("n1", "n2", "n3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local_cluster.LocalCluster]:
    with started(tmp_path_factory.mktemp("cluster") / "c", nodes=3, with_spark=1, local_roots=True) as made:
        yield made


def runs(cluster: local_cluster.LocalCluster, node: str) -> set[str]:
    return {file.name for file in cluster.root(node).glob("r*/*.parquet")}


def numbers(cluster: local_cluster.LocalCluster, node: str, table: str, where: str = "id >= 0") -> list[int]:
    """The keys of a table, as a node reads them without Spark."""
    return [row[0] for row in sql(cluster, node, f"SELECT id FROM {table} WHERE {where} ORDER BY id LIMIT 10000")]


def values(first: int, end: int) -> str:
    return ", ".join(f"({number}, 'word {number % 7}', {number})" for number in range(first, end))


def test_a_cluster_of_local_roots(cluster: local_cluster.LocalCluster):
    assert {row[0] for row in sql(cluster, "n1", "SHOW NODES")} == set(NODES)
    assert {str(row[0]) for row in sql(cluster, "n2", "SELECT storage_root FROM system.topology")} == {
        f"local://{local_cluster.HIDDEN}"
    }
    for replication in (1, 2):
        name = f"t{replication}"
        options = f"WITH (replication = {replication}, min_copies = 1)"
        sql(cluster, "n1", f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, word STRING, total BIGINT) {options}")
        for number, node in enumerate(NODES):
            sql(cluster, node, f"INSERT INTO {name} VALUES {values(100 * number, 100 * number + 100)}")
        for node in NODES:
            assert sql(cluster, node, f"SELECT id, total FROM {name} WHERE id = 205") == [[205, 205]]
            assert numbers(cluster, node, name) == list(range(300))
        assert sql(cluster, "n1", f"SELECT count(*), sum(total) FROM {name}") == [[300, 44850]]  # by Spark
    assert all(runs(cluster, node) for node in NODES)
    assert any((cluster.root("n1") / CACHE).rglob("*.parquet"))


def test_views_and_indexes_are_kept_over_local_roots(cluster: local_cluster.LocalCluster):
    sql(cluster, "n1", "CREATE MATERIALIZED VIEW w AS SELECT word, count(*) AS n FROM t1 GROUP BY word")
    sql(cluster, "n1", "CREATE INDEX by_word ON t1 (word)")
    sql(cluster, "n3", f"INSERT INTO t1 VALUES {values(300, 400)}")

    def shown(node: str) -> dict[str, int]:
        return dict(sql(cluster, node, "SELECT word, n FROM w WHERE word >= '' ORDER BY word LIMIT 100"))

    expected = Counter(f"word {number % 7}" for number in range(400))
    eventually(lambda: all(shown(node) == expected for node in NODES), 120)
    for node in NODES:
        assert numbers(cluster, node, "t1", "word = 'word 3'") == [n for n in range(400) if n % 7 == 3]


def test_a_tablet_moves_from_machine_to_machine(cluster: local_cluster.LocalCluster):
    [_, tablet, source, *_] = sql(cluster, "n1", "SHOW TABLETS OF t1")[0]
    target = next(node for node in NODES if node != source)
    before = runs(cluster, target)
    [[request]] = sql(cluster, "n2", f"MOVE TABLET {tablet} OF t1 FROM '{source}' TO '{target}'")
    sql(cluster, "n2", f"WAIT FOR REQUEST {request}")
    assert runs(cluster, target) - before
    for node in NODES:
        assert numbers(cluster, node, "t1") == list(range(400))


def test_a_node_dies_and_comes_back(cluster: local_cluster.LocalCluster):
    cluster.stop("n3", signal.SIGKILL)
    assert numbers(cluster, "n2", "t2") == list(range(300))
    sql(cluster, "n2", "INSERT INTO t2 VALUES (300, 'late', 1)")
    assert sql(cluster, "n1", "SELECT total FROM t2 WHERE id = 300") == [[1]]
    cluster.wait("n3", cluster.start("n3"))
    eventually(lambda: not sql(cluster, "n1", "SELECT * FROM system.under_replicated"), 90)
    for node in NODES:
        assert numbers(cluster, node, "t1") == list(range(400))
        assert numbers(cluster, node, "t2") == list(range(301))
