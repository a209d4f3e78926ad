"""The status of a warehouse as one JSON object."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ebla.relations.derived_status import IndexStatus, ViewStatus
from ebla.relations.status import Status, TableStatus


def as_json(status: Status) -> dict[str, Any]:
    trouble = ("kind", "work", "final", "code", "message", "attempts", "first_at", "last_at", "retry_at")
    view = ("handler", "status", "applied_version", "behind", "age_s", "waits_for", "error")
    epoch = ("last_plan", "last_epoch_s", "horizon")
    return {
        **_json(status, "catalog", "version", "committed_at", "reason"),
        "needs": [_json(n, "subject", "reason", "hint") for n in status.needs],
        "nodes": [
            {**_json(node, "state", "datacenter", "rack", "shards", node="name", host_id="id"), "root": root}
            for node, root in status.nodes
        ],
        "processes": [
            _json(p, "holder", "node", "host", "pid", "role", "maintains", "doing", "started_at", "seen_at")
            for p in status.processes
        ],
        "tables": [
            {**_json(t, "tablets", "replication", "written_version", "written_at", "horizon", table="name"), **_size(t)}
            for t in status.tables
        ],
        "views": [{**_json(v, *view, *epoch, view="name"), **_size(v)} for v in status.views],
        "indexes": [
            {**_json(i, "relation", "unique", "state", "percent", "waits_for", "error", index="name"), **_size(i)}
            for i in status.indexes
        ],
        "builds": [one.row() for one in status.builds],
        "handlers": [_json(h, "should_run", "views", "age_s", "runs_in", handler="name") for h in status.handlers],
        "troubles": [
            {**_json(t, *trouble, relation="name"), "culprit": None if t.culprit is None else str(t.culprit)}
            for t in status.troubles
        ],
        "transactions": [
            _json(t, "reason", "holder", "snapshot_version", "started_at", "expires_at", transaction="transaction_id")
            | {"table": status.names.get(t.relation_id)}
            for t in status.transactions
        ],
        "pins": [_json(p, "version", "holder", "reason", "expires_at") for p in status.pins],
    }


def _json(one: object, *attributes: str, **renamed: str) -> dict[str, Any]:
    """Attributes of a value, the keywords' under another name. Times are written as ISO 8601."""
    found = {name: getattr(one, attribute) for name, attribute in (*renamed.items(), *((a, a) for a in attributes))}
    return {name: _iso(value) if name.endswith("_at") else value for name, value in found.items()}


def _size(one: TableStatus | ViewStatus | IndexStatus) -> dict[str, Any]:
    return _json(one.size, "rows", "level0_runs", "level1_runs", "bytes", "old_bytes", rows_exact="exact")


def _iso(time_us: int | None) -> str | None:
    return None if time_us is None else moment(time_us).isoformat()


def moment(time_us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=time_us)
