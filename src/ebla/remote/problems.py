"""Problem documents of a node, as the errors that an open warehouse raises."""

from __future__ import annotations

import json
from typing import Any

import httpx

from ebla import errors
from ebla.base.issue import Code, Issue, Severity
from ebla.errors import Culprit, EblaError, RefusedValue

_FIELDS = ("line", "column", "settled", "lost", "code", "goes_on")


def error_of(response: httpx.Response) -> EblaError:
    """The error that a response of another status than 2xx tells of: the same class, the same words."""
    try:
        found = json.loads(response.content)
    except ValueError:
        found = {}
    if not isinstance(found, dict) or "detail" not in found:
        return _foreign(response)
    error = _made(str(found.get("title")), str(found["detail"]), response.status_code)
    for name in _FIELDS:
        if found.get(name) is not None:
            setattr(error, name, found[name])
    if "culprit" in found:
        error.culprit = Culprit(found["culprit"].get("relation"), found["culprit"]["key"])
    if isinstance(error, errors.UsageError) and "issues" in found:
        error.issues = tuple(_issue(one) for one in found["issues"])
    if isinstance(error, errors.TypeMismatchError) and "refused" in found:
        error.refused = RefusedValue(**found["refused"])
    if isinstance(error, errors.NodeUnavailableError):
        error.retry_after_s = retry_after_s(response)
    return error


def retry_after_s(response: httpx.Response) -> float | None:
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isdigit() else None


def _made(name: str, detail: str, status: int) -> EblaError:
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, EblaError)):
        kind = errors.ConflictError if status == 409 else errors.UsageError if status < 500 else EblaError
    made: EblaError = kind.__new__(kind, detail)  # `__init__` of some would add to the words
    if isinstance(made, errors.SqlError):
        made.line = made.column = None
    if isinstance(made, errors.SparkJobError):
        made.lost, made.code = False, None
    return made


def _issue(found: dict[str, Any]) -> Issue:
    return Issue(
        offset=found["offset"],
        line=found["line"],
        column=found["column"],
        code=Code(found["code"]),
        severity=Severity(found["severity"]),
        message=found["message"],
        hint=found["hint"],
    )


def _foreign(response: httpx.Response) -> EblaError:
    said = f"{response.url}: expected an answer of an Ebla node, found status {response.status_code}"
    if response.status_code in (502, 503, 504):
        return errors.NodeUnavailableError(said)
    return errors.UsageError(said)
