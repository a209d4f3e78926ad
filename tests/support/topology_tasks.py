"""What child processes ask of a cluster; see `support.processes`. None of it needs Spark."""

from __future__ import annotations

from typing import Any

import ebla


def ask(where: str, nodes: dict[str, str], statement: str, settings: dict[str, Any]) -> None:
    """Ask something of the cluster, lead, and wait for the answer."""
    with ebla.connect(where, nodes=nodes, **settings) as db:
        [(request,)] = db.sql(f"ALTER CLUSTER {statement}").rows()
        print(request, flush=True)
        print(db.sql(f"WAIT FOR REQUEST {request}").one()[1], flush=True)
