"""What monitoring reads: Prometheus metrics of every view, and of the warehouse as `ebla status` shows it.

Counters and gauges come from the catalog when they are asked for, so every process tells the same and a restart loses
nothing. Only the histogram of epoch durations is this process's own: it counts the epochs that ran here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ebla.api.cluster_metrics import ClusterMetrics
from ebla.catalog.manifest import Size
from ebla.catalog.store import Catalog
from ebla.model.lifecycle.view import Status
from ebla.relations import status
from ebla.relations.freshness import Freshness, freshness
from ebla.views.epoch.attempt import Epoch

BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
LABELS = ("view", "handler")


class Metrics:
    """The registry of one open database."""

    def __init__(self, catalog: Catalog) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Views(catalog))
        self.registry.register(_Warehouse(catalog))
        self.registry.register(ClusterMetrics(catalog))
        self._seconds = Histogram(
            "ebla_view_epoch_seconds",
            "How long epochs of this process took.",
            ("view", "plan"),
            buckets=BUCKETS_S,
            registry=self.registry,
        )

    def observe(self, done: Epoch) -> None:
        """An epoch of this process ended."""
        if not done.idle:
            self._seconds.labels(view=done.view, plan=done.plan).observe(done.seconds)

    def text(self) -> str:
        """All samples in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    def samples(self) -> list[dict[str, object]]:
        """All samples as values."""
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
    states = GaugeMetricFamily("ebla_view_status", "1 for the status that the view has.", labels=(*LABELS, "status"))
    rows = CounterMetricFamily("ebla_view_rows_changed", "Rows that epochs wrote and removed.", labels=LABELS)
    failures = CounterMetricFamily("ebla_view_failures", "Epochs that failed on the rows.", labels=LABELS)
    epochs = CounterMetricFamily("ebla_view_epochs", "Epochs that ended, by plan.", labels=(*LABELS, "plan"))
    for one in views:
        labels = [one.name, one.handler]
        for name in Status:
            states.add_metric([*labels, name], float(one.status == name))
        rows.add_metric(labels, one.position.rows_changed)
        failures.add_metric(labels, one.position.failures)
        for plan, count in sorted(one.position.epochs.items()):
            epochs.add_metric([*labels, plan], count)
    yield from (states, rows, failures, epochs)


class _Warehouse(Collector):
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from of_status(status.of(self._catalog))


def of_status(found: status.Status) -> Iterator[Metric]:
    """The metrics that follow from what `ebla status` shows."""
    yield _gauge("ebla_version", "The newest committed version.", (), [((), found.version)])
    yield _gauge("ebla_needs_a_person", "Things that need a person.", (), [((), len(found.needs))])
    yield from _of_sizes(found)
    of_index = ("index", "relation")
    built = [((i.name, i.relation), i.percent) for i in found.indexes]
    yield _gauge("ebla_index_percent", "How much of the index is built; 100 if it can be read.", of_index, built)
    builds = [((one.name,), one.progress.percent) for one in found.builds]
    yield _gauge("ebla_build_percent", "How much of a view or index that is being built is done.", ("name",), builds)
    runs = [((h.name,), float(h.should_run)) for h in found.handlers]
    yield _gauge("ebla_handler_should_run", "1 if the handler's epochs run in the background.", ("handler",), runs)
    ages = [((h.name,), h.age_s) for h in found.handlers]
    yield _gauge("ebla_handler_age_seconds", "The age of the handler's oldest view.", ("handler",), ages)
    roles = Counter((p.role.value, str(p.maintains).lower()) for p in found.processes)
    yield _gauge("ebla_processes", "Live processes.", ("role", "maintains"), roles.items())
    failures = [((t.name, t.work.value, str(t.final).lower()), t.attempts) for t in found.troubles]
    help_text = "Failures in a row of work that has not succeeded since."
    yield _gauge("ebla_trouble_attempts", help_text, ("name", "work", "final"), failures)
    oldest = min((t.started_at for t in found.transactions), default=found.now)
    yield _gauge("ebla_transactions_open", "Open transactions.", (), [((), len(found.transactions))])
    help_text = "The age of the oldest open transaction."
    yield _gauge("ebla_transaction_oldest_seconds", help_text, (), [((), (found.now - oldest) / 1e6)])
    yield _gauge("ebla_pins", "Versions that readers hold.", (), [((), len(found.pins))])


def _of_sizes(found: status.Status) -> Iterator[Metric]:
    relations = [
        *((t.name, "table", t.size) for t in found.tables),
        *((v.name, "view", v.size) for v in found.views),
        *((i.name, "index", i.size) for i in found.indexes),
    ]
    gauges: dict[str, tuple[str, Callable[[Size], int]]] = {
        "rows": ("Rows by the manifest, an upper bound.", lambda size: size.rows),
        "level0_runs": ("Level 0 runs, which every read merges.", lambda size: size.level0_runs),
        "bytes": ("Bytes of the newest version, all copies.", lambda size: size.bytes),
        "old_bytes": ("Bytes of what newer versions replaced.", lambda size: size.old_bytes),
    }
    for name, (help_text, value) in gauges.items():
        samples = [((relation, kind), value(size)) for relation, kind, size in relations]
        yield _gauge(f"ebla_relation_{name}", help_text, ("relation", "kind"), samples)


def _gauge(
    name: str, help_text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, help_text, labels=labels)
    for values, amount in samples:
        gauge.add_metric(list(values), float(amount))
    return gauge
