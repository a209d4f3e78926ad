"""Open transactions and pins: leases that keep work and old versions alive, and what ends them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebla.base.ids import RelationId, TransactionId, Version
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.sessions import oldest_needed
from ebla.catalog.store import Catalog
from ebla.errors import ConflictError, TransactionClosedError
from ebla.model import barrier
from ebla.model import changes as c
from ebla.model.relation import Relation
from ebla.model.work import WorkKind
from support.catalogs import COLUMNS, NODE, Clock, add, commit, create, dump, exclusively, run

IN_MEMORY = True
LEASE_US = 1000


def begin(catalog: Catalog, target: Relation | None = None, lease_us: int = LEASE_US) -> tx.Transaction:
    return tx.begin(catalog, target, node=NODE, holder="me", reason="a test", lease_us=lease_us)


def states(catalog: Catalog) -> dict[int, str]:
    with catalog.reading() as connection:
        return {r.transaction_id: r.state for r in rows.find(connection, s.transactions)}


def open_now(catalog: Catalog) -> set[TransactionId]:
    with catalog.reading() as connection:
        return tx.open_transactions(connection)


def needed(catalog: Catalog) -> Version | None:
    with catalog.reading() as connection:
        return oldest_needed(connection, catalog.clock())


def pin(catalog: Catalog, version: int | None = None, lease_us: int = LEASE_US) -> tuple[str, Version]:
    at = None if version is None else Version(version)
    return tx.pin(catalog, at, holder="me", reason="a test", lease_us=lease_us)


# ---- transactions ---------------------------------------------------------------------------------------


def test_a_transaction_begins_at_the_newest_version(catalog: Catalog, clock: Clock):
    target = create(catalog, "orders")
    exclusive = catalog.version()
    add(catalog, run(target.id))
    first, second = begin(catalog, target), begin(catalog)
    assert first == tx.Transaction(
        id=TransactionId(1), relation=target.id, snapshot=catalog.version(), schema_version=1, reason="a test"
    )
    assert (second.id, second.relation, second.schema_version) == (2, None, 0)
    assert open_now(catalog) == {first.id, second.id}
    with catalog.reading() as connection:
        (row,) = rows.find(connection, s.transactions, transaction_id=1)
    assert (row.host_id, row.holder, row.topology_version) == (NODE, "me", exclusive)
    assert (row.started_at, row.expires_at) == (clock.now_us, clock.now_us + LEASE_US)


def test_renewing_prolongs_the_lease(catalog: Catalog, clock: Clock):
    transaction = begin(catalog)
    for _ in range(3):
        clock.advance(LEASE_US - 1)
        tx.renew(catalog, transaction.id, LEASE_US)
    commit_it(catalog, transaction)
    assert states(catalog) == {1: "committed"}


def commit_it(catalog: Catalog, transaction: tx.Transaction) -> None:
    catalog.commit(
        c.Decision(
            reason="test",
            updates=(c.EndTransaction(transaction=transaction.id),),
            requires=(c.TransactionOpen(transaction=transaction.id),),
        )
    )


def test_what_has_ended_cannot_be_renewed(catalog: Catalog, clock: Clock):
    expired, aborted, committed = begin(catalog), begin(catalog, lease_us=10**9), begin(catalog, lease_us=10**9)
    tx.abort(catalog, aborted.id)
    commit(catalog, c.EndTransaction(transaction=committed.id))
    clock.advance(LEASE_US)
    before = dump(catalog)
    for number in (expired.id, aborted.id, committed.id, TransactionId(99)):
        with pytest.raises(TransactionClosedError, match=f"transaction {number}: expected open, found closed"):
            tx.renew(catalog, number, LEASE_US)
    assert dump(catalog) == before


def test_aborting_works_once(catalog: Catalog, clock: Clock):
    transaction, committed = begin(catalog), begin(catalog)
    clock.advance(3)
    assert tx.abort(catalog, transaction.id)
    assert not tx.abort(catalog, transaction.id)
    commit(catalog, c.EndTransaction(transaction=committed.id))
    assert not tx.abort(catalog, committed.id)
    assert not tx.abort(catalog, TransactionId(99))
    assert states(catalog) == {1: "aborted", 2: "committed"}
    with pytest.raises(TransactionClosedError, match="expected open, found aborted"):
        commit_it(catalog, transaction)


def test_reaping_aborts_those_whose_lease_ran_out(catalog: Catalog, clock: Clock):
    late, living, committed = begin(catalog), begin(catalog, lease_us=2 * LEASE_US), begin(catalog)
    commit(catalog, c.EndTransaction(transaction=committed.id))
    clock.advance(LEASE_US - 1)
    assert tx.reap(catalog) == 0
    clock.advance(1)
    assert open_now(catalog) == {late.id, living.id}  # its files are its own until a process finds that it is dead
    assert tx.reap(catalog) == 1
    assert open_now(catalog) == {living.id}
    assert states(catalog) == {1: "aborted", 2: "open", 3: "committed"}
    before = dump(catalog)
    assert tx.reap(catalog) == 0
    assert dump(catalog) == before


def test_reaping_removes_pins_whose_lease_ran_out(catalog: Catalog, clock: Clock):
    pin(catalog)
    living, at = pin(catalog, lease_us=2 * LEASE_US)
    clock.advance(LEASE_US)
    assert tx.reap(catalog) == 0
    with catalog.reading() as connection:
        assert rows.values(connection, s.pins.c.pin_id) == {living}
    assert needed(catalog) == at


def test_what_a_barrier_waits_for_was_planned_with_an_older_state(catalog: Catalog, clock: Clock):
    orders, customers = create(catalog, "orders"), create(catalog, "customers")
    old = begin(catalog, orders)
    begin(catalog, customers)
    unnamed = begin(catalog)
    aborted = begin(catalog, orders)
    tx.abort(catalog, aborted.id)
    exclusively(catalog, c.SetColumns(relation=orders.id, columns=COLUMNS))
    young = begin(catalog, replace(orders, schema_version=2))
    now = clock.now_us
    with catalog.reading() as connection:
        found = tx.planned_with(connection, orders.id, now)
        assert [(one.transaction, one.began_under) for one in found] == [(old.id, 1), (young.id, 2)]
        assert [str(one) for one in barrier.blockers(found, 2)] == [f"transaction {old.id} (a test, me)"]
        assert barrier.blockers(found, 1) == []
        assert tx.planned_with(connection, RelationId(99), now) == []
        began = [one.transaction for one in tx.in_the_way(connection, {orders.id}, now, unnamed=False)]
        assert began == [old.id, young.id]
        every = tx.in_the_way(connection, {orders.id}, now)
        assert [one.transaction for one in barrier.blockers(every, young.snapshot)] == [old.id, unnamed.id]
        assert tx.in_the_way(connection, {orders.id}, now + LEASE_US) == []
    commit_it(catalog, old)
    with catalog.reading() as connection:
        assert barrier.blockers(tx.planned_with(connection, orders.id, now), 2) == []


def test_a_barrier_waits_for_work_whose_session_is_closed_and_not_while_it_is_open(catalog: Catalog, clock: Clock):
    orders = create(catalog, "orders")
    exclusively(catalog, c.OpenSession(session="one", purpose="copies"))
    copies = tx.begin(
        catalog, orders, node=NODE, holder="me", reason="copies", lease_us=LEASE_US, session="one"
    )  # fmt: skip

    def found() -> list[TransactionId]:
        with catalog.reading() as connection:
            return [one.transaction for one in tx.in_the_way(connection, {orders.id}, clock.now_us)]

    assert found() == []
    exclusively(catalog, c.CloseSession(session="one"))
    assert found() == [copies.id]


def test_copies_are_told_by_their_kind_and_what_an_older_release_began_may_be_one(catalog: Catalog):
    tables = [create(catalog, name) for name in ("copied", "written", "older")]
    kinds = (WorkKind.COPY, WorkKind.WRITE, WorkKind.EPOCH)
    for table, kind in zip(tables, kinds, strict=True):
        begun = tx.begin(catalog, table, node=NODE, holder="me", reason="copy t", lease_us=LEASE_US, work=kind)
    with catalog.writing() as connection:
        assert tx.copied_now(connection) == {tables[0].id}
        rows.write(connection, rows.update(s.transactions, {"work": None}, transaction_id=begun.id))
        assert tx.copied_now(connection) == {tables[0].id, tables[2].id}


def test_ended_transactions_are_forgotten_after_a_while(catalog: Catalog, clock: Clock):
    aborted, committed = begin(catalog), begin(catalog)
    begin(catalog)
    tx.abort(catalog, aborted.id)
    clock.advance(10)
    commit(catalog, c.EndTransaction(transaction=committed.id))
    assert tx.forget_ended(catalog, clock.now_us - 10) == 0
    assert tx.forget_ended(catalog, clock.now_us) == 1
    assert states(catalog) == {2: "committed", 3: "open"}
    assert tx.forget_ended(catalog, clock.now_us + 1) == 1
    assert states(catalog) == {3: "open"}
    assert begin(catalog).id == 4  # a number is never used again


# ---- pins -----------------------------------------------------------------------------------------------


def test_the_oldest_version_that_somebody_needs(catalog: Catalog, clock: Clock):
    target = create(catalog, "orders")
    assert needed(catalog) is None
    newest, at = pin(catalog)
    assert at == catalog.version() == needed(catalog)
    for _ in range(3):
        add(catalog, run(target.id))
    transaction = begin(catalog, lease_us=3 * LEASE_US)
    later, _ = pin(catalog, lease_us=2 * LEASE_US)
    older, _ = pin(catalog, at - 1)
    assert needed(catalog) == at - 1
    tx.unpin(catalog, [older])
    assert needed(catalog) == at
    tx.unpin(catalog, [newest, "unknown"])
    assert needed(catalog) == transaction.snapshot
    commit_it(catalog, transaction)
    add(catalog, run(target.id))
    assert needed(catalog) == transaction.snapshot  # the later pin's version too
    tx.unpin(catalog, [later])
    assert needed(catalog) is None
    tx.unpin(catalog, [])


def test_leases_that_ran_out_need_nothing(catalog: Catalog, clock: Clock):
    pin(catalog)
    add(catalog, run(create(catalog, "orders").id))
    transaction = begin(catalog, lease_us=2 * LEASE_US)
    clock.advance(LEASE_US)
    assert needed(catalog) == transaction.snapshot
    clock.advance(LEASE_US)
    assert needed(catalog) is None


def test_a_pin_of_the_newest_version_cannot_miss_a_vacuum(catalog: Catalog):
    """Choosing the version and keeping it is one step: a horizon above it is refused from then on."""
    target = create(catalog, "orders")
    _, at = pin(catalog)
    add(catalog, run(target.id))
    horizon = catalog.version()
    decision = c.Decision(
        reason="vacuum",
        updates=(c.SetHorizon(relation=target.id, horizon=horizon),),
        requires=(c.NoReaderBelow(version=horizon),),
    )
    before = dump(catalog)
    with pytest.raises(ConflictError, match=f"expected no reader below version {horizon}, found one at {at}"):
        catalog.commit(decision)
    assert dump(catalog) == before
