"""The sorted relations through which a relation can be read."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from ebla.errors import UsageError
from ebla.query.plan import AccessPath, PathColumn, base_path
from ebla.storage.model import Relation


def paths_of(connection: Connection, relation: Relation) -> list[AccessPath]:
    """The relation by its primary key. Its readable indexes come here when the catalog has them."""
    return [base_path(relation)]


def index_path(base: Relation, index: Relation, *, descending: Collection[str] = ()) -> AccessPath:
    """A relation whose key is index columns and then the base's key, as a way to the base's rows.

    Columns are those of the same name. `descending` names key columns whose runs are sorted downwards.
    """
    mine = {c.name.lower(): c.physical for c in base.columns}
    columns = {mine[c.name.lower()]: c.physical for c in index.columns if c.name.lower() in mine}
    strange = [c.name for c in index.key if c.name.lower() not in mine]
    missing = [c.name for c in base.key if c.physical not in columns]
    if strange or missing:
        raise UsageError(
            f"{index.name}: expected a key of columns of {base.name} that ends with its key, "
            f"found {', '.join(c.name for c in index.key)}"
        )
    down = {name.lower() for name in descending}
    return AccessPath(
        relation=index,
        key=tuple(
            PathColumn(base=mine[c.name.lower()], path=c.physical, descending=c.name.lower() in down) for c in index.key
        ),
        columns=columns,
    )
