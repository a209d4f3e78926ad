"""TPC-H data, generated once and kept under `bench/data`, which is not in the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"


def tpch(table: str, scale: float = 1.0) -> Path:
    folder = DATA / f"sf{scale:g}"
    file = folder / f"{table}.parquet"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        tool = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [str(tool), "parquet", "-s", f"{scale:g}", f"--tables={table}", f"--output-dir={folder}"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return file
