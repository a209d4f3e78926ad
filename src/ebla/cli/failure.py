"""What a person or a program sees when something went wrong: one line, or one JSON object, on standard error.

The error's class decides the exit code (`ebla.errors`). A traceback is shown only when asked for.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ebla.cli.output import one_line, write_json
from ebla.errors import EblaError, SqlError, UsageError

INTERRUPTED = 130
UNEXPECTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFormat:
    """How to report: as JSON, with tracebacks."""

    as_json: bool
    debug: bool

    @classmethod
    def of(cls, arguments: Sequence[str]) -> ErrorFormat:
        """From the raw arguments, because a wrong option must be reported too, before they are understood."""
        options = list(arguments)
        if "--" in options:
            options = options[: options.index("--")]
        debug = "--debug" in options or os.environ.get("EBLA_DEBUG", "") not in ("", "0")
        return cls(as_json="--json" in options, debug=debug)


def report(error: BaseException, manner: ErrorFormat) -> int:
    """Tell the user what went wrong; returns the exit code."""
    if manner.debug:
        traceback.print_exception(error)
    code, facts = describe(error)
    if manner.as_json:
        write_json({"error": facts}, sys.stderr)
    elif isinstance(error, UsageError) and error.issues:
        print(error, file=sys.stderr)  # a list of issues, each with its line of the text
    else:
        print(f"error: {facts['message']}", file=sys.stderr)
    return code


class Interrupted(Exception):
    """Carries Ctrl-C (its cause) past the library of the command line, which would keep only an exit code."""


def was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error: Spark answers it with one of its own about a cancelled job."""
    return any(isinstance(one, KeyboardInterrupt) for one in _behind(error))


def notes(error: BaseException) -> list[str]:
    """What was added to an error, or to one behind it, on its way: what goes on in spite of it, for example."""
    return list(dict.fromkeys(note for one in _behind(error) for note in getattr(one, "__notes__", ())))


def _behind(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        yield one
        seen.add(id(one))
        one = one.__cause__ or one.__context__


def describe(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The exit code of an error, and what is said of it."""
    if was_interrupted(error):
        return INTERRUPTED, {"type": "Interrupted", "message": "; ".join(["interrupted", *notes(error)])}
    if isinstance(error, EblaError):
        facts: dict[str, Any] = {"type": type(error).__name__, "message": _one_line(error)}
        if isinstance(error, SqlError) and error.line is not None:
            facts |= {"line": error.line, "column": error.column}
        if isinstance(error, UsageError) and error.issues:
            first = error.issues[0]
            facts |= {"message": first.message, "line": first.line, "column": first.column}
            facts["issues"] = [i.as_json() for i in error.issues]
        return error.exit_code, facts
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # what the command line's own parser says of wrong arguments
        return int(getattr(error, "exit_code", 2)), {"type": "UsageError", "message": _wrong_arguments(error)}
    hint = "this is a defect of Ebla: run the command again with --debug and report the traceback"
    return UNEXPECTED, {
        "type": type(error).__name__,
        "message": f"unexpected {type(error).__name__}: {_one_line(error)}; {hint}",
    }


def _wrong_arguments(error: BaseException) -> str:
    message = " ".join(str(error.format_message()).split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", None) or "ebla"
    return f"{message.rstrip('.')}; see '{command} --help'"


def _one_line(error: BaseException) -> str:
    """A message without its line breaks; Spark's are long, and their first paragraph says what happened."""
    text = str(error).strip() or type(error).__name__
    return one_line(" ".join(text.split("\n\nJVM stacktrace")[0].split()))


class _Warnings(logging.Handler):
    """Log records as one line each, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {one_line(record.getMessage())}", file=sys.stderr)


def quiet_logs(manner: ErrorFormat) -> None:
    """Let only Ebla's own warnings through; with `--debug`, everything that Ebla logs."""
    if manner.debug:
        logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
        logging.getLogger("ebla").setLevel(logging.DEBUG)
        return
    import warnings

    warnings.simplefilter("ignore")
    log = logging.getLogger("ebla")
    if not any(isinstance(h, _Warnings) for h in log.handlers):
        log.addHandler(_Warnings(logging.WARNING))
    log.setLevel(logging.WARNING)
    log.propagate = False
    # Py4J writes tracebacks to the root logger when Ctrl-C comes in the middle of a call.
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger().setLevel(logging.CRITICAL)
