"""`ebla cluster up`, `down` and `status`: a whole cluster on this machine, in one directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebla.cli import node
from ebla.cli.node import Json, show

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The directory of the cluster.", show_default=True)
]
DEFAULT = Path("./cluster")


def add_to(app: typer.Typer, cluster: typer.Typer) -> None:
    """Have a program include these commands among those of a cluster, and the commands of a node."""
    for name, function in (("up", up), ("down", down), ("status", status)):
        cluster.command(name)(function)
    app.add_typer(node.app)


def up(
    directory: Directory = DEFAULT,
    nodes: Annotated[int, typer.Option(metavar="N", min=1, max=20, help="How many nodes.")] = 3,
    spark: Annotated[
        str, typer.Option(metavar="local|standalone|none", help="Where Spark runs: in each node, beside them, or not.")
    ] = "local",
    local_roots: Annotated[
        bool, typer.Option("--local-roots", help="No node reaches another's root by path, as on different machines.")
    ] = False,
    json: Json = False,
) -> None:
    """Start PostgreSQL, nodes and Spark on this machine, and print addresses and the first token.

    A cluster that is there starts again with what it has.
    """
    from ebla.cluster import local_cluster
    from ebla.errors import UsageError

    if spark not in ("local", "standalone", "none"):
        raise UsageError(f"spark: expected local, standalone or none, found {spark!r}")
    cluster = local_cluster.up(directory, nodes=nodes, spark=spark, local_roots=local_roots)  # type: ignore[arg-type]
    urls = [one.url for one in cluster.nodes]
    show({"directory": str(cluster.directory), "urls": urls, "token": cluster.token}, as_json=json)


def down(
    directory: Directory = DEFAULT,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the data, too.")] = False,
    json: Json = False,
) -> None:
    """Stop all processes of the cluster of a directory. Its data stay."""
    from ebla.cluster import local_cluster

    cluster = local_cluster.down(directory, remove=remove)
    show({"directory": str(cluster.directory), "removed": remove}, as_json=json)


def status(directory: Directory = DEFAULT, json: Json = False) -> None:
    """Say which nodes run, what the cluster thinks of them, and which work goes on."""
    from ebla.cluster import local_cluster

    report = local_cluster.status(directory)
    if json:
        show(report, as_json=True)
        return
    for one in report.pop("nodes"):
        show({f"node {one.pop('name')}": one}, as_json=False)
    show(report, as_json=False)
