"""`GET /v1/names`: the tables, views and system tables with their columns, which an editor of SQL completes."""

from __future__ import annotations

from fastapi import APIRouter

from ebla.api import system
from ebla.catalog import relations
from ebla.server.dependencies import CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, answered

router = APIRouter(prefix="/v1", tags=["tables"])

EXAMPLE = {"orders": ["id", "customer", "total"], "system.history": ["version", "reason"]}


@router.get("/names", responses={**answered(EXAMPLE), **PROBLEMS})
async def names(pool: PoolDep, caller: CallerDep) -> dict[str, list[str]]:
    """The columns of every table and view, and of the system tables, by name."""

    def work() -> dict[str, list[str]]:
        with pool.database.context.catalog.reading() as connection:
            found = relations.column_names(connection)
        return found | {f"system.{name}": system.table_schema(name).names for name in system.names()}

    return await pool.query(caller, work)
