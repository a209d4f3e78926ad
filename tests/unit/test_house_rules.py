"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EBLA = ROOT / "src" / "ebla"

MODULE_LINES_MAX = 600

# Modules that decide: values in, values out. Extend the list with every new one.
DECISION_MODULES = [
    "algebra/*.py",
    "predicates/*.py",
    "query/plan.py",
]
# Of building, all but what reads the catalog and runs the loops. Time, chance and identifiers are given to it.
BUILD_EFFECTS = {"__init__", "build_store", "cuts", "engine", "batch", "node", "reach", "loop", "throttles", "trouble"}
BUILD_DECISIONS = [path.stem for path in sorted((EBLA / "build").glob("*.py")) if path.stem not in BUILD_EFFECTS]
EFFECTS = {"pyspark", "sqlalchemy"}
GIVEN = {"time", "datetime", "random", "uuid", "threading"}
# Patterns of modules under src/ebla, and the packages they must not import.
FORBIDDEN_IMPORTS = {
    **dict.fromkeys(DECISION_MODULES, EFFECTS),
    **{f"build/{name}.py": {*EFFECTS, *GIVEN} for name in BUILD_DECISIONS},
    "model/*.py": {*EFFECTS, *GIVEN},
    "sql/*.py": {"pyspark"},
    # All of the validator but its analysis by Spark and its reading of the catalog.
    "validate/[!sw]*.py": EFFECTS,
    "validate/s[!p]*.py": EFFECTS,
}

MAY_PRINT = {"cli", "demo", "demo.py"}  # folders and modules directly under src/ebla

MACHINE_PATH = re.compile(r"(?<![\w.})\]])/(?:(?:work|root)/|home/[A-Za-z0-9_])")
LOCK_LINE = re.compile(r"^[A-Za-z0-9._-]+==[^ ]+$")


def modules() -> list[Path]:
    found = sorted(EBLA.rglob("*.py"))
    assert found, f"no modules under {EBLA}"
    return found


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), filename=str(module))


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def candidate_files() -> list[Path]:
    """Files under version control or about to be; in an unpacked archive, all but hidden ones."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        return [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    visible = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    return [path for top in visible for path in (top, *top.rglob("*"))]


def text_files() -> Iterator[tuple[Path, str]]:
    for path in candidate_files():
        if not path.is_file():  # a folder, or deleted and not yet committed
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def imported_packages(module: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0], node.lineno


def test_modules_are_short():
    lengths = {module: len(module.read_text(encoding="utf-8").splitlines()) for module in modules()}
    long = [place(module, lines) for module, lines in lengths.items() if lines > MODULE_LINES_MAX]
    assert not long, f"expected at most {MODULE_LINES_MAX} lines, found {long}"


def test_no_file_names_a_path_of_one_machine():
    found = [
        place(path, number)
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, f"absolute paths of one machine: {found}"


def test_lock_file_holds_only_names_and_versions():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert lines
    wrong = [line for line in lines if not LOCK_LINE.match(line)]
    assert not wrong, f"expected name==version, found {wrong}"


def test_only_the_command_line_and_the_demo_print():
    found = [
        place(module, node.lineno)
        for module in modules()
        if module.relative_to(EBLA).parts[0] not in MAY_PRINT
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, f"print() outside the command line; log instead: {found}"


def test_deciding_modules_import_no_effects():
    found = [
        f"{place(module, line)} imports {package}"
        for pattern, forbidden in FORBIDDEN_IMPORTS.items()
        for module in sorted(EBLA.glob(pattern))
        for package, line in imported_packages(module)
        if package in forbidden
    ]
    assert not found, f"deciding and effects are separate: {found}"


def test_package_files_only_reexport():
    found = [
        place(module, node.lineno)
        for module in modules()
        if module.name == "__init__.py"
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    assert not found, f"__init__.py only re-exports; move the definition to a module: {found}"


NAMES_OF_NOTHING = {
    word for bad in ("told", "dear", "wide", "shown", "known") for word in (bad, bad.title(), bad.upper())
}
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
NO_ACTOR = re.compile(r"\b(?:whoever|somebody|nobody|anybody|so many)\b", re.IGNORECASE)


def names(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            return name
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
    return ""


def test_a_name_is_a_noun_or_a_verb():
    found = [
        f"{place(module, getattr(node, 'lineno', 0))}: {names(node)}"
        for module in modules()
        for node in ast.walk(tree(module))
        if NAMES_OF_NOTHING & set(WORD.findall(names(node).replace("_", " ")))
    ]
    assert not found


def test_texts_name_the_actor():
    pages = [*modules(), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = [
        place(path, number)
        for path in pages
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if NO_ACTOR.search(line)
    ]
    assert not found, f"{found}: name the writer, the reader, the leader, the process; name the number"


def test_the_glossarys_words_are_one_class_each():
    classes = [node.name for module in modules() for node in ast.walk(tree(module)) if isinstance(node, ast.ClassDef)]
    for word in ("Run", "Part", "Task", "Chunk", "Pace", "Decision", "Position", "Snapshot"):
        assert [name for name in classes if name.strip("_") == word] == [word]
