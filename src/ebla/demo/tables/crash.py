"""A real crash: another process writes, and is killed with SIGKILL while its file grows."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from ebla.demo.tables import victim

PATIENCE_S = 60.0
POLL_S = 0.002


def data_files(warehouse: str) -> set[Path]:
    return set((Path(warehouse) / "data").rglob("*.parquet"))


def kill_a_writer(warehouse: str) -> tuple[int, list[Path]]:
    """Start a writer and kill it in mid-write; returns its exit code and the files that it left behind."""
    before = data_files(warehouse)
    writer = subprocess.Popen([sys.executable, "-m", victim.__name__, warehouse], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while writer.poll() is None and time.monotonic() < deadline:
            if data_files(warehouse) - before:
                break
            time.sleep(POLL_S)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    return writer.returncode, sorted(data_files(warehouse) - before)
