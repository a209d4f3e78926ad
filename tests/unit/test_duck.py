"""The DuckDB of a process: its memory has a limit, and what does not fit goes to a temporary folder."""

from __future__ import annotations

from ebla.storage.duck import Duck

MIB = 2**20


def test_what_is_larger_than_the_memory_is_computed_all_the_same() -> None:
    duck = Duck(64 * MIB)
    try:
        cursor = duck.cursor()
        assert cursor.execute("SELECT current_setting('memory_limit')").fetchall() == [("64.0 MiB",)]
        wide = "SELECT range AS n, repeat(range::VARCHAR, 20) AS text FROM range(800000)"
        first = cursor.execute(f"SELECT n FROM ({wide}) ORDER BY text DESC, n OFFSET 799998").fetchall()
        used = cursor.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()[0][0]
        assert first == [(100000,), (0,)]
        assert used < 64 * MIB
    finally:
        duck.close()
