"""The tables of a PostgreSQL catalog are in the schema that its address names."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from ebla.catalog.store import Catalog
from ebla.errors import CatalogError
from support.catalogs import create, put_nodes

pytestmark = [pytest.mark.postgres]


def test_catalogs_of_two_schemas_share_a_database_and_nothing_else(postgres_url: str):
    with (
        contextlib.closing(Catalog.open(postgres_url)) as usual,
        contextlib.closing(Catalog.open(f"{postgres_url}?schema=team_a")) as other,
    ):
        put_nodes(other)
        before = usual.version()
        create(other, "t")
        assert usual.version() == before
        assert other.version() > before
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'mv_handlers' ORDER BY 1")
        assert [name for (name,) in found] == ["ebla", "team_a"]


def test_a_second_process_finds_the_schema_again(postgres_url: str):
    address = f"{postgres_url}?schema=team_a&connect_timeout=5"
    with contextlib.closing(Catalog.open(address)) as first:
        put_nodes(first)
        create(first, "t")
        version = first.version()
    with contextlib.closing(Catalog.open(address, create=False)) as again:
        assert again.version() == version


@pytest.mark.parametrize("name", ["Team", "a-b", "1a", "a;drop", "a" * 64])
def test_a_name_that_needs_quotes_is_refused(postgres_url: str, name: str):
    with pytest.raises(CatalogError, match="catalog address: expected schema=name"):
        Catalog.open(f"{postgres_url}?schema={name}")
