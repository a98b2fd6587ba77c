"""The metrics that Prometheus reads at `/metrics`: latencies, queue, batches, searches, coverage, writes and jobs.

Each service has its own registry. Numbers that others already count are read from them on each request.
"""

from __future__ import annotations

import time
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.service.background import State
from knnmt.service.domains import Domains
from knnmt.service.jobs import Jobs
from knnmt.service.scheduling.batching import Batcher, BatchReport
from knnmt.service.writing import WriteReport
from knnmt.translator.translation import Translation

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_PARTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class Metrics:
    """The metrics of one service. Threads may share it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "knnmt_request_seconds",
            "Time from a request to the end of its answer.",
            ["method", "route", "status"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._texts = Counter("knnmt_texts", "Translated texts, by kind.", ["kind"], registry=self.registry)
        self._coverage = Histogram(
            "knnmt_coverage",
            "Share of a text that the memory covers, with search by segment.",
            buckets=_PARTS,
            registry=self.registry,
        )
        self._batch_segments = Histogram(
            "knnmt_batch_segments", "Segments that were decoded together.", buckets=_BATCHES, registry=self.registry
        )
        self._batch_seconds = Histogram(
            "knnmt_batch_seconds", "Time to decode a batch.", buckets=_SECONDS, registry=self.registry
        )
        self._written = Counter(
            "knnmt_written_changes", "Changes of stores that were written.", ["kind"], registry=self.registry
        )
        self._write_seconds = Histogram(
            "knnmt_write_seconds", "Time to publish changes.", buckets=_SECONDS, registry=self.registry
        )
        ProcessCollector(registry=self.registry)

    def watch(self, batcher: Batcher, domains: Domains, jobs: Jobs, ready: Callable[[], bool]) -> None:
        """Also report what others count."""
        self.registry.register(_Watched(batcher, domains, jobs, ready))

    def batch(self, report: BatchReport) -> None:
        """Record a batch."""
        self._batch_segments.observe(report.segments)
        self._batch_seconds.observe(report.seconds)

    def written(self, report: WriteReport) -> None:
        """Record a publication."""
        self._written.labels(report.kind).inc(report.changes)
        self._write_seconds.observe(report.seconds)

    def translated(self, made: Iterable[Translation]) -> None:
        """Record translations."""
        for each in made:
            self._texts.labels(each.kind or "none").inc()
            if each.coverage is not None:
                self._coverage.observe(each.coverage.covered)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _Watched(Collector):
    """Metrics that others count."""

    def __init__(self, batcher: Batcher, domains: Domains, jobs: Jobs, ready: Callable[[], bool]) -> None:
        self._batcher, self._domains, self._jobs, self._ready = batcher, domains, jobs, ready

    def collect(self) -> Iterator[Metric]:
        """Their current values."""
        statistics = self._batcher.statistics
        for name, help_text, value in (
            ("knnmt_ready", "1 while the service accepts requests.", float(self._ready())),
            ("knnmt_waiting", "Texts and segments that are not done.", self._batcher.waiting),
            ("knnmt_domains", "Domains, including the model alone.", len(list(self._domains))),
        ):
            yield GaugeMetricFamily(name, help_text, value=value)
        for name, help_text, value in (
            ("knnmt_rows", "Rows that could search, in all steps.", statistics.rows),
            ("knnmt_searches", "Rows that searched.", statistics.searches),
            ("knnmt_retrieval_cache_hits", "Rows that reused an earlier retrieval.", statistics.hits),
            ("knnmt_shards_left_out", "Times that a shard did not answer for a segment.", statistics.left_out),
            (
                "knnmt_result_cache_hits",
                "Texts whose result was remembered or already being computed.",
                self._batcher.hits,
            ),
        ):
            yield CounterMetricFamily(name, help_text, value=value)
        count = Count(job.state for job in self._jobs)
        jobs = GaugeMetricFamily("knnmt_jobs", "Jobs by state, including the last finished ones.", labels=["state"])
        for state in get_args(State):
            jobs.add_metric([state], count[state])
        yield jobs


class Measured:
    """Measures the time of every request, from its start to the end of its answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._requests = app, metrics.requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Measure one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, heard)
        finally:
            # Every value of a label takes memory for ever, so clients must not be able to choose new ones. The template
            # of the path is used, not the path: there are few templates, and they contain no text of a user.
            route = getattr(scope.get("route"), "path", "none")
            method = "none" if route == "none" else scope["method"] if scope["method"] in _METHODS else "other"
            self._requests.labels(method, route, str(status)).observe(time.perf_counter() - began)
