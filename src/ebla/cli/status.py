"""`ebla status`: the page for an incident. What it knows is read by `ebla.relations.status`, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ebla.catalog.manifest import Size
from ebla.cli import output
from ebla.relations.status import Status, read
from ebla.relations.status_document import as_json

__all__ = ["NEEDS_A_PERSON", "ago", "amount", "as_json", "exit_code", "read", "show", "span"]

NEEDS_A_PERSON = 1
"""The exit code that says so."""


def exit_code(status: Status) -> int:
    return NEEDS_A_PERSON if status.needs else 0


# ---- text -----------------------------------------------------------------------------------------------


def show(status: Status) -> None:
    """The same for people: what needs them first, then what is derived, what it is derived from, and who is at work."""
    age = "" if status.committed_at is None else f", {ago(status.now - status.committed_at)}"
    print(f"catalog  {status.catalog}")
    print(f"version  {status.version}{age}" + (f": {output.one_line(status.reason)}" if status.reason else ""))
    if status.needs:
        _section("NEEDS A PERSON", ["what", "why", "to do"], [(n.subject, n.reason, n.hint) for n in status.needs])
    for section in (_show_nodes, _show_processes, _show_tables, _show_views, _show_indexes, _show_work):
        section(status)


def _show_nodes(status: Status) -> None:
    _section(
        "nodes",
        ["node", "state", "datacenter", "rack", "shards", "root"],
        [(n.name, n.state, n.datacenter, n.rack, n.shards, root) for n, root in status.nodes],
    )


def _show_processes(status: Status) -> None:
    names = {node.id: node.name for node, _ in status.nodes}
    rows = [
        (
            f"{p.host}/{p.pid}",
            names.get(p.node, p.node),
            p.role.value,
            "yes" if p.maintains else "no",
            span(status.now - p.started_at),
            "; ".join(p.doing) or "-",
        )
        for p in status.processes
    ]
    _section("processes", ["process", "node", "role", "maintains", "up", "doing"], rows)
    derived = [*status.views, *(i for i in status.indexes if i.percent < 100)]
    if derived and not status.maintained:
        print("  no process maintains views and builds indexes: start ebla run")


def _show_tables(status: Status) -> None:
    _section(
        "tables",
        ["table", "rows", "tablets", "level 0", "bytes", "old bytes", "last write", "written", "horizon"],
        [
            (
                t.name,
                _rows(t.size),
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


def _show_views(status: Status) -> None:
    columns = ["view", "status", "age", "behind", "rows", "level 0", "bytes", "handler", "waits for", "last error"]
    rows = [
        (
            v.name,
            v.status,
            "-" if v.age_s is None else span(int(v.age_s * 1e6)),
            "-" if v.behind is None else v.behind,
            _rows(v.size),
            v.size.level0_runs,
            amount(v.size.bytes),
            v.handler,
            v.waits_for or "-",
            v.error or "-",
        )
        for v in status.views
    ]
    _section("views", columns, rows)
    if status.handlers:
        _section(
            "handlers",
            ["handler", "runs", "views", "oldest", "epochs run in"],
            [
                (
                    h.name,
                    "yes" if h.should_run else "switched off",
                    ", ".join(h.views) or "-",
                    span(int(h.age_s * 1e6)),
                    h.runs_in or "-",
                )
                for h in status.handlers
            ],
        )


def _show_indexes(status: Status) -> None:
    columns = ["index", "on", "state", "built", "entries", "level 0", "bytes", "waits for", "last error"]
    _section(
        "indexes",
        columns,
        [
            (
                i.name,
                i.relation,
                i.state,
                f"{i.percent:.0f} %",
                _rows(i.size),
                i.size.level0_runs,
                amount(i.size.bytes),
                i.waits_for or "-",
                i.error or "-",
            )
            for i in status.indexes
        ],
    )


def _show_work(status: Status) -> None:
    if status.builds:
        _section(
            "builds",
            ["build", "of", "phase", "done", "rows", "tablets", "rows/s", "left", "waits for"],
            [
                (
                    one.name,
                    one.base or "-",
                    one.progress.phase.value,
                    f"{one.progress.percent:.0f} %",
                    one.progress.rows,
                    one.progress.tablets,
                    "-" if one.progress.rows_per_s is None else f"{one.progress.rows_per_s:,.0f}",
                    "-" if one.progress.eta_s is None else span(int(one.progress.eta_s * 1e6)),
                    one.progress.detail or "-",
                )
                for one in status.builds
            ],
        )
    if status.troubles:
        _section(
            "troubles",
            ["relation", "work", "since", "attempts", "next", "what happened"],
            [
                (
                    f"{t.kind.value} {t.name}",
                    t.work.value,
                    ago(status.now - t.first_at),
                    t.attempts,
                    "never" if t.retry_at is None else f"in {span(t.retry_at - status.now)}",
                    t.message,
                )
                for t in status.troubles
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


RIGHT = frozenset({"rows", "entries", "bytes", "old bytes", "last write", "age", "built", "done", "rows/s"})


def _rows(size: Size) -> str:
    return f"{size.rows:,}" if size.exact else f"<= {size.rows:,}"


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
