"""`ebla node …`: a node as a process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ebla.base import server_packages
from ebla.cli import output

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

app = typer.Typer(
    name="node",
    help="Run a node of a cluster: a process that serves the API and does its part of the work.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RootOption = Annotated[
    Path, typer.Option("--root", metavar="DIR", help="The storage root of the node.", show_default=False)
]


@app.command("start")
def start(
    catalog: Annotated[str | None, typer.Option(metavar="URL", help="The catalog: postgresql://…")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The name of this node.")] = None,
    root: Annotated[str | None, typer.Option(metavar="DIR", help="Where this node's runs lie.")] = None,
    local_root: Annotated[
        bool | None, typer.Option("--local-root", help="Only this machine reaches the root; others fetch runs.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the API is served; default 127.0.0.1:7601.")
    ] = None,
    found: Annotated[str | None, typer.Option(metavar="NAME", help="Found a cluster of this name.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Join the cluster of this name, and no other.")
    ] = None,
    replaces: Annotated[str | None, typer.Option(metavar="NODE", help="Come in the place of a dead node.")] = None,
    datacenter: Annotated[str | None, typer.Option(metavar="NAME", help="Where the node stands.")] = None,
    rack: Annotated[str | None, typer.Option(metavar="NAME", help="Copies go to different racks.")] = None,
    shards: Annotated[int | None, typer.Option(metavar="N", help="Shards; default: the cores.")] = None,
    spark_master: Annotated[
        str | None, typer.Option(metavar="MASTER", help="local[N], spark://HOST:PORT or none; default local[*].")
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="The certificate of the API.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    tls_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Verifies the certificates of other nodes.")
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Do without TLS and users beyond this machine, and private files."),
    ] = None,
    users: Annotated[
        bool | None, typer.Option("--users/--no-users", help="Ask clients for tokens, or for none.")
    ] = None,
    load_from: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="LOAD reads files below; repeat it for more.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="text|json", help="How log lines look.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="A TOML file with the same names.")] = None,
) -> None:
    """Be a node until SIGTERM or Ctrl-C: join the cluster, serve the API, build, maintain and repair.

    Flags go before the environment (EBLA_NODE_NAME and so on), and that before the file.
    """
    flags = {k: v for k, v in locals().items() if k not in ("config",) and v not in (None, [])}
    with server_packages.needed():
        from ebla.cluster import config as configuration
        from ebla.cluster import logs, process

    settled = configuration.load(config, flags)
    logs.install(settled.log_format)
    process.run(settled)


@app.command("status")
def status(root: RootOption, json: Json = False) -> None:
    """Say whether the node of a storage root runs on this machine, and where it serves."""
    from ebla.cluster import place

    show(place.status(root), as_json=json)


@app.command("stop")
def stop(root: RootOption, json: Json = False) -> None:
    """Stop the node of a storage root on this machine: what runs is finished, and its leases are given back."""
    from ebla.cluster import place

    show(place.stop(root), as_json=json)


def show(report: Mapping[str, object], *, as_json: bool) -> None:
    """A report as a JSON object, or one line for each of its facts."""
    if as_json:
        output.write_json(dict(report))
        return
    for name, value in report.items():
        print(f"{name}: {_in_words(value)}")


def _in_words(value: object) -> str:
    """Lists with commas, as `-w` takes addresses, and what has names with them."""
    match value:
        case Mapping():
            return " ".join(f"{name}={_in_words(one)}" for name, one in value.items())
        case list():
            between = ", " if any(isinstance(one, Mapping) for one in value) else ","
            return between.join(map(_in_words, value)) or "-"
        case _:
            return output.to_text(value)
