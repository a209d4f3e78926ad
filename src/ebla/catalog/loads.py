"""How far staged loads are: each has a row beside the builds until all of it is visible."""

from __future__ import annotations

from sqlalchemy import Connection, and_, func, select

from ebla.catalog import schema as s
from ebla.model.relation import FOREVER, RunState

PHASE = "staged"


def rows(connection: Connection) -> list[dict[str, object]]:
    """One for each load that has invisible rows, oldest first. Columns that only builds have are left out: NULL.

    Every run of a load is one tablet's, and becomes visible by itself or with others of its shard.
    """
    runs = s.runs
    waits = and_(runs.c.state == RunState.STAGING.value, runs.c.end_version == FOREVER)
    loads = select(runs.c.relation_id, runs.c.transaction_id).where(waits).distinct().subquery()
    of_load = and_(runs.c.relation_id == loads.c.relation_id, runs.c.transaction_id == loads.c.transaction_id)
    # Copies on several nodes are one run.
    parts = select(
        runs.c.relation_id,
        runs.c.transaction_id,
        runs.c.run_id,
        func.max(runs.c.row_count).label("row_count"),
        func.max(runs.c.state).label("state"),
    ).join(loads, of_load)
    parts = parts.group_by(runs.c.relation_id, runs.c.transaction_id, runs.c.run_id)
    names = {r.relation_id: r.name for r in connection.execute(select(s.relations.c.relation_id, s.relations.c.name))}
    found: dict[tuple[int, int], list[tuple[int, bool]]] = {}
    for part in connection.execute(parts):
        visible = part.state != RunState.STAGING.value
        found.setdefault((part.transaction_id, part.relation_id), []).append((part.row_count, visible))
    return [_row(names[relation], number, found[number, relation]) for number, relation in sorted(found)]


def _row(table: str, transaction: int, runs: list[tuple[int, bool]]) -> dict[str, object]:
    every, visible = sum(rows for rows, _ in runs), sum(rows for rows, is_visible in runs if is_visible)
    return {
        "name": f"load {transaction}",
        "base": table,
        "phase": PHASE,
        "percent": 100.0 * visible / every,
        "rows": visible,
        "rows_expected": every,
        "tablets": f"{sum(is_visible for _, is_visible in runs)}/{len(runs)}",
        "detail": "becomes visible tablet by tablet, behind the chunks that builds are at",
    }
