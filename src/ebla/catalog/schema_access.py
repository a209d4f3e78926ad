"""The catalog's tables of users, their grants, and what they changed."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, PrimaryKeyConstraint, Table, Text

from ebla.catalog.schema import metadata

users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("token_digest", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("token_at", BigInteger, nullable=False),
)
users_by_token = Index("users_by_token", users.c.token_digest, unique=True)

grants = Table(
    "grants",
    metadata,
    Column("user_name", Text, nullable=False),
    Column("relation_id", BigInteger, nullable=False),
    Column("level", Text, nullable=False),
    PrimaryKeyConstraint("user_name", "relation_id"),
)

# The history is trimmed and knows no users; these rows stay for `audit_retention_s`.
audit = Table(
    "audit",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("committed_at", BigInteger, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("request_id", Text),
    Column("relation_id", BigInteger),
    Column("action", Text, nullable=False),
    Column("statement", Text, nullable=False),
    Index("audit_by_request", "request_id"),
    Index("audit_by_time", "committed_at"),
)
