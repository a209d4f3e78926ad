"""Users, their roles, and what they may do with a relation; values, and the updates that change them.

What a user may do with one relation is a level: nothing, SELECT, WRITE, OWN, each with all before it. The role gives
the level for all relations. GRANT raises it for one relation, REVOKE lowers it, and what was said last of a relation
counts more than the role. An administrator owns everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ebla.base.ids import RelationId


class UserRole(StrEnum):
    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


class Right(StrEnum):
    NONE = "NONE"
    SELECT = "SELECT"
    WRITE = "WRITE"
    OWN = "OWN"

    @property
    def level(self) -> int:
        return _LEVELS.index(self)

    @property
    def below(self) -> Right:
        """What is left when this one is revoked."""
        return _LEVELS[max(0, self.level - 1)]


_LEVELS = tuple(Right)

OF_ROLE = {UserRole.READER: Right.SELECT, UserRole.WRITER: Right.WRITE, UserRole.ADMIN: Right.OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user with everything that was said of relations."""

    name: str
    role: UserRole
    said: Mapping[RelationId, Right] = field(default_factory=dict)

    def right(self, relation: RelationId) -> Right:
        if self.role is UserRole.ADMIN:
            return Right.OWN
        return self.said.get(relation, OF_ROLE[self.role])

    def may(self, right: Right, relation: RelationId) -> bool:
        return self.right(relation).level >= right.level

    @property
    def hidden(self) -> frozenset[RelationId]:
        """The relations that the user may not read: those of which this was said."""
        return frozenset(one for one in self.said if not self.may(Right.SELECT, one))

    def granted(self, right: Right, relation: RelationId) -> Right:
        """What the user may do with a relation once a right was granted."""
        return max(self.right(relation), right, key=lambda one: one.level)

    def revoked(self, right: Right, relation: RelationId) -> Right:
        return min(self.right(relation), right.below, key=lambda one: one.level)


# ---- updates --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PutUser:
    """A user as it shall be. Only the digest of the token is kept."""

    name: str
    role: UserRole
    token_digest: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUser:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutGrant:
    user: str
    relation: RelationId
    right: Right
