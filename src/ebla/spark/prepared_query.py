"""A query planned once for inputs of fixed columns, and run over other rows each time: one job of one task.

Over a few rows Spark spends most of its time on analysing, optimizing and planning. So the plan is kept. Each of its
inputs is an RDD of which a run exchanges the parent. A physical plan keeps what it has computed, so a run executes a
copy. The result of a subquery belongs to its expression and is not copied, and a broadcast is computed without the
settings of the session: a query that has one of them is planned every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ebla.spark.session import empty_frame, java_class, same_active_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

Query = Callable[[Sequence["DataFrame"]], "DataFrame"]
"""A query over its inputs."""


class Rows:
    """Rows in the JVM, behind an RDD: the optimizer, which copies the rows of a local table, does not see them.

    The session must be one of `view_session(small=True)`, which makes an RDD of any number of them.
    """

    def __init__(self, session: SparkSession, table: pa.Table, schema: T.StructType) -> None:
        if table.num_rows == 0:
            self.frame, self.rdd = empty_frame(session, schema), _nothing(session)
        else:
            self.frame = _sent(session, table, schema)
            self.rdd = self.frame._jdf.queryExecution().analyzed().rdd()


def _sent(session: SparkSession, table: pa.Table, schema: T.StructType) -> DataFrame:
    """What `createDataFrame` does with values that have Spark's own types, without asking the JVM thirty times."""
    from pyspark.sql import DataFrame as Frame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import to_arrow_schema

    utils = java_class(session, "PythonSQLUtils")
    fitted = (
        table.cast(to_arrow_schema(schema, timezone="UTC")) if schema.fields else table
    )  # no column: no row is kept
    batches = fitted.combine_chunks().to_batches()
    sent = session.sparkContext._serialize_to_jvm(
        batches, ArrowStreamSerializer(), utils.readArrowStreamFromFile, java_class(session, "ArrowIteratorServer")
    )
    return Frame(utils.toDataFrame(sent, schema.json(), session._jsparkSession), session)


class PreparedQuery:
    """A query in a session that replans nothing. Runs of several threads take turns."""

    def __init__(self, session: SparkSession, inputs: Sequence[T.StructType], query: Query) -> None:
        self._session = session
        self._query = query
        self._lock = threading.Lock()
        self._inputs = [_exchangeable(session, _nothing(session)) for _ in inputs]
        frames = [_frame(session, rdd, schema).coalesce(1) for rdd, schema in zip(self._inputs, inputs, strict=True)]
        made = query(frames)
        self._schema, self._columns = made._jdf.schema(), made.schema
        plan = _in_one_task(session, made._jdf.queryExecution().executedPlan())
        self._plan = plan if plan.subqueriesAll().isEmpty() and "BroadcastExchange" not in plan.toString() else None

    def run(self, inputs: Sequence[Rows]) -> pa.Table:
        """The query over these rows, in the order of the inputs."""
        if self._plan is None:
            return self._query([rows.frame for rows in inputs]).toArrow()
        with self._lock, same_active_session(self._session):
            try:
                for place, rows in zip(self._inputs, inputs, strict=True):
                    _exchange(place, rows.rdd)
                active = java_class(self._session, "org.apache.spark.sql.classic.SparkSession")
                active.setActiveSession(self._session._jsparkSession)  # a copy of a plan belongs to this one
                return self._computed(self._plan.clone().execute()).toArrow()
            finally:
                for place in self._inputs:
                    place.markCheckpointed()  # without a parent, whose rows may be many

    def _computed(self, rdd: Any) -> DataFrame:
        from pyspark.sql import DataFrame as Frame

        made = Frame(self._session._jsparkSession.internalCreateDataFrame(rdd, self._schema, False), self._session)
        vars(made)["schema"] = self._columns  # else Spark is asked for it, and answers in JSON
        return made


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


def _nothing(session: SparkSession) -> Any:
    return session.sparkContext._jsc.emptyRDD().rdd()


def _exchangeable(session: SparkSession, parent: Any) -> Any:
    """An RDD whose parent can be exchanged: Spark declares it so, in order to cut it off at a checkpoint."""
    none = java_class(session, "scala.Option").empty()
    coalesced = java_class(session, "org.apache.spark.rdd.CoalescedRDD")
    return coalesced(parent, 1, none, parent.elementClassTag())


def _exchange(rdd: Any, parent: Any) -> None:
    rdd.markCheckpointed()  # forgets the parent, its partitions and what depends on them
    getattr(rdd, "prev_$eq")(parent)


def _frame(session: SparkSession, rdd: Any, schema: T.StructType) -> DataFrame:
    from pyspark.sql import DataFrame as Frame

    spark = session._jsparkSession
    return Frame(spark.internalCreateDataFrame(rdd, spark.parseDataType(schema.json()), False), session)
