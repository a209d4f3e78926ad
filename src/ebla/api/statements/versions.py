"""Which version a query reads of each table that it names."""

from __future__ import annotations

from ebla.base.ids import Version
from ebla.catalog import reads
from ebla.catalog.store import Catalog
from ebla.errors import SnapshotError, SqlError, UnknownNameError
from ebla.model.relation import FOREVER
from ebla.spark.query import parameter_columns
from ebla.spark.sessions import Sessions
from ebla.spark.wording import in_users_words
from ebla.sql.query import Parameters, Query, TableRef


def parameter(name: str, parameters: Parameters) -> object:
    if name not in parameters:
        raise UnknownNameError(f"parameter :{name}: expected a value, found none; pass {name}=…")
    return parameters[name]


def version_of(catalog: Catalog, sessions: Sessions, ref: TableRef, parameters: Parameters) -> Version | None:
    """The version that a mention of a table asks for; `None`: the newest."""
    if ref.version is not None:
        value: object = ref.version
        if isinstance(value, str) and value.startswith(":"):
            value = parameter(value[1:], parameters)
        if not isinstance(value, int) or isinstance(value, bool):
            raise SqlError(f"VERSION AS OF: expected a whole number, found {value!r}")
        if abs(value) >= FOREVER:
            raise SnapshotError(f"VERSION AS OF: expected a version, found {value}")
        return Version(value)
    if ref.timestamp is not None:
        return _version_at(catalog, sessions, ref.timestamp, parameters)
    return None


def _version_at(catalog: Catalog, sessions: Sessions, expression: str, parameters: Parameters) -> Version:
    text = f"SELECT unix_micros(CAST({expression} AS TIMESTAMP))"
    try:
        found = sessions.spark.sql(text, parameter_columns(parameters)).collect()[0][0]
    except Exception as error:
        better = in_users_words(error, Query(text=expression))
        if better is None:
            raise
        raise better from error
    if found is None:
        raise SqlError(f"TIMESTAMP AS OF: expected a time, found {expression}")
    with catalog.reading() as connection:
        return reads.version_at(connection, int(found))


def is_system(ref: TableRef) -> bool:
    """Whether a mention is of a system table, which has no version but the present."""
    found = len(ref.parts) == 2 and ref.parts[0].lower() == "system"
    if found and (ref.version is not None or ref.timestamp is not None):
        raise SnapshotError(f"system.{ref.name}: expected the present, found a version; it has no other")
    return found
