"""The audit log: which user's request made a commit. It also settles requests that a client sends again.

A row is written in the commit that it tells of, so there is no commit of a user without one. The first commit of a
request's statement carries the statement's id. A request that is repeated finds the id, before it does anything or at
last under the commit lock, and is not done twice, whichever nodes were asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from ebla.base.ids import RelationId, Version
from ebla.base.user_requests import UserRequest
from ebla.catalog import rows, schema
from ebla.catalog import schema_access as s
from ebla.catalog.rows import State
from ebla.errors import ConflictError

TEXT_CHARS_MAX = 1000


class AlreadyCommitted(ConflictError):
    """The request has committed before: it was repeated while its first try was still running."""

    retryable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a request's statement has committed."""

    version: Version
    relation: RelationId | None
    rows: int | None


def record(
    state: State, asked: UserRequest, version: Version, at: int, relation: RelationId | None, reason: str
) -> None:
    """Write the row of a commit; raise if the request was cancelled, or another try of the statement has committed."""
    asked.require_wanted()
    if not asked.committed and done(state, asked) is not None:
        raise AlreadyCommitted(f"request {asked.id}: expected its first commit, found that it was done before")
    row = {
        "version": version,
        "committed_at": at,
        "user_name": asked.user,
        "request_id": None if asked.committed else asked.id,
        "relation_id": relation,
        "action": reason,
        "statement": asked.text[:TEXT_CHARS_MAX],
    }
    rows.write(state, rows.insert(s.audit, [row]))


def done(state: State, asked: UserRequest) -> Outcome | None:
    """What the statement has committed, in this try or another, here or on another node."""
    found = rows.one(state, s.audit, request_id=asked.id, user_name=asked.user)
    if found is None:
        return None
    relation = None if found.relation_id is None else RelationId(found.relation_id)
    return Outcome(version=Version(found.version), relation=relation, rows=_rows(state, relation, found.version))


def _rows(state: State, relation: RelationId | None, version: int) -> int | None:
    """The rows that a commit wrote, as far as the manifest still has its runs."""
    if relation is None:
        return None
    runs = rows.find(state, schema.runs, relation_id=relation, begin_version=version, level=0)
    return sum({run.run_id: run.row_count for run in runs}.values()) if runs else None


def forget(state: State, before: int) -> int:
    """Remove what was committed before a time, in microseconds; returns how much."""
    return rows.write(state, rows.delete(s.audit, committed_at=rows.AtMost(before)))
