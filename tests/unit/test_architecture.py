"""The page about the packages is drawn from the import contract, and no module knows too many others."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EBLA = ROOT / "src" / "ebla"
PAGE = ROOT / "docs" / "internals" / "architecture.md"

IMPORTS_MAX = 15
"""How many modules of ours one of them imports at most. It only ever goes down."""
CONTEXT_USERS_MAX = 25
"""How many modules import the whole context, with what runs in the background; others take what reading or writing
needs, or single pieces. It only goes down."""
CLASS_LINES_MAX = 250
FUNCTION_LINES_MAX = 60


@cache
def layers() -> tuple[tuple[str, ...], ...]:
    """The packages of each layer, from the top."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = tools["importlinter"]["contracts"]
    [whole] = [contract for contract in contracts if contract.get("containers") == ["ebla"]]
    return tuple(tuple(re.split(r"\s*[|:]\s*", line)) for line in whole["layers"])


def picture() -> list[str]:
    drawn = ["flowchart TB"]
    for number, packages in enumerate(layers(), start=1):
        drawn += [f'    subgraph l{number}[" "]', f"        {' ~~~ '.join(packages)}", "    end"]
    return [*drawn, f"    {' --> '.join(f'l{number}' for number in range(1, len(layers()) + 1))}"]


def table() -> list[str]:
    """A row for each package: its first words are those of its `__init__.py`, or of the module."""
    found = []
    for package in (package for packages in layers() for package in packages):
        module = EBLA / package / "__init__.py"
        said = ast.get_docstring(ast.parse((module if module.exists() else EBLA / f"{package}.py").read_text("utf-8")))
        assert said, f"{package} has no docstring"
        found.append(f"| `{package}` | {said.splitlines()[0]} |")
    return found


def imports() -> dict[str, set[str]]:
    """What each module imports of ours, also inside functions and for types alone."""
    paths = {".".join(path.relative_to(EBLA.parent).with_suffix("").parts): path for path in EBLA.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            known = (name if name in modules else name.rpartition(".")[0] for name in names)
            found.setdefault(module, set()).update(name for name in known if name in modules and name != module)
    return found


def test_the_picture_is_that_of_the_contract():
    [drawn] = re.findall(r"```mermaid\n(flowchart TB\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert drawn.splitlines() == picture(), "expected:\n" + "\n".join(picture())


def test_the_table_of_packages_is_that_of_the_code():
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in page if re.match(r"\| `\w+` \|", line)] == table(), "expected:\n" + "\n".join(table())


def test_the_walks_name_modules_that_are_there():
    named = re.findall(r"`(\w+(?:/\w+)*\.py)`", PAGE.read_text(encoding="utf-8"))
    assert named
    missing = [name for name in named if not (EBLA / name).exists() and not (ROOT / name).exists()]
    assert not missing, f"no such modules: {missing}"


MODULE_PAGES = {"catalog": "catalog.md", "query": "read-path.md"}  # test_build_docs.py looks at building.md


@pytest.mark.parametrize("package", MODULE_PAGES)
def test_the_page_of_a_package_names_its_modules(package: str):
    page = (PAGE.parent / MODULE_PAGES[package]).read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", page))
    missing = sorted({file.name for file in (EBLA / package).glob("*.py")} - named - {"__init__.py"})
    assert not missing, f"{MODULE_PAGES[package]} does not name {missing}"


def test_no_module_imports_too_many_others():
    wide = {module: len(found) for module, found in imports().items() if len(found) > IMPORTS_MAX}
    assert not wide, f"expected at most {IMPORTS_MAX} imports of ours, found {wide}; split along what each part knows"


def test_no_more_modules_take_the_whole_context():
    users = sorted(module for module, found in imports().items() if "ebla.tables.context" in found)
    assert len(users) <= CONTEXT_USERS_MAX, f"expected at most {CONTEXT_USERS_MAX} users of the context, found {users}"


def test_one_module_says_what_a_commit_of_rows_requires():
    """Transactions are asked for a decision by the builder alone, and end by nothing else."""
    asking, ending = set(), set()
    for path in EBLA.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                on, module = ast.unparse(node.func.value), path.relative_to(EBLA).as_posix()
                if node.func.attr == "decision" and on.endswith("transaction"):
                    asking.add(module)
                if node.func.attr == "EndTransaction":
                    ending.add(module)
    assert asking == {"tables/commit.py"}
    assert ending == {"tables/transaction.py"}


def test_classes_and_functions_fit_the_eye():
    long = []
    for file in EBLA.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            most = {ast.ClassDef: CLASS_LINES_MAX, ast.FunctionDef: FUNCTION_LINES_MAX}.get(type(node))
            if most is not None and isinstance(node, ast.ClassDef | ast.FunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                long += [f"{file.relative_to(EBLA)}: {node.name} has {lines} lines"] * (lines > most)
    assert not long


def test_a_lazy_module_has_the_name_that_types_are_checked_with():
    """Checkers see one half of `if TYPE_CHECKING: from ebla.a import b` and `else: b = lazy.Module("ebla.a.b")`."""
    count = 0
    for file in EBLA.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Attribute(attr="Module"), args=[ast.Constant(value=module)]),
                ):
                    assert named.get(name) == module, f"{file.relative_to(EBLA)}: {name} is {module!r} at run time"
                    count += 1
    assert count
