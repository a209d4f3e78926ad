"""docs/reference/cli.md knows every command and every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from ebla import errors
from ebla.cli.commands import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
GLOBAL = {"--warehouse", "-w", "--json", "--debug", "--help", "-h"}


def sections() -> dict[str, str]:
    """The page's text by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {parts[0]: ""} | dict(zip(parts[1::2], parts[2::2], strict=True))


def mentions(text: str, option: str) -> bool:
    return re.search(rf"`{re.escape(option)}[` ,=]", text) is not None


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_section_with_its_options(name):
    found = sections()
    text = found.get(f"`ebla {name}`")
    assert text is not None, f"expected a section '## `ebla {name}`', found {sorted(found)}"
    for parameter in COMMANDS[name].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            if parameter.param_type_name == "argument":
                assert parameter.name.upper() in text
            elif option not in GLOBAL:
                assert mentions(text, option), f"expected {option} under ebla {name}"


GROUPS = [
    (name, of, command)
    for name, group in sorted(COMMANDS.items())
    for of, command in sorted(getattr(group, "commands", {}).items())
]


@pytest.mark.parametrize(("name", "of", "command"), GROUPS, ids=lambda one: str(getattr(one, "name", one)))
def test_every_command_of_a_group_has_a_row_with_its_options(name, of, command):
    lines = [line for line in sections()[f"`ebla {name}`"].splitlines() if line.startswith(f"| `{of}")]
    assert len(lines) == 1, f"expected a row for ebla {name} {of}, found {lines}"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.name.upper() in lines[0]
        elif "--no-wait" not in parameter.opts and not GLOBAL.intersection(parameter.opts):
            assert all(mentions(lines[0], option) for option in parameter.opts), f"expected {parameter.opts}"


def test_the_options_of_every_command_are_described_once():
    text = sections()["Options of every command"]
    root = {option for parameter in typer.main.get_command(app).params for option in parameter.opts}
    for option in sorted(root | GLOBAL):
        assert mentions(text, option), f"expected {option}"


def test_every_exit_code_is_listed():
    text = sections()["Exit codes"]
    kinds = [errors.UsageError, errors.CatalogError, errors.ConflictError, errors.StorageError]
    codes = {0, 1, 130, errors.MissingDependencyError.exit_code, *(kind.exit_code for kind in kinds)}
    for code in codes:
        assert f"| {code} |" in text


def test_no_section_describes_a_command_that_is_gone():
    described = {title[6:-1] for title in sections() if title.startswith("`ebla ")}
    assert described == set(COMMANDS)
