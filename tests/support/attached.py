"""Processes that share one Spark: a child attaches to the JVM in which the session of the tests runs.

To start a Spark of its own costs a process ten seconds and more before it does anything that a test is about. A child
that attaches is still a process with all of Ebla in it, and is killed as such; only the JVM stays, as a cluster would.
What the JVM was doing for the child goes on to its end, and a test must not look before that: `until_gone` waits.

Every connection of a child is a thread of the JVM, named after the child before it does anything else.
"""

from __future__ import annotations

import os
import time
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

Address = tuple[int, str]
"""Port and secret of a JVM."""


def address(spark: SparkSession) -> Address:
    """Where children find the JVM of this session."""
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    return parameters.port, parameters.auth_token


def attach(where: Address) -> None:
    """Make this process one that runs Spark already: Ebla works beside it, and does not stop it."""
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(where[0]), where[1]
    SparkContext._ensure_initialized()
    gateway = SparkContext._gateway
    assert gateway is not None
    _name_connections(gateway)
    running = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    SparkSession(SparkContext(jsc=running, conf=SparkConf(_jconf=running.getConf())))


def _name_connections(gateway: Any) -> None:
    client, current = gateway._gateway_client, gateway.jvm.java.lang.Thread.currentThread
    connect = client._create_new_connection

    def connect_and_name() -> Any:
        connection = connect()
        current().setName(_name(os.getpid()))
        client.deque.remove(connection)  # a new connection is not in there until its first command is done
        return connection

    client._create_new_connection = connect_and_name
    current().setName(_name(os.getpid()))  # the connection of this thread


def until_gone(spark: SparkSession, pid: int, seconds: float = 120) -> None:
    """Wait until the JVM has ended everything that it was doing for a process."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    deadline = time.monotonic() + seconds
    while f"Thread[{_name(pid)}," in jvm.java.util.Arrays.toString(
        jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
    ):
        assert time.monotonic() < deadline, f"the JVM still works for process {pid}, which is gone"
        time.sleep(0.01)


def _name(pid: int) -> str:
    return f"process-{pid}"
