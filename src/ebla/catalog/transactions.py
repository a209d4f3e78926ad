"""Open transactions, leases and pins: who is at work, and what must not be swept from under them.

A transaction is a row with a lease. Its files carry its number in their names, so a file whose transaction is neither
open nor named by the manifest belongs to nobody and may be swept. A lease that runs out is as good as an abort: the
commit checks it.

All that is written here may be written twice, so it is repeated where the database's answer was lost. Of a transaction
that was begun twice one is never used, and ends with its lease.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, delete, exists, func, insert, or_, select, update

from ebla.base.ids import NodeId, RelationId, Term, TransactionId, Version
from ebla.catalog import memory, reads
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog, insisted
from ebla.errors import TransactionClosedError
from ebla.model.relation import Relation

Found = TypeVar("Found")

EPOCH = "epoch of "
"""What the reason of a transaction begins with in which an epoch of a view runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    id: TransactionId
    relation: RelationId | None
    snapshot: Version
    schema_version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    name: str
    holder: str
    term: Term
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A transaction that stands in someone's way."""

    transaction: TransactionId
    holder: str
    reason: str
    started_at: int


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
) -> Transaction:
    """Open a transaction on a relation, or on none."""
    number, schema_version = (None, 0) if target is None else (target.id, target.schema_version)
    with catalog.writing() as connection:
        return _begin(
            connection, catalog, number, schema_version, node=node, holder=holder, reason=reason, lease_us=lease_us,
            session=session,
        )  # fmt: skip


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
) -> tuple[Relation, Transaction, Found]:
    """Open a transaction on the relation of a name. The relation, and what `look` reads, are of its snapshot."""
    with catalog.writing() as connection:
        number = TransactionId(memory.advance(connection, "transaction"))
        relation = reads.relation(connection, name)
        transaction = _open(
            connection, catalog, number, relation.id, relation.schema_version, node=node, holder=holder,
            reason=reason, lease_us=lease_us, session=None,
        )  # fmt: skip
        return relation, transaction, look(connection, relation)


def begin_new(catalog: Catalog, *, node: NodeId, holder: str, reason: str, lease_us: int) -> Transaction:
    """Open a transaction on a relation that its commit shall create; its number is taken now.

    So files can be written before there is a relation. Where no commit comes, the number is never used, and a sweep
    takes the files.
    """
    with catalog.writing() as connection:
        number = RelationId(memory.advance(connection, "relation"))
        return _begin(connection, catalog, number, 1, node=node, holder=holder, reason=reason, lease_us=lease_us)


def _begin(
    connection: Connection,
    catalog: Catalog,
    target: RelationId | None,
    schema_version: int,
    *,
    node: NodeId,
    holder: str,
    reason: str,
    lease_us: int,
    session: str | None = None,
) -> Transaction:
    number = TransactionId(memory.advance(connection, "transaction"))
    return _open(
        connection, catalog, number, target, schema_version, node=node, holder=holder, reason=reason,
        lease_us=lease_us, session=session,
    )  # fmt: skip


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
    session: str | None,
) -> Transaction:
    snapshot = Version(memory.counters(connection)["version"])
    now = catalog.clock()
    connection.execute(
        insert(s.transactions),
        {
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
        },
    )
    return Transaction(
        id=number,
        relation=target,
        snapshot=snapshot,
        schema_version=schema_version,
        reason=reason,
    )


@insisted
def renew(catalog: Catalog, transaction: TransactionId, lease_us: int) -> None:
    """Prolong an open transaction's lease. One that has run out cannot be revived: its files may be gone."""
    with catalog.writing() as connection:
        now = catalog.clock()
        renewed = connection.execute(
            update(s.transactions)
            .where(
                s.transactions.c.transaction_id == transaction,
                s.transactions.c.state == "open",
                s.transactions.c.expires_at > now,
            )
            .values(expires_at=now + lease_us)
        )
        if renewed.rowcount != 1:
            raise TransactionClosedError(f"transaction {transaction}: expected open, found closed; retry it")


@insisted
def abort(catalog: Catalog, transaction: TransactionId) -> bool:
    with catalog.writing() as connection:
        return _abort(connection, s.transactions.c.transaction_id == transaction, catalog.clock()) == 1


@insisted
def reap(catalog: Catalog) -> int:
    """Abort transactions whose lease ran out: their writer is dead or too slow to be trusted. Expired pins go too."""
    with catalog.reading() as connection:
        now = catalog.clock()
        late = exists().where(s.transactions.c.state == "open", s.transactions.c.expires_at <= now)
        if not connection.execute(select(or_(late, exists().where(s.pins.c.expires_at <= now)))).scalar():
            return 0
    with catalog.writing() as connection:
        now = catalog.clock()
        connection.execute(delete(s.pins).where(s.pins.c.expires_at <= now))
        return _abort(connection, s.transactions.c.expires_at <= now, now)


def _abort(connection: Connection, which: object, now: int) -> int:
    result = connection.execute(
        update(s.transactions)
        .where(s.transactions.c.state == "open", which)  # type: ignore[arg-type]
        .values(state="aborted", ended_at=now)
    )
    return int(result.rowcount)


def open_transactions(connection: Connection) -> set[TransactionId]:
    query = select(s.transactions.c.transaction_id).where(s.transactions.c.state == "open")
    return {TransactionId(t) for t in connection.execute(query).scalars()}


def open_rows(connection: Connection) -> Sequence[Row[Any]]:
    """The open transactions, oldest first."""
    opened = select(s.transactions).where(s.transactions.c.state == "open")
    return connection.execute(opened.order_by(s.transactions.c.transaction_id)).all()


def committed_transactions(connection: Connection) -> set[TransactionId]:
    committed = select(s.transactions.c.transaction_id).where(s.transactions.c.state == "committed")
    return set(connection.execute(committed).scalars())


def planned_before(connection: Connection, relation: RelationId, schema_version: int) -> list[Waiting]:
    """Open transactions that were planned with a schema older than the given one."""
    rows = connection.execute(
        select(s.transactions).where(
            s.transactions.c.state == "open",
            s.transactions.c.relation_id == relation,
            s.transactions.c.schema_version < schema_version,
        )
    )
    return [_waiting(row) for row in rows]


def begun_before(connection: Connection, relation: RelationId, version: Version) -> list[Waiting]:
    """Open transactions of a relation that began before a version was committed."""
    rows = connection.execute(
        select(s.transactions).where(
            s.transactions.c.state == "open",
            s.transactions.c.relation_id == relation,
            s.transactions.c.snapshot_version < version,
        )
    )
    return [_waiting(row) for row in rows]


def epochs_elsewhere(connection: Connection, relations: Collection[RelationId], holder: str, now: int) -> set[str]:
    """The other processes that run epochs of some views."""
    found = connection.execute(
        select(s.transactions.c.holder).where(
            s.transactions.c.state == "open",
            s.transactions.c.expires_at > now,
            s.transactions.c.relation_id.in_(list(relations)),
            s.transactions.c.reason.like(f"{EPOCH}%"),
            s.transactions.c.holder != holder,
        )
    )
    return set(found.scalars())


def _waiting(row: Row[Any]) -> Waiting:
    return Waiting(
        transaction=TransactionId(row.transaction_id),
        holder=row.holder,
        reason=row.reason,
        started_at=row.started_at,
    )


@insisted
def forget_ended(catalog: Catalog, before_us: int) -> int:
    """Drop the rows of transactions that ended long ago."""
    with catalog.writing() as connection:
        result = connection.execute(
            delete(s.transactions).where(s.transactions.c.state != "open", s.transactions.c.ended_at < before_us)
        )
        return int(result.rowcount)


# ---- leadership -----------------------------------------------------------------------------------------


@insisted
def lead(
    catalog: Catalog,
    name: str,
    holder: str,
    lease_us: int,
    *,
    is_gone: Callable[[str], bool] = lambda holder: False,
) -> Lease | None:
    """Take or prolong the lease; `None` while another holder has it. The term grows with every change of leader.

    `is_gone` tells of a holder whose lease has not run out that it will not come back. Looks before it takes the write
    lock: those who are not the leader ask again and again.
    """

    def found(connection: Connection) -> Row[Any] | None:
        return connection.execute(select(s.leases).where(s.leases.c.name == name)).one_or_none()

    def is_taken(row: Row[Any] | None, now: int) -> bool:
        return row is not None and row.holder != holder and row.expires_at > now

    with catalog.reading() as connection:
        seen = found(connection)
    gone = seen is not None and seen.holder != holder and is_gone(seen.holder)
    if not gone and is_taken(seen, catalog.clock()):
        return None
    with catalog.writing() as connection:
        now = catalog.clock()
        row = found(connection)
        if is_taken(row, now) and not (gone and seen is not None and row is not None and row.term == seen.term):
            return None
        same = row is not None and row.holder == holder and row.expires_at > now
        term = Term(1 if row is None else row.term if same else row.term + 1)
        values = {"holder": holder, "term": term, "expires_at": now + lease_us}
        if row is None:
            connection.execute(insert(s.leases), {"name": name, **values})
        else:
            connection.execute(update(s.leases).where(s.leases.c.name == name).values(**values))
    return Lease(name=name, holder=holder, term=term, expires_at=now + lease_us)


def leader(connection: Connection, name: str, now: int) -> str | None:
    """Who holds a lease that has not run out."""
    return connection.execute(
        select(s.leases.c.holder).where(s.leases.c.name == name, s.leases.c.expires_at > now)
    ).scalar()


def leaders(connection: Connection, prefix: str, now: int) -> dict[str, str]:
    """Who holds each of the leases whose names begin so, by the rest of the name."""
    leases = select(s.leases).where(s.leases.c.expires_at > now, s.leases.c.name.like(f"{prefix}%"))
    return {row.name.removeprefix(prefix): row.holder for row in connection.execute(leases)}


@insisted
def resign(catalog: Catalog, lease: Lease) -> None:
    with catalog.writing() as connection:
        connection.execute(
            update(s.leases)
            .where(s.leases.c.name == lease.name, s.leases.c.holder == lease.holder, s.leases.c.term == lease.term)
            .values(expires_at=0)
        )


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
        connection.execute(delete(s.pins).where(s.pins.c.pin_id == identifier))
        connection.execute(
            insert(s.pins),
            {
                "pin_id": identifier,
                "version": at,
                "holder": holder,
                "reason": reason,
                "expires_at": catalog.clock() + lease_us,
            },
        )
    return at


@insisted
def hold(catalog: Catalog, version: Version, *, holder: str, reason: str, lease_us: int) -> None:
    """Keep a version readable in the name of a piece of work, whoever does it, and no other version."""
    with catalog.writing() as connection:
        now = catalog.clock()
        connection.execute(delete(s.pins).where(s.pins.c.holder == holder))
        connection.execute(
            insert(s.pins),
            {
                "pin_id": str(uuid.uuid4()),
                "version": version,
                "holder": holder,
                "reason": reason,
                "expires_at": now + lease_us,
            },
        )


def pins(connection: Connection, now: int) -> Sequence[Row[Any]]:
    """The pins that have not run out, by version."""
    held = select(s.pins).where(s.pins.c.expires_at > now).order_by(s.pins.c.version, s.pins.c.pin_id)
    return connection.execute(held).all()


def holds(connection: Connection, holder: str, version: Version | None = None, until: int = 0) -> bool:
    """Whether a holder has a pin; with a version: of that one, up to a time at least."""
    held = select(func.count()).where(s.pins.c.holder == holder, s.pins.c.expires_at >= until)
    if version is not None:
        held = held.where(s.pins.c.version == version)
    return bool(connection.execute(held).scalar_one())


@insisted
def let_go(catalog: Catalog, holder: str) -> None:
    with catalog.writing() as connection:
        connection.execute(delete(s.pins).where(s.pins.c.holder == holder))


@insisted
def unpin(catalog: Catalog, identifiers: list[str]) -> None:
    if catalog.read_only:
        return
    with catalog.writing() as connection:
        connection.execute(delete(s.pins).where(s.pins.c.pin_id.in_(identifiers)))
