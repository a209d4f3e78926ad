"""Tables over HTTP: what there is, and rows that are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, ConfigDict, Field

from ebla.catalog import audit, reads
from ebla.errors import TypeMismatchError, UsageError
from ebla.model.access import Right
from ebla.model.relation import Kind, Relation
from ebla.server import execution, formats
from ebla.server.access import require_below
from ebla.server.dependencies import CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS
from ebla.server.request_pool import Caller, RequestPool
from ebla.server.statement_rights import Need
from ebla.tables.writes import WriteResult
from ebla.values import jsons, tagged_json, texts, types

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


ROWS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["rows"],
                    "properties": {"rows": {"type": "array", "items": {"type": "object"}}},
                },
                "example": {"rows": [{"id": 5, "total": "10.50", "day": "2026-11-18"}]},
            },
            formats.ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}

ContentType = Annotated[str, Header()]


@router.get("", responses=PROBLEMS)
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
        rows = _rows(pool, table, body, content_type, only_key=False)
        return pool.database.table(table).upsert(rows)

    return await _write(request, pool, caller, table, f"upsert into {table}", work)


@router.delete("/{table}/rows", responses=PROBLEMS, openapi_extra=ROWS_BODY)
async def delete(
    request: Request, table: str, pool: PoolDep, caller: CallerDep, content_type: ContentType = formats.JSON
) -> WriteAnswer:
    """Delete the rows that have these keys; keys that are not there are no error."""
    body = await request.body()

    def work() -> WriteResult:
        rows = _rows(pool, table, body, content_type, only_key=True)
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


# ---- rows of a body -------------------------------------------------------------------------------------


def _rows(pool: RequestPool, name: str, body: bytes, content_type: str, *, only_key: bool) -> object:
    """The rows of a body: an Arrow stream, JSON, or JSON with the values of Python (`…; values=tagged`)."""
    if content_type.startswith(formats.ARROW):
        return formats.read_arrow(body)
    if "values=tagged" in content_type:
        return tagged_json.decode(_document(json.loads, body))
    found = _document(lambda text: jsons.read(text, jsons.Leniency(allow_single_quotes=False)), body)
    catalog = pool.database.context.catalog
    relation = catalog.read(lambda connection: reads.relation(connection, name))
    if relation.kind is not Kind.TABLE:
        raise UsageError(f"{name}: expected a table, found a {relation.kind.value}, which is not written to")
    return _stored(relation, found, only_key=only_key)


def _document(read: Any, body: bytes) -> list[Any]:
    try:
        found = read(body.decode())
    except jsons.Unreadable as error:
        raise UsageError(f"the body: expected JSON, found: {error} at character {error.at}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body: expected JSON in UTF-8, found: {error}") from error
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError('the body: expected {"rows": [{"column": value, …}, …]}, found something else')
    return rows


def _stored(relation: Relation, rows: Sequence[dict[str, Any]], *, only_key: bool) -> pa.Table | list[Any]:
    """Rows of JSON as a table: texts are dates, times and decimals where the column is."""
    if not rows:
        return []
    names = list(rows[0])
    for number, row in enumerate(rows):
        if list(row) != names and set(row) != set(names):
            raise TypeMismatchError(
                f"{relation.name}: expected the columns of the first row in every row, found others in row {number}: "
                f"{', '.join(row) or 'none'}"
            )
    columns = relation.key if only_key else relation.visible
    declared = {column.name.lower(): column.name for column in columns}
    unknown = [name for name in names if name.lower() not in declared]
    if unknown and not only_key:
        raise TypeMismatchError(
            f"{relation.name}: expected columns {', '.join(declared.values())}, found column {unknown[0]}"
        )
    given = {declared[name.lower()]: [row[name] for row in rows] for name in names if name.lower() in declared}
    return types.gather(
        given,
        len(rows),
        [column for column in columns if column.name in given],
        store=lambda values, tree: jsons.store(values, tree, texts.FILES),
        relation=relation.name,
        show=jsons.text_of,
    )
