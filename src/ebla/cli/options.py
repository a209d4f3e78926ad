"""What commands have in common: the options that each of them takes, how they open a warehouse, and their help."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ebla.cli import output

if TYPE_CHECKING:
    from ebla.api.database import Database

DEFAULT_WAREHOUSE = "./warehouse"

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="PATH-OR-URL",
        help="A directory, a postgresql:// address of the catalog, or http:// addresses of nodes. "
        f"Default: $EBLA_WAREHOUSE, or {DEFAULT_WAREHOUSE}.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and logs. Same as EBLA_DEBUG=1.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every command takes, given before or after the command's name."""

    warehouse: str | None = None
    json: bool = False
    debug: bool = False

    @property
    def place(self) -> str:
        return self.warehouse or os.environ.get("EBLA_WAREHOUSE") or DEFAULT_WAREHOUSE


def settle(context: typer.Context, warehouse: str | None, json: bool, debug: bool) -> Options:
    """Options behind the command's name win over those before it."""
    given = context.obj if isinstance(context.obj, Options) else Options()
    return Options(warehouse=warehouse or given.warehouse, json=json or given.json, debug=debug or given.debug)


def open_database(options: Options, *, create: bool, role: str = "command", **settings: Any) -> Database:
    from ebla.api.connect import connect

    place = options.place
    fresh = create and "://" not in place and not (Path(place) / "catalog.db").exists()
    database = connect(place, None, create=create, role=role, **settings)
    if fresh:
        output.note(f"created the warehouse {place}")
    return database


def _escaped(line: str) -> str:
    """A line that says no markup. Rich is imported only where help is shown."""
    return re.sub(r"\[(?=[a-zA-Z#/@])", r"\\[", line)


def examples(*lines: str) -> str:
    return "\n".join(["[bold]Examples[/bold]", *(f"[cyan]  {_escaped(line)}[/cyan]" for line in lines)])


def flowed(text: str | None) -> str:
    """A docstring as help: paragraphs stay, the line breaks inside them go."""
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


Command = TypeVar("Command", bound=Callable[..., None])


def command(app: typer.Typer, *lines: str) -> Callable[[Command], Command]:
    """Have a function be the command of its name, with its docstring as help and these lines as examples."""

    def register(function: Command) -> Command:
        name = function.__name__.rstrip("_")
        return app.command(name, help=flowed(function.__doc__), epilog=examples(*lines))(function)

    return register
