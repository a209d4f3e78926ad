"""SQL without Spark: statements as values, table references in queries, and writes as queries."""

from typing import TYPE_CHECKING

from ebla.base import lazy

if TYPE_CHECKING:
    from ebla.sql.dml import MERGE_CARDINALITY, delete_query, insert_query, merge_query, update_query
    from ebla.sql.lex import StatementText, quote, split
    from ebla.sql.parse import SUPPORTED
    from ebla.sql.query import Query, TableRef
    from ebla.sql.refs import find, rewrite
    from ebla.sql.statements import (
        AddColumns,
        AlterColumnType,
        ColumnSpec,
        Compact,
        CreateTable,
        Delete,
        Describe,
        DropColumns,
        DropTable,
        Explain,
        Insert,
        Load,
        Merge,
        MergeClause,
        RenameColumn,
        RenameTable,
        SetColumnComment,
        SetTableComment,
        ShowTables,
        Statement,
        Truncate,
        Update,
        Vacuum,
    )

__getattr__ = lazy.exports(
    __name__,
    {
        "ebla.sql.dml": (
            "MERGE_CARDINALITY",
            "delete_query",
            "insert_query",
            "merge_query",
            "update_query",
        ),
        "ebla.sql.lex": (
            "StatementText",
            "quote",
            "split",
        ),
        "ebla.sql.parse": ("SUPPORTED",),
        "ebla.sql.query": (
            "Query",
            "TableRef",
        ),
        "ebla.sql.refs": (
            "find",
            "rewrite",
        ),
        "ebla.sql.statements": (
            "AddColumns",
            "AlterColumnType",
            "ColumnSpec",
            "Compact",
            "CreateTable",
            "Delete",
            "Describe",
            "DropColumns",
            "DropTable",
            "Explain",
            "Insert",
            "Load",
            "Merge",
            "MergeClause",
            "RenameColumn",
            "RenameTable",
            "SetColumnComment",
            "SetTableComment",
            "ShowTables",
            "Statement",
            "Truncate",
            "Update",
            "Vacuum",
        ),
    },
)

__all__ = [
    "MERGE_CARDINALITY",
    "SUPPORTED",
    "AddColumns",
    "AlterColumnType",
    "ColumnSpec",
    "Compact",
    "CreateTable",
    "Delete",
    "Describe",
    "DropColumns",
    "DropTable",
    "Explain",
    "Insert",
    "Load",
    "Merge",
    "MergeClause",
    "Query",
    "RenameColumn",
    "RenameTable",
    "SetColumnComment",
    "SetTableComment",
    "ShowTables",
    "Statement",
    "StatementText",
    "TableRef",
    "Truncate",
    "Update",
    "Vacuum",
    "delete_query",
    "find",
    "insert_query",
    "merge_query",
    "quote",
    "rewrite",
    "split",
    "update_query",
]
