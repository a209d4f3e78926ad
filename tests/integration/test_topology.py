"""Nodes that come to a cluster on real files: they ask, and the coordinator answers in the background."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ebla
from ebla.base.ids import NodeId
from ebla.catalog import topology
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import NodeConflictError, SqlError, UnknownNameError, UsageError
from ebla.model import topology_changes as t
from ebla.model.lifecycle.node import NodeState
from ebla.model.topology import LEASE, Member, RequestKind
from ebla.node import registration
from ebla.storage.files import MARKER, Root
from support.catalogs import Dump, dump, exclusively
from support.warehouse import HOUR_US, connect, eventually, host


def states(db: ebla.Database) -> list[tuple[str, str]]:
    """Every node that there is and was, with its state."""
    with db.context.catalog.reading() as connection:
        return sorted((member.name, member.state.value) for member in topology.members(connection).values())


def asked(db: ebla.Database) -> list[tuple[str, str]]:
    """Every request: its kind, and how it ended."""
    return [(row[0], row[1]) for row in db.sql("SELECT kind, state FROM system.topology_requests ORDER BY id").rows()]


def at_rest(db: ebla.Database) -> Dump:
    """What the catalog has when nothing is left to do in the background."""
    coordination, found = db.background.membership.coordination, [dump(db.context.catalog)]

    def rests() -> bool:
        rounds = coordination.rounds
        coordination.ask()
        eventually(lambda: coordination.rounds > rounds + 1)
        found.append(dump(db.context.catalog))
        return found[-1] == found[-2]

    eventually(rests)
    return found[-1]


def test_the_nodes_of_the_first_process_found_the_cluster_and_others_ask(tmp_path: Path):
    nodes = {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", nodes=nodes) as db:
        assert states(db) == [("node1", "normal"), ("node2", "normal")]
        assert asked(db) == []
        with connect(tmp_path / "w", nodes={**nodes, "node3": str(tmp_path / "three")}) as other:
            assert states(other) == [("node1", "normal"), ("node2", "normal"), ("node3", "normal")]
            assert asked(other) == [("join", "done")]
        with connect(tmp_path / "w", nodes=nodes) as other:
            assert asked(other) == [("join", "done")], "a member does not ask again"


def test_each_node_of_a_process_may_stand_elsewhere(tmp_path: Path):
    """A node says for itself what is not that of its process; a storage root alone is the short form."""
    nodes = {
        "node2": {"root": str(tmp_path / "two"), "rack": "r2", "shards": 3},
        "node3": {"root": str(tmp_path / "three"), "datacenter": "dc2"},
        "node4": str(tmp_path / "four"),
    }
    with connect(tmp_path / "w", nodes=nodes, rack="r1", shards=2) as db:
        places = db.sql("SELECT name, datacenter, rack, shard_count FROM system.topology ORDER BY name").rows()
        assert places == [
            ("node1", "dc1", "r1", 2),
            ("node2", "dc1", "r2", 3),
            ("node3", "dc2", "r1", 2),
            ("node4", "dc1", "r1", 2),
        ]
    for wrong, says in (
        ({"node5": {"rack": "r2"}}, "setting nodes.node5.root: Field required"),
        ({"node5": {"root": "/x", "shards": 0}}, "setting nodes.node5.shards: .* greater than or equal to 1"),
        ({"node5": {"root": "/x", "racks": 1}}, "setting nodes.node5.racks: Extra inputs are not permitted"),
        ({"node5": 5}, "setting nodes.node5: "),
    ):
        with pytest.raises(UsageError, match=says):
            connect(tmp_path / "w", nodes=wrong)


def test_every_process_follows_the_topology(tmp_path: Path):
    with connect(tmp_path / "w") as first, connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as second:
        newest = second.context.catalog.read(topology.version)
        eventually(lambda: all(db.background.membership.coordination.seen == newest for db in (first, second)))


def test_c7_a_crashed_join_must_start_clean(tmp_path: Path):
    place = tmp_path / "two"
    with connect(tmp_path / "w") as db:
        node = Member(id=NodeId("id-2"), name="node2", root=str(place), state=NodeState.NONE)
        exclusively(db.context.catalog, t.AddNode(node=node))
        with pytest.raises(NodeConflictError, match=r"found .*two of a join that did not end; begin anew"):
            connect(tmp_path / "w", nodes={"node2": str(place)})


def test_c7_a_removed_nodes_id_is_refused_and_its_name_is_free(tmp_path: Path):
    place = tmp_path / "two"
    with connect(tmp_path / "w", nodes={"node2": str(place)}) as db:
        gone = host(db, "node2")
        for state in (NodeState.DECOMMISSIONING, NodeState.LEFT):
            exclusively(db.context.catalog, t.SetNodeState(node=gone, state=state))
    for name in ("node2", "other"):
        with pytest.raises(NodeConflictError, match=f"of node node2 .{gone}., which left; its id is never accepted"):
            connect(tmp_path / "w", nodes={name: str(place)})
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "fresh")}) as db:
        assert host(db, "node2") != gone
        assert sorted(states(db)) == [("node1", "normal"), ("node2", "left"), ("node2", "normal")]


@pytest.mark.parametrize("whose", ["the same node's name", "another warehouse"])
def test_the_root_of_a_node_that_left_is_swept_for_no_one(tmp_path: Path, whose: str):
    place, nodes = tmp_path / "two", {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", nodes=nodes) as db:
        [(request,)] = db.sql("ALTER CLUSTER DECOMMISSION NODE node2").rows()
        db.sql(f"WAIT FOR REQUEST {request}")
    shutil.rmtree(place)
    is_same = whose == "the same node's name"
    with connect(tmp_path / "w", nodes=nodes) if is_same else connect(tmp_path / "x", storage_root=str(place)) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        for number in range(3):
            db.table("t").upsert([{"id": number * 100 + n} for n in range(100)])
    files = sorted(place.rglob("*.parquet"))
    assert files
    with connect(tmp_path / "w") as db:
        assert db.vacuum().files == 0
    assert sorted(place.rglob("*.parquet")) == files


def test_two_processes_of_a_new_node_are_one_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place, both = tmp_path / "two", threading.Barrier(2)
    connect(tmp_path / "w").close()
    claim = Root.claim

    def together(root: Root, claimed: Mapping[str, str]) -> dict[str, str]:
        both.wait(150)
        return claim(root, claimed)

    monkeypatch.setattr(Root, "claim", together)
    with ThreadPoolExecutor() as pool:
        opened = list(pool.map(lambda _: connect(tmp_path / "w", nodes={"node2": str(place)}), range(2)))
    with opened[0] as db, opened[1]:
        assert states(db) == [("node1", "normal"), ("node2", "normal")]
        assert asked(db) == [("join", "done")]
        assert json.loads((place / MARKER).read_text())["node"] == host(db, "node2")


@pytest.mark.parametrize("same", ["name", "storage root"])
def test_a_name_and_a_root_belong_to_one_node(tmp_path: Path, same: str):
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as db:
        name, root = ("node2", tmp_path / "three") if same == "name" else ("node3", tmp_path / "two")
        node = Member(id=NodeId("late"), name=name, root=str(root), state=NodeState.NONE)
        with pytest.raises(NodeConflictError, match=f"expected a {same} of its own, found node node2"):
            exclusively(db.context.catalog, t.AddNode(node=node))


def test_a_node_joins_while_another_process_leads(tmp_path: Path):
    """The leader reads in the row of the joining process that its node is alive, before it is a member."""
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (tablets = 4)")
        db.sql("ALTER CLUSTER DECOMMISSION NODE node2")
        eventually(lambda: ("node2", "decommissioning") in states(db))
        with connect(tmp_path / "w", nodes={"node3": str(tmp_path / "three")}) as other:
            assert ("node3", "normal") in states(other)


def test_a_host_id_lies_in_the_storage_root(tmp_path: Path):
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as db:
        found = json.loads((tmp_path / "two" / MARKER).read_text())
        assert found == {"cluster": db.context.catalog.cluster_id(), "node": host(db, "node2"), "name": "node2"}
        assert str(uuid.UUID(found["node"])) == found["node"]


def test_tablets_are_spread_in_the_order_of_names(tmp_path: Path):
    with connect(tmp_path / "w", nodes={name: str(tmp_path / name) for name in ("c", "a", "b")}) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY) WITH (tablets = 4)")
        query = "SELECT n.name FROM system.tablets t JOIN system.topology n ON t.host_id = n.host_id ORDER BY tablet_id"
        assert [name for (name,) in db.sql(query).rows()] == ["a", "b", "c", "node1"]


def test_a_catalog_whose_nodes_have_names_for_ids_keeps_them(tmp_path: Path):
    with contextlib.closing(Catalog.open(str(tmp_path / "w"))) as catalog:
        exclusively(catalog, t.AddNode(node=Member(id=NodeId("node1"), name="node1", root="./data")))
        marker = tmp_path / "w" / "data" / MARKER
        marker.parent.mkdir()
        marker.write_text(json.dumps({"cluster": catalog.cluster_id(), "node": "node1"}))
    with connect(tmp_path / "w") as db:
        assert db.context.node == "node1"
        assert states(db) == [("node1", "normal")]


def test_a_node_that_lacks_a_feature_is_refused_and_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with connect(tmp_path / "w") as db:
        new = registration._new

        def older(*given: Any) -> Member:
            return replace(new(*given), features=frozenset({"topology_requests"}))

        monkeypatch.setattr(registration, "_new", older)
        with pytest.raises(
            UsageError, match="found it without building_calls, local_roots, tablet_transitions; upgrade it"
        ):
            connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")})
        assert states(db) == [("node1", "normal"), ("node2", "left")]
        assert asked(db) == [("join", "failed")]


# ---- statements -----------------------------------------------------------------------------------------


def test_statements_about_nodes_and_requests(tmp_path: Path):
    where, nodes = tmp_path / "w", {"node2": str(tmp_path / "two"), "node3": str(tmp_path / "three")}
    with connect(where, nodes=nodes) as db:
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY) WITH (replication = 2, tablets = 4)")
        shown = db.sql("SHOW NODES LIKE 'node%'").to_arrow().to_pylist()
        assert [(row["name"], row["state"], row["alive"]) for row in shown] == [
            (f"node{n}", "normal", True) for n in (1, 2, 3)
        ]
        assert sum(row["tablets"] for row in shown) == 8
        db.sql("ALTER CLUSTER SET balancing = OFF")
        with db.context.catalog.reading() as connection:
            assert not topology.is_balancing(connection)
        db.sql("ALTER CLUSTER SET balancing = on")
        [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE 'node2'").rows()
        assert db.sql(f"WAIT FOR REQUEST {request}").rows() == [(request, "node node2 has all of its copies")]
        [row] = db.sql("SHOW REQUESTS").to_arrow().to_pylist()
        assert (row["id"], row["kind"], row["node"], row["state"]) == (request, "rebuild", "node2", "done")
        found = db.sql("SELECT id, state FROM system.topology_requests WHERE host_id IS NOT NULL").rows()
        assert found == [(request, "done")]
        with pytest.raises(UsageError, match=f"request {request}: expected one that has not begun, found it done"):
            db.sql(f"ALTER CLUSTER CANCEL REQUEST {request}")


def test_a_node_shows_its_disk_and_the_load_of_its_machine(tmp_path: Path):
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as db:
        db.background.membership.presence.appear()
        total = shutil.disk_usage(tmp_path).total
        shown = db.sql("SHOW NODES").to_arrow().to_pylist()
        assert [(row["disk_total"], row["cores"]) for row in shown] == [(total, os.cpu_count())] * 2
        assert all(0 < row["disk_free"] < total and row["load_1m"] >= 0 for row in shown)
        [(load, disks)] = db.sql("SELECT load_1m, disks FROM system.processes").rows()
        assert isinstance(load, float)
        assert {node: disk[1] for node, disk in json.loads(disks).items()} == {row["host_id"]: total for row in shown}
        text = db.metrics()
        for name in ("disk_free_bytes", "disk_bytes", "load1", "cores"):
            assert re.search(rf'^ebla_node_{name}{{node="node2"}} \d', text, re.MULTILINE), name
        shutil.rmtree(tmp_path / "two")
        db.background.membership.presence.appear()
        [row] = db.sql("SHOW NODES LIKE 'node2'").to_arrow().to_pylist()
        assert (row["alive"], row["disk_free"], row["disk_total"]) == (False, None, None)


def test_a_request_that_has_not_begun_is_cancelled(tmp_path: Path):
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as db:
        assert tx.lead(db.context.catalog, LEASE, "another", HOUR_US)  # which does nothing
        running = t.AddRequest(kind=RequestKind.REBUILD, holder="test", node=db.context.node)
        first = exclusively(db.context.catalog, running).version
        exclusively(db.context.catalog, t.BeginRequest(request=first))
        [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE node2").rows()
        shown = db.sql("SHOW REQUESTS").to_arrow().to_pylist()
        assert [(row["id"], row["state"]) for row in shown] == [(request, "queued"), (first, "running")]
        assert shown[0]["waits_for"] == f"request {first} (rebuild)"
        with pytest.raises(UsageError, match=f"found request {request} .rebuild.; WAIT FOR REQUEST {request}"):
            db.sql("ALTER CLUSTER DECOMMISSION NODE node2")
        assert db.sql(f"ALTER CLUSTER CANCEL REQUEST {request}").rows() == [(request,)]
        with pytest.raises(UsageError, match=f"request {request} .rebuild.: request {request} was cancelled"):
            db.sql(f"WAIT FOR REQUEST {request}")
        with pytest.raises(UsageError, match="found it running; it goes on to its end"):
            db.sql(f"ALTER CLUSTER CANCEL REQUEST {first}")


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        ("DECOMMISSION NODE 'x'", UnknownNameError, "node x: expected a node of the cluster.*nodes are node1, node2"),
        ("DECOMMISSION NODE 'node2'", UsageError, "orders has replication 2, found 1 of 2 left"),
        ("REMOVE NODE 'node2'", UsageError, "found it alive; DECOMMISSION NODE 'node2'"),
        ("REMOVE NODE 'node2' IGNORE NODES ('y')", UnknownNameError, "node y: expected a node of the cluster"),
        ("REBUILD NODE 'node2' FROM 'dc9'", UsageError, "expected a live node in datacenter dc9"),
        ("CANCEL REQUEST 999", UnknownNameError, "request 999: expected the id of a request, found none"),
        ("CANCEL REQUEST x", SqlError, "expected the number of a request, found x"),
        ("SET balancing = maybe", SqlError, "expected ON or OFF, found maybe"),
        ("SING", SqlError, "expected DECOMMISSION NODE, REMOVE NODE"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(tmp_path: Path, statement: str, error: type[Exception], says: str):
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two")}) as db:
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY) WITH (replication = 2, tablets = 1)")
        before = dump(db.context.catalog)
        with pytest.raises(error, match=says):
            db.sql(f"ALTER CLUSTER {statement}")
        assert dump(db.context.catalog) == before


def test_a_node_in_the_wrong_state_is_refused_and_nothing_changes(tmp_path: Path):
    with connect(tmp_path / "w", nodes={"node2": str(tmp_path / "two"), "node3": str(tmp_path / "three")}) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (tablets = 1)")
        [(request,)] = db.sql("ALTER CLUSTER DECOMMISSION NODE node3").rows()
        db.sql(f"WAIT FOR REQUEST {request}")
        source = db.sql("SHOW TABLETS OF t").to_arrow().to_pylist()[0]["replicas"]
        before = at_rest(db)
        for statement, says in {
            "ALTER CLUSTER DECOMMISSION NODE node3": "node node3: expected it normal, found it left; it cannot leave",
            "ALTER CLUSTER REMOVE NODE node3": "node node3: expected it normal, found it left; it cannot remove",
            "ALTER CLUSTER REBUILD NODE node3": "node node3: expected it normal, found it left; it cannot rebuild",
            f"MOVE TABLET 0 OF t FROM '{source}' TO 'node3'": "expected a live node that takes replicas, found node "
            "node3, it",
        }.items():
            with pytest.raises(UsageError, match=says):
                db.sql(statement)
        assert dump(db.context.catalog) == before


def test_more_copies_than_racks_are_refused_and_nothing_changes(tmp_path: Path):
    nodes = {
        "node2": {"root": str(tmp_path / "two"), "rack": "r1"},
        "node3": {"root": str(tmp_path / "three"), "rack": "r2"},
    }
    with connect(tmp_path / "w", nodes=nodes, rack="r1") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (replication = 2)")
        before = at_rest(db)
        says = "at most 2, the number of racks with live nodes that take replicas, found 3; add racks first"
        with pytest.raises(UsageError, match=says):
            db.sql("ALTER TABLE t SET (replication = 3)")
        assert dump(db.context.catalog) == before


def test_a_request_of_a_node_that_has_one_is_refused_and_nothing_changes(tmp_path: Path):
    nodes = {"node2": str(tmp_path / "two"), "node3": str(tmp_path / "three")}
    with connect(tmp_path / "w", nodes=nodes) as db:
        assert tx.lead(db.context.catalog, LEASE, "another", HOUR_US)  # which does nothing
        [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE node2").rows()
        before = dump(db.context.catalog)
        for statement in ("DECOMMISSION NODE node2", "REBUILD NODE node2", "REMOVE NODE node2"):
            with pytest.raises(UsageError, match=rf"found request {request} \(rebuild\); WAIT FOR REQUEST {request}"):
                db.sql(f"ALTER CLUSTER {statement}")
        assert dump(db.context.catalog) == before
        db.sql("ALTER CLUSTER DECOMMISSION NODE node3")


def test_statements_answer_at_once_with_the_id_of_their_request(tmp_path: Path):
    """Each of them returns one row, whose first column is the `id` in `system.topology_requests`."""
    nodes = {name: str(tmp_path / name) for name in ("node2", "node3", "node4")}
    with connect(tmp_path / "w", nodes=nodes) as db:
        for name in "tuvw":
            db.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY) WITH (tablets = 1)")
        source = db.sql("SHOW TABLETS OF t").to_arrow().to_pylist()[0]["replicas"]
        target = next(name for name in nodes if name != source)
        shutil.rmtree(tmp_path / "node4")
        db.background.membership.presence.appear()  # and says so
        assert tx.lead(db.context.catalog, LEASE, "another", HOUR_US)  # which does nothing
        asked = {}
        for statement, kind in {
            "ALTER CLUSTER DECOMMISSION NODE 'node2'": "leave",
            "ALTER CLUSTER REMOVE NODE 'node4'": "remove",
            "ALTER CLUSTER REBUILD NODE 'node3' FROM 'dc1'": "rebuild",
            "ALTER CLUSTER NEW CDC GENERATION OF t": "new_cdc_generation",
            f"MOVE TABLET 0 OF t FROM '{source}' TO '{target}'": "move",
            "ALTER TABLE u SET (replication = 2)": "replication",
            "ALTER TABLE v SET (tablets = 2)": "resize",
        }.items():
            [row] = db.sql(statement).rows()
            asked[row[0]] = kind
            [found] = db.sql("SELECT kind, state FROM system.topology_requests WHERE id = :id", id=row[0]).rows()
            assert found == (kind, "queued"), statement
        assert len(asked) == 7
        for request, kind in asked.items():
            assert [row[0] for row in db.sql(f"ALTER CLUSTER CANCEL REQUEST {request}").rows()] == [request]
            [found] = db.sql("SELECT kind, state FROM system.topology_requests WHERE id = :id", id=request).rows()
            assert found == (kind, "cancelled")


def test_every_node_shows_what_holds_for_the_whole_cluster(tmp_path: Path):
    with connect(tmp_path / "w") as db:
        found = db.sql("SELECT name, node_state, transition_state, global_topology_request FROM system.topology")
        assert found.rows() == [("node1", "normal", None, None)]
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        request = db.sql("ALTER CLUSTER NEW CDC GENERATION OF t").one()[0]
        db.sql(f"WAIT FOR REQUEST {request}")
        [row] = db.sql("SELECT * FROM system.topology").to_arrow().to_pylist()
        assert row.keys() >= {
            "key", "host_id", "datacenter", "ignore_msb", "node_state", "num_tokens", "rack", "rebuild_option",
            "release_version", "replaced_id", "ignore_nodes", "shard_count", "tokens", "topology_request",
            "transition_state", "current_cdc_generation_timestamp", "current_cdc_generation_uuid",
            "unpublished_cdc_generations", "global_topology_request", "new_cdc_generation_data_uuid",
        }  # fmt: skip
        assert row["current_cdc_generation_uuid"] is not None
        assert row["current_cdc_generation_timestamp"] is not None


def test_the_last_node_stays(tmp_path: Path):
    with connect(tmp_path / "w") as db:
        before = at_rest(db)
        with pytest.raises(UsageError, match="found none; it is the last one"):
            db.sql("ALTER CLUSTER DECOMMISSION NODE node1")
        assert dump(db.context.catalog) == before


def test_a_rebuilt_node_has_its_files_again(tmp_path: Path):
    nodes = {"node2": str(tmp_path / "two")}
    with connect(tmp_path / "w", nodes=nodes, replication=2, tablets=2, auto_compact=False) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        for first in range(0, 30, 10):
            db.table("t").upsert([{"id": n} for n in range(first, first + 10)])
        lost = sorted((tmp_path / "two").rglob("*.parquet"))
        assert len(lost) >= 3
        for number, file in enumerate(lost):
            file.unlink() if number else file.write_bytes(b"cut")
        [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE node2").rows()
        assert db.sql(f"WAIT FOR REQUEST {request}").one() == (request, "node node2 has all of its copies")
        assert all(file.stat().st_size > 3 for file in lost)
        for file in (tmp_path / "w" / "data").rglob("*.parquet"):
            file.unlink()
    with connect(tmp_path / "w", nodes=nodes, auto_compact=False) as db:
        assert len(db.query("t", limit=100)) == 30
        lost[0].unlink()
        [(request,)] = db.sql("ALTER CLUSTER REBUILD NODE node2").rows()
        with pytest.raises(UsageError, match="it to have all of its copies, found it without 1 "):
            db.sql(f"WAIT FOR REQUEST {request}")
        assert states(db) == [("node1", "normal"), ("node2", "normal")]


def test_new_generations_and_truncations_are_requests_with_results(tmp_path: Path):
    with connect(tmp_path / "w") as db:
        db.sql("CREATE TABLE t (id BIGINT, PRIMARY KEY (id)); CREATE TABLE other (id BIGINT, PRIMARY KEY (id))")
        db.sql("CREATE INDEX by_id ON t (id)")
        db.table("t").upsert([{"id": 1}])
        for of, result in (("OF t", "t"), ("", "2 tables and views")):
            request = db.sql(f"ALTER CLUSTER NEW CDC GENERATION {of}").rows()[0][0]
            assert db.sql(f"WAIT FOR REQUEST {request}").rows() == [
                (request, f"new generations of change streams of {result}")
            ]
        count = "SELECT count(*) FROM system.cdc_generations g JOIN system.relations r USING (relation_id)"
        assert db.sql(f"{count} WHERE r.name = 't'").rows() == [(3,)]
        version = db.sql("TRUNCATE TABLE t").rows()[0][0]
        done = "SELECT kind, state, result FROM system.topology_requests WHERE id = :id"
        assert db.sql(done, id=version).rows() == [("truncate", "done", "t has no rows")]
        before = asked(db)
        with pytest.raises(UnknownNameError, match="nope"):
            db.sql("ALTER CLUSTER NEW CDC GENERATION OF nope")
        with pytest.raises(UsageError, match="expected a table or a view, found an index"):
            db.sql("ALTER CLUSTER NEW CDC GENERATION OF by_id")
        assert asked(db) == before
