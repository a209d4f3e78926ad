"""Statements about users, as values; see `ebla.sql.statements`."""

from __future__ import annotations

from dataclasses import dataclass

from ebla.model.access import Right, UserRole


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUser:
    name: str
    role: UserRole
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterUser:
    """Another role, or another token."""

    name: str
    role: UserRole | None = None
    rotate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropUser:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a user may do with a table or view is raised to a right, or lowered to below it (`revokes`)."""

    right: Right
    table: str
    user: str
    revokes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowUsers:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowGrants:
    user: str | None = None
