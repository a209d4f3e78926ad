"""The page about building lists its modules."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "building.md"


def test_every_module_is_listed_and_opens_with_its_theory():
    page = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^\| `((?:\w+/)?\w+\.py)` \|", page, re.MULTILINE)
    ebla = PAGE.parents[2] / "src" / "ebla"
    modules = {path.name for path in (ebla / "build").glob("*.py") if path.name != "__init__.py"}
    assert {name for name in listed if "/" not in name} == modules
    for name in listed:
        if name not in ("ports.py", "build_store.py", "relations/builds.py"):
            text = (ebla / (name if "/" in name else f"build/{name}")).read_text(encoding="utf-8")
            assert "Theory of operation" in text, name
