"""What child processes do to builds, with the Spark of the tests or one of their own; see `support.processes`."""

from __future__ import annotations

from typing import Any

from support.view_tasks import connect, say


def wait_for(where: str, view: str, settings: dict[str, Any]) -> None:
    """Build a view, perhaps after another process has begun with it."""
    with connect(where, leader_lease_s=1.0, **settings) as db:
        db.sql(f"WAIT FOR {view}")
        say("built")


def run(where: str, text: str, settings: dict[str, Any]) -> None:
    with connect(where, leader_lease_s=1.0, **settings) as db:
        db.sql(text)
        say("done")
