"""Metrics of ``/metrics``, for Prometheus: counts of requests and tokens, batches, and where the time goes."""

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from longform_text.serving.waiting import Piece

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
SIZES = tuple(float(2**power) for power in range(12))
TOKENS = tuple(float(2**power) for power in range(4, 19))


class Metrics:
    """The numbers of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        made: Any = {"registry": self.registry}
        self.requests = Counter("longform_requests", "Requests, by route and status", ["route", "status"], **made)
        self.running = Gauge("longform_requests_running", "Requests that are not answered yet", **made)
        self.waiting_texts = Gauge("longform_waiting_texts", "Rows of token ids that wait for the model", **made)
        self.waiting_tokens = Gauge("longform_waiting_tokens", "Their tokens", **made)
        self.tokens = Counter("longform_tokens", "Tokens that the model has read", **made)
        self.truncated = Counter("longform_truncated_tokens", "Tokens that were cut off texts", **made)
        self.batch_texts = Histogram("longform_batch_texts", "Rows in a batch", buckets=SIZES, **made)
        self.batch_tokens = Histogram("longform_batch_tokens", "Tokens in a batch", buckets=TOKENS, **made)
        self.seconds = Histogram(
            "longform_seconds",
            "Seconds by phase: tokenize, wait (of a row), model (of a batch), request (the whole)",
            ["phase"],
            buckets=SECONDS,
            **made,
        )
        self.model_bytes = Gauge("longform_model_bytes", "Weights of the model in memory", **made)
        self.ready = Gauge("longform_ready", "1 once the model is loaded", **made)

    def watch(self, counts: Callable[[], tuple[int, int]]) -> None:
        """Ask ``counts`` for the pieces that wait, and their tokens, whenever the numbers are read."""
        self.waiting_texts.set_function(lambda: counts()[0])
        self.waiting_tokens.set_function(lambda: counts()[1])

    def batch(self, pieces: Sequence[Piece], started: float, ended: float) -> None:
        """Count a batch that the model has run."""
        tokens = sum(piece.length for piece in pieces)
        self.tokens.inc(tokens)
        self.batch_texts.observe(len(pieces))
        self.batch_tokens.observe(tokens)
        self.seconds.labels("model").observe(ended - started)
        waited = self.seconds.labels("wait")
        for piece in pieces:
            waited.observe(max(0.0, started - piece.arrived))

    def text(self) -> bytes:
        """Metrics in Prometheus' format."""
        return generate_latest(self.registry)
