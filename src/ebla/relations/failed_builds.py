"""Builds of indexes that failed for good: what is known of them after the index is gone.

Theory of operation. An index that can never be built (a value stands twice, an expression fails on a row) is removed at
once: writers must not keep it. Why it failed stays as a trouble in the catalog (`ebla.catalog.troubles`, final, of a
build), under the name that the index had. It goes when the user dismisses it (`DROP INDEX`, `CANCEL BUILD`), or creates
anything of that name. A statement that built the index and raised the error itself leaves none behind.
"""

from __future__ import annotations

import datetime as dt

from sqlalchemy import Connection

from ebla import errors
from ebla.base.ids import RelationId
from ebla.catalog import reads, troubles
from ebla.catalog.store import Catalog
from ebla.catalog.troubles import ABOUT_VALUES, Activity, Trouble
from ebla.errors import EblaError, SqlError, TypeMismatchError
from ebla.model.relation import Kind


def is_failed(trouble: Trouble) -> bool:
    """Whether it is the end of an index's build."""
    return trouble.final and trouble.work is Activity.BUILD and trouble.kind is Kind.INDEX


def of_index(connection: Connection, index: RelationId) -> Trouble | None:
    found = troubles.find(connection, index, Activity.BUILD)
    return found if found is not None and is_failed(found) else None


def of_name(connection: Connection, name: str) -> Trouble | None:
    """The failed build of an index of this name that is gone."""
    if reads.find_relation(connection, name) is not None:
        return None
    return next((one for one in troubles.by_name(connection, name) if is_failed(one)), None)


def gone(connection: Connection) -> list[Trouble]:
    """All failed builds whose indexes are gone, by name."""
    found = [one for one in troubles.everything(connection) if is_failed(one)]
    there = [one for one in found if reads.relation_by_id(connection, one.relation) is None]
    return sorted(there, key=lambda one: one.name)


def dismiss(catalog: Catalog, name: str) -> bool:
    """Forget the failed build of this name; whether there was one."""
    with catalog.reading() as connection:
        found = of_name(connection, name)
    return found is not None and troubles.clear(catalog, found.relation, Activity.BUILD)


def failed_at(trouble: Trouble) -> dt.datetime:
    return dt.datetime.fromtimestamp(trouble.last_at / 1e6, dt.UTC)


def error_of(trouble: Trouble, *, later: bool = False) -> EblaError:
    """The error that ended the build, for those who waited for it, or ask `later`."""
    kind = getattr(errors, trouble.code, SqlError)  # the code is the class, or Spark's error condition
    if trouble.code.split(".")[0] in ABOUT_VALUES:
        kind = TypeMismatchError
    if not (isinstance(kind, type) and issubclass(kind, EblaError)):
        kind = SqlError
    said = trouble.message
    if later:
        said += f"; its build failed at {failed_at(trouble):%Y-%m-%d %H:%M:%S} UTC: mend the rows and create it again, "
        said += f"or DROP INDEX {trouble.name} dismisses it"
    made: EblaError = kind(said)
    made.culprit = trouble.culprit
    return made
