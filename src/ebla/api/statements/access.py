"""Statements about users and what they may do, carried out. A token is shown once, and only its digest is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

import pyarrow as pa
from sqlalchemy import Connection

from ebla.api import system
from ebla.api.statements import answers
from ebla.base import tokens
from ebla.base.ids import NodeId, RelationId, Version
from ebla.catalog import access, reads
from ebla.catalog.store import Catalog
from ebla.errors import DuplicateNameError, UnknownNameError, UsageError
from ebla.model import changes as c
from ebla.model.access import PutGrant, PutUser, RemoveUser, Right, User, UserRole
from ebla.model.scopes import ACCESS
from ebla.spark.result import Result
from ebla.sql import access_statements as st
from ebla.sql.statements import UserStatement

if TYPE_CHECKING:
    from ebla.api.database import Database


def run(database: Database, statement: UserStatement) -> Result:
    context = database.context
    catalog, node = context.catalog, context.node
    match statement:
        case st.CreateUser(name=name, role=role):
            token = create(catalog, node, name, role, if_not_exists=statement.if_not_exists)
            return answers.columns(context.sessions, {"user": [name], "role": [role.value], "token": _texts(token)})
        case st.AlterUser(name=name, role=role):
            token = alter(catalog, node, name, role=role, rotate=statement.rotate)
            return answers.columns(context.sessions, {"user": [name], "token": _texts(token)})
        case st.DropUser(name=name, if_exists=if_exists):
            drop(catalog, node, name, if_exists=if_exists)
        case st.Grant(table=relation, user=user, right=right):
            left = grant(catalog, node, relation, user, right, revokes=statement.revokes)
            return answers.columns(context.sessions, {"user": [user], "relation": [relation], "right": [left.value]})
        case st.ShowUsers():
            return _table(database, "users")
        case st.ShowGrants(user=user):
            return _table(database, "grants", user)
        case _:
            assert_never(statement)
    return answers.columns(context.sessions, {})


def _texts(text: str | None) -> pa.Array:
    return pa.array([text], pa.string())


def _table(database: Database, name: str, user: str | None = None) -> Result:
    context = database.context
    with context.catalog.reading() as connection:
        if user is not None:
            _require(connection, user)
        found = system.read(connection, name, context.catalog.clock(), context)
    if user is not None:
        names = found.column("user_name").to_pylist()
        found = found.filter(pa.array([one.lower() == user.lower() for one in names], pa.bool_()))
    return Result(table=found, spark=lambda: context.spark)


# ---- what is decided ------------------------------------------------------------------------------------


def _decide(catalog: Catalog, node: NodeId, reason: str, make: Callable[[Connection], c.UserUpdate | None]) -> bool:
    def decision(connection: Connection, at: Version) -> c.Decision | None:
        made = make(connection)
        return None if made is None else c.Decision(reason=reason, updates=(made,), guards=frozenset({ACCESS}))

    return catalog.decide(decision, node=node) is not None


def create(catalog: Catalog, node: NodeId, name: str, role: UserRole, *, if_not_exists: bool = False) -> str | None:
    """Make a user; returns the token, or `None` if there is a user of this name already."""
    token = tokens.new()

    def make(connection: Connection) -> PutUser | None:
        if name.lower() not in access.users(connection):
            return PutUser(name=name, role=role, token_digest=tokens.digest(token))
        if if_not_exists:
            return None
        raise DuplicateNameError(f"user {name}: expected a new name, found a user of it; ALTER USER … ROTATE TOKEN")

    return token if _decide(catalog, node, f"create user {name}", make) else None


def alter(
    catalog: Catalog, node: NodeId, name: str, *, role: UserRole | None = None, rotate: bool = False
) -> str | None:
    """Change a user; returns the new token, if one was asked for. The one before is refused from then on."""
    token = tokens.new() if rotate else None

    def make(connection: Connection) -> PutUser:
        row = _require(connection, name)
        if role is not None and role is not UserRole.ADMIN:
            _require_other_admin(connection, row)
        digest = row.token_digest if token is None else tokens.digest(token)
        return PutUser(name=row.name, role=role or UserRole(row.role), token_digest=digest)

    _decide(catalog, node, f"alter user {name}: {'token' if rotate else f'role {role}'}", make)
    return token


def drop(catalog: Catalog, node: NodeId, name: str, *, if_exists: bool = False) -> None:
    def make(connection: Connection) -> RemoveUser | None:
        if if_exists and name.lower() not in access.users(connection):
            return None
        row = _require(connection, name)
        _require_other_admin(connection, row)
        return RemoveUser(name=row.name)

    _decide(catalog, node, f"drop user {name}", make)


def grant(catalog: Catalog, node: NodeId, relation: str, user: str, right: Right, *, revokes: bool = False) -> Right:
    """Raise or lower what a user may do with a relation; returns what it may do then."""
    left = Right.NONE

    def make(connection: Connection) -> PutGrant | None:
        nonlocal left
        found = access.user(connection, _require(connection, user))
        target = reads.relation(connection, relation).id
        left = found.revoked(right, target) if revokes else found.granted(right, target)
        return _put(found, target, left, revokes=revokes)

    verb, to = ("revoke", "from") if revokes else ("grant", "to")
    _decide(catalog, node, f"{verb} {right.value} on {relation} {to} {user}", make)
    return left


def _put(user: User, relation: RelationId, right: Right, *, revokes: bool) -> PutGrant:
    if revokes and user.role is UserRole.ADMIN:
        raise UsageError(
            f"user {user.name}: expected a reader or a writer, found an admin, which owns everything; "
            f"ALTER USER {user.name} ROLE writer first"
        )
    return PutGrant(user=user.name, relation=relation, right=right)


def _require(connection: Connection, name: str) -> Any:
    found = access.users(connection)
    if name.lower() not in found:
        have = ", ".join(row.name for row in found.values()) or "none"
        raise UnknownNameError(f"user {name}: expected a user of this name, found none; users are {have}")
    return found[name.lower()]


def _require_other_admin(connection: Connection, row: Any) -> None:
    admins = [one for one in access.users(connection).values() if one.role == UserRole.ADMIN]
    if [one.name for one in admins] == [row.name]:
        raise UsageError(f"user {row.name}: expected another admin beside it, found none; create one first")
