"""Tables of jobs may have other names in the database: those that the catalog was created with."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Text, inspect, select, text

from ebla.base.settings import JOB_TABLES, load
from ebla.catalog import dump, job_tables, jobs, migrations, reads, tables
from ebla.catalog import schema as s
from ebla.catalog.store import Catalog
from ebla.errors import CatalogError, UsageError
from ebla.model import changes as c
from ebla.model.jobs import Runner, RunnerId
from support.catalogs import exclusively, put_nodes, statements

NAMES = {
    "handlers_table": "shop_handlers",
    "runners_table": "select",
    "runner_jobs_table": "shop_runner_jobs",
    "commands_table": "_commands2",
}
"""One of them is a word of SQL, which has to be quoted."""
USUAL = {setting: table.name for setting, table in job_tables.TABLES.items()}
ME = RunnerId("me")


def in_database(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names(schema=migrations.namespace(connection)))


def used(catalog: Catalog) -> tuple[object, ...]:
    """Rows of each kind, as they read back."""
    with catalog.reading() as connection:
        found = jobs.read(connection)
        shown = [row.job_name for row in connection.execute(select(tables.TABLES["mv_handlers"]))]
        assert shown == [name for name, _, _ in reads.handler_rows(connection)]
        return tuple(shown), found.runners, found.running, found.commands


def use(catalog: Catalog) -> None:
    put_nodes(catalog)
    exclusively(catalog, c.PutHandler(name="shop", settings="{}", should_run=True))
    exclusively(catalog, c.PutHandler(name="shop", settings='{"mv_handlers": "mv_runners"}', should_run=False))
    now = catalog.clock()
    one = Runner(id=ME, identity="node=n1", permanent=True, updated_at=now, expires_at=now + 10_000_000)
    catalog.change(partial(jobs.register, runner=one))


def test_a_catalog_has_the_names_that_it_was_created_with(catalog_url: str):
    with contextlib.closing(Catalog.open(catalog_url, table_names=NAMES)) as catalog:
        use(catalog)
        with catalog.reading() as connection:
            assert set(NAMES.values()) <= in_database(connection)
            assert not set(USUAL.values()) & in_database(connection)
            assert connection.execute(text("SELECT job_settings FROM shop_handlers")).scalars().all() == [
                '{"mv_handlers": "mv_runners"}'
            ], "values stay as they are"
        handlers, runners, *_ = used(catalog)
        assert (handlers, [one.id for one in runners]) == (("shop",), [ME])  # type: ignore[attr-defined]
        with contextlib.closing(Catalog.open(catalog_url, create=False)) as follower:
            assert used(follower) == used(catalog)
            exclusively(follower, c.RemoveHandler(name="shop"))
            follower.change(lambda state: jobs.remove(state, ME))
        assert used(catalog) == ((), [], [], [])
        Catalog.open(catalog_url, table_names=NAMES).close()
        Catalog.open(catalog_url, table_names={"runners_table": "select"}).close()


@pytest.mark.parametrize(
    ("created", "said", "expected"),
    [
        (NAMES, {"commands_table": "others"}, "expected commands_table = _commands2, .* found others; leave"),
        (NAMES, USUAL, "expected handlers_table = shop_handlers, .* found mv_handlers; leave"),
        ({}, NAMES, "expected handlers_table = mv_handlers, .* found shop_handlers; leave"),
    ],
)
def test_a_process_that_means_other_tables_is_refused(
    catalog_url: str, created: dict[str, str], said: dict[str, str], expected: str
):
    Catalog.open(catalog_url, table_names=created).close()
    with pytest.raises(CatalogError, match=expected):
        Catalog.open(catalog_url, table_names=said)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"runners_table": "a", "commands_table": "a"}, "commands_table: expected another name than that of runners"),
        ({"runners_table": "runs"}, "runners_table: expected a name that no other table"),
        ({"runners_table": "mv_handlers"}, "runners_table: expected a name that no other table"),
        ({"runners_table": "history_by_time"}, "runners_table: expected a name that no other table"),
        ({"runners_table": "mv_commands_pkey"}, "runners_table: expected a name that no other table"),
        ({"runners_table": "pg_class"}, "runners_table: expected a name that no other table"),
    ],
)
def test_names_that_cannot_be_are_refused_before_anything_is_made(tmp_path: Path, wrong: dict[str, str], expected: str):
    with pytest.raises(UsageError, match=expected):
        Catalog.open(str(tmp_path / "w"), table_names=wrong)
    assert not (tmp_path / "w").exists()


def test_no_two_objects_of_a_new_catalog_share_a_name(catalog_url: str):
    """Names are refused by the list of `job_tables.mistakes`; it has all that a database makes."""
    with contextlib.closing(Catalog.open(catalog_url)) as catalog, catalog.reading() as connection:
        if connection.dialect.name == "sqlite":
            query = "SELECT name FROM sqlite_master"
        else:
            query = "SELECT relname FROM pg_class WHERE relnamespace = 'ebla'::regnamespace"
        made = connection.execute(text(query)).scalars().all()
    own = {f"{name}{end}" for name in USUAL.values() for end in ("", "_pkey")}
    for name in {str(one) for one in made} - own:
        assert job_tables.mistakes({"handlers_table": name}), name


def test_migrations_find_the_tables_of_a_catalog_with_other_names(catalog_url: str, monkeypatch: pytest.MonkeyPatch):
    """All steps run again, over what is there, and a later one adds a column."""
    with contextlib.closing(Catalog.open(catalog_url, table_names=NAMES)) as catalog:
        use(catalog)
        before = used(catalog)
        with catalog.writing() as connection:
            connection.execute(s.migrations.delete().where(s.migrations.c.number >= 2))
    later = Column("later", Text)
    later.table = s.mv_runners  # only of this step: the schema of the release does not have it
    last = migrations.MIGRATIONS[-1].number
    step = migrations.Migration(
        number=last + 1, name="later", run=lambda connection: migrations._add_columns(connection, later)
    )
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, step))
    for _ in range(2):
        with contextlib.closing(Catalog.open(catalog_url, create=False)) as again:
            assert used(again) == before
            with again.reading() as connection:
                columns = inspect(connection).get_columns("select", schema=migrations.namespace(connection))
                assert columns[-1]["name"] == "later"
                assert not set(USUAL.values()) & in_database(connection)


def test_the_usual_names_cost_nothing(catalog_url: str):
    for names in ({}, USUAL):
        with contextlib.closing(Catalog.open(catalog_url, table_names=names)) as catalog:
            preparer = catalog.engine.dialect.identifier_preparer
            assert type(preparer).__module__.startswith("sqlalchemy.")
            with catalog.reading() as connection:
                assert connection.execute(select(s.meta.c.key).where(s.meta.c.key == s.JOB_TABLES)).first() is None


def test_a_dump_says_the_names(catalog_url: str, tmp_path: Path):
    with contextlib.closing(Catalog.open(catalog_url, table_names=NAMES)) as catalog:
        use(catalog)
        with catalog.reading() as connection:
            dump.write(connection, tmp_path, 0o077)
        before = used(catalog)
    names = dump.table_names(tmp_path)
    assert names == NAMES
    with contextlib.closing(Catalog.open(str(tmp_path / "other"), table_names=names)) as other:
        with other.writing() as connection:
            dump.fill(connection, tmp_path, {})
        assert used(other) == before
    with contextlib.closing(Catalog.open(str(tmp_path / "other"), create=False)) as again:
        assert used(again) == before


def test_a_statement_names_the_table_wherever_it_does(catalog_url: str):
    with contextlib.closing(Catalog.open(catalog_url, table_names=NAMES)) as catalog:
        with statements(catalog) as sent:
            use(catalog)
            used(catalog)
        assert not [one for one in sent for name in USUAL.values() if name in one]
        assert [one for one in sent if "shop_handlers" in one]


def test_the_settings_are_the_names():
    assert set(JOB_TABLES) == set(job_tables.TABLES)
    assert load(**NAMES).table_names == NAMES
    assert load().table_names == {}
