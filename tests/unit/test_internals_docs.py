"""What docs/internals names in code is there: modules by path, dotted names, and every other word of inline code."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import get_args

import pytest

from ebla.api import system
from ebla.base.ids import RelationId, TabletId
from ebla.catalog.schema import metadata
from ebla.model import changes, scopes

ROOT = Path(__file__).resolve().parents[2]
EBLA = ROOT / "src" / "ebla"
PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CLASS = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b")
ELSEWHERE = {"import-linter", "pyproject.toml", "k1 <=> d_k1", "orders.id", "part.place"}
ELSEWHERE |= {"_metadata.file_size", "_metadata.row_index"}
"""Names of files and commands, of what an example has, and of Spark."""


def inline(page: Path) -> Iterator[str]:
    """The inline code of a page."""
    return iter(re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text(encoding="utf-8"))))


def members(kind: ast.ClassDef) -> Iterator[str]:
    """Methods and fields of a class, and what it assigns to itself."""
    for node in ast.walk(kind):
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name


def names_of(tree: ast.Module) -> Iterator[str]:
    """Names as the code writes them, dotted ones too, and texts; not docstrings: what only these name is not there."""
    docstrings = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as text):  # comes before its value
                docstrings.add(id(text))
            case ast.ClassDef(name=name):
                yield from (name, *(f"{name}.{member}" for member in members(node)))
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                yield from (name, f"{owner}.{name}")
            case ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from re.findall(r"\w+(?:\.\w+)*", text)


@cache
def names() -> frozenset[str]:
    """What the code names, with all words of dotted names, columns of tables, and what the Makefile names."""
    files = [path for top in (EBLA, ROOT / "tests") for path in top.rglob("*.py") if path != Path(__file__)]
    found = {name for path in files for name in names_of(ast.parse(path.read_text(encoding="utf-8")))}
    found |= {f"{table.name}.{column.name}" for table in metadata.tables.values() for column in table.columns}
    found |= {f"system.{name}" for name in system.names()}
    found |= {part for path in files for part in path.with_suffix("").relative_to(ROOT).parts}
    found.update(re.findall(r"\w+", (ROOT / "Makefile").read_text(encoding="utf-8")))
    return frozenset(found | {word for name in found for word in name.split(".")})


@cache
def modules_named(stem: str) -> tuple[str, ...]:
    paths = (path.relative_to(EBLA.parent).with_suffix("") for path in EBLA.rglob(f"{stem}.py"))
    return tuple(".".join(path.parts) for path in paths)


def resolves(dotted: str) -> bool:
    """Whether a name with its package leads to a module, or to what a module defines."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def leads_somewhere(name: str) -> bool:
    """A dotted name: as the code writes it, or of a module, with its package or without."""
    if name in names() or resolves(name if name.startswith("ebla.") else f"ebla.{name}"):
        return True
    module, _, rest = name.partition(".")
    return any(resolves(f"{path}.{rest}") for path in modules_named(module))


def folders(page: Path) -> set[Path]:
    """Where the paths of a page begin: at the root, at the package, and beside the modules that it names in full."""
    full = {ROOT / path for code in inline(page) for path in re.findall(r"[\w/]+\.py\b", code) if "/" in path}
    about = {ROOT / code for code in inline(page) if re.fullmatch(r"src/ebla/[\w/]+", code)}
    return {ROOT, EBLA, ROOT / "tests", *about, *(path.parent for path in full)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_lead_to_files(page: Path):
    named = {path for code in inline(page) for path in re.findall(r"[\w/]+\.py\b", code)}
    wrong = [path for path in sorted(named) if not any((folder / path).is_file() for folder in folders(page))]
    assert not wrong, f"no such modules: {wrong}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_are_those_of_the_code(page: Path):
    codes = [code for code in inline(page) if ".py" not in code and "/" not in code and code not in ELSEWHERE]
    for code in codes:
        missing = set(re.findall(r"[A-Za-z_]\w*", code)) - names()
        assert not missing, f"`{code}`: the code has no {sorted(missing)}"
        for name in re.findall(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", code):
            assert leads_somewhere(name), f"`{name}` leads nowhere"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_diagrams_name_classes_of_the_code(page: Path):
    drawn = {name for fence in FENCE.findall(page.read_text(encoding="utf-8")) for name in CLASS.findall(fence)}
    assert drawn <= names(), f"the code has no {sorted(drawn - names())}"


def rows_of(page: str, heading: str) -> list[str]:
    """The inline code with which the rows of a table begin: the first table behind a heading of its columns."""
    text = (ROOT / "docs" / "internals" / page).read_text(encoding="utf-8")
    table = text.partition(heading)[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def members_of(union: object) -> Iterator[type]:
    for member in get_args(union):
        yield from members_of(member) if isinstance(member, UnionType) else (member,)


def test_every_requirement_is_explained():
    listed = rows_of("catalog.md", "| requirement | holds if |")
    assert sorted(listed) == sorted(kind.__name__ for kind in members_of(changes.Requirement))


def test_every_scope_is_listed():
    listed = set(rows_of("catalog.md", "| scope | moved by |"))
    relation = RelationId(7)
    assert listed == {
        *(scope for name, scope in vars(scopes).items() if name.isupper()),
        scopes.of_relation(relation),
        scopes.of_tablets(relation),
        scopes.of_tablet(relation, TabletId(3)),
    }


def names_of_services(module: str) -> Iterator[str]:
    """Of classes with a step, those that have a name of their own; others are of a handler, a shard, a relation."""
    for kind in vars(importlib.import_module(module)).values():
        if isinstance(kind, type) and kind.__module__ == module and hasattr(kind, "step") and hasattr(kind, "stop"):
            name = getattr(kind, "name", None)
            if isinstance(name, str):
                yield name


def test_every_service_is_listed():
    found = set()
    for path in EBLA.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "def step(self" in text and "def stop(self" in text and "demo" not in path.parts:
            found |= set(names_of_services(".".join(path.relative_to(EBLA.parent).with_suffix("").parts)))
    assert len(found) > 5
    listed = set(rows_of("services.md", "| service | lane | what a step does |"))
    assert found <= listed, f"services.md has no {sorted(found - listed)}"


MAKES_THREADS = re.compile(r"\b(?:Thread|Timer|ThreadPoolExecutor)\(")


def test_every_module_that_makes_threads_is_listed():
    makes = {
        path.relative_to(EBLA).as_posix()
        for path in EBLA.rglob("*.py")
        if MAKES_THREADS.search(path.read_text("utf-8"))
    }
    beside = {module for module in makes if not module.startswith("demo/")} - {"base/services.py"}
    assert beside == set(rows_of("services.md", "| module | threads for |"))
