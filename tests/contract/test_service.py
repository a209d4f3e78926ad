"""Troubles and processes: rows that say what stands in the way and who is at work."""

from __future__ import annotations

from typing import Any

from ebla.base.ids import NodeId, RelationId
from ebla.catalog import processes, troubles
from ebla.catalog.processes import Disk, Machine
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import Activity, Trouble
from ebla.model.relation import Kind
from support.catalogs import Clock

LEASE_US = 1000


def fail(catalog: Catalog, relation: int = 1, *, final: bool = False, name: str = "v") -> Trouble:
    return troubles.record(
        catalog,
        relation=RelationId(relation),
        work=Activity.EPOCH,
        name=name,
        kind=Kind.VIEW,
        final=final,
        code="CAST_INVALID_INPUT" if final else "SPARK_JOB_LOST",
        message="Spark lost a job",
        holder="h/1",
    )


def report(catalog: Catalog, holder: str, *doing: str, **more: Any) -> None:
    processes.report(
        catalog,
        holder=holder,
        node=NodeId("n1"),
        host="h",
        pid=1,
        role=processes.Role.RUN,
        maintains=True,
        doing=doing,
        lease_us=LEASE_US,
        **more,
    )


def test_failures_in_a_row_count_up_and_wait_longer(catalog: Catalog, clock: Clock):
    first = fail(catalog)
    assert (first.attempts, first.retry_at) == (1, clock.now_us + troubles.BACKOFF_US.first)
    clock.advance(10)
    second = fail(catalog)
    assert (second.attempts, second.first_at, second.last_at) == (2, first.first_at, clock.now_us)
    assert second.retry_at == clock.now_us + 2 * troubles.BACKOFF_US.first
    with catalog.reading() as connection:
        assert troubles.everything(connection) == [second]
        assert troubles.find(connection, RelationId(1), Activity.EPOCH) == second
        assert troubles.by_name(connection, "V") == [second]


def test_a_final_failure_is_not_tried_again_and_begins_a_count_of_its_own(catalog: Catalog):
    fail(catalog)
    fail(catalog)
    last = fail(catalog, final=True)
    assert (last.attempts, last.retry_at) == (1, None)


def test_success_clears_only_its_own_work_and_relation(catalog: Catalog):
    fail(catalog, 1)
    fail(catalog, 2)
    assert not troubles.clear(catalog, RelationId(1), Activity.BUILD)
    assert troubles.clear(catalog, RelationId(1), Activity.EPOCH)
    with catalog.reading() as connection:
        assert [found.relation for found in troubles.everything(connection)] == [2]
        assert troubles.everything(connection, [RelationId(1)]) == []


def test_the_pause_is_bounded():
    assert troubles.BACKOFF_US.after(0) == 0
    assert troubles.BACKOFF_US.after(1000) == troubles.BACKOFF_US.most


def test_a_process_is_alive_while_its_lease_holds(catalog: Catalog, clock: Clock):
    report(catalog, "a")
    report(catalog, "b", "epoch of card")
    clock.advance(LEASE_US - 1)
    report(catalog, "b", "build of card")
    clock.advance(2)
    with catalog.reading() as connection:
        found = processes.alive(connection, clock.now_us)
    assert [(p.holder, p.doing, p.started_at) for p in found] == [
        ("b", ("build of card",), clock.now_us - LEASE_US - 1)
    ]


def test_a_row_says_what_the_machine_of_its_nodes_is_like(catalog: Catalog):
    one, two = NodeId("one"), NodeId("two")
    report(catalog, "a", hosts=(one,), machine=Machine(load_1m=9.0, cores=8, disks={one: Disk(free=1, total=2)}))
    machine = Machine(load_1m=0.5, cores=2, disks={one: Disk(free=5, total=10)})
    report(catalog, "b", hosts=(one, two), machine=machine)
    report(catalog, "c", hosts=(two,))
    with catalog.reading() as connection:
        assert processes.machines(connection, {"b"}) == {one: machine, two: machine}
        assert processes.machines(connection, {"c"}) == {two: processes.UNKNOWN}


def test_rows_of_the_dead_go_and_who_leaves_is_gone_at_once(catalog: Catalog, clock: Clock):
    report(catalog, "a")
    clock.advance(20 * LEASE_US)
    report(catalog, "b")
    with catalog.reading() as connection:
        assert [p.holder for p in processes.alive(connection, 0)] == ["b"]
    processes.leave(catalog, "b")
    with catalog.reading() as connection:
        assert processes.alive(connection, 0) == []
