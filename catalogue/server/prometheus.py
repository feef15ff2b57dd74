"""The figures in the formats of Prometheus."""

import platform
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from catalogue.server.figures import BOUNDS, CLASSES, ROUTES, Figures, Totals
from catalogue.server.service import SourceLimit
from catalogue.settings import package_version


def encode(totals: Totals, limit: SourceLimit, figures: Figures, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type, in the format that a client accepts."""
    encoder, kind = choose_encoder(accept)
    return encoder(_Collected([*_metrics(totals, limit, figures)])), kind


@dataclass(frozen=True, slots=True)
class _Collected:
    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _metrics(totals: Totals, limit: SourceLimit, figures: Figures) -> Iterable[Metric]:
    answers = CounterMetricFamily("catalogue_http_requests", "Answers by route and status.", labels=["route", "status"])
    seconds = HistogramMetricFamily(
        "catalogue_http_request_duration_seconds", "Time from a request's head to its last byte.", labels=["route"]
    )
    for route in ROUTES:
        for class_ in CLASSES:
            answers.add_metric([route, class_], totals[route, class_])
        buckets = zip([*map(str, BOUNDS), "+Inf"], totals.buckets(route), strict=True)
        seconds.add_metric([route], [*buckets], totals[route, "seconds"])
    yield answers
    yield seconds
    yield CounterMetricFamily("catalogue_source_requests", "Requests to the source.", totals["requests"])
    yield CounterMetricFamily("catalogue_source_received_bytes", "Bytes received from the source.", totals["bytes"])
    rate = GaugeMetricFamily(
        "catalogue_source_rate_limit", "Requests per second that the source gets at most; missing if there is no limit."
    )
    if limit.rate is not None:
        rate.add_metric([], limit.rate)
    yield rate
    yield GaugeMetricFamily(
        "catalogue_source_pause_seconds",
        "Seconds until the source gets requests again, because it blocks, throttles or fails; 0 if there is no pause.",
        limit.pause,
    )
    yield GaugeMetricFamily(
        "catalogue_source_blocks", "Times in a row that the source has blocked this address.", limit.blocks
    )
    queries = GaugeMetricFamily("catalogue_queries", "Queries in the pools.", labels=["state"])
    queries.add_metric(["running"], totals["running"])
    queries.add_metric(["waiting"], totals["waiting"])
    yield queries
    yield GaugeMetricFamily("catalogue_memory_bytes", "What the CDX API keeps in memory.", totals["memory"])
    processes = GaugeMetricFamily("catalogue_processes", "Processes of the server.", labels=["state"])
    processes.add_metric(["running"], totals["processes"])
    processes.add_metric(["ended"], figures.processes - totals["processes"])
    yield processes
    yield GaugeMetricFamily("catalogue_start_time_seconds", "When the server was started.", figures.started)
    yield InfoMetricFamily(
        "catalogue_build", "Versions.", {"version": package_version(), "python": platform.python_version()}
    )
