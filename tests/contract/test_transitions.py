"""Tablets in transition in the catalog: who is read and written in each stage, what a step requires, and the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ebla.base.ids import NodeId, RelationId, RunId, TabletId, TaskId
from ebla.catalog import build_tasks, layouts, rows, tables, tablet_copies, topology
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, TransactionClosedError, UnknownNameError
from ebla.model import changes as c
from ebla.model import topology_changes as t
from ebla.model.lifecycle.tablet import Stage
from ebla.model.relation import Relation
from ebla.model.tasks import Build, Replica, Task
from ebla.model.topology import Outcome, RequestKind, RequestState, Tablet, Transition, TransitionKind
from ebla.topology import loader
from support.catalogs import (
    NODE,
    add,
    commit,
    create,
    create_index,
    dump,
    exclusively,
    member,
    new_relation,
    put_nodes,
    relation,
    run,
    snapshot,
    task,
)

A, B, C, D = NODE, *map(NodeId, "bcd")
S = Stage
FORWARD = (
    S.ALLOW_WRITE_BOTH_READ_OLD,
    S.WRITE_BOTH_READ_OLD,
    S.STREAMING,
    S.WRITE_BOTH_READ_NEW,
    S.USE_NEW,
    S.CLEANUP,
)
VIEW = RelationId(91)


@pytest.fixture
def target(catalog: Catalog) -> Relation:
    put_nodes(catalog, B, C, D)
    return create(catalog, "orders", nodes=(A, B))


def begin(
    catalog: Catalog, target: Relation, tablet: int = 0, leaving: NodeId | None = A, pending: NodeId | None = C
) -> Tablet:
    place = target.id, TabletId(tablet)
    ends = [None if node is None else Replica(node, 0) for node in (leaving, pending)]
    exclusively(
        catalog,
        t.BeginTransition(tablet=place, kind=TransitionKind.MIGRATION, leaving=ends[0], pending=ends[1]),
    )
    return place


def advance(catalog: Catalog, place: Tablet, to: Stage, failure: str | None = None) -> None:
    step = t.AdvanceTransition(tablet=place, stage=of(catalog, place).stage, to=to, failure=failure)
    exclusively(catalog, step)


def end(catalog: Catalog, place: Tablet) -> None:
    exclusively(catalog, t.EndTransition(tablet=place, stage=of(catalog, place).stage))


def of(catalog: Catalog, place: Tablet) -> Transition:
    with catalog.reading() as connection:
        return topology.transitions(connection)[place]


def copy(catalog: Catalog, target: Relation, node: NodeId, names: Iterable[str], session: str | None = None) -> None:
    added = c.AddCopies(relation=target.id, copies=tuple((RunId(name), node) for name in names))
    requires = () if session is None else (c.SessionOpen(session=session),)
    catalog.commit(c.Decision(reason="copy", updates=(added,), requires=requires))


def nodes_of(catalog: Catalog, target: Relation) -> dict[str, set[NodeId]]:
    """All copies, whatever readers use."""
    found: dict[str, set[NodeId]] = {}
    with catalog.reading() as connection:
        for tablet in range(target.tablets):
            for one in tablet_copies.runs_of(connection, target, TabletId(tablet)):
                found[one.id] = set(one.nodes)
    return found


def test_each_stage_says_who_is_read_and_written(catalog: Catalog, target: Relation):
    add(catalog, run(target.id, id="both", nodes=(A, B)), run(target.id, id="one", tablet=0, nodes=(A, B)))
    place = begin(catalog, target)
    found = []
    for stage in FORWARD:
        if stage is not FORWARD[0]:
            advance(catalog, place, stage)
        now = relation(catalog, "orders")
        assert now.moves[TabletId(0)].stage is stage
        assert now.placement == target.placement  # until the end
        assert (now.reads_from(TabletId(1)), now.writes_to(TabletId(1))) == ((A, B), (A, B))
        readers = {str(r.id): set(r.nodes) for r in (*snapshot(catalog, now).level0, *snapshot(catalog, now).level1)}
        found.append((set(now.reads_from(TabletId(0))), set(now.writes_to(TabletId(0))), readers["one"]))
        if stage is S.STREAMING:
            with pytest.raises(ConflictError, match=r"expected run \w+ on its new replicas c, b, found it on b, node1"):
                advance(catalog, place, S.WRITE_BOTH_READ_NEW)
            copy(catalog, target, C, ["both", "one"], of(catalog, place).session)
    old, new, both = {A, B}, {B, C}, {A, B, C}
    assert found == [
        (old, old, old), (old, both, old), (old, both, old), (new, both, new), (new, new, new), (new, new, new)
    ]  # fmt: skip
    end(catalog, place)
    after = relation(catalog, "orders")
    assert (after.moves, after.placement) == ({}, ((C, B), (A, B)))
    assert after.placement_version == target.placement_version + 7
    assert nodes_of(catalog, after) == {"one": {B, C}, "both": {A, B, C}}  # tablet 1 of it is still on node1
    assert not [one for one in dump(catalog)["sessions"] if one[-1] is None]


@pytest.mark.parametrize(
    ("stage", "enough", "too_few"),
    [
        (S.ALLOW_WRITE_BOTH_READ_OLD, (A, B), (B, C)),
        (S.WRITE_BOTH_READ_OLD, (A, B), (B, C)),
        (S.STREAMING, (A, B, C), (A, B)),
        (S.WRITE_BOTH_READ_NEW, (A, B, C), (A, B)),
        (S.USE_NEW, (B, C), (A, B)),
        (S.CLEANUP, (B, C), (A, B)),
        (S.CLEANUP_TARGET, (A, B), (B, C)),
        (S.REVERT_MIGRATION, (A, B), (B, C)),
    ],
)
def test_a_write_needs_copies_where_its_stage_says(
    catalog: Catalog, target: Relation, stage: Stage, enough: tuple[NodeId, ...], too_few: tuple[NodeId, ...]
):
    place = begin(catalog, target)
    way = FORWARD if stage in FORWARD else (*FORWARD[:2], S.CLEANUP_TARGET, S.REVERT_MIGRATION)
    for one in way[1 : way.index(stage) + 1]:
        advance(catalog, place, one)
    with pytest.raises(ConflictError, match=r"at least 2 of the nodes .* of tablet 0, found 1 there"):
        add(catalog, run(target.id, tablet=0, nodes=too_few))
    add(catalog, run(target.id, tablet=0, nodes=enough))
    add(catalog, run(target.id, tablet=1, nodes=(A, B)))


def test_the_way_back_leaves_nothing(catalog: Catalog, target: Relation):
    add(catalog, run(target.id, id="one", tablet=0, nodes=(A, B)))
    place = begin(catalog, target)
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    advance(catalog, place, S.STREAMING)
    session = of(catalog, place).session
    copy(catalog, target, C, ["one"], session)
    exclusively(catalog, t.FailTransition(tablet=place, stage=S.STREAMING, failure="the disk is full"))
    advance(catalog, place, S.CLEANUP_TARGET, failure=of(catalog, place).failure)
    with pytest.raises(TransactionClosedError, match="expected open, found closed"):
        copy(catalog, target, C, ["one"], session)
    advance(catalog, place, S.REVERT_MIGRATION)
    end(catalog, place)
    now = relation(catalog, "orders")
    assert (now.placement, now.moves, nodes_of(catalog, now)) == (target.placement, {}, {"one": {A, B}})


def test_c3_of_two_transitions_of_one_tablet_one_begins_and_the_other_changes_nothing(
    catalog: Catalog, target: Relation
):
    with_tasks(catalog, target)
    begin(catalog, target)
    before = dump(catalog)
    with pytest.raises(ConflictError, match="tablet 0 of orders: expected no transition, found one in stage allow"):
        begin(catalog, target, leaving=B, pending=D)
    assert dump(catalog) == before
    begin(catalog, target, tablet=1)


def with_tasks(catalog: Catalog, target: Relation) -> None:
    build = Build(view=VIEW, base=target.id)
    tasks = tuple(task(f"t{n}", target.id, VIEW, tablet=n) for n in (0, 1))
    commit(catalog, c.CreateBuild(build=build, tasks=tasks))


def tasks_of(catalog: Catalog) -> dict[TaskId, Task]:
    with catalog.reading() as connection:
        return {one.id: one for one in build_tasks.tasks(connection)}


def test_c1_tasks_are_aborted_and_go_on_under_new_ids_where_the_tablet_is(catalog: Catalog, target: Relation):
    with_tasks(catalog, target)
    place = begin(catalog, target)
    assert {name: one.aborted for name, one in tasks_of(catalog).items()} == {"t0": True, "t1": False}
    for stage in FORWARD[1:]:
        advance(catalog, place, stage)
    end(catalog, place)
    found = tasks_of(catalog)
    assert "t0" not in found
    assert sorted((one.replica.host, one.aborted) for one in found.values()) == [(C, False), (A, False)]


def test_c3_a_transition_that_goes_back_leaves_the_tasks_of_another_tablet_aborted(catalog: Catalog, target: Relation):
    with_tasks(catalog, target)
    one, other = begin(catalog, target), begin(catalog, target, tablet=1)
    for stage in (S.CLEANUP_TARGET, S.REVERT_MIGRATION):
        advance(catalog, one, stage)
    end(catalog, one)
    found = {one.tokens: (one.id, one.aborted, one.replica.host) for one in tasks_of(catalog).values()}
    first, second = (found[tokens] for tokens in sorted(found))
    assert first[0] != "t0"
    assert first[1:] == (False, A)
    assert second == ("t1", True, A)
    assert of(catalog, other).stage is S.ALLOW_WRITE_BOTH_READ_OLD


def test_indexes_go_with_their_base(catalog: Catalog, target: Relation):
    index = create_index(catalog, target)
    exclusively(catalog, c.SetPlacement(relation=index, placement=target.placement))
    place = begin(catalog, target)
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    assert set(relation(catalog, "by_total").writes_to(TabletId(0))) == {A, B, C}
    add(catalog, run(index, id="entries", tablet=0, nodes=(A, B)))
    advance(catalog, place, S.STREAMING)
    with catalog.reading() as connection:
        assert [(one.name, r.id, node) for one, r, node in tablet_copies.missing_copies(connection, place)] == [
            ("by_total", "entries", C)
        ]
    with pytest.raises(ConflictError, match="of by_total: expected run entries on its new replicas"):
        advance(catalog, place, S.WRITE_BOTH_READ_NEW)
    copy(catalog, relation(catalog, "by_total"), C, ["entries"])
    for stage in FORWARD[3:]:
        advance(catalog, place, stage)
    end(catalog, place)
    assert relation(catalog, "by_total").placement == relation(catalog, "orders").placement == ((C, B), (A, B))


def test_one_copy_more_and_one_less(catalog: Catalog, target: Relation):
    add(catalog, run(target.id, id="one", tablet=0, nodes=(A, B)))
    for leaving, pending, nodes in ((None, D, (A, B, D)), (A, None, (B, D))):
        place = begin(catalog, target, leaving=leaving, pending=pending)
        advance(catalog, place, S.WRITE_BOTH_READ_OLD)
        advance(catalog, place, S.STREAMING)
        if pending is not None:
            copy(catalog, target, pending, ["one"])
        for stage in FORWARD[3:]:
            advance(catalog, place, stage)
        end(catalog, place)
        now = relation(catalog, "orders")
        assert (now.placement[0], nodes_of(catalog, now)) == (nodes, {"one": set(nodes)})


def test_a_request_for_copies_takes_the_place_of_another_in_one_commit(catalog: Catalog, target: Relation):
    def asked(wanted: int) -> int:
        parameters = {"replication": wanted}
        added = t.AddRequest(kind=RequestKind.REPLICATION, holder="h", relation=target.id, parameters=parameters)
        return exclusively(catalog, added).version

    older, newer = asked(3), asked(4)
    first = t.BeginRequest(request=older, parameters={"before": 2})
    exclusively(catalog, first, t.SetReplication(relation=target.id, replication=3))
    exclusively(
        catalog,
        t.EndRequest(request=older, state=RequestState.FAILED, code=Outcome.SUPERSEDED, message="a newer one"),
        t.BeginRequest(request=newer, parameters={"before": 2}),
        t.SetReplication(relation=target.id, replication=4),
    )
    with catalog.reading() as connection:
        [running] = topology.open_requests(connection)
        state, ended = rows.one(connection, s.topology_state), topology.answer(connection, older)
    assert state is not None
    assert ended is not None
    assert (running.id, running.state) == (newer, RequestState.RUNNING)
    assert running.parameters == {"replication": 4, "before": 2}
    assert (ended.state, ended.code) == ("failed", "superseded")
    assert state.global_topology_request == "replication"
    assert relation(catalog, "orders").replication == 4


def shards_of(catalog: Catalog, target: Relation) -> list[list[Replica]]:
    with catalog.reading() as connection:
        found = layouts.layouts(connection, {})[target.id].replicas
    return [list(one) for one in found]


def test_tablets_begin_on_the_shards_of_their_nodes_in_turn(catalog: Catalog):
    exclusively(catalog, t.AddNode(node=replace(member(B), shards=3)))
    for number in range(2):
        target = create(catalog, f"t{number}", tablets=4, nodes=(A, B))
        placed = shards_of(catalog, target)
        assert [a for a, _ in placed] == [Replica(A, 0)] * 4
        assert [b.shard for _, b in placed] == [(target.id + tablet) % 3 for tablet in range(4)]


@pytest.mark.parametrize("back", [False, True])
def test_a_replica_goes_to_another_shard_of_its_node_and_its_files_stay(catalog: Catalog, back: bool):
    exclusively(catalog, t.AddNode(node=replace(member(B), shards=2)))
    target = create(catalog, "orders", nodes=(B, A))
    add(catalog, run(target.id, id="one", tablet=0, nodes=(A, B)))
    here = shards_of(catalog, target)[0][0]
    there = Replica(B, 1 - here.shard)
    with_tasks(catalog, target)
    place = target.id, TabletId(0)
    exclusively(catalog, t.BeginTransition(tablet=place, kind=TransitionKind.MIGRATION, leaving=here, pending=there))
    for stage in (S.WRITE_BOTH_READ_OLD, S.CLEANUP_TARGET, S.REVERT_MIGRATION) if back else FORWARD[1:]:
        assert relation(catalog, "orders").writes_to(TabletId(0)) == (B, A)
        advance(catalog, place, stage)
    end(catalog, place)
    assert shards_of(catalog, target)[0] == [here if back else there, Replica(A, 0)]
    assert nodes_of(catalog, target) == {"one": {A, B}}


def test_a_replica_that_leaves_takes_no_run_along(catalog: Catalog):
    """With one copy enough, the replica that leaves may be the only one that has a run."""
    put_nodes(catalog, B)
    exclusively(catalog, _careless())
    target = relation(catalog, "careless")
    add(catalog, run(target.id, id="only", tablet=0, nodes=(A,)))
    place = begin(catalog, target, pending=None)
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    advance(catalog, place, S.STREAMING)
    with pytest.raises(ConflictError, match="expected run only on its new replicas b, found it on node1"):
        advance(catalog, place, S.WRITE_BOTH_READ_NEW)
    copy(catalog, target, B, ["only"])
    advance(catalog, place, S.WRITE_BOTH_READ_NEW)


def _careless() -> c.CreateRelation:
    return replace(new_relation("careless", nodes=(A, B)), options={"min_copies": 1})


@pytest.mark.parametrize(
    ("leaving", "pending", "message"),
    [
        (C, D, "expected a replica on node c, found it on node1, b"),
        (A, B, "expected no replica on node b, found one"),
        (A, NodeId("e"), "expected node e to take replicas, found none of this id"),
        (None, None, "expected a replica that leaves or one that comes, found none"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(
    catalog: Catalog, target: Relation, leaving: NodeId | None, pending: NodeId | None, message: str
):
    before = dump(catalog)
    with pytest.raises(ConflictError, match=f"tablet 0 of orders: {message}"):
        begin(catalog, target, leaving=leaving, pending=pending)
    assert dump(catalog) == before


def test_a_step_that_another_leader_has_taken_changes_nothing(catalog: Catalog, target: Relation):
    place = begin(catalog, target)
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    before = dump(catalog)
    late = t.AdvanceTransition(tablet=place, stage=S.ALLOW_WRITE_BOTH_READ_OLD, to=S.WRITE_BOTH_READ_OLD)
    with pytest.raises(
        ConflictError, match="tablet 0 of orders: expected stage allow_write_both_read_old, found write"
    ):
        exclusively(catalog, late)
    assert dump(catalog) == before


def test_a_relation_that_is_dropped_has_no_transition(catalog: Catalog, target: Relation):
    place = begin(catalog, target)
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    advance(catalog, place, S.STREAMING)
    session = of(catalog, place).session
    with pytest.raises(
        ConflictError, match="orders: expected no tablet in transition, found tablet 0; its tablets change"
    ):
        exclusively(catalog, c.SetTabletMap(relation=target.id, tablets=4))
    exclusively(catalog, c.DropRelation(relation=target.id))
    with catalog.reading() as connection:
        assert topology.transitions(connection) == {}
    with pytest.raises(TransactionClosedError):
        copy(catalog, target, C, [], session)
    with pytest.raises(UnknownNameError, match="expected one of a table or a view, found none"):
        begin(catalog, target)


def test_c6_an_abandoned_copy_is_refused_after_the_retried_migration_has_ended(catalog: Catalog, target: Relation):
    """The nine steps by which a late copy would bring a deleted row back."""
    add(catalog, run(target.id, id="w1", tablet=0, nodes=(A, B)))  # 1, 2: a row is on every replica
    place = begin(catalog, target)  # 3: the tablet leaves a node
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    advance(catalog, place, S.STREAMING)
    abandoned = of(catalog, place).session  # 4: it fails, and a copier stays behind
    for stage in (S.CLEANUP_TARGET, S.REVERT_MIGRATION):
        advance(catalog, place, stage)
    end(catalog, place)
    place = begin(catalog, target)  # 5: it is tried again, and ends
    advance(catalog, place, S.WRITE_BOTH_READ_OLD)
    advance(catalog, place, S.STREAMING)
    assert of(catalog, place).session != abandoned
    copy(catalog, target, C, ["w1"], of(catalog, place).session)
    for stage in FORWARD[3:]:
        advance(catalog, place, stage)
    end(catalog, place)
    deleted = run(target.id, id="w2", tablet=0, nodes=(B, C))  # 6: the row is deleted on every replica
    add(catalog, deleted)
    folded = c.EndRuns(relation=target.id, runs=frozenset({RunId("w1"), RunId("w2")}))  # 7, 8: the tombstone is folded
    commit(catalog, folded)
    exclusively(catalog, c.SetHorizon(relation=target.id, horizon=catalog.version()))
    before = dump(catalog)
    with pytest.raises(TransactionClosedError, match="expected open, found closed"):
        copy(catalog, target, C, ["w1"], abandoned)  # 9: what was left behind comes
    assert dump(catalog) == before
    copy(catalog, target, C, ["w1"])  # without a session either: the run is no more
    assert nodes_of(catalog, relation(catalog, "orders")) == {}


@pytest.mark.database
def test_the_topology_says_what_it_is_in_the_middle_of(catalog: Catalog, target: Relation):
    def said() -> set[str | None]:
        with catalog.reading() as connection:
            both = [tables.rows(connection, name) for name in ("topology", "topology_state")]
        return {row.transition_state for rows_of in both for row in rows_of}

    assert said() == {None}
    place = begin(catalog, target)
    assert said() == {"tablet_migration"}
    asked = [
        exclusively(catalog, t.AddRequest(kind=kind, holder="h", node=node)).version
        for kind, node in ((RequestKind.NEW_CDC_GENERATION, None), (RequestKind.LEAVE, B))
    ]
    exclusively(catalog, t.BeginRequest(request=asked[0]))
    assert said() == {"commit_cdc_generation"}
    exclusively(catalog, t.EndRequest(request=asked[0], state=RequestState.DONE))
    assert said() == {"tablet_migration"}
    exclusively(catalog, t.BeginRequest(request=asked[1]))
    moves = t.BeginTransition(
        tablet=(target.id, TabletId(1)),
        kind=TransitionKind.MIGRATION,
        leaving=Replica(B, 0),
        pending=Replica(D, 0),
        request=asked[1],
    )
    exclusively(catalog, moves)
    assert said() == {"tablet_draining"}
    for one, back in ((place, "tablet_draining"), (moves.tablet, None)):
        for to in (S.CLEANUP_TARGET, S.REVERT_MIGRATION):
            advance(catalog, one, to)
        end(catalog, one)
        assert said() == {back}


def test_what_a_tablet_lacks_is_counted_anew_unless_its_copies_are_being_made(catalog: Catalog, target: Relation):
    """The count reads all runs of the tablet: beside writers, with every look of the leader."""
    add(catalog, run(target.id, id="r1", tablet=0, nodes=(A, B)), run(target.id, id="r2", tablet=0, nodes=(A, B)))
    place = begin(catalog, target)
    for stage in (S.WRITE_BOTH_READ_OLD, S.STREAMING):
        advance(catalog, place, stage)

    def lacking(counted: dict[Tablet, int], *copied: Tablet) -> dict[Tablet, int]:
        with catalog.reading() as connection:
            now = catalog.clock()
            found = loader.load(connection, now, counted=counted, is_copied=lambda one: one.tablet in copied)
        return dict(found.lacking)

    assert lacking({}) == lacking({}, place) == {place: 2}  # the first time it has to be counted
    copy(catalog, target, C, ["r1"], of(catalog, place).session)
    assert lacking({place: 2}, place) == {place: 2}
    assert lacking({place: 2}) == {place: 1}
    copy(catalog, target, C, ["r2"], of(catalog, place).session)
    assert lacking({place: 2}) == lacking({place: 0}, place) == {place: 0}
