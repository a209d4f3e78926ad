"""What a node prints: one line for each event, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from ebla.cluster.logs import JsonLines, TextLines


def record(message: str, *given: object, failed: bool = False) -> logging.LogRecord:
    info = None
    if failed:
        try:
            raise ValueError("first\nsecond")
        except ValueError:
            info = sys.exc_info()
    made = logging.LogRecord("ebla.node", logging.WARNING, __file__, 1, message, given, info)
    made.created, made.msecs = 1_763_532_000.25, 250.0
    return made


def test_a_line_of_text_says_when_how_bad_where_and_what():
    assert TextLines().format(record("node=%s serving", "n1")) == (
        "2025-11-19T06:00:00.250Z warning ebla.node node=n1 serving"
    )


def test_a_line_of_json_is_an_object():
    assert json.loads(JsonLines().format(record("node=%s serving", "ü"))) == {
        "at": "2025-11-19T06:00:00.250Z",
        "level": "warning",
        "logger": "ebla.node",
        "message": "node=ü serving",
    }


@pytest.mark.parametrize("form", [TextLines(), JsonLines()], ids=["text", "json"])
def test_an_event_is_one_line_with_its_traceback(form: logging.Formatter):
    line = form.format(record("it\nfailed", failed=True))
    assert "\n" not in line
    assert "ValueError" in line
    assert "second" in line
