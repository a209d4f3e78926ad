"""Statements about handlers, carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebla.errors import UsageError
from ebla.result import Result
from ebla.sql import statements as st

if TYPE_CHECKING:
    from ebla.database import Database


def run(database: Database, statement: st.HandlerStatement) -> Result:
    raise UsageError(f"{type(statement).__name__}: not yet")
