"""What a commit may require: each requirement holds when it should, and when it fails nothing at all has changed."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from ebla.base.ids import NodeId, RelationId, RunId, Term, TransactionId, Version
from ebla.catalog import transactions as tx
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, EblaError, StaleTermError, TransactionClosedError, UnknownNameError
from ebla.model import changes as c
from ebla.model.lifecycle.index import Permission
from ebla.model.relation import RunSource, RunState
from ebla.model.tablets import token_range, token_ranges
from ebla.model.tasks import Build
from ebla.model.topology_changes import SetBalancing
from support.catalogs import (
    COLUMNS,
    NODE,
    SECOND_US,
    Clock,
    add,
    commit,
    create,
    create_index,
    dump,
    exclusively,
    run,
    segment,
    task,
    task_ids,
)

IN_MEMORY = True
LEASE_US = 10 * SECOND_US


def passes(catalog: Catalog, requirement: c.Requirement) -> None:
    before = catalog.version()
    committed = catalog.commit(_decision(requirement))
    assert committed.version == before + 1


def fails(catalog: Catalog, requirement: c.Requirement, error: type[EblaError], says: str) -> None:
    before = dump(catalog)
    with pytest.raises(error, match=says) as caught:
        catalog.commit(_decision(requirement))
    assert caught.type is error
    assert dump(catalog) == before


def _decision(requirement: c.Requirement) -> c.Decision:
    return c.Decision(
        reason="test",
        updates=(c.SetProgress(name="touched", value="1"), SetBalancing(on=False)),
        requires=(requirement,),
    )


def begin(catalog: Catalog) -> TransactionId:
    return tx.begin(catalog, None, node=NODE, holder="test", reason="test", lease_us=LEASE_US).id


def test_every_requirement_is_tested_here():
    source = Path(__file__).read_text()
    missing = [r.__name__ for r in get_args(c.Requirement) if f"c.{r.__name__}(" not in source]
    assert not missing


def test_a_failing_requirement_among_passing_ones_changes_nothing(catalog: Catalog):
    target = create(catalog, "orders")
    before = dump(catalog)
    decision = c.Decision(
        reason="test",
        updates=(c.AddRuns(runs=(run(target.id),)), c.TruncateRelation(relation=target.id)),
        requires=(
            c.SchemaWithinOne(relation=target.id, schema_version=1),
            c.ProgressIs(name="view", value="7"),
            c.NoWritesSince(relation=target.id, version=target.created_version),
        ),
    )
    with pytest.raises(ConflictError, match="progress of view: expected '7', found None"):
        catalog.commit(decision)
    assert dump(catalog) == before


def test_exclusive_version(catalog: Catalog):
    target = create(catalog, "orders")
    at = target.created_version
    passes(catalog, c.ExclusiveVersionIs(version=at))
    create(catalog, "customers")
    fails(
        catalog,
        c.ExclusiveVersionIs(version=at),
        ConflictError,
        f"expected version {at}, found {catalog.version()}; reload and retry",
    )


def test_transaction_open(catalog: Catalog, clock: Clock):
    living, aborted, late = begin(catalog), begin(catalog), begin(catalog)
    passes(catalog, c.TransactionOpen(transaction=living))
    tx.abort(catalog, aborted)
    fails(catalog, c.TransactionOpen(transaction=aborted), TransactionClosedError, "expected open, found aborted")
    fails(
        catalog,
        c.TransactionOpen(transaction=TransactionId(99)),
        TransactionClosedError,
        "transaction 99: expected open, found unknown",
    )
    commit(catalog, c.EndTransaction(transaction=living))
    fails(catalog, c.TransactionOpen(transaction=living), TransactionClosedError, "found committed")
    clock.advance(LEASE_US - 1)
    passes(catalog, c.TransactionOpen(transaction=late))
    clock.advance(1)
    fails(catalog, c.TransactionOpen(transaction=late), TransactionClosedError, "expected open, found expired")


def test_schema_within_one(catalog: Catalog):
    target = create(catalog, "orders")
    planned = c.SchemaWithinOne(relation=target.id, schema_version=target.schema_version)
    passes(catalog, planned)
    exclusively(catalog, c.SetColumns(relation=target.id, columns=COLUMNS))
    passes(catalog, planned)
    exclusively(catalog, c.SetColumns(relation=target.id, columns=COLUMNS))
    fails(catalog, planned, ConflictError, "expected schema 1 or 2, found 3")
    passes(catalog, c.SchemaWithinOne(relation=target.id, schema_version=2))
    exclusively(catalog, c.DropRelation(relation=target.id))
    newest = c.SchemaWithinOne(relation=target.id, schema_version=3)
    fails(catalog, newest, UnknownNameError, f"{target.name}: expected to be there, found dropped")
    unknown = c.SchemaWithinOne(relation=RelationId(99), schema_version=1)
    fails(catalog, unknown, UnknownNameError, "relation 99")


def test_session_open(catalog: Catalog):
    session = c.SessionOpen(session="copy-7")
    fails(catalog, session, TransactionClosedError, "session copy-7: expected open, found closed")
    commit(catalog, c.OpenSession(session="copy-7", purpose="copy tablet 7"))
    passes(catalog, session)
    commit(catalog, c.CloseSession(session="copy-7"))
    fails(catalog, session, TransactionClosedError, "session copy-7: expected open, found closed")


def test_progress(catalog: Catalog):
    passes(catalog, c.ProgressIs(name="view", value=None))
    commit(catalog, c.SetProgress(name="view", value="41"))
    passes(catalog, c.ProgressIs(name="view", value="41"))
    fails(catalog, c.ProgressIs(name="view", value=None), ConflictError, "expected None, found '41'")
    fails(catalog, c.ProgressIs(name="view", value="40"), ConflictError, "expected '40', found '41'")
    commit(catalog, c.SetProgress(name="view", value="42"))
    fails(catalog, c.ProgressIs(name="view", value="41"), ConflictError, "expected '41', found '42'")


def test_term(catalog: Catalog, clock: Clock):
    fails(catalog, c.TermIs(lease="leader", holder="a", term=Term(1)), StaleTermError, "found no leader")
    lease = tx.lead(catalog, "leader", "a", LEASE_US)
    assert lease is not None
    passes(catalog, c.TermIs(lease="leader", holder="a", term=lease.term))
    fails(catalog, c.TermIs(lease="leader", holder="b", term=lease.term), StaleTermError, "expected term 1 of b")
    fails(catalog, c.TermIs(lease="other", holder="a", term=lease.term), StaleTermError, "found no leader")
    clock.advance(LEASE_US)
    expired = c.TermIs(lease="leader", holder="a", term=lease.term)
    fails(catalog, expired, StaleTermError, "expected term 1 of a, found term 1 of a, which has run out")
    assert tx.lead(catalog, "leader", "b", LEASE_US) is not None
    fails(catalog, expired, StaleTermError, "expected term 1 of a, found term 2 of b")


def test_no_writes_since(catalog: Catalog):
    target, other = create(catalog, "orders"), create(catalog, "customers")
    start = catalog.version()
    unwritten = c.NoWritesSince(relation=target.id, version=start)
    passes(catalog, unwritten)
    add(catalog, run(other.id))
    passes(catalog, unwritten)
    add(catalog, run(target.id, tablet=0, level=1, source=RunSource.COMPACTION))
    passes(catalog, unwritten)
    written = add(catalog, run(target.id, id="w"))
    fails(catalog, unwritten, ConflictError, f"expected no write after version {start}, found one at {written}")
    passes(catalog, c.NoWritesSince(relation=target.id, version=written))
    commit(catalog, c.EndRuns(relation=target.id, runs=frozenset({RunId("w")})))
    fails(catalog, unwritten, ConflictError, f"found one at {written}")
    truncated = commit(catalog, c.TruncateRelation(relation=target.id)).version
    since = c.NoWritesSince(relation=target.id, version=written)
    fails(catalog, since, ConflictError, f"found one at {truncated}")


def test_no_writes_since_sees_a_staged_run_become_visible(catalog: Catalog):
    target = create(catalog, "orders")
    staged = add(catalog, run(target.id, id="staged", state=RunState.STAGING))
    commit(catalog, c.SetRunState(runs=frozenset({RunId("staged")}), state=RunState.NORMAL))
    since = c.NoWritesSince(relation=target.id, version=staged)
    fails(catalog, since, ConflictError, f"found one at {catalog.version()}")


def test_runs_live(catalog: Catalog):
    target, other = create(catalog, "orders"), create(catalog, "customers")
    add(catalog, *(run(target.id, id=f"r{n}", nodes=(NODE, NodeId("node2"))) for n in range(3)))
    add(catalog, run(other.id, id="elsewhere"))
    all_three = c.RunsLive(relation=target.id, runs=frozenset(map(RunId, ("r0", "r1", "r2"))))
    passes(catalog, all_three)
    passes(catalog, c.RunsLive(relation=target.id, runs=frozenset()))
    commit(catalog, c.EndRuns(relation=target.id, runs=frozenset({RunId("r1")})))
    fails(catalog, all_three, ConflictError, "expected 3 visible runs, found 2")
    passes(catalog, c.RunsLive(relation=target.id, runs=frozenset(map(RunId, ("r0", "r2")))))
    foreign = c.RunsLive(relation=target.id, runs=frozenset({RunId("elsewhere")}))
    fails(catalog, foreign, ConflictError, "expected 1 visible runs, found 0")


def test_runs_live_in_great_number(catalog: Catalog):
    """More runs than fit into one `IN (…)`."""
    target = create(catalog, "orders")
    ids = [RunId(f"r{n}") for n in range(1203)]
    add(catalog, *(run(target.id, id=i) for i in ids))
    passes(catalog, c.RunsLive(relation=target.id, runs=frozenset(ids)))
    commit(catalog, c.EndRuns(relation=target.id, runs=frozenset(ids[:1])))
    fails(catalog, c.RunsLive(relation=target.id, runs=frozenset(ids)), ConflictError, "1203 visible runs, found 1202")
    commit(catalog, c.EndRuns(relation=target.id, runs=frozenset(ids)))
    fails(catalog, c.RunsLive(relation=target.id, runs=frozenset(ids)), ConflictError, "1203 visible runs, found 0")


def test_runs_staged(catalog: Catalog):
    target, other = create(catalog, "orders"), create(catalog, "customers")
    nodes = (NODE, NodeId("node2"))
    add(
        catalog,
        *(run(target.id, id=f"r{n}", tablet=n, tablets=4, nodes=nodes, state=RunState.STAGING) for n in range(3)),
    )
    add(catalog, run(target.id, id="normal"), run(other.id, id="elsewhere", state=RunState.STAGING))

    def staged(*ids: str) -> c.RunsStaged:
        return c.RunsStaged(relation=target.id, runs=frozenset(map(RunId, ids)))

    passes(catalog, staged("r0", "r1", "r2"))
    passes(catalog, staged())
    fails(catalog, staged("normal"), ConflictError, "orders: expected 1 staged runs, found 0")
    fails(catalog, staged("r0", "elsewhere"), ConflictError, "expected 2 staged runs, found 1")
    commit(catalog, c.SetRunState(runs=frozenset({RunId("r0")}), state=RunState.NORMAL))
    fails(catalog, staged("r0", "r1"), ConflictError, "expected 2 staged runs, found 1")
    passes(catalog, staged("r1", "r2"))
    commit(catalog, c.TruncateRelation(relation=target.id))
    fails(catalog, staged("r1", "r2"), ConflictError, "expected 2 staged runs, found 0")


def test_no_writes_since_does_not_see_a_staged_run(catalog: Catalog):
    target = create(catalog, "orders")
    written = add(catalog, run(target.id, id="written"))
    add(catalog, run(target.id, id="staged", state=RunState.STAGING))
    passes(catalog, c.NoWritesSince(relation=target.id, version=written))


def test_nobody_reads_below(catalog: Catalog, clock: Clock):
    passes(catalog, c.NoReaderBelow(version=Version(100)))
    identifier, at = tx.pin(catalog, None, holder="test", reason="test", lease_us=LEASE_US)
    passes(catalog, c.NoReaderBelow(version=at))
    above = c.NoReaderBelow(version=Version(at + 1))
    fails(catalog, above, ConflictError, f"expected no reader below version {at + 1}, found one at {at}")
    tx.unpin(catalog, [identifier])
    passes(catalog, above)
    transaction = tx.begin(catalog, None, node=NODE, holder="test", reason="test", lease_us=LEASE_US)
    beyond = c.NoReaderBelow(version=Version(transaction.snapshot + 1))
    fails(catalog, beyond, ConflictError, f"found one at {transaction.snapshot}")
    passes(catalog, c.NoReaderBelow(version=transaction.snapshot))
    tx.pin(catalog, Version(1), holder="test", reason="test", lease_us=LEASE_US)
    fails(catalog, beyond, ConflictError, "found one at 1")
    clock.advance(LEASE_US)
    passes(catalog, beyond)


def test_cutoff(catalog: Catalog):
    target = create(catalog, "orders")

    def cutoff(tablet: int, version: int) -> c.CutoffsAre:
        return c.CutoffsAre(relation=target.id, cutoffs={token_range(tablet, 2): Version(version)})

    passes(catalog, cutoff(0, 0))
    commit(catalog, c.SetCutoff(relation=target.id, tablets=(token_range(0, 2),), cutoff=Version(5)))
    passes(catalog, cutoff(0, 5))
    passes(catalog, cutoff(1, 0))
    fails(catalog, cutoff(0, 0), ConflictError, "orders tokens -9223372036854775808 to -1: expected cutoff 0, found 5")
    commit(catalog, c.SetCutoff(relation=target.id, tablets=(token_range(0, 2),), cutoff=Version(9)))
    fails(catalog, cutoff(0, 5), ConflictError, "orders tokens -9223372036854775808 to -1: expected cutoff 5, found 9")
    part = c.CutoffsAre(relation=target.id, cutoffs={token_range(0, 8): Version(9), token_range(6, 8): Version(0)})
    passes(catalog, part)
    commit(catalog, c.SetCutoff(relation=target.id, tablets=(token_range(6, 8),), cutoff=Version(10)))
    fails(catalog, part, ConflictError, "expected cutoff 0, found 10")
    passes(catalog, cutoff(1, 0))
    many = {tokens: Version(9 if tokens.last < 0 else 0) for tokens in token_ranges(256)}
    few = token_range(6 * 32, 256)
    fails(catalog, c.CutoffsAre(relation=target.id, cutoffs=many), ConflictError, f"{few}: expected cutoff 0, found 10")


def test_tasks_open(catalog: Catalog):
    base, view = create(catalog, "orders").id, RelationId(91)
    commit(catalog, c.CreateTasks(tasks=(task("a", base, view), task("b", base, view, tablet=1))))
    both = c.TasksOpen(tasks=task_ids("a", "b"))
    passes(catalog, both)
    passes(catalog, c.TasksOpen(tasks=frozenset()))
    commit(catalog, c.AbortTasks(tasks=task_ids("b")))
    fails(catalog, both, ConflictError, "task b: expected open, found aborted; nothing of it was written")
    passes(catalog, c.TasksOpen(tasks=task_ids("a")))
    commit(catalog, c.RemoveTasks(tasks=task_ids("b")))
    fails(catalog, both, ConflictError, "task b: expected open, found gone")


def test_segments_begin(catalog: Catalog):
    view, tokens = RelationId(91), token_range(0, 2)

    def covered(*segments: tuple[str | None, int], exactly: bool = False) -> c.SegmentsBegin:
        begin = tuple(segment(*one) for one in segments)
        return c.SegmentsBegin(view=view, tokens=tokens, segments=begin, exactly=exactly)

    passes(catalog, covered(exactly=True))
    for one in (("[5]", 3), (None, 4)):
        commit(catalog, c.CoverSegment(view=view, tokens=tokens, segment=segment(*one)))
    passes(catalog, covered())
    passes(catalog, covered(("[5]", 3)))
    passes(catalog, covered(("[5]", 3), (None, 4), exactly=True))
    fails(catalog, covered(exactly=True), ConflictError, r"by nothing, found \(\[5\], 3\), \(the end, 4\)")
    fails(catalog, covered(("[5]", 3), exactly=True), ConflictError, r"expected it covered by \(\[5\], 3\), found")
    fails(catalog, covered(("[5]", 4)), ConflictError, "another worker or epoch came first")


def test_nothing_left_to_build(catalog: Catalog):
    base, view = create(catalog, "orders").id, RelationId(91)
    left = c.NothingLeftToBuild(view=view)
    fails(catalog, left, ConflictError, "view 91: expected one that is being built, found it built or dropped")
    commit(catalog, c.CreateBuild(build=Build(view=view, base=base), tasks=(task("a", base, view),)))
    fails(catalog, left, ConflictError, "view 91: expected no task left, found 1")
    commit(catalog, c.AbortTasks(tasks=task_ids("a")))
    fails(catalog, left, ConflictError, "expected no task left, found 1")
    commit(catalog, c.RemoveTasks(tasks=task_ids("a")))
    passes(catalog, left)
    commit(catalog, c.MarkBuilt(view=view))
    fails(catalog, left, ConflictError, "found it built or dropped")


def test_indexes_follow(catalog: Catalog):
    """A writer may be one step behind every index, and no index may be gone."""
    base = create(catalog, "orders")
    index = create_index(catalog, base)
    none = c.IndexesFollow(base=base.id, planned={})
    first = c.IndexesFollow(base=base.id, planned={index: Permission.DELETE_ONLY})
    passes(catalog, none)
    passes(catalog, first)
    exclusively(catalog, c.SetIndexState(index=index, state=Permission.WRITE_AND_DELETE))
    fails(catalog, none, ConflictError, f"index {index}: expected absent or the step behind it, found write_and_delete")
    passes(catalog, first)
    exclusively(catalog, c.SetIndexState(index=index, state=Permission.BACKFILLING))
    fails(catalog, first, ConflictError, "expected delete_only or the step behind it, found backfilling")
    passes(catalog, c.IndexesFollow(base=base.id, planned={index: Permission.WRITE_AND_DELETE}))
    commit(catalog, c.DropRelation(relation=index))
    fails(
        catalog,
        c.IndexesFollow(base=base.id, planned={index: Permission.BACKFILLING}),
        ConflictError,
        "expected backfilling or the step behind it, found absent",
    )


def test_index_is(catalog: Catalog):
    base = create(catalog, "orders")
    index = create_index(catalog, base)
    at = catalog.version()
    wanted = c.IndexIs(index=index, state=Permission.DELETE_ONLY, since=at, read_version=None)
    passes(catalog, wanted)
    exclusively(catalog, c.SetIndexState(index=index, state=Permission.WRITE_AND_DELETE))
    fails(catalog, wanted, ConflictError, f"expected delete_only since {at}, read at None, found write_and_delete")
    commit(catalog, c.DropRelation(relation=base.id))
    fails(catalog, wanted, ConflictError, "found it gone")
