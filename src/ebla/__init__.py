"""Ebla: tables that never stop changing, and what is derived from them, on Spark."""

from typing import TYPE_CHECKING

from ebla import lazy
from ebla.errors import (
    CatalogError,
    CatalogUnavailableError,
    ConflictError,
    ConstraintError,
    CorruptRunError,
    DuplicateKeyError,
    DuplicateNameError,
    EblaError,
    LoadError,
    MissingDependencyError,
    NodeConflictError,
    SnapshotError,
    SparkJobError,
    SqlError,
    StaleTermError,
    StorageError,
    StorageFullError,
    TransactionClosedError,
    TypeMismatchError,
    UnknownNameError,
    UsageError,
    ViewStoppedError,
)

if TYPE_CHECKING:
    from ebla.database import Database, connect
    from ebla.query.conditions import between, is_null, not_null, one_of, prefix
    from ebla.result import Result
    from ebla.table import Table

__getattr__ = lazy.exports(
    __name__,
    {
        "ebla.database": ("Database", "connect"),
        "ebla.query.conditions": ("between", "is_null", "not_null", "one_of", "prefix"),
        "ebla.result": ("Result",),
        "ebla.table": ("Table",),
    },
)

__all__ = [
    "CatalogError",
    "CatalogUnavailableError",
    "ConflictError",
    "ConstraintError",
    "CorruptRunError",
    "Database",
    "DuplicateKeyError",
    "DuplicateNameError",
    "EblaError",
    "LoadError",
    "MissingDependencyError",
    "NodeConflictError",
    "Result",
    "SnapshotError",
    "SparkJobError",
    "SqlError",
    "StaleTermError",
    "StorageError",
    "StorageFullError",
    "Table",
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
]
