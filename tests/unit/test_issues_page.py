"""docs/reference/issues.md lists every code in the order of the code, and each example is what it says it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ebla.validate import Analyser, Code, QueryAnalysis, QueryRefusal, script_issues
from support.valid_queries import KNOWN

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "issues.md"
SECTION = re.compile(
    r"^### `([\w-]+)`\n\n\*(\w+)\.\* (.+?)\n\n```sql\n(.*?)\n```\n\n> (.+?)\n>\n> hint: (.+?)$",
    re.DOTALL | re.MULTILINE,
)


class Refusing:
    """Stands in for Spark."""

    def analyse(self, *_: object) -> QueryAnalysis | QueryRefusal:
        return QueryRefusal(message="no plus", at=12)


SECTIONS = {found[1]: found for found in SECTION.finditer(PAGE.read_text(encoding="utf-8"))}


def test_the_page_lists_every_code_with_its_severity():
    assert re.findall(r"^### `(.+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == [c.value for c in Code]
    assert {code: found[2] for code, found in SECTIONS.items()} == {c.value: c.severity.value for c in Code}


@pytest.mark.parametrize("code", list(Code))
def test_the_example_has_the_issue_with_its_message_and_hint(code: Code):
    example, message, hint = SECTIONS[code.value].groups()[3:]
    analyser: Analyser | None = Refusing() if code is Code.SPARK else None
    found = next(i for i in script_issues(example, KNOWN, analyser) if i.code is code)
    assert found.message == message
    assert found.hint == hint or (hint.endswith(" …") and found.hint.startswith(hint.removesuffix(" …")))
