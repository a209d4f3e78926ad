"""The commands of `ebla`.

Spark is imported and started only by statements that need it: `ebla --help` and `ebla status` answer at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ebla.cli import cluster, completion, failure, local_cluster, operator_commands, output, values
from ebla.cli.options import Debug, Json, Options, Warehouse, command, examples, open_database, settle


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


operator_commands.add_to(app)
local_cluster.add_to(app, cluster.app)
