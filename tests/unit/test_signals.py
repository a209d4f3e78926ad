"""The first signal asks a process to end, the next one ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from ebla.base.closing import Closing
from ebla.base.signals import asking


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Python's own handler, whatever this process was started with: a shell's jobs in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_pythons_own(first: signal.Signals):
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    stop = threading.Event()

    def signalled_twice() -> None:
        with asking(stop):
            signal.raise_signal(first)
            assert stop.wait(50)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        signalled_twice()
    assert {one: signal.getsignal(one) for one in before} == before


@pytest.mark.timeout(60)
def test_a_signal_that_comes_as_the_main_thread_begins_to_wait_is_heard():
    """`Event.wait` holds the event's lock for a moment, and a handler runs in the thread that holds it."""
    stop = threading.Event()
    with asking(stop):
        with stop._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
        assert stop.wait(50)


def test_handlers_are_those_of_before_when_no_signal_came():
    before = signal.getsignal(signal.SIGTERM)
    with asking(threading.Event()):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_with_statement_closes_what_failed_too():
    class Thing(Closing):
        is_open = True

        def close(self) -> None:
            self.is_open = False

    def fails() -> None:
        with thing as entered:
            assert entered is thing
            raise ValueError("no")

    thing = Thing()
    with pytest.raises(ValueError, match="no"):
        fails()
    assert not thing.is_open
