"""What an open database is made of: its catalog, the node that this process is, and what runs in its background."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ebla.api.database import OPEN, Database
from ebla.base import settings as settings_module
from ebla.catalog.processes import Role
from ebla.catalog.store import Catalog, is_postgres
from ebla.errors import CatalogError, UsageError
from ebla.indexes.maintainer import EntryMaintainer
from ebla.node.membership import Ask, ask_no_other
from ebla.node.registration import refuse_foreign_root, register
from ebla.spark.session import require_classic
from ebla.tables.context import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_database(
    url: str,
    spark: SparkSession | None = None,
    ask: Ask = ask_no_other,
    /,
    *,
    create: bool = True,
    role: Role | str = Role.PYTHON,
    **settings: object,
) -> Database:
    """As `ebla.connect` of a directory or a `postgresql://` address. `ask`: how its new nodes ask others to join."""
    loaded = settings_module.load(**settings)
    if role not in set(Role):
        raise UsageError(f"role: expected one of {', '.join(Role)}, found {role!r}")
    if spark is not None:
        require_classic(spark)
    url = os.fspath(url)
    embedded = not is_postgres(url)
    if not embedded and loaded.storage_root is None:
        raise CatalogError(
            "storage_root: expected a path that all nodes' Spark can reach, found none; "
            "pass connect(url, storage_root=…) or set EBLA_STORAGE_ROOT"
        )
    where = str(Path(url).absolute()) if embedded else url
    refuse_foreign_root(where, loaded)
    catalog = Catalog.open(
        where,
        create=create,
        retry_s=loaded.catalog_retry_s,
        mask=loaded.file_mask,
        table_names=loaded.table_names,
    )
    registered = None
    try:
        if catalog.read_only:
            loaded = loaded.model_copy(update={"auto_compact": False, "auto_refresh": False})
        else:
            registered = register(catalog, loaded)
    except BaseException:
        catalog.close()
        raise
    node, own = (None, {}) if registered is None else (registered.node, registered.roots)
    opened = Database(Context.open(catalog, loaded, spark, EntryMaintainer(), node=node, own=own), Role(role))
    try:
        opened.background.membership.join(() if registered is None else registered.asking, ask)
    except BaseException:
        opened.close()
        raise
    OPEN.add(opened)
    return opened
