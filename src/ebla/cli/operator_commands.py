"""`ebla metrics`, `compact`, `vacuum`, `backup` and `restore`: the commands of those who run a warehouse."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from ebla.cli import completion, output, values
from ebla.cli.options import Debug, Json, Warehouse, command, open_database, settle

TableName = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="A table; all of them by default.",
        show_default=False,
        autocompletion=completion.relations,
    ),
]


def add_to(app: typer.Typer) -> None:
    command(app, "ebla metrics", "ebla metrics --json")(metrics)
    command(app, "ebla compact", "ebla compact orders")(compact)
    command(app, "ebla vacuum", "ebla vacuum orders --retain 7d", "ebla vacuum --retain 0s")(vacuum)
    command(app, "ebla backup /backups/shop", "ebla -w postgresql://ebla@db/ebla backup /backups/shop --json")(backup)
    command(
        app,
        "ebla -w ./copy restore /backups/shop",
        "ebla -w postgresql://ebla@db/ebla restore /backups/shop --root node1=/mnt/ebla/node1",
    )(restore)


def metrics(context: typer.Context, warehouse: Warehouse = None, json: Json = False, debug: Debug = False) -> None:
    """Print what ebla status shows, and what epochs cost, as numbers in the text format of Prometheus.

    Reads only the catalog and starts no Spark. With --json, the same samples as values.
    """
    from ebla.api.metrics import Metrics
    from ebla.catalog.store import Catalog
    from ebla.cli import remote

    options = settle(context, warehouse, json, debug)
    if remote.is_remote(options.place):
        remote.metrics(options.place, as_json=options.json)
        return
    with contextlib.closing(Catalog.open(options.place, create=False)) as catalog:
        found = Metrics(catalog)
        if options.json:
            output.write_json({"metrics": found.samples()})
        else:
            print(found.text(), end="")


def compact(
    context: typer.Context,
    table: TableName = None,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fold recent writes into sorted files, so that reads are fast.

    Writers and readers go on meanwhile. Ebla does this by itself after many writes.
    """
    from ebla.cli import upkeep

    options = settle(context, warehouse, json, debug)
    with open_database(options, create=False) as database:
        output.show(upkeep.compact(database, table), as_json=options.json)


def vacuum(
    context: typer.Context,
    table: TableName = None,
    retain: Annotated[
        str | None,
        typer.Option(
            "--retain",
            metavar="DURATION",
            help="Keep versions of the last 90s, 30m, 24h, 7d, 2w. Default: the setting retention_s, one day.",
            show_default=False,
        ),
    ] = None,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Forget old versions and delete the files that no version needs any more.

    Keeps what readers hold, and what is younger than --retain. Also removes what killed writers left behind.
    """
    from ebla.cli import upkeep

    options = settle(context, warehouse, json, debug)
    retain_s = None if retain is None else values.duration_s(retain)
    with open_database(options, create=False) as database:
        output.show(upkeep.vacuum(database, table, retain_s=retain_s), as_json=options.json)


def backup(
    context: typer.Context,
    directory: Annotated[
        str,
        typer.Argument(metavar="DIRECTORY", help="Empty, or with an earlier backup.", show_default=False),
    ],
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy the catalog and the files that it names into a directory, while writers go on.

    A directory with an earlier backup of the same warehouse is brought up to date: only new files are copied.
    """
    from ebla.cli import upkeep

    options = settle(context, warehouse, json, debug)
    with open_database(options, create=False, auto_refresh=False, auto_compact=False) as database:
        output.show(upkeep.backup(database, directory), as_json=options.json)


def restore(
    context: typer.Context,
    directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="What ebla backup has written.", show_default=False)
    ],
    root: Annotated[
        list[str] | None,
        typer.Option(
            "--root",
            metavar="NAME=PATH",
            help="The storage root of a node of the backup; repeat it for more. A directory has its own by default.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a warehouse of a backup, in an empty directory or an empty database.

    The backup may come from either kind. The nodes of the backup get new storage roots.
    """
    from ebla.cli import upkeep

    options = settle(context, warehouse, json, debug)
    output.show(upkeep.restore(directory, options.place, root or ()), as_json=options.json)
