"""Open transactions, leases and pins: who is at work, and what must not be swept from under them.

A transaction is a row with a lease. Its files carry its number in their names, so a file whose transaction is neither
open nor named by the manifest belongs to no transaction and may be swept. A lease that runs out aborts it:
the commit checks it.

All that is written here may be written twice, so it is repeated where the database's answer was lost. Of a transaction
that was begun twice one is never used, and ends with its lease.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection

from ebla.base.ids import NodeId, RelationId, Term, TransactionId, Version
from ebla.catalog import memory, reads, rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Above, AtMost, Not, State
from ebla.catalog.store import Catalog, insisted
from ebla.errors import TransactionClosedError
from ebla.model.barrier import Open
from ebla.model.relation import Relation
from ebla.model.work import WorkKind

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    id: TransactionId
    relation: RelationId | None
    snapshot: Version
    schema_version: int
    reason: str
    work: WorkKind = WorkKind.WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    name: str
    holder: str
    term: Term
    expires_at: int


@insisted
def begin(
    catalog: Catalog,
    target: Relation | None,
    *,
    node: NodeId,
    holder: str,
    reason: str,
    lease_us: int,
    session: str | None = None,
    work: WorkKind = WorkKind.WRITE,
) -> Transaction:
    """Open a transaction on a relation, or on none."""
    relation, schema_version = (None, 0) if target is None else (target.id, target.schema_version)

    def opened(connection: Connection) -> Transaction:
        number = TransactionId(memory.advance(connection, "transaction"))
        return _open(
            connection, catalog, number, relation, schema_version, node=node, holder=holder, reason=reason,
            lease_us=lease_us, session=session, work=work,
        )  # fmt: skip

    return catalog.change(opened)


@insisted
def begin_on(
    catalog: Catalog,
    name: str,
    look: Callable[[Connection, Relation], Found],
    *,
    node: NodeId,
    holder: str,
    reason: str,
    lease_us: int,
    work: WorkKind = WorkKind.WRITE,
) -> tuple[Relation, Transaction, Found]:
    """Open a transaction on the relation of a name. The relation, and what `look` reads, are of its snapshot."""

    def opened(connection: Connection) -> tuple[Relation, Transaction, Found]:
        number = TransactionId(memory.advance(connection, "transaction"))
        relation = reads.relation(connection, name)
        transaction = _open(
            connection, catalog, number, relation.id, relation.schema_version, node=node, holder=holder,
            reason=reason, lease_us=lease_us, work=work,
        )  # fmt: skip
        return relation, transaction, look(connection, relation)

    return catalog.change(opened)


def begin_new(catalog: Catalog, *, node: NodeId, holder: str, reason: str, lease_us: int) -> Transaction:
    """Open a transaction on a relation that its commit shall create; its number is taken now.

    So files can be written before there is a relation. Where no commit comes, the number is never used, and a sweep
    takes the files.
    """
    with catalog.writing() as connection:
        number = RelationId(memory.advance(connection, "relation"))
        opened = TransactionId(memory.advance(connection, "transaction"))
        return _open(connection, catalog, opened, number, 1, node=node, holder=holder, reason=reason, lease_us=lease_us)


def _open(
    connection: Connection,
    catalog: Catalog,
    number: TransactionId,
    target: RelationId | None,
    schema_version: int,
    *,
    node: NodeId,
    holder: str,
    reason: str,
    lease_us: int,
    session: str | None = None,
    work: WorkKind = WorkKind.WRITE,
) -> Transaction:
    snapshot = Version(memory.counters(connection)["version"])
    now = catalog.clock()
    row = {
        "transaction_id": number,
        "state": "open",
        "reason": reason,
        "relation_id": target,
        "host_id": node,
        "holder": holder,
        "snapshot_version": snapshot,
        "schema_version": schema_version,
        "topology_version": memory.counters(connection)["exclusive_version"],
        "session_id": session,
        "started_at": now,
        "expires_at": now + lease_us,
        "work": work.value,
    }
    rows.write(connection, rows.insert(s.transactions, [row]))
    return Transaction(
        id=number,
        relation=target,
        snapshot=snapshot,
        schema_version=schema_version,
        reason=reason,
        work=work,
    )


@insisted
def renew(catalog: Catalog, transaction: TransactionId, lease_us: int) -> None:
    """Prolong an open transaction's lease. One that has run out cannot be revived: its files may be gone."""
    with catalog.writing() as connection:
        now = catalog.clock()
        mine = {"transaction_id": transaction, "state": "open", "expires_at": Above(now)}
        if rows.write(connection, rows.update(s.transactions, {"expires_at": now + lease_us}, **mine)) != 1:
            raise TransactionClosedError(f"transaction {transaction}: expected open, found closed; retry it")


@insisted
def abort(catalog: Catalog, transaction: TransactionId) -> bool:
    with catalog.writing() as connection:
        return _abort(connection, catalog.clock(), transaction_id=transaction) == 1


@insisted
def reap(catalog: Catalog) -> int:
    """Abort transactions whose lease ran out: their writer is dead or too slow to be trusted. Expired pins go too."""
    with catalog.reading() as connection:
        now = catalog.clock()
        first = (
            rows.least(connection, s.transactions.c.expires_at, state="open"),
            rows.least(connection, s.pins.c.expires_at),
        )
        if not any(expires_at is not None and expires_at <= now for expires_at in first):
            return 0
    with catalog.writing() as connection:
        now = catalog.clock()
        rows.write(connection, rows.delete(s.pins, expires_at=AtMost(now)))
        return _abort(connection, now, expires_at=AtMost(now))


def _abort(state: State, now: int, /, **which: object) -> int:
    return rows.write(state, rows.update(s.transactions, {"state": "aborted", "ended_at": now}, state="open", **which))


def open_transactions(state: State) -> set[TransactionId]:
    return rows.values(state, s.transactions.c.transaction_id, state="open")


def open_rows(state: State) -> Sequence[Any]:
    """The open transactions, oldest first."""
    return rows.find(state, s.transactions, "transaction_id", state="open")


def committed_among(state: State, numbers: Iterable[TransactionId]) -> set[TransactionId]:
    """Which of some transactions the catalog remembers as committed."""
    asked, found = sorted(set(numbers)), set[TransactionId]()
    for at in range(0, len(asked), 1000):
        some = frozenset(asked[at : at + 1000])
        found |= rows.values(state, s.transactions.c.transaction_id, state="committed", transaction_id=some)
    return found


def copied_now(state: State) -> set[RelationId]:
    """The relations of which copies of runs are being made, or may be: an older release does not say."""
    return {
        RelationId(row.relation_id)
        for row in open_rows(state)
        if row.relation_id is not None and row.work in (WorkKind.COPY, None)
    }


def in_the_way(state: State, relations: Collection[RelationId], now: int = 0, *, unnamed: bool = True) -> list[Open]:
    """The open transactions on some relations that a barrier may wait for, with the versions that they began at.

    Their leases have not run out by `now`, and no open session keeps them apart. `unnamed`: those on no relation, too.
    """
    found = _at_work(state, {} if unnamed else {"relation_id": frozenset(relations)}, now)
    return [
        _seen_as(row, row.snapshot_version) for row in found if row.relation_id is None or row.relation_id in relations
    ]


def planned_with(state: State, relation: RelationId, now: int) -> list[Open]:
    """The same of one relation, with the versions of its schema that they were planned with."""
    return [_seen_as(row, row.schema_version) for row in _at_work(state, {"relation_id": relation}, now)]


def _at_work(state: State, which: Mapping[str, object], now: int) -> list[Any]:
    found = rows.find(state, s.transactions, "transaction_id", state="open", expires_at=Above(now), **which)
    sessions = frozenset(row.session_id for row in found if row.session_id is not None)
    if not sessions:
        return list(found)
    still_open = rows.values(state, s.sessions.c.session_id, session_id=sessions, closed_version=None)
    return [row for row in found if row.session_id is None or row.session_id not in still_open]


def _seen_as(row: Any, began_under: int) -> Open:
    return Open(TransactionId(row.transaction_id), began_under, row.reason, row.holder)


def epochs_elsewhere(state: State, relations: Collection[RelationId], holder: str, now: int) -> set[str]:
    """The other processes that run epochs of some views."""
    there = {"relation_id": frozenset(relations), "expires_at": Above(now), "holder": Not(holder)}
    found = rows.find(state, s.transactions, state="open", work=WorkKind.EPOCH.value, **there)
    return {row.holder for row in found}


def compacts_before(state: State, relation: RelationId, transaction: TransactionId, now: int) -> bool:
    """Whether a compaction of a relation is at work that began before a transaction."""
    there = {"relation_id": relation, "expires_at": Above(now), "transaction_id": AtMost(transaction - 1)}
    return bool(rows.find(state, s.transactions, state="open", work=WorkKind.COMPACTION.value, **there))


@insisted
def forget_ended(catalog: Catalog, before_us: int) -> int:
    """Drop the rows of transactions that ended long ago."""
    with catalog.writing() as connection:
        long_ago = {"state": Not("open"), "ended_at": AtMost(before_us - 1)}
        return rows.write(connection, rows.delete(s.transactions, **long_ago))


# ---- leadership -----------------------------------------------------------------------------------------


@insisted
def lead(
    catalog: Catalog,
    name: str,
    holder: str,
    lease_us: int,
    *,
    is_gone: Callable[[str], bool] = lambda holder: False,
    succeeds: Callable[[State, str, int], None] = lambda state, holder, now: None,
) -> Lease | None:
    """Take or prolong the lease; `None` while another holder has it. The term grows with every change of leader.

    `is_gone` tells of a holder whose lease has not run out that it will not come back. `succeeds` is called in the same
    transaction with a holder that has not given the lease back. Looks before it takes the write lock: those who are not
    the leader ask again and again.
    """

    def is_taken(row: Any | None, now: int) -> bool:
        return row is not None and row.holder != holder and row.expires_at > now

    with catalog.reading() as connection:
        seen = rows.one(connection, s.leases, name=name)
    gone = seen is not None and seen.holder != holder and is_gone(seen.holder)
    if not gone and is_taken(seen, catalog.clock()):
        return None
    with catalog.writing() as connection:
        now = catalog.clock()
        row = rows.one(connection, s.leases, name=name)
        if is_taken(row, now) and not (gone and seen is not None and row is not None and row.term == seen.term):
            return None
        same = row is not None and row.holder == holder and row.expires_at > now
        term = Term(1 if row is None else row.term if same else row.term + 1)
        held = Lease(name=name, holder=holder, term=term, expires_at=now + lease_us)
        rows.write(connection, rows.put(s.leases, **asdict(held)))
        if row is not None and row.holder != holder and row.expires_at:
            succeeds(connection, row.holder, now)
    return held


def lease(state: State, name: str, now: int) -> Lease | None:
    """A lease that has not run out."""
    row = rows.one(state, s.leases, name=name, expires_at=Above(now))
    if row is None:
        return None
    return Lease(name=name, holder=row.holder, term=Term(row.term), expires_at=row.expires_at)


def leader(state: State, name: str, now: int) -> str | None:
    """Who holds a lease that has not run out."""
    held = lease(state, name, now)
    return None if held is None else held.holder


def leaders(state: State, prefix: str, now: int) -> dict[str, str]:
    """Who holds each of the leases whose names begin so, by the rest of the name."""
    held = rows.find(state, s.leases, expires_at=Above(now))
    return {row.name.removeprefix(prefix): row.holder for row in held if row.name.startswith(prefix)}


@insisted
def resign(catalog: Catalog, lease: Lease) -> None:
    with catalog.writing() as connection:
        mine = {"name": lease.name, "holder": lease.holder, "term": lease.term}
        rows.write(connection, rows.update(s.leases, {"expires_at": 0}, **mine))


# ---- pins -----------------------------------------------------------------------------------------------


def pin(catalog: Catalog, version: Version | None, *, holder: str, reason: str, lease_us: int) -> tuple[str, Version]:
    """Keep a version readable for a while. `None` pins the newest, with no gap between choosing and keeping it."""
    identifier = str(uuid.uuid4())
    return identifier, _pin(catalog, identifier, version, holder=holder, reason=reason, lease_us=lease_us)


@insisted
def _pin(
    catalog: Catalog, identifier: str, version: Version | None, *, holder: str, reason: str, lease_us: int
) -> Version:
    if catalog.read_only:
        return catalog.version() if version is None else version  # nothing keeps it but the retention
    with catalog.writing() as connection:
        at = Version(memory.counters(connection)["version"]) if version is None else version
        _put_pin(connection, identifier, at, holder, reason, catalog.clock() + lease_us)
    return at


@insisted
def hold(catalog: Catalog, version: Version, *, holder: str, reason: str, lease_us: int) -> None:
    """Keep a version readable in the name of a piece of work, in any process, and no other version."""
    with catalog.writing() as connection:
        rows.write(connection, rows.delete(s.pins, holder=holder))
        _put_pin(connection, str(uuid.uuid4()), version, holder, reason, catalog.clock() + lease_us)


def _put_pin(state: State, identifier: str, version: Version, holder: str, reason: str, expires_at: int) -> None:
    said = reason.encode(errors="replace").decode()  # a name in it may be no text
    row = {"version": version, "holder": holder, "reason": said, "expires_at": expires_at}
    rows.write(state, rows.put(s.pins, pin_id=identifier, **row))


def pins(state: State, now: int) -> Sequence[Any]:
    """The pins that have not run out, by version."""
    return rows.find(state, s.pins, "version", "pin_id", expires_at=Above(now))


def holds(state: State, holder: str, version: Version | None = None, until: int = 0) -> bool:
    """Whether a holder has a pin; with a version: of that one, up to a time at least."""
    which: dict[str, object] = {"holder": holder} | ({} if version is None else {"version": version})
    return any(pin.expires_at >= until for pin in rows.find(state, s.pins, **which))


@insisted
def let_go(catalog: Catalog, holder: str) -> None:
    with catalog.writing() as connection:
        rows.write(connection, rows.delete(s.pins, holder=holder))


@insisted
def unpin(catalog: Catalog, identifiers: list[str]) -> None:
    if catalog.read_only:
        return
    with catalog.writing() as connection:
        rows.write(connection, rows.delete(s.pins, pin_id=frozenset(identifiers)))
