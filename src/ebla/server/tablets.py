"""`GET /v1/tablets`: on which node each tablet lies, small enough to be drawn while a person waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Response

from ebla.api.statements import tablets as statements
from ebla.catalog import tablet_hosts
from ebla.server import formats
from ebla.server.dependencies import CallerDep, PoolDep
from ebla.server.openapi import PROBLEMS
from ebla.sql.cluster_statements import ShowTransitions

router = APIRouter(prefix="/v1", tags=["status"])

EXAMPLE: dict[str, Any] = {
    "nodes": [{"host_id": "node-0f5d", "name": "n1", "state": "normal", "tablets": 2, "runs": 7, "bytes": 52000}],
    "relations": [{"name": "orders", "tablets": [[0], [0]]}],
    "transitions": {"columns": [], "rows": []},
}
PLACES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Nodes; of each table and view a list by tablet, with the positions of its nodes; transitions.",
        "content": {"application/json": {"schema": {"type": "object"}, "example": EXAMPLE}},
    }
}


@router.get("/tablets", responses={**PROBLEMS, **PLACES})
async def tablets(pool: PoolDep, caller: CallerDep) -> Response:
    """On which nodes the tablets of all tables and views lie, and which of them move."""

    def work() -> Response:
        with pool.database.context.catalog.reading() as connection:
            nodes = tablet_hosts.nodes(connection)
            hosts = tablet_hosts.hosts(connection)
            are_moving = tablet_hosts.are_moving(connection)
        moves: dict[str, Any] = {"columns": [], "rows": []}
        if are_moving:
            found = statements.run(pool.database, ShowTransitions()).to_arrow()
            moves = {"columns": formats.columns(found.schema), "rows": formats.rows(found)}
        document = {**_places(nodes, hosts), "transitions": moves}
        return Response(formats.json_bytes(document), media_type=formats.JSON)

    return await pool.query(caller, work)


def _places(nodes: Sequence[Any], hosts: Mapping[str, list[list[str]]]) -> dict[str, Any]:
    """A node is named once: a tablet has its position in the list of nodes, which is a short number."""
    position = {row.host_id: number for number, row in enumerate(nodes)}
    relations = [
        {"name": name, "tablets": [[position[host] for host in of_tablet if host in position] for of_tablet in tablets]}
        for name, tablets in hosts.items()
    ]
    held = Counter(host for tablets in hosts.values() for of_tablet in tablets for host in of_tablet)
    return {
        "nodes": [
            {
                "host_id": row.host_id,
                "name": row.name,
                "state": row.node_state,
                "tablets": held[row.host_id],
                "runs": row.runs or 0,
                "bytes": int(row.bytes or 0),
            }
            for row in nodes
        ],
        "relations": relations,
    }
