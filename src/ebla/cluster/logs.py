"""Log lines of a node: one for each event, as text or as JSON objects."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = " ".join(record.getMessage().split())
        if record.exc_info:
            message += " | " + " | ".join(self.formatException(record.exc_info).splitlines())
        return f"{_time(record)} {record.levelname.lower()} {record.name} {message}"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def install(form: Literal["text", "json"]) -> None:
    """Send what Ebla and its HTTP server log to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name, level in (("ebla", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
