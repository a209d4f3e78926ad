"""What a commit may change, and how each change reads afterwards: at its version, before it and after it."""

from __future__ import annotations

import pytest

from ebla.base.ids import NodeId, RelationId, RunId, Version
from ebla.catalog import reads, rows
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import DuplicateNameError, SnapshotError, UnknownNameError
from ebla.model import changes as c
from ebla.model.relation import FOREVER, Kind, Relation, RunSource, RunState
from ebla.model.tablets import tablet_of, token_range, token_ranges
from support.catalogs import (
    COLUMNS,
    NODE,
    SECOND_US,
    Clock,
    add,
    column,
    commit,
    create,
    dump,
    exclusively,
    new_relation,
    put_nodes,
    relation,
    run,
    snapshot,
    visible,
)

NODE2, NODE3 = NodeId("node2"), NodeId("node3")


IN_MEMORY = True


def end(catalog: Catalog, target: Relation, *runs: str) -> Version:
    return commit(catalog, c.EndRuns(relation=target.id, runs=frozenset(map(RunId, runs)))).version


def set_columns(catalog: Catalog, target: Relation, *names: str) -> Version:
    columns = (COLUMNS[0], *(column(n, "string") for n in names))
    return exclusively(catalog, c.SetColumns(relation=target.id, columns=columns)).version


def levels(catalog: Catalog, target: Relation) -> dict[str, int]:
    found = snapshot(catalog, target)
    return {r.id: r.level for r in (*found.level0, *found.level1)}


# ---- relations ------------------------------------------------------------------------------------------


def test_a_relation_reads_back_as_it_was_created(catalog: Catalog):
    created = c.CreateRelation(
        name="Orders",
        kind=Kind.VIEW,
        tablets=2,
        replication=2,
        columns=COLUMNS,
        placement=((NODE, NODE2), (NODE3, NODE)),
        comment="what was ordered",
        options={"b": [1, 2], "a": "ü"},
    )
    committed = exclusively(catalog, created)
    found = relation(catalog, "orders")
    assert found == Relation(
        id=RelationId(1),
        name="Orders",
        kind=Kind.VIEW,
        tablets=2,
        replication=2,
        schema_version=1,
        placement_version=1,
        columns=COLUMNS,
        placement=((NODE, NODE2), (NODE3, NODE)),
        horizon=committed.version,
        created_version=committed.version,
        comment="what was ordered",
        options={"b": [1, 2], "a": "ü"},
        map_version=committed.version,
    )
    with catalog.reading() as connection:
        assert reads.relation_by_id(connection, found.id) == found


@pytest.mark.parametrize("name", ["Orders", "Ärger", "ПРИВЕТ", "naïve Straße", "İstanbul", "a\"b'c;--", "数据"])
def test_relations_are_found_by_name_in_any_case(catalog: Catalog, name: str):
    created = create(catalog, name)
    assert created.name == name
    with catalog.reading() as connection:
        for spelling in (name, name.lower()):
            found = reads.find_relation(connection, spelling)
            assert found is not None, spelling
            assert found.id == created.id
    for spelling in (name, name.lower()):
        with pytest.raises(DuplicateNameError):
            exclusively(catalog, new_relation(spelling))


def test_names_that_only_look_like_patterns_are_different(catalog: Catalog):
    create(catalog, "a_b")
    create(catalog, "axb")
    create(catalog, "a%")
    assert relation(catalog, "A_B").name == "a_b"
    assert relation(catalog, "A%").name == "a%"


def test_an_unknown_name_says_which_there_are(catalog: Catalog):
    with pytest.raises(UnknownNameError, match="table orders: expected a table of this name, found none; there are no"):
        relation(catalog, "orders")
    create(catalog, "customers")
    with pytest.raises(UnknownNameError, match=r"table orders: .* tables are customers"):
        relation(catalog, "orders")
    with catalog.reading() as connection:
        assert reads.find_relation(connection, "orders") is None
        assert reads.relation_by_id(connection, RelationId(99)) is None


def test_names_are_listed_by_kind(catalog: Catalog):
    for name, kind in (("b", Kind.TABLE), ("a", Kind.TABLE), ("v", Kind.VIEW), ("i", Kind.INDEX)):
        exclusively(catalog, new_relation(name, kind=kind))
    with catalog.reading() as connection:
        assert reads.relation_names(connection) == ["a", "b", "i", "v"]
        assert reads.relation_names(connection, Kind.TABLE) == ["a", "b"]
        assert reads.relation_names(connection, Kind.INDEX) == ["i"]


def test_renaming_frees_the_old_name_and_refuses_a_taken_one(catalog: Catalog):
    orders, customers = create(catalog, "orders"), create(catalog, "customers")
    exclusively(catalog, c.RenameRelation(relation=orders.id, name="Sales"))
    assert relation(catalog, "sales").id == orders.id
    with pytest.raises(UnknownNameError):
        relation(catalog, "orders")
    exclusively(catalog, c.RenameRelation(relation=orders.id, name="SALES"))  # its own name in another case
    assert relation(catalog, "sales").name == "SALES"
    with pytest.raises(DuplicateNameError, match="Sales: expected a free name"):
        exclusively(catalog, c.RenameRelation(relation=customers.id, name="Sales"))
    assert create(catalog, "orders").id not in (orders.id, customers.id)


def test_dropping_hides_a_relation_and_frees_its_name(catalog: Catalog):
    old = create(catalog, "orders")
    written = add(catalog, run(old.id, id="old"))
    dropped = exclusively(catalog, c.DropRelation(relation=old.id)).version
    with pytest.raises(UnknownNameError):
        relation(catalog, "orders")
    with catalog.reading() as connection:
        assert reads.relation_names(connection) == []
        assert reads.relation_by_id(connection, old.id) is None
        (ended,) = rows.values(connection, s.runs.c.end_version)
        (horizon,) = rows.values(connection, s.relations.c.horizon)
    assert (ended, horizon) == (dropped, dropped)
    assert visible(catalog, old, written) == {"old"}  # a reader from before still has its runs
    new = create(catalog, "ORDERS")
    assert new.id != old.id
    assert visible(catalog, new) == set()


@pytest.mark.parametrize(
    "change",
    [
        c.DropRelation(relation=RelationId(1)),
        c.RenameRelation(relation=RelationId(1), name="new"),
        c.SetRelationComment(relation=RelationId(1), comment="new"),
        c.SetColumns(relation=RelationId(1), columns=COLUMNS),
        c.TruncateRelation(relation=RelationId(1)),
        c.SetPlacement(relation=RelationId(1), placement=((NODE,), (NODE,))),
    ],
    ids=lambda change: type(change).__name__,
)
def test_changing_a_relation_that_is_gone_is_refused(catalog: Catalog, change: c.Update):
    with pytest.raises(UnknownNameError, match=r"(orders|relation 1): expected to be there"):
        exclusively(catalog, change)
    target = create(catalog, "orders")
    assert target.id == 1
    exclusively(catalog, c.DropRelation(relation=target.id))
    before = dump(catalog)
    with pytest.raises(UnknownNameError, match="orders: expected to be there, found dropped"):
        exclusively(catalog, change)
    assert dump(catalog) == before


def test_comments(catalog: Catalog):
    target = create(catalog, "orders")
    exclusively(catalog, c.SetRelationComment(relation=target.id, comment="what was ordered"))
    assert relation(catalog, "orders").comment == "what was ordered"
    exclusively(catalog, c.SetRelationComment(relation=target.id, comment=None))
    assert relation(catalog, "orders").comment is None


def test_columns_as_of_a_version(catalog: Catalog):
    target = create(catalog, "orders")
    versions = {target.created_version: ["id", "total"]}
    for names in (["total", "note"], ["note"], ["note", "total"]):
        versions[set_columns(catalog, target, *names)] = ["id", *names]
    for version, names in versions.items():
        assert [col.name for col in relation(catalog, "orders", version).columns] == names
    assert relation(catalog, "orders", target.created_version - 1).columns == ()
    now = relation(catalog, "orders")
    assert [col.name for col in now.columns] == ["id", "note", "total"]
    assert now.schema_version == 4
    with catalog.reading() as connection:
        assert reads.physical_names(connection, target.id) == {"id", "total", "note"}


def test_placement(catalog: Catalog):
    target = create(catalog, "orders")
    exclusively(catalog, c.SetPlacement(relation=target.id, placement=((NODE2, NODE), (NODE3, NODE2))))
    found = relation(catalog, "orders")
    assert found.placement == ((NODE2, NODE), (NODE3, NODE2))
    assert found.placement_version == target.placement_version + 1
    assert found.schema_version == target.schema_version


def test_sessions_close_once(catalog: Catalog):
    opened = commit(catalog, c.OpenSession(session="copy", purpose="copy tablet 7")).version
    closed = commit(catalog, c.CloseSession(session="copy")).version
    commit(catalog, c.CloseSession(session="copy"))
    with catalog.reading() as connection:
        (row,) = rows.find(connection, s.sessions)
    assert tuple(row) == ("copy", "copy tablet 7", opened, closed)


def test_progress_is_replaced(catalog: Catalog):
    commit(catalog, c.SetProgress(name="view", value="40"))
    version = commit(catalog, c.SetProgress(name="view", value="41")).version
    with catalog.reading() as connection:
        assert [tuple(r) for r in rows.find(connection, s.progress)] == [("view", "41", version)]


def test_ending_a_transaction(catalog: Catalog, clock: Clock):
    transaction = tx.begin(catalog, None, node=NODE, holder="me", reason="test", lease_us=SECOND_US)
    clock.advance(7)
    version = commit(catalog, c.EndTransaction(transaction=transaction.id)).version
    with catalog.reading() as connection:
        (row,) = rows.find(connection, s.transactions)
        assert tx.open_transactions(connection) == set()
    assert (row.state, row.ended_at, row.committed_version) == ("committed", clock.now_us, version)


# ---- runs -----------------------------------------------------------------------------------------------


def test_a_run_reads_back_as_it_was_written(catalog: Catalog):
    target = create(catalog, "orders")
    written = run(target.id, tablet=1, level=1, rows=7, source=RunSource.COMPACTION)
    version = add(catalog, written)
    (found,) = snapshot(catalog, target).level1
    assert found.begin_version == version
    assert found.end_version == FOREVER
    assert found.tokens == token_range(1, 2)
    assert {**_fields(found), "begin_version": FOREVER} == _fields(written)


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in type(value).__slots__}  # type: ignore[attr-defined]


def test_copies_on_several_nodes_are_one_run(catalog: Catalog):
    put_nodes(catalog, "node2", "node3")
    target = create(catalog, "orders", nodes=(NODE, NODE2, NODE3))
    add(catalog, run(target.id, id="a", nodes=(NODE3, NODE, NODE2)), run(target.id, id="b", nodes=(NODE2, NODE)))
    found = snapshot(catalog, target)
    assert {r.id: r.nodes for r in found.level0} == {"a": (NODE, NODE2, NODE3), "b": (NODE, NODE2)}
    assert found.roots == {NODE: "/data/node1", NODE2: "/data/node2", NODE3: "/data/node3"}
    with catalog.reading() as connection:
        assert [r.id for r in reads.writes_between(connection, target, Version(0), found.version)] == ["a", "b"]
        assert reads.named_paths(connection, NODE2) == {"r1/a.parquet", "r1/b.parquet"}
        assert reads.named_paths(connection, NODE3) == {"r1/a.parquet"}
    end(catalog, target, "a")
    assert visible(catalog, target) == {"b"}


def test_a_snapshot_at_each_version_holds_what_was_visible_then(catalog: Catalog):
    target = create(catalog, "orders")
    expected = {target.created_version: set[str]()}
    expected[add(catalog, run(target.id, id="a"), run(target.id, id="b", tablet=0))] = {"a", "b"}
    expected[add(catalog, run(target.id, id="c"))] = {"a", "b", "c"}
    expected[end(catalog, target, "a", "b")] = {"c"}
    expected[commit(catalog, c.TruncateRelation(relation=target.id)).version] = set()
    expected[add(catalog, run(target.id, id="d"))] = {"d"}
    for version, runs in expected.items():
        assert visible(catalog, target, version) == runs
    assert visible(catalog, target) == {"d"}


def test_snapshots_of_two_relations_at_one_version_belong_together(catalog: Catalog):
    """Each commit writes both; at any version both have as many runs."""
    orders, by_name = create(catalog, "orders"), create(catalog, "by_name")
    for _ in range(5):
        add(catalog, run(orders.id), run(by_name.id))
    for version in range(by_name.created_version, catalog.version() + 1):
        assert len(visible(catalog, orders, version)) == len(visible(catalog, by_name, version))
    assert len(visible(catalog, orders)) == 5


def test_a_snapshot_of_some_tablets(catalog: Catalog):
    target = create(catalog, "orders", tablets=4)
    add(
        catalog, *(run(target.id, id=f"t{t}", tablet=t, tablets=4, level=1) for t in range(4)), run(target.id, id="all")
    )
    commit(catalog, *(c.SetCutoff(relation=target.id, tablets=(token_range(t, 4),), cutoff=Version(t)) for t in (1, 3)))
    found = snapshot(catalog, target, tablets=[3, 2])
    assert found.tablets == (2, 3)
    assert [r.id for r in found.level1] == ["t2", "t3"]
    assert [r.id for r in found.level0] == ["all"]
    assert found.cutoffs == {3: 3}
    assert snapshot(catalog, target).cutoffs == {1: 1, 3: 3}


def test_ending_runs_leaves_other_relations_and_earlier_ends_alone(catalog: Catalog):
    orders, customers = create(catalog, "orders"), create(catalog, "customers")
    add(catalog, run(orders.id, id="a"), run(customers.id, id="b"))
    first = end(catalog, orders, "a", "b")
    end(catalog, orders, "a")
    with catalog.reading() as connection:
        ends = {r.run_id: r.end_version for r in rows.find(connection, s.runs)}
    assert ends == {"a": first, "b": FOREVER}


def test_a_staging_run_is_invisible_until_it_is_processed(catalog: Catalog):
    target = create(catalog, "orders")
    staged = add(catalog, run(target.id, id="staged", state=RunState.STAGING))
    assert visible(catalog, target) == set()
    flipped = commit(catalog, c.SetRunState(runs=frozenset({RunId("staged")}), state=RunState.NORMAL)).version
    assert visible(catalog, target) == {"staged"}
    assert visible(catalog, target, staged) == set()
    with catalog.reading() as connection:
        assert reads.writes_between(connection, target, Version(0), staged) == []
        assert [r.id for r in reads.writes_between(connection, target, staged, flipped)] == ["staged"]


def test_processing_a_run_twice_does_not_move_it(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="staged", state=RunState.STAGING))
    flip = c.SetRunState(runs=frozenset({RunId("staged")}), state=RunState.NORMAL)
    first = commit(catalog, flip).version
    commit(catalog, flip)
    assert visible(catalog, target, first) == {"staged"}


def test_a_staging_run_that_was_truncated_never_becomes_a_change(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="staged", state=RunState.STAGING))
    commit(catalog, c.TruncateRelation(relation=target.id))
    commit(catalog, c.SetRunState(runs=frozenset({RunId("staged")}), state=RunState.NORMAL))
    assert visible(catalog, target) == set()
    with catalog.reading() as connection:
        assert reads.writes_between(connection, target, Version(0), catalog.version()) == []


def test_changes_are_what_writers_wrote(catalog: Catalog):
    target, other = create(catalog, "orders"), create(catalog, "customers")
    first = add(catalog, run(target.id, id="b"), run(target.id, id="a"))
    second = add(catalog, run(target.id, id="c", tablet=0), run(other.id))
    add(catalog, run(target.id, tablet=0, level=1, source=RunSource.COMPACTION))
    last = end(catalog, target, "a", "b", "c")
    truncated = commit(catalog, c.TruncateRelation(relation=target.id)).version

    def between(since: int, until: int) -> list[str]:
        with catalog.reading() as connection:
            return [r.id for r in reads.writes_between(connection, target, Version(since), Version(until))]

    assert between(0, last) == ["a", "b", "c"]
    assert between(first, second) == ["c"]
    assert between(first - 1, first) == ["a", "b"]
    assert between(second, last) == []
    with catalog.reading() as connection:
        assert reads.truncated_between(connection, target, last, truncated) == [truncated]
        assert reads.truncated_between(connection, target, Version(0), last) == []
        assert reads.truncated_between(connection, target, truncated, Version(truncated + 9)) == []
        assert reads.truncated_between(connection, other, Version(0), truncated) == []


# ---- level 1 where nothing is ---------------------------------------------------------------------------


def test_a_bulk_load_is_level_1_where_the_tablet_is_empty(catalog: Catalog):
    target, other = create(catalog, "orders", tablets=4), create(catalog, "customers", tablets=4)
    add(catalog, run(target.id, id="old", tablet=1, tablets=4), run(other.id, tablet=0, tablets=4))
    add(catalog, *(run(target.id, id=f"new{t}", tablet=t, tablets=4) for t in range(3)), bulk=True)
    assert levels(catalog, target) == {"old": 0, "new0": 1, "new1": 0, "new2": 1}
    add(catalog, *(run(target.id, id=f"newer{t}", tablet=t, tablets=4) for t in range(4)), bulk=True)
    assert levels(catalog, target) == {
        **{"old": 0, "new0": 1, "new1": 0, "new2": 1},
        **{"newer0": 0, "newer1": 0, "newer2": 0, "newer3": 1},
    }


def test_a_bulk_load_is_level_0_under_a_run_that_spans_tablets(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="all"))
    add(catalog, run(target.id, id="bulk", tablet=0), bulk=True)
    assert levels(catalog, target) == {"all": 0, "bulk": 0}
    commit(catalog, c.TruncateRelation(relation=target.id))
    add(catalog, run(target.id, id="again", tablet=0), bulk=True)
    assert levels(catalog, target) == {"again": 1}


def test_a_bulk_load_above_a_staging_run_is_level_0(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="staged", tablet=0, state=RunState.STAGING))
    add(catalog, run(target.id, id="bulk", tablet=0), run(target.id, id="free", tablet=1), bulk=True)
    assert levels(catalog, target) == {"bulk": 0, "free": 1}


def test_a_bulk_load_looks_at_each_relation_of_its_own(catalog: Catalog):
    """A table's runs and its index's in one update: neither is judged by the other's tablets."""
    table, index = create(catalog, "orders"), create(catalog, "by_name")
    add(catalog, run(index.id, id="old", tablet=0))
    add(catalog, run(table.id, id="table", tablet=0), run(index.id, id="index", tablet=0), bulk=True)
    assert levels(catalog, table) == {"table": 1}
    assert levels(catalog, index) == {"old": 0, "index": 0}


def test_a_run_that_spans_tablets_is_never_level_1(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="all"), bulk=True)
    assert levels(catalog, target) == {"all": 0}


def test_without_asking_the_level_stays(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="zero", tablet=0), run(target.id, id="one", tablet=1, level=1))
    assert levels(catalog, target) == {"zero": 0, "one": 1}


# ---- folding --------------------------------------------------------------------------------------------


def test_a_cutoff_hides_folded_level_0_from_its_version_on(catalog: Catalog):
    target = create(catalog, "orders")
    written = add(catalog, run(target.id, id="all"), run(target.id, id="zero", tablet=0))
    folded = commit(
        catalog,
        c.EndRuns(relation=target.id, runs=frozenset({RunId("zero")})),
        c.AddRuns(runs=(run(target.id, id="folded", tablet=0, level=1, source=RunSource.COMPACTION),)),
        c.SetCutoff(relation=target.id, tablets=(token_range(0, 2),), cutoff=written),
    ).version
    before, after = snapshot(catalog, target, written), snapshot(catalog, target, folded)
    assert ({r.id for r in before.level0}, before.level1, before.cutoffs) == ({"all", "zero"}, (), {})
    assert [r.id for r in after.level0] == ["all"]
    assert after.tablets_of(after.level0[0]) == (1,)
    assert [r.id for r in after.level1] == ["folded"]
    assert after.cutoffs == {0: written}
    assert snapshot(catalog, target, tablets=[0]).level0 == ()


# ---- horizon and times ----------------------------------------------------------------------------------


def test_reading_below_the_horizon_is_a_loud_error(catalog: Catalog):
    target = create(catalog, "orders")
    first = add(catalog, run(target.id, id="a"))
    second = end(catalog, target, "a")
    third = add(catalog, run(target.id, id="b"))
    commit(catalog, c.SetHorizon(relation=target.id, horizon=second))
    for version in (second, third):
        snapshot(catalog, target, version)
    with pytest.raises(SnapshotError, match=f"orders: expected a snapshot at version {second} or later, found {first}"):
        snapshot(catalog, target, first)
    with catalog.reading() as connection:
        gone = [r.run_id for r in rows.find(connection, s.runs)]
    assert gone == ["b"]


def test_the_horizon_never_goes_back(catalog: Catalog):
    """What was vacuumed is gone, so an older horizon would make wrong answers of loud errors."""
    target = create(catalog, "orders")
    add(catalog, run(target.id, id="a"))
    ended = end(catalog, target, "a")
    commit(catalog, c.SetHorizon(relation=target.id, horizon=ended))
    commit(catalog, c.SetHorizon(relation=target.id, horizon=Version(ended - 1)))
    assert relation(catalog, "orders").horizon == ended


def test_the_horizon_of_one_relation_leaves_the_others_alone(catalog: Catalog):
    orders, customers = create(catalog, "orders"), create(catalog, "customers")
    for target in (orders, customers):
        add(catalog, run(target.id, id=f"{target.name}-a"))
        end(catalog, target, f"{target.name}-a")
    commit(catalog, c.SetHorizon(relation=orders.id, horizon=catalog.version()))
    with catalog.reading() as connection:
        assert [r.run_id for r in rows.find(connection, s.runs)] == ["customers-a"]
    assert relation(catalog, "customers").horizon == customers.horizon


def test_vacuum_goes_on_after_a_relation_was_dropped(catalog: Catalog):
    target = create(catalog, "orders")
    add(catalog, run(target.id))
    dropped = exclusively(catalog, c.DropRelation(relation=target.id)).version
    commit(catalog, c.SetHorizon(relation=target.id, horizon=dropped))
    with catalog.reading() as connection:
        assert not rows.find(connection, s.runs)


def test_old_folds_are_forgotten_and_no_readable_snapshot_changes(catalog: Catalog):
    target = create(catalog, "orders")
    for _ in range(4):
        written = add(catalog, run(target.id))
        commit(catalog, c.SetCutoff(relation=target.id, tablets=tuple(token_ranges(2)), cutoff=written))
    commit(catalog, c.SetCutoff(relation=target.id, tablets=(token_range(0, 2),), cutoff=catalog.version()))
    horizon = Version(catalog.version() - 3)
    readable = range(horizon, catalog.version() + 1)
    before = [snapshot(catalog, target, version) for version in readable]
    commit(catalog, c.SetHorizon(relation=target.id, horizon=horizon))
    after = [snapshot(catalog, target, version) for version in readable]
    assert [(b.level0, b.cutoffs) for b in before] == [(a.level0, a.cutoffs) for a in after]
    with catalog.reading() as connection:
        folds = [(tablet_of(f.token_min, 2), f.begin_version) for f in rows.find(connection, s.folds)]
    old = [tablet for tablet, begin in folds if begin <= horizon]
    assert sorted(old) == [0, 1]  # the last one of each tablet
    assert len(folds) == 2 + 3


def test_versions_that_cannot_be_read(catalog: Catalog):
    create(catalog, "first")
    target = create(catalog, "orders")
    newest = catalog.version()
    with pytest.raises(SnapshotError, match=f"orders: expected a version up to {newest}, found {newest + 1}"):
        snapshot(catalog, target, newest + 1)
    created = target.created_version
    with pytest.raises(SnapshotError, match=rf"expected version {created} or later \(when it was created\), found"):
        snapshot(catalog, target, created - 1)


def test_the_version_at_a_time(catalog: Catalog, clock: Clock):
    times = {}
    for _ in range(3):
        clock.advance(10)
        times[clock.now_us] = commit(catalog, c.SetProgress(name="p", value="1")).version
    with catalog.reading() as connection:
        for time_us, version in times.items():
            assert reads.version_at(connection, time_us) == version
            assert reads.version_at(connection, time_us + 9) == version
            assert reads.version_at(connection, time_us - 1) == version - 1
        assert reads.committed_at(connection, times.values()) == {v: t for t, v in times.items()}
        first = reads.committed_at(connection, [1])[1]
        with pytest.raises(SnapshotError, match=r"expected a time since the first commit \(2027-01-15 08:00:00.000000"):
            reads.version_at(connection, first - 1)


def test_the_version_at_a_time_of_an_empty_catalog(empty_catalog: Catalog, clock: Clock):
    with empty_catalog.reading() as connection, pytest.raises(SnapshotError, match="expected a commit, found none"):
        reads.version_at(connection, clock.now_us)
