"""What monitoring reads: Prometheus metrics of every view.

Counters and gauges come from the catalog when they are asked for, so every process tells the same and a restart loses
nothing. Only the histogram of epoch durations is this process's own: it counts the epochs that ran here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ebla.catalog.store import Catalog
from ebla.views.freshness import Freshness, freshness
from ebla.views.maintain import Epoch

BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
LABELS = ("view", "handler")
STATUSES = ("building", "ready", "failed")


class Metrics:
    """The registry of one open database."""

    def __init__(self, catalog: Catalog) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Views(catalog))
        self._seconds = Histogram(
            "ebla_view_epoch_seconds",
            "How long epochs of this process took.",
            ("view", "plan"),
            buckets=BUCKETS_S,
            registry=self.registry,
        )

    def observe(self, done: Epoch) -> None:
        """An epoch of this process ended."""
        if done.plan != "nothing to do":
            self._seconds.labels(view=done.view, plan=done.plan).observe(done.seconds)

    def text(self) -> str:
        """In Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def samples(self) -> list[dict[str, object]]:
        """The same as values."""
        return [
            {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
            for metric in self.registry.collect()
            for sample in metric.samples
        ]


class _Views(Collector):
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def describe(self) -> Iterable[Metric]:
        return []  # so that registering reads nothing

    def collect(self) -> Iterator[Metric]:
        with self._catalog.reading() as connection:
            found = freshness(connection, self._catalog.clock())
        yield from of_views(found)


def of_views(found: Iterable[Freshness]) -> Iterator[Metric]:
    """The metrics that follow from how fresh views are."""
    views = list(found)
    gauges: dict[str, tuple[str, Callable[[Freshness], float | None]]] = {
        "applied_version": (
            "The version at which the view has read its streams.",
            lambda f: f.position.applied_version,
        ),
        "age_seconds": ("Seconds since the oldest write that the view has not read.", lambda f: f.age_s),
        "behind_versions": ("Versions that the newest write of an input is ahead.", lambda f: f.behind),
        "last_epoch_seconds": ("How long the last epoch took.", lambda f: f.position.epoch.get("seconds")),
    }
    for name, (help_text, value) in gauges.items():
        gauge = GaugeMetricFamily(f"ebla_view_{name}", help_text, labels=LABELS)
        for one in views:
            amount = value(one)
            if one.position.built and amount is not None:
                gauge.add_metric([one.name, one.handler], float(amount))
        yield gauge
    status = GaugeMetricFamily("ebla_view_status", "1 for the status that the view has.", labels=(*LABELS, "status"))
    rows = CounterMetricFamily("ebla_view_rows_changed", "Rows that epochs wrote and removed.", labels=LABELS)
    failures = CounterMetricFamily("ebla_view_failures", "Epochs that failed on the rows.", labels=LABELS)
    epochs = CounterMetricFamily("ebla_view_epochs", "Epochs that ended, by plan.", labels=(*LABELS, "plan"))
    for one in views:
        labels = [one.name, one.handler]
        for name in STATUSES:
            status.add_metric([*labels, name], float(one.status == name))
        rows.add_metric(labels, one.position.rows_changed)
        failures.add_metric(labels, one.position.failures)
        for plan, count in sorted(one.position.epochs.items()):
            epochs.add_metric([*labels, plan], count)
    yield from (status, rows, failures, epochs)
