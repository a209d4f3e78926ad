"""Tokens of users: made by chance, shown once, and kept as digests."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "ebla_"


def new() -> str:
    """A token of 256 bits of chance, so a digest without salt tells nothing about it."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
