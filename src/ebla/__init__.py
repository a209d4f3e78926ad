"""Ebla: tables that never stop changing, and what is derived from them, on Spark."""

from typing import TYPE_CHECKING

from ebla.base import lazy
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
    from ebla.api.connect import connect
    from ebla.api.database import Database
    from ebla.api.table import Table
    from ebla.predicates.conditions import between, is_null, not_null, one_of, prefix
    from ebla.spark.result import Result

__getattr__ = lazy.exports(
    __name__,
    {
        "ebla.api.connect": ("connect",),
        "ebla.api.database": ("Database",),
        "ebla.predicates.conditions": ("between", "is_null", "not_null", "one_of", "prefix"),
        "ebla.spark.result": ("Result",),
        "ebla.api.table": ("Table",),
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
