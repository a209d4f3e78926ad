"""Ebla as a Spark data source: `spark.read`, `spark.readStream` and `df.write` with `format("ebla")`.

Theory of operation. Spark runs each step of a Python source in a process of its own: `load()` (the schema), planning,
every reading or writing task, the commit. What one step knows reaches the next by pickling only, so everything that
is kept on an object here is a plain value. Planning and committing happen on the driver's machine and open the
catalog; tasks never do. `load()` fixes the version that is read and pins it, so a DataFrame that is used twice says
the same thing twice.

What Spark 4.3 does not let a source do:

- It does not say whether `load()` is for a batch or for a stream, so a stream that begins with the snapshot says
  `readChangeFeed` to get the change columns (`startingVersion` and `maxVersionsPerBatch` say it too).
- It does not tell which columns a query needs. `spark.read.schema("id long, total decimal(12,2)")` reads only those.
- `pushFilters` exists, but the plan made for one filtered query is kept for every other query of the same DataFrame:
  `df.filter("id = 3").count()` then `df.count()` gives 1 and 1. Readers here leave it alone.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter
from pyspark.sql.types import StructType

from ebla.errors import UsageError
from ebla.source import read as reading
from ebla.source.options import Request, parse
from ebla.source.stream import EblaStreamReader
from ebla.source.write import begin_write


class EblaDataSource(DataSource):
    """One `load()` or `save()`."""

    target: reading.Target | None = None
    """What `schema()` has fixed. Spark pickles this object afterwards, so planning reads the same version."""

    @classmethod
    def name(cls) -> str:
        return "ebla"

    def schema(self) -> StructType:
        self.target = reading.resolve(self._request())
        return reading.full_schema(self.target)

    def reader(self, schema: StructType) -> DataSourceReader:
        request = self._request()
        if request.feed:
            raise UsageError(
                f"{request.table}: expected since (and until) to read changes in a batch, found an option of streams: "
                "startingVersion, maxVersionsPerBatch or readChangeFeed"
            )
        target = self.target or reading.resolve(request)
        return reading.EblaReader(request, target, reading.layout(schema, target))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        request = self._request()
        if not request.feed:
            raise UsageError(
                f"{request.table}: expected readChangeFeed or startingVersion, found neither; add "
                '.option("readChangeFeed", "true") to begin with the current rows and go on with their changes, or '
                '.option("startingVersion", n) to begin with the changes of version n'
            )
        target = self.target or reading.resolve(request)
        return EblaStreamReader(request, target, reading.layout(schema, target))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return begin_write(self._request(writing=True), schema, overwrite=overwrite)

    def _request(self, *, writing: bool = False) -> Request:
        return parse(self.options, writing=writing)
