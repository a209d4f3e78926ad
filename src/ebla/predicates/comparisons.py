"""The conditions that AND joins, each as a comparison of a column where it is one."""

from __future__ import annotations

from collections.abc import Mapping

from ebla.model.relation import Relation
from ebla.predicates import select
from ebla.predicates.conditions import Filter
from ebla.predicates.conjuncts import conjuncts
from ebla.sql.lex import quote
from ebla.sql.refs import find


def understood(
    condition: str, alias: str, relation: Relation, parameters: Mapping[str, object], zone: str
) -> list[Filter | None]:
    """Each of the conditions that AND joins as a comparison of a column; `None` for one that is any other."""
    return [_filter(text, alias, relation, parameters, zone) for text in conjuncts(condition)]


def _filter(text: str, alias: str, relation: Relation, parameters: Mapping[str, object], zone: str) -> Filter | None:
    query = find(f"SELECT * FROM {quote(relation.name)} AS {quote(alias)} WHERE {text}")
    asked = select.recognize(query, parameters)
    if asked is None or asked.order or asked.limit is not None or len(asked.where) != 1:
        return None
    try:
        return select.bound(_limited(asked), relation, zone=zone).where[0]
    except select.NotSimple:
        return None


def _limited(asked: select.Select) -> select.Select:
    """With a limit, which is asked of a query that does not name the whole key."""
    return select.Select(relation=asked.relation, outputs=None, where=asked.where, limit=1)
