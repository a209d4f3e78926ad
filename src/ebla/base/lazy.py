"""Modules that are imported when they are first used, or never: a command that needs little starts at once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence


def exports(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose names lie in these modules."""
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return find


class Module:
    """A module that is imported when it is first asked for a name.

    if TYPE_CHECKING:
        from ebla.catalog import changes as c
    else:
        c = lazy.Module("ebla.model.changes")
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: object = None

    def __getattr__(self, name: str) -> object:
        if self._module is None:
            self._module = importlib.import_module(self._name)
        return getattr(self._module, name)


class AbsentPackage:
    """Makes a package look as if it were not installed, for others that would use it if it were."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
