"""How values travel through a query, for text that may be no query at all."""

from __future__ import annotations

from collections.abc import Mapping

from ebla.algebra.nodes import NotUnderstood, Shape
from ebla.algebra.shape import shape
from ebla.sql.query import Query


def tree_of(query: Query, inputs: Mapping[str, Mapping[str, str]], *, case_sensitive: bool = False) -> Shape:
    """The tree of a query, or `NotUnderstood`. sqlglot stumbles over trees that it built from text that is no query."""
    try:
        return shape(query, inputs, case_sensitive=case_sensitive)
    except NotUnderstood:
        raise
    except Exception as error:
        raise NotUnderstood("the query could not be analysed") from error
