"""Node processes over a real PostgreSQL, under load, while parts of the cluster fail: nothing is lost or done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import make_url

from chaos.leaders import process_id, stopped_leader
from ebla.base.ids import Version
from ebla.catalog import rows, topology
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.cluster import local_cluster
from ebla.demo.cluster.load import TABLE, Load, Order, schema
from ebla.demo.cluster.story import Story, started, wait
from ebla.model.lifecycle.tablet import goes_back
from ebla.topology.tablets import AFTER
from support.clusters import imported_first, ports_between, refusing
from support.proxy import Proxy

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.slow]

SKEW_S = 60


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Three nodes without Spark, and a table."""
    with started(tmp_path_factory.mktemp("failing") / "c", spark="none") as cluster:
        running = Story(cluster)
        running.rows(schema()[0])
        running.rows("ALTER CLUSTER SET balancing = off")  # tablets move where a test says so alone
        yield running


@pytest.fixture
def load(story: Story) -> Iterator[Load]:
    """Writers and a reader at work; in the end the table has what they were told that it has."""
    story.rows(f"TRUNCATE TABLE {TABLE}")
    with Load(story.urls, story.cluster.token) as running:
        wait("the first commits", lambda: running.commits > 5)
        yield running
    assert running.errors == []
    assert running.differences(stored(story)) == []


def stored(story: Story) -> dict[int, Order]:
    """All rows of the table, page by page."""
    found, after = dict[int, Order](), None
    with story.connect() as client:
        while True:
            page = client.query(TABLE, order_by="id", limit=1000, after=after)
            found |= {key: Order(customer, amount) for key, customer, amount in page.rows()}
            after = page.next
            if after is None:
                return found


def nodes(story: Story) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in story.rows("SHOW NODES") if row["state"] != "left"}


def test_postgresql_dies_and_comes_back(story: Story, load: Load):
    postgres = story.cluster.postgres
    assert postgres.pid is not None
    local_cluster.end(postgres.pid, signal.SIGKILL, 10)
    url = story.urls[0]
    headers = {"Authorization": f"Bearer {story.cluster.token}"}

    def refused() -> httpx.Response | None:
        answer = httpx.get(f"{url}/v1/version", headers=headers, timeout=60)
        return answer if answer.status_code != httpx.codes.OK else None

    answer = wait("a refusal", refused)
    assert (answer.status_code, answer.json()["title"]) == (503, "CatalogUnavailableError")
    assert int(answer.headers["Retry-After"]) >= 1
    assert httpx.get(f"{url}/health/live", timeout=60).status_code == 200
    assert httpx.get(f"{url}/health/ready", timeout=60).status_code == 503
    postgres.start()
    load.goes_on(10)
    wait("all nodes ready", lambda: all(local_cluster.is_ready(one) for one in story.urls))


def test_a_leader_that_slept_past_its_lease_changes_nothing_when_it_wakes(story: Story, load: Load):
    with contextlib.closing(Catalog.open(story.cluster.postgres.url, create=False)) as catalog:
        request, pid = stopped_leader(story, catalog)
        try:
            others = [one for one in story.cluster.nodes if process_id(story, one.name) != pid]
            with contextlib.closing(Load([one.url for one in others], story.cluster.token).connect(0)) as client:
                client.sql(f"WAIT FOR REQUEST {request}")
            before = catalog.read(topology.version)
            load.goes_on(10)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait("the leader of before alive", lambda: all(row["alive"] for row in nodes(story).values()))
        wait("that it follows", lambda: all(row["seen_version"] >= before for row in nodes(story).values()))
        assert catalog.read(topology.version) == before
    load.goes_on(10)


def test_a_node_that_is_cut_off_is_dead_to_the_others_and_comes_back(story: Story, load: Load):
    with Proxy(story.cluster.postgres_port) as between:
        through = make_url(story.cluster.postgres.url).set(port=between.port).render_as_string(hide_password=False)
        restart(story, "n3", {"EBLA_NODE_CATALOG": through})
        url = story.cluster.node("n3").url
        with between.silence():
            wait("n3 dead to the others", lambda: not nodes(story)["n3"]["alive"])
            assert httpx.get(f"{url}/health/ready", timeout=60).status_code == 503
            load.goes_on(10)
        wait("n3 alive again", lambda: nodes(story)["n3"]["alive"] and local_cluster.is_ready(url))
        story.cluster.stop("n3")
    restart(story, "n3", {})


def test_clocks_that_differ_by_a_minute_do_no_harm(story: Story, load: Load):
    folder = imported_first("skewed")
    restart(story, "n3", {"PYTHONPATH": folder, "EBLA_TEST_SKEW_S": str(SKEW_S)})
    restart(story, "n2", {"PYTHONPATH": folder, "EBLA_TEST_SKEW_S": str(-SKEW_S)})
    began = time.monotonic()
    source, target = story.ends_of_tablet(1)
    request = story.rows(f"MOVE TABLET 1 OF {TABLE} FROM '{source}' TO '{target}'")[0]["request"]
    story.rows(f"WAIT FOR REQUEST {request}")
    wait("a lease of a process over", lambda: time.monotonic() - began > 10)
    for url in story.urls:
        with contextlib.closing(Load([url], story.cluster.token).connect(0)) as client:
            found = client.sql("SHOW NODES").to_arrow().to_pylist()
        assert [row["alive"] for row in found if row["state"] != "left"] == [True] * 3, url
    load.goes_on(10)


CUTS = {"one from the others": [{"n3"}, {"n1", "n2"}], "each from each": [{"n1"}, {"n2"}, {"n3"}]}
"""Nodes that reach each other, and no others."""


def test_nodes_that_do_not_reach_each_other_work_on_through_the_catalog(story: Story, load: Load, tmp_path: Path):
    for one in story.cluster.nodes:
        restart(story, one.name, refusing(tmp_path / one.name))
    for number, groups in enumerate(CUTS.values()):
        with apart(story, groups, tmp_path), contextlib.closing(history_of(story)) as catalog:
            before = catalog.version()
            source, target = story.ends_of_tablet(number)
            request = story.rows(f"MOVE TABLET {number} OF {TABLE} FROM '{source}' TO '{target}'")[0]["request"]
            story.rows(f"WAIT FOR REQUEST {request}")
            load.goes_on(10)
            assert [row["alive"] for row in nodes(story).values()] == [True] * 3
            assert steps_since(catalog, before) == [f"tablet {number} of {TABLE}: {step}" for step in WHOLE_MOVE]
    load.goes_on(10)


WHOLE_MOVE = [f"{stage} -> {after or 'end'}" for stage, after in AFTER.items() if not goes_back(stage)]


@contextlib.contextmanager
def apart(story: Story, groups: list[set[str]], folder: Path) -> Iterator[None]:
    """Until the block ends, connections between nodes of different groups are refused; each node has met that."""
    urls = {one.name: one.url for one in story.cluster.nodes}
    refused = ports_between(story.cluster, groups)
    logs = {name: story.cluster.directory / name / "log" for name in refused}
    sizes = {name: log.stat().st_size for name, log in logs.items()}
    for name, those in refused.items():
        (folder / name).write_text(" ".join(map(str, those)))

    def has_met(name: str) -> bool:
        with contextlib.closing(Load([urls[name]], story.cluster.token).connect(0)) as client:
            client.sql("ALTER CLUSTER SET balancing = off")  # a commit, of which it tells the others
        said = logs[name].read_bytes()[sizes[name] :].decode()
        return all(f"expected http://127.0.0.1:{port} to answer" in said for port in refused[name])

    try:
        for name in refused:
            wait(f"{name} refused by the others", partial(has_met, name))
        yield
    finally:
        for name in refused:
            (folder / name).unlink()


def history_of(story: Story) -> Catalog:
    return Catalog.open(story.cluster.postgres.url, create=False)


def steps_since(catalog: Catalog, version: Version) -> list[str]:
    """The steps of tablets that leaders have committed since, one after the other."""
    with catalog.reading() as connection:
        found = rows.find(connection, s.history, "version", version=rows.Above(version))
    return [step for row in found if row.reason.startswith("tablet ") for step in row.reason.split("; ")]


def restart(story: Story, name: str, environment: dict[str, str]) -> None:
    story.cluster.stop(name)
    story.cluster.wait(name, story.cluster.start(name, environment=environment))
