"""The table of texts in the reference says what the grammar says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ebla.values import texts
from ebla.values.grammar import Unfit, parse
from ebla.values.types import canonical

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "types.md"
ROW = re.compile(r"^\| `([^`]+)`[^|]* \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def section(name: str) -> str:
    return PAGE.read_text(encoding="utf-8").partition(f"## {name}\n")[2].partition("\n## ")[0]


ROWS = {kind: (stored, refused) for kind, stored, refused in ROW.findall(section("Texts").partition("Doors differ")[0])}


def test_every_type_of_texts_has_a_row():
    kinds = {canonical(kind).partition("(")[0] for kind in ROWS}
    assert kinds == {"boolean", "int", "decimal", "double", "float", "string", "date", "timestamp", "timestamp_ntz"}


@pytest.mark.parametrize("kind", ROWS)
def test_texts_are_stored_and_refused_as_described(kind: str):
    tree = parse(kind)
    stored, refused = (re.findall("`([^`]+)`", cell) for cell in ROWS[kind])
    assert stored
    for text in stored:
        texts.value(text, tree)
    for text in refused:
        with pytest.raises(Unfit):
            texts.value(text, tree)
