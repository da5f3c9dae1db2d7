"""What is counted, in the words of Prometheus."""

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)

from pointer.serving.batching import Observer

MANY_PROCESSES = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the folder in which several processes add up their counts."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # when each count began; nobody asks, and it doubles them


def forget(process: int | None, folder: str) -> None:
    """What a process that has ended had in its queue does not wait any more."""
    multiprocess.mark_process_dead(process, folder)  # type: ignore[no-untyped-call]


class Metrics:
    """The counts of one server; those of several processes are added up when they are read."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("pointer_requests", "Requests answered.", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "pointer_request_seconds",
            "Time to answer a request.",
            ["route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.queue = Gauge(
            "pointer_queue_lists",
            "Constraint lists that wait or are being decoded.",
            ["model"],
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.batch = Histogram(
            "pointer_batch_texts",
            "Texts that grew by a stage together.",
            ["model"],
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        self.tokens = Counter("pointer_tokens", "Tokens of finished texts.", ["model"], registry=self.registry)
        self.cancelled = Counter(
            "pointer_cancelled_lists", "Lists given up: the client left or time was over.", ["model"],
            registry=self.registry,
        )  # fmt: skip

    def text(self) -> bytes:
        """All counts as Prometheus reads them."""
        if MANY_PROCESSES not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)

    def observer(self, model: str) -> Observer:
        """Who counts what the batcher of a model does."""
        return Observer(
            queue=self.queue.labels(model).set,
            batch=self.batch.labels(model).observe,
            dropped=self.cancelled.labels(model).inc,
        )
