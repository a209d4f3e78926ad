"""Users, grants and the audit log, as the catalog keeps them, and requests that are repeated."""

from __future__ import annotations

import pytest

from ebla.base.ids import RelationId
from ebla.base.tokens import digest
from ebla.base.user_requests import UserRequest, asking
from ebla.catalog import access, audit, rows
from ebla.catalog import schema_access as s
from ebla.catalog.store import Catalog
from ebla.errors import RequestCancelledError
from ebla.model.access import PutGrant, PutUser, RemoveUser, Right, User, UserRole
from support.catalogs import add, create, exclusively, run

IN_MEMORY = True


def put(catalog: Catalog, name: str, role: UserRole, token: str) -> None:
    exclusively(catalog, PutUser(name=name, role=role, token_digest=digest(token)))


def found(catalog: Catalog, token: str) -> User | None:
    with catalog.reading() as connection:
        return access.by_token(connection, digest(token))


def test_a_user_is_found_by_its_token_until_it_is_replaced(catalog: Catalog):
    put(catalog, "ada", UserRole.READER, "one")
    assert found(catalog, "one") == User(name="ada", role=UserRole.READER)
    put(catalog, "ada", UserRole.WRITER, "two")
    assert found(catalog, "one") is None
    assert found(catalog, "two") == User(name="ada", role=UserRole.WRITER)


def test_no_table_holds_a_token(catalog: Catalog):
    put(catalog, "ada", UserRole.READER, "secret")
    with catalog.reading() as connection:
        [row] = rows.find(connection, s.users)
    assert "secret" not in repr([getattr(row, column.name) for column in s.users.columns])


def test_a_dropped_user_takes_its_grants_along(catalog: Catalog):
    relation = create(catalog, "t")
    put(catalog, "ada", UserRole.READER, "one")
    exclusively(catalog, PutGrant(user="ada", relation=relation.id, right=Right.WRITE))
    ada = found(catalog, "one")
    assert ada is not None
    assert ada.right(relation.id) is Right.WRITE
    exclusively(catalog, RemoveUser(name="ada"))
    put(catalog, "ada", UserRole.READER, "two")
    again = found(catalog, "two")
    assert again is not None
    assert again.right(relation.id) is Right.SELECT


@pytest.mark.parametrize("role", UserRole)
def test_what_was_said_last_of_a_relation_counts_more_than_the_role(role: UserRole):
    of = RelationId(7)
    user = User(name="ada", role=role, said={of: Right.NONE})
    assert user.right(of) is (Right.OWN if role is UserRole.ADMIN else Right.NONE)
    assert user.granted(Right.WRITE, of).level >= Right.WRITE.level
    assert User(name="ada", role=UserRole.WRITER).revoked(Right.WRITE, of) is Right.SELECT
    assert User(name="ada", role=UserRole.READER).granted(Right.SELECT, of) is Right.SELECT


@pytest.mark.database
def test_a_commit_of_a_request_is_in_the_audit_log(catalog: Catalog):
    with asking(UserRequest(id="r1", user="ada", text="CREATE TABLE t")):
        relation = create(catalog, "t")
        add(catalog, run(relation.id))
    with catalog.reading() as connection:
        logged = rows.find(connection, s.audit, "version")
    assert [(row.user_name, row.request_id, row.statement) for row in logged] == [
        ("ada", "r1", "CREATE TABLE t"),
        ("ada", None, "CREATE TABLE t"),
    ]


@pytest.mark.database
def test_a_request_that_was_committed_is_not_committed_again(catalog: Catalog):
    relation = create(catalog, "t")
    first, second = (UserRequest(id="r1", user="ada") for _ in range(2))
    with asking(first):
        version = add(catalog, run(relation.id))
    with asking(second), pytest.raises(audit.AlreadyCommitted):
        add(catalog, run(relation.id))
    with catalog.reading() as connection:
        done = audit.done(connection, second)
    assert done is not None
    assert done.version == version
    with asking(UserRequest(id="r1", user="bob")):  # another user's ids are its own
        add(catalog, run(relation.id))


@pytest.mark.database
def test_a_cancelled_request_commits_nothing(catalog: Catalog):
    request = UserRequest(id="r1", user="ada")
    request.cancel("cancelled by ada")
    before = catalog.version()
    with asking(request), pytest.raises(RequestCancelledError, match="cancelled by ada"):
        create(catalog, "t")
    assert catalog.version() == before
