"""The way in: `ebla.connect("./warehouse")`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from ebla.base import server_packages
from ebla.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebla.api.database import Database

REMOTE = ("http://", "https://")


def connect(
    url: str,
    spark: SparkSession | None = None,
    *,
    create: bool = True,
    role: str = "python",
    token: str | None = None,
    ca_file: str | None = None,
    **settings: object,
) -> Database:
    """Open the warehouse at a directory, or the one whose catalog is at a `postgresql://` address.

    A given Spark session is used and left as it was; otherwise one is started when it is first needed, and stopped at
    close. `role` says in `system.processes` what the process is for. Settings are described in `ebla.base.settings`.

    Of an `http://` or `https://` address, or several with commas between them, the nodes of a cluster are asked. That
    needs no Spark and no Java, and what needs them is refused (`ebla.remote.database`). `token` is the user's; by
    default it is `$EBLA_TOKEN`, or in the file `$EBLA_TOKEN_FILE`. `ca_file` (`$EBLA_CA_FILE`) has the certificates
    that those of the nodes are checked against.
    """
    url = os.fspath(url)
    if not url.startswith(REMOTE):
        if token is not None or ca_file is not None:
            raise UsageError("token, ca_file: expected an http:// or https:// address with them, found another")
        with server_packages.needed():
            from ebla.api.assembly import open_database

        return open_database(url, spark, create=create, role=role, **settings)
    if spark is not None:
        raise UsageError("spark: expected none for a cluster that is asked over HTTP, found a session")
    from ebla.base.settings import load
    from ebla.remote.database import RemoteDatabase
    from ebla.remote.transport import Transport, token_of

    loaded = load(**settings)
    transport = Transport(
        url,
        token=token_of(token),
        ca_file=ca_file or os.environ.get("EBLA_CA_FILE"),
        retry_s=loaded.catalog_retry_s,
        silence_s=loaded.node_silence_s,
    )
    return cast("Database", RemoteDatabase(transport))
