"""Transactions, sessions, leases and positions, as commits check and end them."""

from __future__ import annotations

from typing import assert_never

from sqlalchemy import Connection, and_, func, insert, select, update

from ebla.base.ids import TransactionId, Version
from ebla.catalog import schema as s
from ebla.errors import ConflictError, StaleTermError, TransactionClosedError
from ebla.model import changes as c

# ---- requirements ---------------------------------------------------------------------------------------


def check(connection: Connection, requirement: c.SessionRequirement, now: int) -> None:
    match requirement:
        case c.TransactionOpen(transaction=transaction):
            _check_transaction(connection, transaction, now)
        case c.SessionOpen(session=session):
            row = connection.execute(
                select(s.sessions.c.closed_version).where(s.sessions.c.session_id == session)
            ).one_or_none()
            if row is None or row.closed_version is not None:
                raise TransactionClosedError(f"session {session}: expected open, found closed")
        case c.ProgressIs(name=name, value=expected):
            value = connection.execute(select(s.progress.c.value).where(s.progress.c.name == name)).scalar()
            if value != expected:
                raise ConflictError(f"progress of {name}: expected {expected!r}, found {value!r}")
        case c.TermIs():
            _check_term(connection, requirement, now)
        case c.NobodyReadsBelow(version=version):
            needed = oldest_needed(connection, now)
            if needed is not None and needed < version:
                raise ConflictError(f"expected no reader below version {version}, found one at {needed}")
        case _:
            assert_never(requirement)


def _check_transaction(connection: Connection, transaction: int, now: int) -> None:
    row = connection.execute(
        select(s.transactions.c.state, s.transactions.c.expires_at).where(
            s.transactions.c.transaction_id == transaction
        )
    ).one_or_none()
    state = "unknown" if row is None else row.state
    if row is not None and state == "open" and row.expires_at <= now:
        state = "expired"
    if state != "open":
        raise TransactionClosedError(
            f"transaction {transaction}: expected open, found {state}; nothing of it was written: retry it"
        )


def _check_term(connection: Connection, wanted: c.TermIs, now: int) -> None:
    row = connection.execute(select(s.leases).where(s.leases.c.name == wanted.lease)).one_or_none()
    held = row is not None and row.holder == wanted.holder and row.term == wanted.term and row.expires_at > now
    if not held:
        found = "no leader" if row is None else f"term {row.term} of {row.holder}"
        if row is not None and row.expires_at <= now:
            found += ", which has run out"
        raise StaleTermError(f"{wanted.lease}: expected term {wanted.term} of {wanted.holder}, found {found}")


def oldest_needed(connection: Connection, now: int) -> Version | None:
    """The oldest version that a living pin or an open transaction may still read."""
    pinned = connection.execute(select(func.min(s.pins.c.version)).where(s.pins.c.expires_at > now)).scalar()
    reading = connection.execute(
        select(func.min(s.transactions.c.snapshot_version)).where(
            s.transactions.c.state == "open", s.transactions.c.expires_at > now
        )
    ).scalar()
    needed = [Version(v) for v in (pinned, reading) if v is not None]
    return min(needed, default=None)


# ---- updates --------------------------------------------------------------------------------------------


def apply(connection: Connection, change: c.SessionUpdate, version: Version, now: int) -> None:
    match change:
        case c.EndTransaction(transaction=transaction):
            _end_transaction(connection, transaction, version, now)
        case c.OpenSession(session=session, purpose=purpose):
            connection.execute(
                insert(s.sessions), {"session_id": session, "purpose": purpose, "opened_version": version}
            )
        case c.CloseSession(session=session):
            connection.execute(
                update(s.sessions)
                .where(s.sessions.c.session_id == session, s.sessions.c.closed_version.is_(None))
                .values(closed_version=version)
            )
        case c.SetProgress(name=name, value=value):
            row = {"value": value, "version": version}
            if not connection.execute(update(s.progress).where(s.progress.c.name == name).values(row)).rowcount:
                connection.execute(insert(s.progress), {"name": name, **row})
        case _:
            assert_never(change)


def _end_transaction(connection: Connection, transaction: TransactionId, version: Version, now: int) -> None:
    """An open transaction is committed; any other is refused, as by `TransactionOpen`."""
    mine = s.transactions.c.transaction_id == transaction
    still_open = and_(mine, s.transactions.c.state == "open", s.transactions.c.expires_at > now)
    values = {"state": "committed", "ended_at": now, "committed_version": version}
    if not connection.execute(update(s.transactions).where(still_open).values(values)).rowcount:
        _check_transaction(connection, transaction, now)
