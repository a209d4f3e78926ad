"""`ebla cluster …`: nodes, tablets and requests, as the SQL statements have them.

What shows reads the catalog alone. What asks opens the warehouse, and waits for the answer: a command is a process of
the cluster like any other, and may be the one that leads.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ebla.cli import completion
from ebla.cli.options import Debug, Json, Warehouse, command, settle

app = typer.Typer(
    name="cluster",
    help="Show and change the shape of the cluster: its nodes, where tablets lie, and what was asked for.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="The name or the host id of a node.", show_default=False)]
RequestId = Annotated[
    int, typer.Argument(metavar="REQUEST", help="The id of a request: ebla cluster requests.", show_default=False)
]
Relation = Annotated[
    str,
    typer.Argument(
        metavar="RELATION", help="A table or view.", show_default=False, autocompletion=completion.relations
    ),
]
AnyRelation = Annotated[
    str | None,
    typer.Argument(
        metavar="RELATION",
        help="A table or view; all of them by default.",
        show_default=False,
        autocompletion=completion.relations,
    ),
]
NoWait = Annotated[
    bool,
    typer.Option("--no-wait", help="Print the request and leave. Another process that is open answers it."),
]


# ---- what is ---------------------------------------------------------------------------------------------


@command(app, "ebla cluster nodes", "ebla cluster nodes --json")
def nodes(context: typer.Context, warehouse: Warehouse = None, json: Json = False, debug: Debug = False) -> None:
    """List the nodes, those that left too: their states, whether they live, and how many tablets they have."""
    from ebla.cli import topology

    topology.show(settle(context, warehouse, json, debug), topology.nodes())


@command(app, "ebla cluster tablets", "ebla cluster tablets orders")
def tablets(
    context: typer.Context,
    relation: AnyRelation = None,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List tablets with the nodes of their replicas, and the stage of those that move."""
    from ebla.cli import topology

    topology.show(settle(context, warehouse, json, debug), topology.tablets(relation))


@command(app, "ebla cluster transitions")
def transitions(context: typer.Context, warehouse: Warehouse = None, json: Json = False, debug: Debug = False) -> None:
    """List the tablets that move, the stage that each is in, and what it waits for."""
    from ebla.cli import topology

    topology.show(settle(context, warehouse, json, debug), topology.transitions())


@command(app, "ebla cluster requests", "ebla cluster requests --json")
def requests(context: typer.Context, warehouse: Warehouse = None, json: Json = False, debug: Debug = False) -> None:
    """List what was asked for, the newest first: what each request waits for, or how it ended."""
    from ebla.cli import topology

    topology.show(settle(context, warehouse, json, debug), topology.requests())


@command(app, "ebla cluster replication", "ebla cluster replication orders --set 3")
def replication(
    context: typer.Context,
    relation: AnyRelation = None,
    copies: Annotated[
        int | None,
        typer.Option("--set", metavar="COPIES", help="Ask for this many copies of each tablet of RELATION."),
    ] = None,
    no_wait: NoWait = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List how many copies relations have and how many are missing, or ask for another number of them."""
    from ebla.cli import topology

    options = settle(context, warehouse, json, debug)
    if copies is None:
        topology.show(options, topology.replication(relation))
    else:
        topology.ask(options, topology.set_replication(relation, copies), wait=not no_wait)


# ---- what is asked for -----------------------------------------------------------------------------------


@command(app, "ebla cluster decommission node3", "ebla cluster decommission node3 --no-wait")
def decommission(
    context: typer.Context,
    node: NodeName,
    no_wait: NoWait = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Have a live node leave: its tablets move to the others first."""
    from ebla.cli import topology

    asked = topology.decommission(node)
    topology.ask(settle(context, warehouse, json, debug), asked, wait=not no_wait)


@command(app, "ebla cluster remove node3", "ebla cluster remove node3 --ignore node4")
def remove(
    context: typer.Context,
    node: NodeName,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="NODE", help="Another dead node to do without; repeat it for more."),
    ] = None,
    no_wait: NoWait = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove a dead node for ever: its tablets are made on the others from the copies that are left."""
    from ebla.cli import topology

    asked = topology.remove(node, ignore or ())
    topology.ask(settle(context, warehouse, json, debug), asked, wait=not no_wait)


@command(app, "ebla cluster rebuild node3", "ebla cluster rebuild node3 --from dc2")
def rebuild(
    context: typer.Context,
    node: NodeName,
    source: Annotated[
        str | None, typer.Option("--from", metavar="DATACENTER", help="Copy from nodes of this datacenter alone.")
    ] = None,
    no_wait: NoWait = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy to a live node again what its disk has lost."""
    from ebla.cli import topology

    asked = topology.rebuild(node, source)
    topology.ask(settle(context, warehouse, json, debug), asked, wait=not no_wait)


@command(app, "ebla cluster move orders 7 --from node1 --to node2")
def move(
    context: typer.Context,
    relation: Relation,
    tablet: Annotated[int, typer.Argument(metavar="TABLET", help="The number of a tablet.", show_default=False)],
    source: Annotated[str, typer.Option("--from", metavar="NODE", help="The node that has a replica of it.")],
    target: Annotated[str, typer.Option("--to", metavar="NODE", help="The node that gets it.")],
    no_wait: NoWait = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Move a replica of a tablet from one node to another."""
    from ebla.cli import topology

    asked = topology.move(relation, tablet, source, target)
    topology.ask(settle(context, warehouse, json, debug), asked, wait=not no_wait)


@command(app, "ebla cluster cancel 412")
def cancel(
    context: typer.Context, request: RequestId, warehouse: Warehouse = None, json: Json = False, debug: Debug = False
) -> None:
    """Take back a request that has not begun."""
    from ebla.cli import topology

    topology.ask(settle(context, warehouse, json, debug), f"ALTER CLUSTER CANCEL REQUEST {request}")


@command(app, "ebla cluster wait 412")
def wait(
    context: typer.Context, request: RequestId, warehouse: Warehouse = None, json: Json = False, debug: Debug = False
) -> None:
    """Wait until a request has ended, show how far it is, and print its result."""
    from ebla.cli import topology

    topology.ask(settle(context, warehouse, json, debug), f"WAIT FOR REQUEST {request}")


@command(app, "ebla cluster balancing off")
def balancing(
    context: typer.Context,
    state: Annotated[str, typer.Argument(metavar="STATE", help="on or off.", show_default=False)],
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Turn the balancer on or off. Requests move what they need also while it is off."""
    from ebla.cli import topology

    topology.balance(settle(context, warehouse, json, debug), state)
