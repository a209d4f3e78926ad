"""The history of commits over HTTP: in pages, and searched by the catalog, which reads no more than it has to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from ebla.catalog import access, reads
from ebla.catalog import history as commits
from ebla.errors import UnknownNameError
from ebla.model.access import Right
from ebla.model.relation import Kind
from ebla.server import formats
from ebla.server.dependencies import Accept, CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, ROWS, answered
from ebla.server.statement_rights import Need
from ebla.values import types

router = APIRouter(prefix="/v1", tags=["status"])

COMMITS = {"version": "bigint", "kind": "string", "reason": "string", "committed_at": "timestamp", "node_id": "string"}
EPOCHS = {
    "version": "bigint",
    "reason": "string",
    "committed_at": "timestamp",
    "started_at": "timestamp",
    "ended_at": "timestamp",
    "snapshot_version": "bigint",
}
WRITES = {"version": "bigint", "committed_at": "timestamp"}

EXAMPLE = {
    "epochs": {"columns": [{"name": "version", "type": "bigint"}], "rows": [[41]]},
    "writes": {"columns": [{"name": "version", "type": "bigint"}], "rows": [[40]]},
}

EPOCHS_MAX = 200
WRITES_MAX = 1000
INTEGER_MAX = 2**63 - 1

Before = Annotated[int | None, Query(ge=0, le=INTEGER_MAX, description="Only commits before this version.")]
Words = Annotated[str, Query(max_length=200, description="What reasons hold, in any case. `%` and `_` are themselves.")]
Builds = Annotated[bool, Query(description="Only commits that tell how builds went.")]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.get("/history", responses={**PROBLEMS, **ROWS})
async def history(
    pool: PoolDep,
    caller: CallerDep,
    words: Words = "",
    before: Before = None,
    builds: Builds = False,
    limit: Limit = 100,
    accept: Accept = None,
) -> Response:
    """Commits with their reasons, the newest first, but not those of relations that the user may not read.

    `next`, if there are more, is `before` of the next page.
    """

    def work() -> Response:
        with pool.database.context.catalog.reading() as connection:
            found = commits.newest(
                connection,
                limit + 1,
                before=before,
                words=words.replace("\0", ""),
                of_builds=builds,
                hidden=access.hidden(connection, caller.user),
            )
        more = {"next": str(found[limit - 1].version)} if len(found) > limit else {}
        return formats.answer(types.table_of(COMMITS, _rows(found[:limit])), more, accept)

    return await pool.query(caller, work)


@router.get("/views/{view}/epochs", responses={**PROBLEMS, **answered(EXAMPLE)})
async def epochs(view: str, pool: PoolDep, caller: CallerDep) -> dict[str, Any]:
    """The last epochs of a view (`epochs`), and the last commits that wrote rows of its inputs (`writes`)."""

    def work() -> dict[str, Any]:
        pool.access.require(caller.user, (Need(Right.SELECT, view),))
        with pool.database.context.catalog.reading() as connection:
            found = reads.relation(connection, view)
            if found.kind is not Kind.VIEW:
                raise UnknownNameError(f"{view}: expected a view, found a {found.kind.value}")
            done = commits.epochs(connection, found.id, EPOCHS_MAX)
            writes = commits.writes_of_inputs(connection, found.id, WRITES_MAX)
        return {"epochs": _document(EPOCHS, done), "writes": _document(WRITES, writes)}

    return await pool.query(caller, work)


def _document(columns: dict[str, str], found: Iterable[Any]) -> dict[str, Any]:
    table = types.table_of(columns, _rows(found))
    return {"columns": formats.columns(table.schema), "rows": formats.rows(table)}


def _rows(found: Iterable[Any]) -> list[dict[str, Any]]:
    """Times of the catalog are microseconds, which is what a timestamp of Arrow is made of."""
    return [dict(row._mapping) for row in found]
