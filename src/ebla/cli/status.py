"""`ebla status`: what the catalog knows about the cluster, read in one transaction. No Spark, no file is opened."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from ebla.catalog import reads
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.cli import output
from ebla.storage.model import FOREVER, Kind, Node, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the manifest says of one relation's runs."""

    rows: int = 0
    """Rows of level 1, and level 0's upserts. A key that both have is counted twice."""
    level0_runs: int = 0
    level1_runs: int = 0
    bytes: int = 0
    """Of the newest version, all copies."""
    old_bytes: int = 0
    """Of what newer versions replaced and vacuum has not removed yet."""

    @property
    def exact(self) -> bool:
        """Whether no key is counted twice."""
        return self.level0_runs == 0 or (self.level0_runs == 1 and self.level1_runs == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    name: str
    kind: Kind
    tablets: int
    replication: int
    size: Size
    written_version: int | None
    written_at: int | None
    horizon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The cluster at one moment. Times are microseconds since 1970."""

    catalog: str
    now: int
    version: int
    committed_at: int | None
    reason: str | None
    nodes: Sequence[tuple[Node, str]]
    tables: Sequence[TableStatus]
    transactions: Sequence[Any]
    pins: Sequence[Any]
    names: dict[int, str]


# ---- reading --------------------------------------------------------------------------------------------


def read(url: str) -> Status:
    """Everything at once, from an existing catalog."""
    catalog = Catalog.open(url, create=False)
    try:
        with catalog.reading() as connection:
            return _read(connection, catalog)
    finally:
        catalog.close()


def _read(connection: Connection, catalog: Catalog) -> Status:
    now = catalog.clock()
    version = int(reads.current_version(connection))
    newest = connection.execute(select(s.history).where(s.history.c.version == version)).one_or_none()
    relations = connection.execute(
        select(s.relations).where(s.relations.c.dropped_version.is_(None)).order_by(s.relations.c.name)
    ).all()
    sizes, written = _sizes(connection), _last_writes(connection)
    times = reads.committed_at(connection, written.values())
    return Status(
        catalog=_place(catalog),
        now=now,
        version=version,
        committed_at=None if newest is None else newest.committed_at,
        reason=None if newest is None else newest.reason,
        nodes=[(node, catalog.located(node.root)) for node in reads.nodes(connection).values()],
        tables=[
            TableStatus(
                name=r.name,
                kind=Kind(r.kind),
                tablets=r.tablets,
                replication=r.replication,
                size=sizes.get(r.relation_id, Size()),
                written_version=written.get(r.relation_id),
                written_at=times.get(written.get(r.relation_id, -1)),
                horizon=r.horizon,
            )
            for r in relations
        ],
        transactions=connection.execute(
            select(s.transactions).where(s.transactions.c.state == "open").order_by(s.transactions.c.transaction_id)
        ).all(),
        pins=connection.execute(
            select(s.pins).where(s.pins.c.expires_at > now).order_by(s.pins.c.version, s.pins.c.pin_id)
        ).all(),
        names={r.relation_id: r.name for r in relations},
    )


def _sizes(connection: Connection) -> dict[int, Size]:
    """Sums over the manifest, by relation. A run has a row for each copy: copies count as bytes, not as rows."""
    runs = (
        select(
            s.runs.c.relation_id,
            s.runs.c.level,
            (s.runs.c.end_version == FOREVER).label("visible"),
            func.max(s.runs.c.row_count - s.runs.c.tombstones).label("row_count"),
            func.sum(s.runs.c.bytes).label("bytes"),
        )
        .where(s.runs.c.state == RunState.NORMAL.value)
        .group_by(s.runs.c.run_id, s.runs.c.relation_id, s.runs.c.level, s.runs.c.end_version)
        .subquery()
    )
    totals = connection.execute(
        select(
            runs.c.relation_id,
            runs.c.level,
            runs.c.visible,
            func.count().label("runs"),
            func.sum(runs.c.row_count).label("row_count"),
            func.sum(runs.c.bytes).label("bytes"),
        ).group_by(runs.c.relation_id, runs.c.level, runs.c.visible)
    )
    sums: dict[int, dict[str, int]] = {}
    for total in totals:
        found = sums.setdefault(total.relation_id, {})
        if not total.visible:
            found["old_bytes"] = found.get("old_bytes", 0) + int(total.bytes)
            continue
        found["rows"] = found.get("rows", 0) + int(total.row_count)
        found["bytes"] = found.get("bytes", 0) + int(total.bytes)
        found[f"level{total.level}_runs"] = int(total.runs)
    return {relation: Size(**found) for relation, found in sums.items()}


def _last_writes(connection: Connection) -> dict[int, int]:
    """The version of each relation's last write. From the history: vacuum may have forgotten the runs of a write."""
    found = connection.execute(
        select(s.history.c.relation_id, func.max(s.history.c.version))
        .where(
            s.history.c.kind == "data",
            s.history.c.relation_id.is_not(None),
            s.history.c.reason.not_like("compact %"),
        )
        .group_by(s.history.c.relation_id)
    )
    return {int(relation): int(version) for relation, version in found}


def _place(catalog: Catalog) -> str:
    """Where the catalog is, without its password."""
    url = catalog.engine.url
    if catalog.engine.dialect.name == "sqlite":
        return str(Path(str(url.database)).absolute())
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


# ---- JSON -----------------------------------------------------------------------------------------------


def as_json(status: Status) -> dict[str, Any]:
    return {
        "catalog": status.catalog,
        "version": status.version,
        "committed_at": _iso(status.committed_at),
        "reason": status.reason,
        "nodes": [
            {
                "node": node.id,
                "state": node.state,
                "datacenter": node.datacenter,
                "rack": node.rack,
                "shards": node.shards,
                "root": root,
            }
            for node, root in status.nodes
        ],
        "tables": [
            {
                "table": t.name,
                "kind": t.kind.value,
                "rows": t.size.rows,
                "rows_exact": t.size.exact,
                "tablets": t.tablets,
                "replication": t.replication,
                "level0_runs": t.size.level0_runs,
                "level1_runs": t.size.level1_runs,
                "bytes": t.size.bytes,
                "old_bytes": t.size.old_bytes,
                "written_version": t.written_version,
                "written_at": _iso(t.written_at),
                "horizon": t.horizon,
            }
            for t in status.tables
        ],
        "transactions": [
            {
                "transaction": t.transaction_id,
                "table": status.names.get(t.relation_id),
                "reason": t.reason,
                "holder": t.holder,
                "snapshot_version": t.snapshot_version,
                "started_at": _iso(t.started_at),
                "expires_at": _iso(t.expires_at),
            }
            for t in status.transactions
        ],
        "pins": [
            {"version": p.version, "holder": p.holder, "reason": p.reason, "expires_at": _iso(p.expires_at)}
            for p in status.pins
        ],
    }


def _iso(time_us: int | None) -> str | None:
    return None if time_us is None else _time(time_us).isoformat()


def _time(time_us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=time_us)


# ---- text -----------------------------------------------------------------------------------------------


def show(status: Status) -> None:
    """The same for people: a few facts, then nodes, tables, and who is at work."""
    age = "" if status.committed_at is None else f", {ago(status.now - status.committed_at)}"
    print(f"catalog  {status.catalog}")
    print(f"version  {status.version}{age}" + (f": {output.one_line(status.reason)}" if status.reason else ""))
    _section(
        "nodes",
        ["node", "state", "datacenter", "rack", "shards", "root"],
        [(n.id, n.state, n.datacenter, n.rack, n.shards, root) for n, root in status.nodes],
    )
    _section(
        "tables",
        ["table", "rows", "tablets", "level 0", "bytes", "old bytes", "last write", "written", "horizon"],
        [
            (
                t.name,
                f"{t.size.rows:,}" if t.size.exact else f"<= {t.size.rows:,}",
                t.tablets,
                t.size.level0_runs,
                amount(t.size.bytes),
                amount(t.size.old_bytes),
                "-" if t.written_version is None else t.written_version,
                "never" if t.written_at is None else ago(status.now - t.written_at),
                t.horizon,
            )
            for t in status.tables
        ],
    )
    _section(
        "open transactions",
        ["transaction", "table", "began", "lease", "reason", "holder"],
        [
            (
                t.transaction_id,
                status.names.get(t.relation_id, "-"),
                ago(status.now - t.started_at),
                _lease(t.expires_at - status.now),
                t.reason,
                t.holder,
            )
            for t in status.transactions
        ],
    )
    _section(
        "pins",
        ["version", "lease", "reason", "holder"],
        [(p.version, _lease(p.expires_at - status.now), p.reason, p.holder) for p in status.pins],
    )


RIGHT = frozenset({"rows", "bytes", "old bytes", "last write"})


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print()
    if not rows:
        print(f"{title}: none")
        return
    print(title)
    for line in output.text_lines(output.Sheet(columns=columns, rows=rows, right=RIGHT)):
        print(f"  {line}")


def _lease(left_us: int) -> str:
    return f"{span(left_us)} left" if left_us > 0 else "ran out: the next vacuum ends it"


def ago(us: int) -> str:
    return f"{span(us)} ago"


def span(us: int) -> str:
    """A length of time in its largest unit."""
    seconds = max(0, us) / 1e6
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{seconds:.0f} s"


def amount(size: int) -> str:
    """Bytes in a unit that keeps them short."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the last unit returns")
