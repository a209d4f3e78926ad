"""Ebla: tables that never stop changing, and what is derived from them, on Spark."""

from typing import TYPE_CHECKING

from ebla.base import lazy
from ebla.errors import (
    AccessError,
    CatalogError,
    CatalogUnavailableError,
    ConflictError,
    ConstraintError,
    CorruptRunError,
    DuplicateKeyError,
    DuplicateNameError,
    EblaError,
    LimitError,
    LoadError,
    MissingDependencyError,
    NodeConflictError,
    NodeUnavailableError,
    NoSparkError,
    RateLimitError,
    RequestCancelledError,
    RightError,
    SnapshotError,
    SparkJobError,
    SqlError,
    StaleTermError,
    StorageError,
    StorageFullError,
    TokenError,
    TransactionClosedError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
    ViewStoppedError,
)

if TYPE_CHECKING:
    from ebla.api.connect import connect
    from ebla.api.database import Database
    from ebla.api.restore import restore
    from ebla.api.table import Table
    from ebla.predicates.conditions import between, is_null, not_null, one_of, prefix
    from ebla.spark.result import Result

__getattr__ = lazy.exports(
    __name__,
    {
        "ebla.api.connect": ("connect",),
        "ebla.api.database": ("Database",),
        "ebla.api.restore": ("restore",),
        "ebla.predicates.conditions": ("between", "is_null", "not_null", "one_of", "prefix"),
        "ebla.spark.result": ("Result",),
        "ebla.api.table": ("Table",),
    },
)

__all__ = [
    "AccessError",
    "CatalogError",
    "CatalogUnavailableError",
    "ConflictError",
    "ConstraintError",
    "CorruptRunError",
    "Database",
    "DuplicateKeyError",
    "DuplicateNameError",
    "EblaError",
    "LimitError",
    "LoadError",
    "MissingDependencyError",
    "NoSparkError",
    "NodeConflictError",
    "NodeUnavailableError",
    "RateLimitError",
    "RequestCancelledError",
    "Result",
    "RightError",
    "SnapshotError",
    "SparkJobError",
    "SqlError",
    "StaleTermError",
    "StorageError",
    "StorageFullError",
    "Table",
    "TokenError",
    "TransactionClosedError",
    "TypeMismatchError",
    "UnknownNameError",
    "UsageError",
    "ViewStoppedError",
    "between",
    "connect",
    "is_null",
    "not_null",
    "one_of",
    "prefix",
    "restore",
]
