"""A writer that will not live to commit: `python -m ebla.demo.tables.victim WAREHOUSE`.

It writes one batch of a million orders. The process that started it kills it while the file grows.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from ebla.api.connect import connect

FIRST_ID = 10_000_001
ROWS = 1_000_000
LEASE_S = 2.0


def write(warehouse: str) -> None:
    numbers = np.arange(ROWS, dtype=np.int64)
    batch = pa.table(
        {
            "id": numbers + FIRST_ID,
            "customer": numbers % 20_000 + 1,
            "status": pa.array(np.char.add("never ", numbers.astype(str))),
        }
    )
    # No Spark is needed for a batch of this size if the driver may write it by itself.
    with connect(warehouse, create=False, batch_rows_max=ROWS, transaction_lease_s=LEASE_S) as db:
        db.table("orders").upsert(batch)


if __name__ == "__main__":
    write(sys.argv[1])
