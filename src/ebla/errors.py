"""Every error that Ebla raises on purpose, in one tree.

    EblaError
    ├── UsageError                 the request is wrong; nothing was changed          exit 2
    │   ├── SqlError               the text does not parse, or Spark refuses it
    │   ├── UnknownNameError       no such table, column, setting
    │   ├── DuplicateNameError     the name is taken, or is given twice
    │   ├── TypeMismatchError      wrong type, overflow, NULL where none may be
    │   ├── DuplicateKeyError      the key is there already, or twice in one batch
    │   ├── ConstraintError        a row breaks a CHECK constraint
    │   ├── LoadError              a file to load is unreadable or does not fit
    │   ├── ViewStoppedError       a view's query fails on a row of its inputs
    │   ├── SnapshotError          the version or time asked for cannot be read
    │   └── LimitError             a request or its answer is larger than a node allows
    ├── CatalogError               the catalog is missing, foreign or too new          exit 3
    │   ├── CatalogUnavailableError its database does not answer, or is locked; try again
    │   └── NodeConflictError      a node id is in use with another storage root
    ├── ConflictError              another commit came first; the work may be repeated exit 4
    │   ├── StaleTermError         an older leader spoke
    │   └── TransactionClosedError the transaction was aborted or its lease ran out
    ├── StorageError               bytes could not be read or written                  exit 5
    │   ├── CorruptRunError        a run is missing or damaged
    │   └── StorageFullError       no space left; the write was rolled back
    ├── MissingDependencyError     Java or another program is not installed            exit 6
    ├── SparkJobError              Spark lost a job; the work may be repeated          exit 7
    ├── AccessError                a node refuses the user of a request                exit 8
    │   ├── TokenError             the token is missing, wrong or was replaced
    │   └── RightError             the user lacks a right; the message names it
    ├── NodeUnavailableError       no node answers, or it is stopping; try again       exit 9
    │   ├── RateLimitError         a token asks more often than the node allows
    │   └── NoSparkError           the node has no Spark, which the statement needs
    └── RequestCancelledError      the request was cancelled, or ran out of time       exit 10

The class decides whether to retry and the exit code of the command line. The message says what was
expected, what was found, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ebla.base.issue import Issue

TEXT_MAX = 80
"""The number of characters of a value that a message has."""


class Culprit(NamedTuple):
    """The row or value that is to blame for a failure."""

    relation: str | None
    """The table or view that has the row; `None` where the key alone is known."""
    key: str
    """Its columns and values, such as `id = 7`."""

    def __str__(self) -> str:
        return self.key if self.relation is None else f"{self.relation} ({self.key})"


class EblaError(Exception):
    """The root of the tree."""

    exit_code = 1
    retryable = False
    culprit: Culprit | None = None
    """The row or value that is to blame, where it was found; the message says it, too."""
    goes_on: bool = False
    """Whether only the waiting ended: the work is tried again, here or in another process that has Spark."""

    def found_at(self, place: Culprit) -> EblaError:
        """The same error, which says which row is to blame."""
        found = type(self)(f"{self}; found at {place}")
        found.culprit = place
        return found


class UsageError(EblaError):
    exit_code = 2

    issues: tuple[Issue, ...] = ()
    """What the validator found wrong with a statement, in the order of the text; the message lists the same."""


class SqlError(UsageError):
    """The statement does not parse or Spark refuses it; carries the place in the text where known."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        at = "" if line is None else f" (line {line}, column {column})"
        super().__init__(message + at)
        self.line = line
        self.column = column


class UnknownNameError(UsageError):
    pass


class DuplicateNameError(UsageError):
    pass


class TypeMismatchError(UsageError):
    refused: RefusedValue | None = None
    """The one value of the given rows that it is about, if it is about one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedValue:
    """A value that its column does not take. `row` counts from 0, in what was given."""

    column: str
    row: int
    expected: str
    found: str
    why: str = ""

    def __str__(self) -> str:
        found = self.found if len(self.found) <= TEXT_MAX else self.found[: TEXT_MAX - 3] + "..."
        return f"expected {self.expected}, found {found}" + (f" ({self.why})" if self.why else "")

    def error(self, where: str) -> TypeMismatchError:
        made = TypeMismatchError(f"{where}: {self}")
        made.refused = self
        return made


class DuplicateKeyError(UsageError):
    pass


class ConstraintError(UsageError):
    pass


class LoadError(UsageError):
    pass


class ViewStoppedError(UsageError):
    """Trying again does not help: the row has to be mended first."""


class SnapshotError(UsageError):
    pass


class LimitError(UsageError):
    pass


class CatalogError(EblaError):
    exit_code = 3


class CatalogUnavailableError(CatalogError):
    """The catalog's database did not answer within `catalog_retry_s`, or another process kept it locked."""

    retryable = True

    since: float | None = None
    """When it was first found so, on the clock of `time.monotonic`."""

    settled = True
    """False: a commit was on its way, and whether it happened is not known."""


class NodeConflictError(CatalogError):
    pass


class ConflictError(EblaError):
    exit_code = 4
    retryable = True


class StaleTermError(ConflictError):
    retryable = False


class TransactionClosedError(ConflictError):
    pass


class StorageError(EblaError):
    exit_code = 5


class CorruptRunError(StorageError):
    pass


class StorageFullError(StorageError):
    pass


class MissingDependencyError(EblaError):
    """Java, Spark or another program that Ebla needs is not there."""

    exit_code = 6


class SparkJobError(EblaError):
    """Spark could not finish a job, and neither a row nor the text is to blame."""

    exit_code = 7
    retryable = True

    def __init__(self, message: str, *, lost: bool = False, code: str | None = None) -> None:
        super().__init__(message)
        self.lost = lost
        """Whether a job, a stage, a worker or Spark itself is known to be gone."""
        self.code = code


class AccessError(EblaError):
    exit_code = 8


class TokenError(AccessError):
    pass


class RightError(AccessError):
    pass


class NodeUnavailableError(EblaError):
    """No node of the cluster could be asked, or the one that was asked is about to stop."""

    exit_code = 9
    retryable = True

    retry_after_s: float | None = None
    """When the node wants to be asked again."""


class RateLimitError(NodeUnavailableError):
    pass


class NoSparkError(NodeUnavailableError):
    """Another node may have it: a remote client asks all of its addresses before it raises this."""


class RequestCancelledError(EblaError):
    """Its jobs were cancelled. What it had committed before stays."""

    exit_code = 10
