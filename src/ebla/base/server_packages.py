"""The packages of `ebla[server]`: clients of a cluster do without them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ebla.errors import MissingDependencyError

PACKAGES = ("fastapi", "pydantic_settings", "pyspark", "uvicorn")


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Around an import: say what to install where one of the packages is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES:
            raise
        raise MissingDependencyError(f"expected {package}, found none; pip install 'ebla[server]'") from error
