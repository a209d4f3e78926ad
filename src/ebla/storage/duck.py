"""One DuckDB in memory, which is started when it is first asked, and how its text names columns and files."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from typing import TYPE_CHECKING

from ebla.base.precedence import PRECEDENCE

if TYPE_CHECKING:
    import duckdb

# A folder named like `id=5` is no column.
READ = "read_parquet(?, hive_partitioning = false)"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literally(path: str) -> str:
    """A path that DuckDB does not take for a pattern."""
    return re.sub(r"([*?\[])", r"[\1]", path)


class Duck:
    """Cursors of one DuckDB. Beyond its memory it uses a temporary folder. Safe to use from several threads."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        PRECEDENCE.give_way()
        with self._lock:
            if self._connection is None:
                import duckdb

                config: dict[str, str | bool | int | float | list[str]] = {
                    "threads": max(2, os.cpu_count() or 2),
                    "memory_limit": f"{self._memory_bytes}B",
                    "temp_directory": os.path.join(tempfile.gettempdir(), f"ebla-duckdb-{os.getpid()}"),
                }
                self._connection = duckdb.connect(":memory:", config=config)
                # At a prompt, and under `python -m`, DuckDB takes itself for interactive and draws on the screen.
                self._connection.execute("SET enable_progress_bar = false")
            return self._connection.cursor()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
