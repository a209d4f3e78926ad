"""SIGINT means what the program says, before and after Spark is started and statements are run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from ebla.spark.tags import Tags, cancels_all, own_handler_kept


def of_pyspark(number: int, frame: FrameType | None) -> None:
    raise AssertionError("all jobs were cancelled")


of_pyspark.__module__ = "pyspark.core.context"  # where PySpark defines its own


@pytest.fixture(autouse=True)
def _same_afterwards() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_starting_spark_leaves_the_program_s_handler():
    def own(number: int, frame: FrameType | None) -> None: ...

    signal.signal(signal.SIGINT, own)
    with own_handler_kept():
        signal.signal(signal.SIGINT, of_pyspark)
    assert signal.getsignal(signal.SIGINT) is own
    assert cancels_all(of_pyspark)
    assert not cancels_all(own)


def test_a_statement_is_interrupted_without_pyspark_s_handler():
    signal.signal(signal.SIGINT, of_pyspark)
    tags = Tags(lambda: None)
    with pytest.raises(KeyboardInterrupt), tags.statement():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is of_pyspark
    assert tags.current is None


def test_an_error_behind_an_interrupt_is_the_interrupt():
    tags = Tags(lambda: None)
    signal.signal(signal.SIGINT, lambda number, frame: None)  # as where PySpark hides it behind an error of the job

    def cancelled() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ValueError("job cancelled")

    with pytest.raises(KeyboardInterrupt), tags.statement():
        cancelled()
    with pytest.raises(ValueError, match="wrong"), tags.statement():
        raise ValueError("wrong")


def test_threads_of_a_statement_carry_its_tag():
    tags, found = Tags(lambda: None), []
    with tags.statement():
        tag = tags.current
        with tags.statement(with_jobs=True):
            assert tags.current == tag, "a statement within a statement is the same"
        for function in (tags.bound(lambda: found.append(tags.current)), lambda: found.append(tags.current)):
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()
    assert tag is not None
    assert found == [tag, None]
    assert tags.current is None
