"""Passwords of catalogs are no arguments: other users of the machine can list those of every process.

An address with a password is moved to the environment, which only the process's owner can read, and the program is
started again without it, in the same process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ebla.base.addresses import has_password

VARIABLES: Mapping[str, str] = {
    "--warehouse": "EBLA_WAREHOUSE",
    "-w": "EBLA_WAREHOUSE",
    "--catalog": "EBLA_NODE_CATALOG",
}
"""Options that take an address, and the variables that say the same."""


class _Argument(NamedTuple):
    words: Sequence[str]
    variable: str | None = None
    """For an option that takes an address."""
    address: str = ""


def hide() -> None:
    """Start this program again if its arguments have a password. Returns only if they have none."""
    arguments = sys.argv[1:]
    left, moved = without_passwords(arguments)
    if moved:
        started = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
        os.execve(sys.executable, [sys.executable, *started, *left], {**os.environ, **moved})


def without_passwords(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Arguments without the addresses that have a password, and the variables that say these.

    Of an option that is given several times the last one counts, so all of them go if one of them has a password.
    """
    found = list(_arguments(arguments))
    hidden = {one.variable for one in found if one.variable is not None and has_password(one.address)}
    left = [word for one in found if one.variable not in hidden for word in one.words]
    return left, {one.variable: one.address for one in found if one.variable is not None and one.variable in hidden}


def _arguments(arguments: Sequence[str]) -> Iterator[_Argument]:
    rest = iter(arguments)
    for word in rest:
        name, separator, value = word.partition("=")
        if word == "--":
            yield _Argument((word, *rest))
        elif word in VARIABLES:
            address = next(rest, None)
            words = (word,) if address is None else (word, address)
            yield _Argument(words, None if address is None else VARIABLES[word], address or "")
        elif separator and name in VARIABLES and name.startswith("--"):
            yield _Argument((word,), VARIABLES[name], value)
        elif word.startswith("-w"):
            yield _Argument((word,), VARIABLES["-w"], word[2:])
        else:
            yield _Argument((word,))
