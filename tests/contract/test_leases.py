"""Leadership: a lease with a growing term. Two holders never both hold it."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ebla.base.ids import NodeId, Term
from ebla.base.services import Scheduler
from ebla.catalog import processes as rows_of_processes
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog import transactions as tx
from ebla.catalog.leadership import Leadership
from ebla.catalog.processes import Role
from ebla.catalog.requirements import require
from ebla.catalog.store import Catalog
from ebla.errors import StaleTermError
from ebla.model import changes as c
from support.catalogs import Clock, dump
from support.processes import Processes

IN_MEMORY = True
LEASE_US = 1000


def lead(catalog: Catalog, holder: str, name: str = "leader") -> tx.Lease | None:
    return tx.lead(catalog, name, holder, LEASE_US)


def taken(catalog: Catalog, holder: str) -> tx.Lease:
    lease = lead(catalog, holder)
    assert lease is not None
    return lease


def holds(catalog: Catalog, lease: tx.Lease) -> bool:
    """Whether a commit with this term would be accepted now."""
    with catalog.reading() as connection:
        try:
            require(connection, required(lease), catalog.clock())
        except StaleTermError:
            return False
    return True


def required(lease: tx.Lease) -> c.TermIs:
    return c.TermIs(lease=lease.name, holder=lease.holder, term=lease.term)


def test_the_first_one_takes_it_and_the_second_does_not(catalog: Catalog, clock: Clock):
    lease = taken(catalog, "a")
    assert lease == tx.Lease(name="leader", holder="a", term=Term(1), expires_at=clock.now_us + LEASE_US)
    before = dump(catalog)
    assert lead(catalog, "b") is None
    assert dump(catalog) == before


def test_prolonging_keeps_the_term(catalog: Catalog, clock: Clock):
    first = taken(catalog, "a")
    clock.advance(LEASE_US - 1)
    second = taken(catalog, "a")
    assert second.term == first.term
    assert second.expires_at == clock.now_us + LEASE_US
    clock.advance(LEASE_US - 1)
    assert lead(catalog, "b") is None
    assert holds(catalog, first)


def test_taking_over_after_expiry_grows_the_term(catalog: Catalog, clock: Clock):
    old = taken(catalog, "a")
    clock.advance(LEASE_US - 1)
    assert lead(catalog, "b") is None
    clock.advance(1)
    new = taken(catalog, "b")
    assert new.term == old.term + 1
    assert lead(catalog, "a") is None
    assert (holds(catalog, old), holds(catalog, new)) == (False, True)


def test_one_who_comes_back_after_expiry_has_a_new_term(catalog: Catalog, clock: Clock):
    """What it did in its old term may have been taken for the work of a dead leader."""
    old = taken(catalog, "a")
    clock.advance(LEASE_US)
    new = taken(catalog, "a")
    assert new.term == old.term + 1
    assert not holds(catalog, old)
    tx.resign(catalog, old)  # its own late word does not end its new reign
    assert holds(catalog, new)


def test_resigning_makes_room_at_once(catalog: Catalog):
    old = taken(catalog, "a")
    tx.resign(catalog, old)
    assert not holds(catalog, old)
    new = taken(catalog, "b")
    assert new.term == old.term + 1
    tx.resign(catalog, old)  # a late word from an older reign
    assert holds(catalog, new)
    assert lead(catalog, "a") is None


def test_leases_of_different_names_are_apart(catalog: Catalog):
    assert lead(catalog, "a", "topology") is not None
    other = lead(catalog, "b", "jobs")
    assert other is not None
    assert other.term == 1


def test_a_stale_leader_is_refused_and_changes_nothing(catalog: Catalog, clock: Clock):
    old = taken(catalog, "a")
    clock.advance(LEASE_US)
    new = taken(catalog, "b")
    before = dump(catalog)
    decision = c.Decision(
        reason="from the past",
        updates=(c.SetProgress(name="p", value="old"), c.OpenSession(session="s", purpose="p")),
        requires=(required(old),),
    )
    with pytest.raises(StaleTermError, match="leader: expected term 1 of a, found term 2 of b"):
        catalog.commit(decision)
    assert dump(catalog) == before
    catalog.commit(c.Decision(reason="now", updates=decision.updates, requires=(required(new),)))
    assert dump(catalog) != before


@pytest.mark.process
def test_of_several_processes_one_becomes_leader(catalog: Catalog, processes: Processes, tmp_path: Path):
    gate = tmp_path / "gate"
    children = [
        processes.start("support.catalog_tasks:take_lease", catalog.where, f"p{n}", str(gate)) for n in range(5)
    ]
    gate.touch()
    said = [line for child in children for line in child.finish()]
    assert sorted(said) == ["1", "none", "none", "none", "none"]


HOLDERS = ("a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.just("lead"), st.sampled_from(HOLDERS), st.just(0)),
    st.tuples(st.just("resign"), st.sampled_from(HOLDERS), st.just(0)),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([-LEASE_US // 2, 1, LEASE_US - 1, LEASE_US, 3 * LEASE_US])),
)
numbers = itertools.count()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=25))
def test_two_never_both_hold_it(catalog: Catalog, clock: Clock, steps: list[tuple[str, str, int]]):
    """Whatever happens in whatever order: at most one of the leases ever given is in force, and a term has one holder.

    Sometimes the clock goes back a little, as clocks of different nodes do.
    """
    name = f"leader-{next(numbers)}"
    given_out: list[tx.Lease] = []
    for verb, holder, us in steps:
        mine = [lease for lease in given_out if lease.holder == holder]
        if verb == "wait":
            clock.advance(us)
        elif verb == "lead":
            others = [lease for lease in given_out if lease.holder != holder and holds(catalog, lease)]
            lease = lead(catalog, holder, name)
            assert (lease is None) == bool(others)
            given_out += [lease] if lease is not None else []
        elif mine:
            tx.resign(catalog, mine[-1])
            assert not any(holds(catalog, lease) for lease in mine)
        in_force = {(lease.holder, lease.term) for lease in given_out if holds(catalog, lease)}
        assert len(in_force) <= 1
        assert all(term == given_out[-1].term for _, term in in_force)
    reigns = {(lease.term, lease.holder) for lease in given_out}
    assert sorted(term for term, _ in reigns) == list(range(1, len(reigns) + 1))


def test_a_holder_that_is_known_to_be_gone_is_followed_at_once(catalog: Catalog):
    first = taken(catalog, "a")
    assert tx.lead(catalog, "leader", "b", LEASE_US, is_gone=lambda holder: holder == "c") is None
    second = tx.lead(catalog, "leader", "b", LEASE_US, is_gone=lambda holder: holder == "a")
    assert second is not None
    assert (second.holder, second.term) == ("b", first.term + 1)
    assert not holds(catalog, first)


@pytest.mark.parametrize("holder", ["silent", f"{socket.gethostname()}/999999999/1"])
def test_the_row_of_a_leader_that_fell_silent_runs_out_with_its_lease(catalog: Catalog, clock: Clock, holder: str):
    def leadership(name: str) -> Leadership:
        return Leadership(catalog, name, LEASE_US / 1e6, Scheduler(lambda: 0.0, threads=False))

    def report() -> None:
        rows_of_processes.report(
            catalog, holder=holder, node=NodeId("node1"), host="h", pid=1, role=Role.NODE, maintains=True, doing=(),
            lease_us=3 * LEASE_US,
        )  # fmt: skip

    def expires_at() -> int:
        [row] = catalog.read(lambda connection: rows.find(connection, s.processes))
        return int(row.expires_at)

    first, second = leadership(holder), leadership("second")
    assert first.take("leader", until_given_back=True) is not None
    clock.advance(LEASE_US // 2)
    report()
    reported = clock()
    assert expires_at() == reported + 3 * LEASE_US
    first.give_back("leader")
    assert second.take("leader", from_the_gone=True, until_given_back=True) is not None
    assert expires_at() == reported + 3 * LEASE_US, "it was given back"
    second.give_back("leader")
    assert first.take("leader", until_given_back=True) is not None
    if holder == "silent":
        clock.advance(LEASE_US + 1)
    assert second.take("leader", from_the_gone=True, until_given_back=True) is not None
    assert expires_at() == (reported + LEASE_US if holder == "silent" else clock()), "at once where it has ended"
    report()
    assert expires_at() == clock() + 3 * LEASE_US, "it lives"


def test_a_lease_is_elsewhere_while_a_process_holds_it_that_has_not_ended(catalog: Catalog, clock: Clock):
    mine = Leadership(catalog, "me", 1, Scheduler(lambda: 0.0, threads=False))

    def is_elsewhere() -> bool:
        return catalog.read(lambda connection: mine.elsewhere_s(connection, "leader")) is not None

    assert not is_elsewhere(), "it is free"
    taken(catalog, "other")
    assert is_elsewhere()
    clock.advance(LEASE_US + 1)
    assert not is_elsewhere(), "it ran out"
    taken(catalog, f"{socket.gethostname()}/999999999/1")
    assert not is_elsewhere(), "its process has ended"
    clock.advance(LEASE_US + 1)
    taken(catalog, "me")
    assert not is_elsewhere()


def test_who_holds_a_lease_is_known_until_it_runs_out(catalog: Catalog, clock: Clock):
    def leader() -> str | None:
        with catalog.reading() as connection:
            return tx.leader(connection, "leader", catalog.clock())

    assert leader() is None
    lease = taken(catalog, "a")
    assert leader() == "a"
    clock.advance(LEASE_US)
    assert leader() is None
    lease = taken(catalog, "b")
    tx.resign(catalog, lease)
    assert leader() is None
