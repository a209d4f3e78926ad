"""The command `ebla`.

Spark is imported and started only by statements that need it: `ebla --help` and `ebla status` answer at once.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from ebla.base import lazy
from ebla.cli import cluster, completion, failure, local_cluster, output, values
from ebla.cli.options import Debug, Json, Options, Warehouse, command, examples, open_database, settle

SHORT = ("query", "status", "metrics")
"""Commands that answer from the catalog and files alone, and start neither Spark nor a thread that outlives them."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupted:
            raise failure.Interrupted from interrupted


app = typer.Typer(
    name="ebla",
    cls=_Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cluster.app)

TableName = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="A table; all of them by default.",
        show_default=False,
        autocompletion=completion.relations,
    ),
]


# ---- commands -------------------------------------------------------------------------------------------


@app.callback(
    invoke_without_command=True,
    epilog=examples(
        'ebla sql "CREATE TABLE t (id BIGINT, total DOUBLE, PRIMARY KEY (id))"',
        "ebla sql \"LOAD INTO t FROM 'orders/*.parquet'\"",
        'ebla sql "SELECT count(*), sum(total) FROM t" --json',
        "ebla sql                      # opens a prompt",
        "ebla -w /data/shop status",
    ),
)
def root(
    context: typer.Context,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
    version: Annotated[bool, typer.Option("--version", help="Print Ebla's version and leave.")] = False,
) -> None:
    """Tables that never stop changing, kept in open Parquet files and queried with Spark SQL.

    A [bold]warehouse[/bold] is a directory, or a catalog in PostgreSQL. The first CREATE TABLE makes it.
    """
    if version:
        from importlib.metadata import version as release

        if json:
            output.write_json({"version": release("ebla")})
        else:
            print(f"ebla {release('ebla')}")
        raise typer.Exit
    context.obj = Options(warehouse=warehouse, json=json, debug=debug)
    if context.invoked_subcommand is None:
        print(context.get_help())


@command(
    app,
    'ebla sql "SELECT * FROM orders WHERE id = :id" -p id=5',
    "ebla sql -f nightly.sql",
    "generate_statements | ebla sql",
    'ebla sql "SELECT * FROM orders VERSION AS OF 41" --json',
    "ebla sql                      # opens a prompt",
)
def sql(
    context: typer.Context,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Statements, separated by semicolons.", show_default=False),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the statements from a file; - is standard input."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="The value of :NAME in the statements; repeat it for more. Whole numbers, decimal fractions, true, "
            "false and null have their types, anything else is a string, as is what stands in single quotes.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run SQL statements and print the last one's result.

    The statements are the argument, a file, or standard input. On a terminal and without any of these, a prompt
    opens. Each statement commits by itself; the first error ends the run.
    """
    from ebla.cli import script

    options = settle(context, warehouse, json, debug)
    parameters = values.parameters(param or ())
    statements = script.read(text, file)
    if statements is None:
        from ebla.cli import prompt

        with open_database(options, create=True) as database:
            prompt.loop(database, parameters, as_json=options.json, debug=options.debug)
        return
    with open_database(options, create=script.creates_tables(statements)) as database:
        script.run(database, statements, parameters, as_json=options.json)
        script.settle(database)


@command(
    app,
    "ebla query orders --where status=open --order-by -total --limit 100",
    "ebla query orders -W 'total>=10' -W 'total<20' -W 'note is not null' --columns id,total --json",
    "ebla query customers -W 'name^=Ada' -W 'country in NL,DE' --order-by name,-id",
    "ebla query orders --where status=open --order-by -total --explain",
)
def query(
    context: typer.Context,
    relation: Annotated[
        str,
        typer.Argument(
            metavar="RELATION", help="A table or view.", show_default=False, autocompletion=completion.relations
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-W",
            metavar="CONDITION",
            help="name=value, <, <=, >, >=, name^=prefix, 'name in a,b', 'name is null', 'name is not null'; "
            "repeat it for more, all of which must hold.",
        ),
    ] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option("--order-by", "-o", metavar="NAMES", help="Columns, separated by commas; -name is downwards."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many rows, 1 to 10000.")] = 100,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Columns to show; all of them by default.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Go on behind a page: its `next`.")
    ] = None,
    at_least: Annotated[
        int | None,
        typer.Option("--at-least", metavar="VERSION", help="Wait until a view shows all writes up to this version."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show how it would be read, and read nothing.")] = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the first rows of a table or view that fulfil conditions, in an order.

    Reads sorted files through the key, or an index, and starts no Spark.
    """
    from ebla.cli import query as query_module
    from ebla.cli import remote

    options = settle(context, warehouse, json, debug)
    asked = query_module.QueryArguments(
        relation=relation,
        where=where or (),
        order_by=order_by or (),
        columns=columns,
        limit=limit,
        after=after,
        at_least=at_least,
    )
    if remote.is_remote(options.place):
        remote.query(options.place, asked, as_json=options.json, explain=explain)
        return
    query_module.run(options.place, asked, as_json=options.json, explain=explain)


@command(app, "ebla check views.sql", "ebla check views.sql --strict --json", "generate_statements | ebla check -")
def check(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file with statements; - is standard input.", show_default=False)
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Take warnings for errors.")] = False,
    warehouse: Warehouse = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what is wrong with a script of statements, without running it.

    Follows the statements in order against the warehouse and prints every issue with its place, and what to do.
    Changes nothing. Starts Spark only if the script defines views in which nothing else is wrong. Ends with 1 after
    warnings and with 2 after errors.
    """
    from ebla.cli import check as check_module

    options = settle(context, warehouse, json, debug)
    text = check_module.read(file)
    found = check_module.issues(options.place, text)
    raise typer.Exit(check_module.show(found, text, as_json=options.json, as_errors=strict))


@command(app, "ebla status", "ebla -w postgresql://ebla@db/ebla status --json")
def status(context: typer.Context, warehouse: Warehouse = None, json: Json = False, debug: Debug = False) -> None:
    """Show how the warehouse is: what needs a person, processes, tables, views, indexes, builds, and work in progress.

    Reads only the catalog and starts no Spark, so it answers at once, also while others write. Ends with 1 if something
    needs a person.
    """
    from ebla.cli import remote
    from ebla.cli import status as status_module

    options = settle(context, warehouse, json, debug)
    if remote.is_remote(options.place):
        raise typer.Exit(remote.status(options.place, as_json=options.json))
    found = status_module.read(options.place)
    if options.json:
        output.write_json(status_module.as_json(found))
    else:
        status_module.show(found)
    raise typer.Exit(status_module.exit_code(found))


@command(app, "ebla run", "ebla -w /data/shop run", "ebla run --json >> run.log")
def run_(context: typer.Context, warehouse: Warehouse = None, json: Json = False, debug: Debug = False) -> None:
    """Keep views up to date, build what is to be built, and compact, until it is stopped.

    A warehouse needs one such process, or a program that has it open with Spark. Several share the work. On a terminal
    it shows what is being done, elsewhere it writes log lines, with --json as objects. SIGTERM and Ctrl-C end it after
    the work that is running.
    """
    from ebla.cli import run as run_module

    options = settle(context, warehouse, json, debug)
    with open_database(options, create=False, role="run", auto_refresh=True, auto_compact=True) as database:
        run_module.run(database, as_json=options.json)


@command(app, "ebla metrics", "ebla metrics --json")
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


@command(app, "ebla compact", "ebla compact orders")
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


@command(app, "ebla vacuum", "ebla vacuum orders --retain 7d", "ebla vacuum --retain 0s")
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


@command(app, "ebla backup /backups/shop", "ebla -w postgresql://ebla@db/ebla backup /backups/shop --json")
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


@command(
    app,
    "ebla -w ./copy restore /backups/shop",
    "ebla -w postgresql://ebla@db/ebla restore /backups/shop --root node1=/mnt/ebla/node1",
)
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


local_cluster.add_to(app, cluster.app)

# ---- running --------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; returns the exit code. Every error ends here."""
    manner = failure.ErrorFormat.of(arguments)
    try:
        code = app(args=list(arguments), prog_name="ebla", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else failure.UNEXPECTED
    except BrokenPipeError:
        return _reader_left()
    except (Exception, KeyboardInterrupt) as error:
        return failure.report(error, manner)
    if code == failure.INTERRUPTED:  # Ctrl-C while the arguments were read
        return failure.report(KeyboardInterrupt(), manner)
    return code if isinstance(code, int) else 0


def _reader_left() -> int:
    """`ebla … | head`: the rest has no reader, and the interpreter must not try to write it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return failure.UNEXPECTED


def _command_of(arguments: Sequence[str]) -> str | None:
    """The name of the command, before the arguments are understood."""
    rest = iter(arguments)
    for one in rest:
        if one in ("-w", "--warehouse"):
            next(rest, None)
        elif not one.startswith("-"):
            return one
    return None


def main() -> None:
    """The program. Unlike `run` it also settles what concerns the whole process: its modules, logs and streams."""
    arguments = sys.argv[1:]
    is_short = _command_of(arguments) in SHORT
    if is_short:
        gc.disable()  # it would look through every imported module, again and again, and find nothing
        # Arrow looks for pandas, which takes as long to import as the rest of the command.
        sys.meta_path.insert(0, lazy.AbsentPackage("pandas"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    failure.quiet_logs(failure.ErrorFormat.of(arguments))
    code = run(arguments)
    if is_short:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End the process without taking every module apart first, which takes as long as a short command's work."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
