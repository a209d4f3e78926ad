"""Statements about users and what they may do."""

from __future__ import annotations

from typing import TypeVar

from ebla.model.access import Right, UserRole
from ebla.sql import ddl
from ebla.sql.access_statements import AlterUser, CreateUser, DropUser, Grant, ShowGrants, ShowUsers
from ebla.sql.cursor import Cursor
from ebla.sql.statements import Statement

Choice = TypeVar("Choice", UserRole, Right)


def create_user(cursor: Cursor) -> Statement:
    """`USER [IF NOT EXISTS] name ROLE reader | writer | admin`"""
    cursor.expect("USER")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _user(cursor)
    cursor.expect("ROLE")
    return CreateUser(name=name, role=_role(cursor), if_not_exists=if_not_exists)


def drop_user(cursor: Cursor) -> Statement:
    cursor.expect("USER")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropUser(name=_user(cursor), if_exists=if_exists)


def alter_user(cursor: Cursor) -> Statement:
    """`USER name ROTATE TOKEN | ROLE role`"""
    cursor.expect("USER")
    name = _user(cursor)
    if cursor.accept("ROTATE", "TOKEN"):
        return AlterUser(name=name, rotate=True)
    if not cursor.accept("ROLE"):
        cursor.fail("ROTATE TOKEN or ROLE")
    return AlterUser(name=name, role=_role(cursor))


def grant(cursor: Cursor) -> Statement:
    """`SELECT | WRITE | OWN ON [TABLE] name TO user`"""
    right, relation = _right_on(cursor)
    cursor.expect("TO")
    return Grant(right=right, table=relation, user=_user(cursor))


def revoke(cursor: Cursor) -> Statement:
    """`SELECT | WRITE | OWN ON [TABLE] name FROM user`"""
    right, relation = _right_on(cursor)
    if not cursor.accept("FROM") and not cursor.accept("TO"):
        cursor.fail("FROM and a user")
    return Grant(right=right, table=relation, user=_user(cursor), revokes=True)


def show(cursor: Cursor) -> Statement | None:
    """`USERS` or `GRANTS [FOR user]`, if one of them comes next."""
    if cursor.accept("USERS"):
        return ShowUsers()
    if not cursor.accept("GRANTS"):
        return None
    return ShowGrants(user=_user(cursor) if cursor.accept("FOR") else None)


def _right_on(cursor: Cursor) -> tuple[Right, str]:
    right = _choice(cursor, (Right.SELECT, Right.WRITE, Right.OWN))
    cursor.expect("ON")
    if cursor.sees("TABLE") and cursor.sees_name(1):
        cursor.at += 1
    return right, ddl.table_name(cursor)


def _user(cursor: Cursor) -> str:
    return cursor.name("the name of a user")


def _role(cursor: Cursor) -> UserRole:
    return _choice(cursor, tuple(UserRole))


def _choice(cursor: Cursor, choices: tuple[Choice, ...]) -> Choice:
    for one in choices:
        if cursor.accept(one.value.upper()):
            return one
    cursor.fail(f"{', '.join(choices[:-1])} or {choices[-1]}")
