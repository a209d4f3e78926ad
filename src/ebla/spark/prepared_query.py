"""A query planned once for inputs of fixed columns, and run over other rows each time: one job of one task.

Over a few rows Spark spends most of its time on analysing, optimizing and planning. So the plan is kept. Each of its
inputs is an RDD of one partition, in which a run puts its rows. A physical plan keeps what it has computed, so a run
executes a copy. What it gives is collected as an RDD, too: as a DataFrame it would be analysed, optimized and planned
after all. The result of a subquery belongs to its expression and is not copied, and a broadcast is computed without the
settings of the session: a query that has one of them is planned every time.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebla.spark.session import java_class, same_active_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

Query = Callable[[Sequence["DataFrame"]], "DataFrame"]
"""A query over its inputs."""


_SIZE = struct.Struct(">i")
"""How many bytes come next, as the JVM writes it."""


class Rows:
    """Rows in the JVM, as batches of Arrow.

    The session must be one of `view_session(small=True)`, which makes an RDD of any number of them.
    """

    def __init__(self, session: SparkSession, table: pa.Table, schema: T.StructType) -> None:
        self._session = session
        self._schema = schema
        self.batches = _sent(session, _fitted(table, schema).to_batches()).toSeq() if table.num_rows else None

    @property
    def frame(self) -> DataFrame:
        """Of a query that is planned every time."""
        leaf = _Leaf(self._session, self._schema)
        leaf.put(self)
        return leaf.frame


class _Leaf:
    """A DataFrame whose rows are exchanged, behind an RDD: the optimizer, which copies the rows of a local table, does
    not see them. The one partition of that RDD declares its values, which are batches of Arrow, as a variable.
    """

    def __init__(self, session: SparkSession, schema: T.StructType) -> None:
        from pyspark.sql import DataFrame as Frame

        utils, kinds = java_class(session, "PythonSQLUtils"), _arrow_schema(schema)
        # One batch without rows: of no batch at all Spark makes a local table.
        nothing = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds.types], schema=kinds)
        made = utils.toDataFrame(_sent(session, [nothing]), schema.json(), session._jsparkSession)
        self.frame = Frame(made, session)
        self._partition = made.queryExecution().analyzed().rdd().partitions()[0]
        self._nothing = java_class(session, "PythonUtils").toSeq([])

    def put(self, rows: Rows) -> None:
        getattr(self._partition, "values_$eq")(self._nothing if rows.batches is None else rows.batches)

    def clear(self) -> None:
        """Forget the rows, which may be many."""
        getattr(self._partition, "values_$eq")(self._nothing)


class PreparedQuery:
    """A query in a session that replans nothing. Runs of several threads take turns."""

    def __init__(self, session: SparkSession, inputs: Sequence[T.StructType], query: Query) -> None:
        self._session = session
        self._query = query
        self._lock = threading.Lock()
        self._leaves = [_Leaf(session, schema) for schema in inputs]
        made = query([leaf.frame.coalesce(1) for leaf in self._leaves])
        self._result, self._columns = made._jdf, _arrow_schema(made.schema, of=session)
        self._settings = session._jsparkSession.conf().getAllAsJava()
        plan = _in_one_task(session, made._jdf.queryExecution().executedPlan())
        self._plan = plan if plan.subqueriesAll().isEmpty() and "BroadcastExchange" not in plan.toString() else None

    def run(self, inputs: Sequence[Rows]) -> pa.Table:
        """The query over these rows, in the order of the inputs."""
        if self._plan is None:
            return self._query([rows.frame for rows in inputs]).toArrow()
        with self._lock, same_active_session(self._session), self._settings_of_tasks():
            try:
                for leaf, rows in zip(self._leaves, inputs, strict=True):
                    leaf.put(rows)
                active = java_class(self._session, "org.apache.spark.sql.classic.SparkSession")
                active.setActiveSession(self._session._jsparkSession)  # a copy of a plan belongs to this one
                found = self._result.toArrowBatchRdd(self._plan.clone()).toJavaRDD().collect()
            finally:
                for leaf in self._leaves:
                    leaf.clear()
        batches = [pa.ipc.read_record_batch(batch, self._columns) for batch in _received(self._session, found)]
        return pa.Table.from_batches(batches, self._columns)

    @contextlib.contextmanager
    def _settings_of_tasks(self) -> Iterator[None]:
        """Jobs of this thread carry the session's settings to their tasks, as those of a DataFrame do."""
        context = self._session.sparkContext._jsc.sc()
        before = context.getLocalProperties()
        own = before.clone()
        own.putAll(self._settings)
        context.setLocalProperties(own)
        try:
            yield
        finally:
            context.setLocalProperties(before)


def _received(session: SparkSession, batches: Any) -> list[pa.Buffer]:
    """A list of the JVM with arrays of bytes, through a file.

    Py4J would give the bytes out one by one: a call of Python for each of them.
    """
    rows = java_class(session, "PythonUtils").toSeq(batches).iterator()
    handle, path = tempfile.mkstemp(dir=session.sparkContext._temp_dir)
    try:
        with os.fdopen(handle, "rb") as file:
            out = java_class(session, "java.io.DataOutputStream")(java_class(session, "java.io.FileOutputStream")(path))
            try:
                java_class(session, "org.apache.spark.api.python.PythonRDD").writeIteratorToStream(rows, out)
            finally:
                out.close()
            found: list[pa.Buffer] = []
            while size := file.read(_SIZE.size):
                found.append(pa.py_buffer(file.read(*_SIZE.unpack(size))))
    finally:
        os.remove(path)
    return found


def _in_one_task(session: SparkSession, plan: Any) -> Any:
    """The plan without exchanges from one partition to one, which move no row and make a stage each.

    Spark joins two inputs of one partition as they are, but shuffles what another join gave, though that is one too.
    """
    children = plan.children()
    made = [_in_one_task(session, children.apply(place)) for place in range(children.size())]
    if plan.nodeName() == "Exchange" and all(_partitions(one) == 1 for one in (plan, made[0])):
        return made[0]
    return plan.withNewChildren(java_class(session, "PythonUtils").toSeq(made)) if made else plan


def _partitions(plan: Any) -> int:
    """How many a plan says that it has; 0 of one that does not know."""
    return int(plan.outputPartitioning().numPartitions())


def _arrow_schema(schema: T.StructType, *, of: SparkSession | None = None) -> pa.Schema:
    """Columns as Arrow has them, or as a session gives them out."""
    from pyspark.sql.pandas.types import to_arrow_schema

    large = of is not None and of.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC", prefers_large_types=large)
    return found


def _fitted(table: pa.Table, schema: T.StructType) -> pa.Table:
    """Rows in Spark's own types, in one chunk."""
    # A table without columns would lose its rows.
    return (table.cast(_arrow_schema(schema)) if schema.fields else table).combine_chunks()


def _sent(session: SparkSession, batches: Sequence[pa.RecordBatch]) -> Any:
    """An iterator over batches in the JVM."""
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    return session.sparkContext._serialize_to_jvm(
        batches,
        ArrowStreamSerializer(),
        java_class(session, "PythonSQLUtils").readArrowStreamFromFile,
        java_class(session, "ArrowIteratorServer"),
    )
