"""Tables over HTTP: what there is, and rows that are written."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, ConfigDict, Field

from ebla.catalog import audit, reads
from ebla.model.access import Right
from ebla.server import execution, formats, rows_body
from ebla.server.access import require_below
from ebla.server.dependencies import CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS, answered
from ebla.server.request_pool import Caller, RequestPool
from ebla.server.rows_body import ROWS_BODY
from ebla.server.statement_rights import Need
from ebla.tables.writes import WriteResult

router = APIRouter(prefix="/v1/tables", tags=["tables"])


class TableColumn(BaseModel):
    name: str
    type: str
    nullable: bool
    key: bool


class TableInfo(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "orders", "kind": "table", "version": 41}]})

    name: str
    kind: str
    columns: list[TableColumn]
    version: int = Field(description="The version of the last write.")


class WriteAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 41, "rows": 1000, "staged": 0}]})

    version: int | None = Field(description="The commit that made the rows visible; null if there were none.")
    rows: int | None
    staged: int = 0


class LoadBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"path": "/data/in/orders/*.parquet"}]})

    path: str = Field(description="A file, a directory or a glob on the node, below one of its `load_from`.")
    format: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    wait: bool = True


ContentType = Annotated[str, Header()]


@router.get("", responses={**PROBLEMS, **answered(["customers", "orders"])})
async def tables(pool: PoolDep, caller: CallerDep) -> list[str]:
    """The names of all tables."""
    return await pool.query(caller, pool.database.tables)


@router.get("/{table}", responses=PROBLEMS)
async def table(table: str, pool: PoolDep, caller: CallerDep) -> TableInfo:
    """The columns of a table or view."""

    def work() -> TableInfo:
        pool.access.require(caller.user, (Need(Right.SELECT, table),))
        catalog = pool.database.context.catalog
        found, version = catalog.read(lambda at: (one := reads.relation(at, table), reads.newest_write(at, one.id)))
        keys = {column.name for column in found.key}
        columns = [
            TableColumn(name=one.name, type=one.type, nullable=one.nullable, key=one.name in keys)
            for one in found.visible
        ]
        return TableInfo(name=found.name, kind=found.kind.value, columns=columns, version=int(version))

    return await pool.query(caller, work)


@router.post("/{table}/rows", responses=PROBLEMS, openapi_extra=ROWS_BODY)
async def upsert(
    request: Request, table: str, pool: PoolDep, caller: CallerDep, content_type: ContentType = formats.JSON
) -> WriteAnswer:
    """Write rows; one whose key is there already replaces it. All become visible at one version."""
    body = await request.body()

    def work() -> WriteResult:
        rows = rows_body.rows(pool.database.context.catalog, table, body, content_type, only_key=False)
        return pool.database.table(table).upsert(rows)

    return await _write(request, pool, caller, table, f"upsert into {table}", work)


@router.delete("/{table}/rows", responses=PROBLEMS, openapi_extra=ROWS_BODY)
async def delete(
    request: Request, table: str, pool: PoolDep, caller: CallerDep, content_type: ContentType = formats.JSON
) -> WriteAnswer:
    """Delete the rows that have these keys; keys that are not there are no error."""
    body = await request.body()

    def work() -> WriteResult:
        rows = rows_body.rows(pool.database.context.catalog, table, body, content_type, only_key=True)
        return pool.database.table(table).delete(rows)

    return await _write(request, pool, caller, table, f"delete from {table}", work)


@router.post("/{table}/load", responses=PROBLEMS)
async def load(request: Request, table: str, body: LoadBody, pool: PoolDep, caller: CallerDep) -> WriteAnswer:
    """Upsert the rows of files that lie on the node."""

    def work() -> WriteResult:
        require_below(body.path, pool.options.load_from)
        target = pool.database.table(table)
        return target.load(body.path, format=body.format, options=body.options, wait=body.wait)

    return await _write(request, pool, caller, table, f"load into {table}", work)


async def _write(request: Request, pool: RequestPool, caller: Caller, table: str, text: str, work: Any) -> WriteAnswer:
    def made() -> WriteAnswer:
        written: WriteResult = work()
        version = None if written.version is None else int(written.version)
        return WriteAnswer(version=version, rows=written.rows, staged=written.staged)

    def repeated(done: audit.Outcome) -> WriteAnswer:
        return WriteAnswer(version=int(done.version), rows=done.rows)

    def write() -> WriteAnswer:
        pool.access.require(caller.user, (Need(Right.WRITE, table),))
        return execution.run_once(pool, 0, text, made, repeated)

    return await pool.statement(request, caller, text, write)
