"""Transactions, sessions, leases and positions: the rules by which commits check and end them."""

from __future__ import annotations

from typing import assert_never

from ebla.base.ids import Version
from ebla.catalog import rows
from ebla.catalog import schema as s
from ebla.catalog.rows import Above, Change, State
from ebla.errors import ConflictError, StaleTermError, TransactionClosedError
from ebla.model import changes as c

# ---- requirements ---------------------------------------------------------------------------------------


def require_session(state: State, requirement: c.SessionRequirement, now: int) -> None:
    match requirement:
        case c.TransactionOpen(transaction=transaction):
            _check_transaction(state, transaction, now)
        case c.SessionOpen(session=session):
            row = rows.one(state, s.sessions, session_id=session)
            if row is None or row.closed_version is not None:
                raise TransactionClosedError(f"session {session}: expected open, found closed")
        case c.ProgressIs(name=name, value=expected):
            row = rows.one(state, s.progress, name=name)
            value = None if row is None else row.value
            if value != expected:
                raise ConflictError(f"progress of {name}: expected {expected!r}, found {value!r}")
        case c.TermIs():
            _check_term(state, requirement, now)
        case c.NoReaderBelow(version=version):
            needed = oldest_needed(state, now)
            if needed is not None and needed < version:
                raise ConflictError(f"expected no reader below version {version}, found one at {needed}")
        case _:
            assert_never(requirement)


def _check_transaction(state: State, transaction: int, now: int) -> None:
    row = rows.one(state, s.transactions, transaction_id=transaction)
    found = "unknown" if row is None else row.state
    if row is not None and found == "open" and row.expires_at <= now:
        found = "expired"
    if found != "open":
        raise TransactionClosedError(
            f"transaction {transaction}: expected open, found {found}; nothing of it was written: retry it"
        )


def _check_term(state: State, wanted: c.TermIs, now: int) -> None:
    row = rows.one(state, s.leases, name=wanted.lease)
    held = row is not None and row.holder == wanted.holder and row.term == wanted.term and row.expires_at > now
    if not held:
        found = "no leader" if row is None else f"term {row.term} of {row.holder}"
        if row is not None and row.expires_at <= now:
            found += ", which has run out"
        raise StaleTermError(f"{wanted.lease}: expected term {wanted.term} of {wanted.holder}, found {found}")


def oldest_needed(state: State, now: int) -> Version | None:
    """The oldest version that a living pin or an open transaction may still read."""
    pinned = rows.least(state, s.pins.c.version, expires_at=Above(now))
    reading = rows.least(state, s.transactions.c.snapshot_version, state="open", expires_at=Above(now))
    needed = [Version(v) for v in (pinned, reading) if v is not None]
    return min(needed, default=None)


# ---- updates --------------------------------------------------------------------------------------------


def changes(state: State, update: c.SessionUpdate, version: Version, now: int) -> tuple[Change, ...]:
    match update:
        case c.EndTransaction(transaction=transaction):
            still_open = {"transaction_id": transaction, "state": "open", "expires_at": Above(now)}
            ended = {"state": "committed", "ended_at": now, "committed_version": version}
            return (rows.update(s.transactions, ended, **still_open),)
        case c.OpenSession(session=session, purpose=purpose):
            row = {"session_id": session, "purpose": purpose, "opened_version": version}
            return (rows.insert(s.sessions, [row]),)
        case c.CloseSession(session=session):
            closed = {"closed_version": version}
            return (rows.update(s.sessions, closed, session_id=session, closed_version=None),)
        case c.SetProgress(name=name, value=value):
            return (rows.put(s.progress, name=name, value=value, version=version),)
        case _:
            assert_never(update)
