"""Tablets that move between the nodes of one process, on real files: nothing is lost, late or twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ebla.base.ids import NodeId, TabletId, Version
from ebla.base.pace import PACE
from ebla.catalog import reads, topology
from ebla.catalog import transactions as tx
from ebla.errors import StorageFullError, TransactionClosedError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.tablet import Stage
from ebla.model.relation import Relation, Run
from ebla.model.tasks import Replica
from ebla.model.topology import LEASE, Tablet, Topology, Transition, TransitionKind
from ebla.storage import copies
from ebla.storage.files import Root
from ebla.tables.tiers import merge
from ebla.topology import loader, run_copies, tablets
from support.warehouse import HOUR_US, connect, eventually, later, named, rows
from support.warehouse import stored as files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import ebla

A, B, C = "node1", "node2", "node3"


def opened(folder: Path, spark: SparkSession | None = None, **settings: Any) -> ebla.Database:
    nodes = {name: str(folder / name) for name in (B, C)}
    given = {"repair_period_s": 0, "storage_root": str(folder / A), "barrier_grace_s": 0.2, **settings}
    return connect(folder / "warehouse", spark, nodes=nodes, **given)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ebla.Database]:
    with opened(tmp_path) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)) WITH (tablets = 4)")
        write(db, 0, 100)
        yield db


def write(db: ebla.Database, first: int, end: int) -> None:
    db.table("t").upsert([{"id": i, "n": i} for i in range(first, end)])


def ids(db: ebla.Database) -> list[int]:
    return sorted(row[0] for row in db.query("t", limit=10_000).rows())


def table(db: ebla.Database, name: str = "t") -> Relation:
    return db.context.catalog.read(lambda connection: reads.relation(connection, name))


def transitions(db: ebla.Database) -> dict[Tablet, Transition]:
    return db.context.catalog.read(topology.transitions)


def commit(db: ebla.Database, *updates: c.Update) -> None:
    db.context.catalog.decide(lambda connection, at: c.Decision(reason="test", updates=updates))


def host(db: ebla.Database, name: str) -> NodeId:
    members = db.context.catalog.read(topology.members)
    return next(member.id for member in members.values() if member.name == name)


def lead(db: ebla.Database) -> None:
    """Hold the lease of the topology, so that only this test takes steps."""
    eventually(lambda: tx.lead(db.context.catalog, LEASE, "the test", HOUR_US) is not None)


def let_go(db: ebla.Database) -> None:
    """Let the service of the process take steps."""
    lease = tx.lead(db.context.catalog, LEASE, "the test", HOUR_US)
    if lease is not None:
        tx.resign(db.context.catalog, lease)
    db.background.membership.coordination.ask()


def move(db: ebla.Database, tablet: int, source: str, target: str) -> Tablet:
    place = table(db).id, TabletId(tablet)
    ends = Replica(host(db, source), 0), Replica(host(db, target), 0)
    lead(db)
    commit(db, t.BeginTransition(tablet=place, kind=TransitionKind.MIGRATION, leaving=ends[0], pending=ends[1]))
    return place


def run(db: ebla.Database) -> None:
    """Let the service go on until no tablet is in transition."""
    let_go(db)
    eventually(lambda: not transitions(db))


def look(db: ebla.Database) -> Topology:
    with db.context.catalog.reading() as connection:
        own = db.background.membership.coordination.own()
        return loader.load(connection, db.context.catalog.clock(), holder=db.context.holder, own=own)


def step_to(db: ebla.Database, place: Tablet, stage: Stage) -> str | None:
    """Take the coordinator's steps up to a stage; its session."""
    while transitions(db)[place].stage is not stage:
        found = look(db)
        one = found.transitions[place]
        if one.stage is Stage.STREAMING and found.lacking[place]:
            assert one.session is not None
            run_copies.stream(db.context, place, one.session)
            continue
        step = tablets.step_of(found, one)
        assert step is not None, tablets.waits_for(found, one)
        commit(db, step)
    return transitions(db)[place].session


def runs_of(db: ebla.Database) -> list[Run]:
    """The runs of level 0 that are visible, with all of their copies."""
    with db.context.catalog.reading() as connection:
        return list(reads.snapshot(connection, reads.relation(connection, "t")).level0)


def placed(db: ebla.Database, tablet: int) -> tuple[str, ...]:
    members = db.context.catalog.read(topology.members)
    return tuple(members[node].name for node in table(db).placement[tablet])


def test_a_tablet_moves_with_its_files(db):
    source = placed(db, 0)[0]
    target = next(n for n in (A, B, C) if n != source)
    move(db, 0, source, target)
    run(db)
    assert placed(db, 0) == (target,)
    assert ids(db) == list(range(100))
    db.vacuum(retain_s=0)
    assert files(db) == named(db)
    write(db, 100, 200)
    assert ids(db) == list(range(200))


def test_every_tablet_moves_while_writers_write(tmp_path):
    """An index and a deleted row go along; every acknowledged write is there, once."""
    with opened(tmp_path, compact_runs=8, auto_compact=False) as db:
        db.sql("CREATE TABLE t (id BIGINT, n INT, PRIMARY KEY (id)) WITH (tablets = 4)")
        db.sql("CREATE INDEX by_n ON t (n)")
        write(db, 0, 50)
        acknowledged: dict[int, int] = {i: i for i in range(50)}
        over = threading.Event()
        errors: list[BaseException] = []

        def writer(number: int) -> None:
            key = 1000 * (number + 1)
            try:
                while not over.is_set():
                    db.table("t").upsert([{"id": key + i, "n": key} for i in range(3)])
                    acknowledged.update({key + i: key for i in range(3)})
                    key += 3
            except BaseException as error:
                errors.append(error)

        writers = [threading.Thread(target=writer, args=(n,)) for n in range(2)]
        for one in writers:
            one.start()
        for tablet in range(4):
            source = placed(db, tablet)[0]
            move(db, tablet, source, {A: B, B: C, C: A}[source])
        run(db)
        over.set()
        for one in writers:
            one.join()
        assert not errors
        assert {row[0]: row[1] for row in db.query("t", limit=10_000).rows()} == acknowledged
        for value in (7, 1003):
            wanted = sorted(key for key, n in acknowledged.items() if n == value)
            assert sorted(row[0] for row in db.query("t", where={"n": value}, limit=100).rows()) == wanted
        assert table(db, "by_n").placement == table(db).placement
        db.vacuum(retain_s=0)
        assert files(db) == named(db)
        assert rows(db, "SELECT count(*) FROM system.under_replicated") == [(0,)]


@pytest.mark.parametrize("stage", [Stage.ALLOW_WRITE_BOTH_READ_OLD, Stage.WRITE_BOTH_READ_OLD, Stage.STREAMING])
def test_c2_a_target_that_dies_takes_the_transition_back(db, tmp_path, stage):
    source = placed(db, 0)[0]
    target = next(n for n in (B, C) if n != source)
    place = move(db, 0, source, target)
    step_to(db, place, stage)
    back = kill(tmp_path, target)
    run(db)
    assert placed(db, 0) == (source,)
    back()
    assert ids(db) == list(range(100))
    write(db, 100, 110)
    assert ids(db) == list(range(110))
    db.vacuum(retain_s=0)
    assert files(db) == named(db)


@pytest.mark.parametrize("stage", [Stage.WRITE_BOTH_READ_NEW, Stage.USE_NEW, Stage.CLEANUP])
def test_c2_a_source_that_dies_behind_the_copies_is_left(db, tmp_path, stage):
    source = next(node for node in (placed(db, n)[0] for n in range(4)) if node != A)
    tablet = next(n for n in range(4) if placed(db, n)[0] == source)
    place = move(db, tablet, source, A)
    step_to(db, place, stage)
    back = kill(tmp_path, source)
    run(db)
    assert placed(db, tablet) == (A,)
    back()
    assert ids(db) == list(range(100))


@pytest.mark.parametrize("victim", ["source", "target"])
@pytest.mark.parametrize("stage", [Stage.CLEANUP_TARGET, Stage.REVERT_MIGRATION])
def test_c2_a_node_that_dies_on_the_way_back_keeps_nothing_from_ending(db, tmp_path, stage, victim):
    tablet = next(n for n in range(4) if placed(db, n) == (B,))
    place = move(db, tablet, B, C)
    step_to(db, place, Stage.STREAMING)
    back = t.AdvanceTransition(tablet=place, stage=Stage.STREAMING, to=Stage.CLEANUP_TARGET, failure="test")
    commit(db, back)
    step_to(db, place, stage)
    revive = kill(tmp_path, {"source": B, "target": C}[victim])
    run(db)
    assert placed(db, tablet) == (B,)
    revive()
    assert ids(db) == list(range(100))
    write(db, 100, 110)
    assert ids(db) == list(range(110))
    db.vacuum(retain_s=0)
    assert files(db) == named(db)


def kill(folder: Path, name: str) -> Callable[[], None]:
    (folder / name).rename(folder / f"{name}.away")
    (folder / name).write_text("the disk is gone")

    def back() -> None:
        (folder / name).unlink()
        (folder / f"{name}.away").rename(folder / name)

    return back


def test_c7_a_full_disk_on_the_target_reverts(db, monkeypatch):
    source = placed(db, 0)[0]
    target = next(n for n in (A, B, C) if n != source)
    root = db.context.roots()[host(db, target)]
    real = copies.begin_copy

    def full(read: Root, written: Root, path: str, size: int, beside: str) -> None:
        if written.location == root.location:
            raise StorageFullError(f"{path}: expected room for the write, found the disk full")
        real(read, written, path, size, beside)

    monkeypatch.setattr(copies, "begin_copy", full)
    place = move(db, 0, source, target)
    failures: list[str | None] = []

    def over() -> bool:
        found = transitions(db)
        failures.extend(one.failure for one in found.values() if one.failure)
        return place not in found

    let_go(db)
    eventually(over)
    assert failures
    assert "disk full" in str(failures[0])
    assert placed(db, 0) == (source,)
    assert ids(db) == list(range(100))
    monkeypatch.setattr(copies, "begin_copy", real)
    db.vacuum(retain_s=0)
    assert files(db) == named(db)
    move(db, 0, source, target)
    run(db)
    assert placed(db, 0) == (target,)


def test_a_replica_that_cannot_be_made_is_tried_again_after_growing_pauses(db, monkeypatch):
    real = copies.begin_copy

    def torn(read: Root, written: Root, path: str, size: int, beside: str) -> None:
        raise StorageFullError(f"{path}: expected room for the write, found the disk full")

    monkeypatch.setattr(copies, "begin_copy", torn)
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY) WITH (tablets = 1)")
    db.table("u").upsert([{"id": 1}])
    request = db.sql("ALTER TABLE u SET (replication = 3)").one()[0]

    def begun_us() -> list[int]:
        found = db.sql("SELECT committed_at FROM system.history WHERE reason LIKE 'begin 1 moves%' ORDER BY version")
        return [int(at.timestamp() * 1_000_000) for (at,) in found.rows()]

    eventually(lambda: len(begun_us()) > 4)  # each of two nodes three times, or one of them
    times = begun_us()
    assert times[4] - times[0] > 2_500_000, "one of the two has rested for 1 s and for 2 s"
    monkeypatch.setattr(copies, "begin_copy", real)
    assert db.sql(f"WAIT FOR REQUEST {request}").one()[1] == "u has 3 copies of each tablet"


def test_c6_the_resurrection_of_deleted_rows_in_nine_steps_fails(db, monkeypatch):
    """The story of the deleted row that comes back, in nine steps, on real files."""
    source = placed(db, 0)[0]  # 1, 2: rows of a tablet are on its replica
    target = next(n for n in (A, B, C) if n != source)
    place = move(db, 0, source, target)  # 3: it leaves the node
    session = step_to(db, place, Stage.STREAMING)
    assert session is not None
    written, go_on = threading.Event(), threading.Event()
    refusals: list[BaseException] = []

    def wait(name: str) -> None:
        if threading.current_thread().name == "left behind":
            written.set()
            assert go_on.wait(250)

    def copier() -> None:
        try:
            run_copies.stream(db.context, place, session)
        except BaseException as error:
            refusals.append(error)

    monkeypatch.setattr(run_copies, "hit", wait)
    left_behind = threading.Thread(target=copier, name="left behind")
    left_behind.start()
    assert written.wait(150)
    commit(  # 4: it goes back, and leaves a copier behind that has written its files
        db, t.AdvanceTransition(tablet=place, stage=Stage.STREAMING, to=Stage.CLEANUP_TARGET, failure="test")
    )
    run(db)  # whose transaction is aborted, because it keeps the barrier waiting
    move(db, 0, source, target)  # 5: it is tried again, and ends
    run(db)
    gone = ids(db)
    db.table("t").delete([{"id": i} for i in gone])  # 6: the rows are deleted on every replica
    merge(db.context, "t")  # 7, 8: rows and tombstones are merged, and the runs that had them are forgotten
    db.vacuum(retain_s=0)
    before = named(db)
    go_on.set()  # 9: what was left behind comes
    left_behind.join()
    assert [type(one) for one in refusals] == [TransactionClosedError]
    assert named(db) == before
    assert ids(db) == []
    db.vacuum(retain_s=0)
    assert files(db) == named(db)


def test_a_transaction_of_before_is_waited_for_and_then_aborted(db):
    old = tx.begin(db.context.catalog, None, node=db.context.node, holder="slow", reason="test", lease_us=HOUR_US)
    source = placed(db, 0)[0]
    move(db, 0, source, next(n for n in (A, B, C) if n != source))
    run(db)
    with pytest.raises(TransactionClosedError, match="found aborted"):
        db.context.catalog.commit(
            c.Decision(reason="late", updates=(), requires=(c.TransactionOpen(transaction=old.id),))
        )


def test_one_replica_more_and_one_less(db):
    """A rebuild has no leaving replica, and a reduction no pending one."""
    (old,) = placed(db, 0)
    new = next(n for n in (A, B, C) if n != old)
    place = table(db).id, TabletId(0)
    more = t.BeginTransition(tablet=place, kind=TransitionKind.REBUILD, leaving=None, pending=Replica(host(db, new), 0))
    commit(db, more)
    run(db)
    assert placed(db, 0) == (old, new)
    write(db, 100, 150)
    less = t.BeginTransition(tablet=place, kind=TransitionKind.REBUILD, leaving=Replica(host(db, old), 0), pending=None)
    commit(db, less)
    run(db)
    assert placed(db, 0) == (new,)
    assert ids(db) == list(range(150))


def test_what_was_copied_before_a_failure_is_not_copied_again(db, monkeypatch):
    for first in range(100, 140, 10):
        write(db, first, first + 10)
    monkeypatch.setattr(run_copies, "COMMIT_FILES", 1)
    copied: list[str] = []
    real = copies.begin_copy

    def count(read: Root, written: Root, path: str, size: int, beside: str) -> None:
        copied.append(path)
        if len(copied) == 3:
            raise TransactionClosedError("the copier died")
        real(read, written, path, size, beside)

    monkeypatch.setattr(copies, "begin_copy", count)
    source = placed(db, 0)[0]
    place = move(db, 0, source, next(n for n in (A, B, C) if n != source))
    session = step_to(db, place, Stage.STREAMING)
    assert session is not None
    with pytest.raises(TransactionClosedError, match="died"):
        run_copies.stream(db.context, place, session)
    run_copies.stream(db.context, place, session)
    assert len(copied) == len(set(copied)) + 1
    run(db)
    assert ids(db) == list(range(140))


def neighbours(db: ebla.Database) -> tuple[int, int, str, str]:
    """Two tablets of one node, that node, and another one that has tablets."""
    held = [placed(db, tablet)[0] for tablet in range(4)]
    source = next(node for node in held if held.count(node) > 1)
    first, second = [tablet for tablet in range(4) if held[tablet] == source][:2]
    return first, second, source, next(node for node in held if node != source)


def test_a_small_write_beside_a_move_has_no_more_files_than_without(db):
    first, _, source, target = neighbours(db)
    earlier = {one.path for one in runs_of(db)}
    groups = len(table(db).replica_sets())
    step_to(db, move(db, first, source, target), Stage.WRITE_BOTH_READ_OLD)
    assert len(table(db).replica_sets()) == groups + 1
    write(db, 50, 200)
    late = [one for one in runs_of(db) if one.path not in earlier]
    assert len(late) == groups - 1, "rows of both nodes are in one file"
    run(db)
    assert ids(db) == list(range(200))
    later(db)
    db.vacuum(retain_s=0)
    assert files(db) == named(db)


def test_the_next_move_copies_nothing_that_was_written_during_the_first(db, monkeypatch):
    first, second, source, target = neighbours(db)
    earlier = {one.path for one in runs_of(db)}
    step_to(db, move(db, first, source, target), Stage.WRITE_BOTH_READ_OLD)
    write(db, 50, 200)
    run(db)
    copied: list[str] = []
    real = copies.begin_copy

    def count(read: Root, written: Root, path: str, size: int, beside: str) -> None:
        copied.append(path)
        real(read, written, path, size, beside)

    monkeypatch.setattr(copies, "begin_copy", count)
    step_to(db, move(db, second, source, target), Stage.WRITE_BOTH_READ_NEW)
    assert set(copied) <= earlier
    run(db)
    assert ids(db) == list(range(200))


def test_a_write_beside_a_move_that_a_node_does_not_take_goes_to_each_set_by_itself(db, monkeypatch):
    first, _, source, target = neighbours(db)
    step_to(db, move(db, first, source, target), Stage.WRITE_BOTH_READ_OLD)
    real, refused = Root.write_bytes, list[str]()

    def once(root: Root, content: Any, path: str) -> None:
        if not refused:
            refused.append(path)
            raise StorageFullError(f"{path}: no space left")
        real(root, content, path)

    monkeypatch.setattr(Root, "write_bytes", once)
    write(db, 50, 200)
    assert refused
    assert refused[0] not in {one.path for one in runs_of(db)}
    assert not [path for _, path in files(db) if path.endswith(refused[0])], "nothing is left of what was not taken"
    run(db)
    assert ids(db) == list(range(200))


def test_a_move_and_a_split_beside_a_writer_that_does_not_stop_pause_and_end(db):
    over, written, before_s = threading.Event(), [100], PACE.paused_s

    def keep_writing() -> None:
        while not over.is_set():
            write(db, written[0], written[0] + 1)
            written[0] += 1

    db.compact("t")
    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        source = placed(db, 0)[0]
        target = next(n for n in (A, B, C) if n != source)
        request = db.sql(f"MOVE TABLET 0 OF t FROM '{source}' TO '{target}'").one()[0]
        db.sql(f"WAIT FOR REQUEST {request}")
        moved_s = PACE.paused_s
        request = db.sql("ALTER TABLE t SET (tablets = 8)").one()[0]
        db.sql(f"WAIT FOR REQUEST {request}")
    finally:
        over.set()
        writer.join()
    assert before_s < moved_s < PACE.paused_s
    assert table(db).tablets == 8
    assert ids(db) == list(range(written[0]))


def test_time_travel_reads_moved_tablets(db):
    before = Version(db.version)
    write(db, 100, 120)
    for tablet in range(4):
        source = placed(db, tablet)[0]
        move(db, tablet, source, {A: B, B: C, C: A}[source])
    run(db)
    with db.context.catalog.reading() as connection:
        then = reads.snapshot(connection, table(db), before)
    roots = db.context.roots()
    assert {len(run.nodes) > 0 and all(roots[n].size(run.path) == run.bytes for n in run.nodes) for run in then.level0}
    assert sum(run.rows for run in then.level0) == 100
