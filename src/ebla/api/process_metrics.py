"""Metrics of one process, which other processes cannot tell: its services, its lag, its group commits, its caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ebla.base.caches import Caches, Usage
from ebla.base.precedence import PRECEDENCE
from ebla.base.services import Scheduler, ServiceUsage
from ebla.catalog.lag import Lag
from ebla.catalog.store import Catalog


class ProcessMetrics(Collector):
    def __init__(self, catalog: Catalog, lag: Lag, services: Scheduler, caches: Caches) -> None:
        self._catalog = catalog
        self._lag = lag
        self._services = services
        self._caches = caches

    def describe(self) -> Iterable[Metric]:
        return []  # so that registering reads nothing

    def collect(self) -> Iterator[Metric]:
        lag, counts = self._lag, self._catalog.queue.counts
        help_text = "The age of the oldest commit that epochs of this process have to read."
        yield GaugeMetricFamily("ebla_process_lag_seconds", help_text, value=lag.seconds)
        help_text = "The lag that a process has published because it is too great; 0 if none has."
        yield GaugeMetricFamily("ebla_published_lag_seconds", help_text, value=lag.elsewhere_s)
        yield _counter("ebla_writes_held", "Writes that were held back because of the lag.", lag.held)
        yield _counter("ebla_writes_held_seconds", "For how long writes were held back.", lag.held_s)
        help_text = "How often work in the background has paused while a query ran."
        yield _counter("ebla_pauses_for_queries", help_text, PRECEDENCE.paused)
        help_text = "For how long it has paused, summed over its threads."
        yield _counter("ebla_pauses_for_queries_seconds", help_text, PRECEDENCE.paused_s)
        yield _counter("ebla_catalog_changes", "Commits and beginnings of transactions.", counts.changes)
        help_text = "Database transactions that these changes took; those that wait together share one."
        yield _counter("ebla_catalog_transactions", help_text, counts.transactions)
        yield from of_services(self._services.spent())
        yield from of_caches(self._caches.usage())


def of_services(spent: Iterable[ServiceUsage]) -> Iterator[Metric]:
    found = list(spent)
    amounts: Mapping[str, tuple[str, Mapping[str, float]]] = {
        "steps": ("Steps of services in the background.", {one.name: one.steps for one in found}),
        "seconds": ("How long these steps took.", {one.name: one.stepped_s for one in found}),
        "yielded_seconds": (
            "How long steps that were due let others go first.",
            {one.name: one.gave_way_s for one in found},
        ),
    }
    for name, (help_text, values) in amounts.items():
        counter = CounterMetricFamily(f"ebla_service_{name}", help_text, labels=("service",))
        for service, amount in values.items():
            counter.add_metric([service], amount)
        yield counter


def of_caches(found: Sequence[Usage]) -> Iterator[Metric]:
    gauges: Mapping[str, tuple[str, Callable[[Usage], int]]] = {
        "entries": ("Things that the cache holds.", lambda one: one.entries),
        "bytes": ("Bytes that they take.", lambda one: one.bytes),
        "bytes_max": ("Bytes that they may take.", lambda one: one.bytes_max),
    }
    counters: Mapping[str, tuple[str, Callable[[Usage], int]]] = {
        "hits": ("How often something was found in the cache.", lambda one: one.hits),
        "misses": ("How often it was not.", lambda one: one.misses),
    }
    for kind, metrics in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
        for name, (help_text, value) in metrics.items():
            metric = kind(f"ebla_cache_{name}", help_text, labels=("cache",))
            for one in found:
                metric.add_metric([one.name], value(one))
            yield metric


def _counter(name: str, help_text: str, amount: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, help_text, value=amount)
