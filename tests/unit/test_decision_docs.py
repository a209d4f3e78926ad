"""A decision in force names modules that are there. One that another has replaced may name old ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EBLA = ROOT / "src" / "ebla"
DECISIONS = ROOT / "docs" / "decisions"
REPLACED = re.compile(r"\breplaced by \[?\d{4}", re.IGNORECASE)
PAGES = [page for page in sorted(DECISIONS.glob("0*.md")) if not REPLACED.search(page.read_text(encoding="utf-8"))]


def is_there(path: str) -> bool:
    """A path from the root, from the package or from the tests; a name alone is that of any module."""
    if "/" not in path:
        return any(EBLA.rglob(path))
    return any((folder / path).is_file() for folder in (ROOT, EBLA, ROOT / "tests"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_are_there(page: Path):
    codes = " ".join(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))
    named = set(re.findall(r"[\w/]+\.py\b", codes))
    missing = sorted(path for path in named if not is_there(path))
    assert not missing, f"no such modules: {missing}"
