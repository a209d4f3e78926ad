"""Whose certificates a client of HTTP believes."""

from __future__ import annotations

import ssl


def verification(ca_file: str | None) -> ssl.SSLContext | bool:
    """What checks the certificates of nodes: those in a file, or those that the system knows."""
    return True if ca_file is None else ssl.create_default_context(cafile=ca_file)
