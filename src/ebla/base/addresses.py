"""Addresses of catalogs and nodes."""

from __future__ import annotations


def has_password(address: str) -> bool:
    """`postgresql://user:password@host/database`, or with `?password=…` behind it."""
    rest = address.partition("://")[2]
    return ":" in rest.rpartition("@")[0] or "password=" in rest.partition("?")[2]
