"""The documentation says what the code says: settings, errors, system tables, names, links, and examples that parse."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import ebla
from ebla import errors
from ebla.api import system
from ebla.api.metrics import Metrics
from ebla.api.process_metrics import ProcessMetrics
from ebla.base.settings import Settings, load
from ebla.catalog.store import Catalog
from ebla.errors import EblaError
from ebla.source.options import READ_OPTIONS, WRITE_OPTIONS
from ebla.sql import statements as st
from ebla.sql.lex import split
from ebla.sql.parse import parse
from ebla.tables.context import Context
from ebla.tables.loads import OPTIONS
from ebla.values import types

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LINE_MAX = 125  # of prose: tables and lines with links may be longer


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The page without its examples and without inline code."""
    return re.sub(r"`[^`\n]*`", "`code`", FENCE.sub("", text_of(page)))


def sections(page: Path) -> dict[str, str]:
    """Text by heading of the second level."""
    parts = re.split(r"^## (.+)$", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, without the lines of dashes."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.fullmatch(r"[|: -]+", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def named_rows(text: str) -> dict[str, list[str]]:
    """Rows whose first cell is one word of code, by that word."""
    found = {}
    for name, *rest in rows(text):
        if word := re.fullmatch(r"`([\w.]+)`", name):
            assert word[1] not in found, f"{word[1]} is described twice"
            found[word[1]] = rest
    return found


def examples(language: str, pages: list[Path] = PAGES) -> Iterator[tuple[str, str]]:
    """The fenced examples of a language and where each one begins."""
    for page in pages:
        text = text_of(page)
        for match in FENCE.finditer(text):
            if match[1] == language:
                yield f"{name_of(page)}:{text.count(chr(10), 0, match.start()) + 2}", match[2]


# ---- the reference equals the code ----------------------------------------------------------------------


def test_settings_are_those_of_the_code():
    found = named_rows(text_of(REFERENCE / "settings.md"))
    assert list(found) == list(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        _, default, meaning = found[name]
        assert default == f"`{field.get_default(call_default_factory=True)!r}`", name
        assert meaning.replace("\\<", "<") == field.description, name


def test_metrics_are_those_of_the_code(tmp_path: Path):
    """Those of an empty warehouse: each is told, with or without a sample."""
    catalog = Catalog.open(str(tmp_path))
    context = Context.open(catalog, load())
    of_process = ProcessMetrics(catalog, context.lag, context.services, context.storage.caches)
    families = [*Metrics(catalog).registry.collect(), *of_process.collect()]
    context.close()
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    section = sections(REFERENCE / "cli.md")["`ebla metrics`"]
    assert set(named_rows(section)) == names


def expressions() -> list[str]:
    """What the dashboard and the alerts ask Prometheus for."""
    panels = json.loads(text_of(ROOT / "deploy" / "grafana.json"))["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    return shown + re.findall(r"^ +expr: (.+)$", text_of(ROOT / "deploy" / "alerts.yml"), re.MULTILINE)


def test_the_dashboard_and_the_alerts_ask_for_metrics_and_labels_that_there_are():
    metrics = named_rows(sections(REFERENCE / "cli.md")["`ebla metrics`"])
    labels = {name: {*filter(None, re.split(r", *", cells[0])), "instance", "le"} for name, cells in metrics.items()}
    asked = expressions()
    assert len(asked) > 25
    for expression in asked:
        names = re.findall(r"\bebla_\w+", expression)
        known = {name: labels.get(name) or labels.get(re.sub(r"_bucket$", "", name)) for name in names}
        assert names, expression
        assert None not in known.values(), expression
        used = set(re.findall(r"(\w+)=\"", expression)) | {
            label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r", *", group)
        }
        assert all(used <= (of or set()) for of in known.values()), expression


def test_every_alert_is_explained():
    alerts = re.findall(r"alert: (\w+)", text_of(ROOT / "deploy" / "alerts.yml"))
    assert list(named_rows(sections(DOCS / "guides" / "monitoring.md")["Dashboard and alerts"])) == alerts


def error_classes() -> dict[str, type[EblaError]]:
    return {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, EblaError)}


def test_errors_are_those_of_the_code():
    found = named_rows(text_of(REFERENCE / "errors.md"))
    assert list(found) == list(error_classes())
    for name, kind in error_classes().items():
        code, retryable, _ = found[name]
        assert (code, retryable) == (str(kind.exit_code), "yes" if kind.retryable else "no"), name
        assert getattr(ebla, name) is kind


def test_the_tree_of_errors_is_that_of_the_code():
    tree = next(body for _, body in examples("text", [REFERENCE / "errors.md"]))
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in tree.splitlines():
        match = re.match(r"([│├└─ ]*)(\w+)", line)
        assert match is not None, line
        depth = len(match[1]) // 4
        parents[match[2]] = path[depth - 1] if depth else None
        path[depth:] = [match[2]]
    assert parents == {
        name: None if kind is EblaError else kind.__base__.__name__  # type: ignore[union-attr]
        for name, kind in error_classes().items()
    }


def test_system_tables_are_those_of_the_catalog():
    found = {title.strip("`"): named_rows(text) for title, text in sections(REFERENCE / "system-tables.md").items()}
    assert sorted(found) == sorted(system.names())
    for name in system.names():
        columns = {column: cells[0] for column, cells in found[name].items()}
        expected = {field.name: types.from_arrow(field.type) for field in system.table_schema(name)}
        assert list(columns.items()) == list(expected.items()), name


@pytest.mark.parametrize("kind", [ebla.Database, ebla.Table, ebla.Result])
def test_python_members_are_described(kind: type):
    described = {
        word
        for name, *_ in rows(sections(REFERENCE / "python.md")[kind.__name__])
        for word in re.findall(r"`(\w+)", name)
    }
    public = {name for name in vars(kind) if not name.startswith("_")}
    assert public <= described, f"{kind.__name__}: not in python.md: {sorted(public - described)}"
    known = public | {"name", "len", "for"}  # an attribute of handles, and what Python's own syntax calls
    gone = described - known - {"member"}
    assert not gone, f"{kind.__name__}: in python.md, but not there: {sorted(gone)}"


def test_options_of_the_spark_source_are_described():
    found = named_rows(sections(REFERENCE / "spark-source.md")["Options"])
    assert set(found) == {*READ_OPTIONS, *WRITE_OPTIONS}
    writing = {name for name, (use, _) in found.items() if "write" in use}
    assert writing == set(WRITE_OPTIONS)


@pytest.mark.parametrize("file_format", sorted(OPTIONS))
def test_options_of_load_are_described(file_format: str):
    cells = named_rows(sections(REFERENCE / "sql.md")["LOAD"])[file_format][0]
    common = next(text for name, text in rows(sections(REFERENCE / "sql.md")["LOAD"]) if name == "common")
    described = set(re.findall(r"`(\w+)`", cells + (common if "common" in cells else "")))
    assert described == OPTIONS[file_format]


def test_failpoints_are_those_of_the_code():
    sources = [path for path in (ROOT / "src" / "ebla").rglob("*.py") if path.name != "failpoint.py"]
    in_code = {name for path in sources for name in re.findall(r'\bhit\("([^"]+)"\)', text_of(path))}
    described = set(named_rows(sections(DOCS / "internals" / "failpoints.md")["The failpoints"]))
    assert described == in_code


# ---- examples -------------------------------------------------------------------------------------------


def test_every_statement_has_an_example_that_parses():
    shown = set()
    for place, text in examples("sql", [REFERENCE / "sql.md"]):
        for statement in split(text):
            try:
                shown.add(type(parse(statement)))
            except EblaError as error:
                pytest.fail(f"{place}: {error}")
    described = set(get_args(st.Statement))
    missing = {kind.__name__ for kind in described - shown}
    assert not missing, f"sql.md: no example of {sorted(missing)}"


@pytest.mark.parametrize(("place", "text"), [pytest.param(p, t, id=p) for p, t in examples("python")])
def test_python_examples_compile(place: str, text: str):
    compile(text, place, "exec")


# ---- links and form -------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text_of(page))):
        plain = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (unique := slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(unique)
    return found


def links(page: Path) -> Iterator[tuple[str, Path, str]]:
    """Relative links: as written, the file, the anchor."""
    for target in LINK.findall(prose(page)):
        if "://" not in target and not target.startswith("mailto:"):
            path, _, anchor = target.partition("#")
            yield target, (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path):
    for target, file, anchor in links(page):
        assert file.exists(), f"{target}: no such file"
        if anchor:
            assert anchor in anchors(file), f"{target}: expected one of {sorted(anchors(file))}"


def test_every_page_is_listed():
    listed = {file for page in (DOCS / "index.md", DOCS / "decisions" / "README.md") for _, file, _ in links(page)}
    pages = {page for page in PAGES if page.is_relative_to(DOCS) and page != DOCS / "index.md"}
    assert pages <= listed, f"not in docs/index.md: {sorted(name_of(p) for p in pages - listed)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_prose_is_not_too_wide(page: Path):
    outside = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text_of(page))
    wide = [
        number
        for number, line in enumerate(outside.splitlines(), start=1)
        if len(line) > LINE_MAX and not line.startswith("|") and "](" not in line
    ]
    assert not wide, f"{name_of(page)}: more than {LINE_MAX} characters in lines {wide}"


def test_the_readme_has_a_place_for_the_benchmarks():
    lines = text_of(README).splitlines()
    assert lines.count("<!-- bench:foundation -->") == lines.count("<!-- /bench:foundation -->") == 1
    assert lines.index("<!-- bench:foundation -->") < lines.index("<!-- /bench:foundation -->")
