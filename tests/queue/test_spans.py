"""Traces of pods, as a collector receives them."""

import random

from services.queue.events import PodEnded, SendBatch
from services.queue.metrics import PodSpans
from shared.telemetry.export import SpanSink
from shared.telemetry.tracing import Tracer
from tests.queue.support import Queue
from tests.telemetry.collector import a_collector

SECOND = 1_000_000_000


def told(ratio: float) -> list[tuple[str, int, int, str]]:
    """The spans of a pod bound at its second attempt, and of one deleted after its first."""
    with a_collector() as collector:
        queue = Queue()
        tracer = Tracer("queue", "queue-1", ratio=ratio, ids=random.Random(1), sink=SpanSink(collector.url), date=float)
        spans = PodSpans(tracer, queue.core)

        def trace() -> None:
            for effect in queue.effects:
                if isinstance(effect, SendBatch) and not effect.again:
                    spans.popped(effect.batch, queue.now)
                elif isinstance(effect, PodEnded):
                    spans.ended(effect)

        queue.add("a", "b")
        queue.at(103.0).take()
        trace()
        queue.fail("a", "b")
        queue.gone("b")
        trace()
        queue.at(106.0).take()
        trace()
        queue.decide("a")
        queue.at(107.0).bound("a")
        trace()
        tracer.close()
    return [
        (s.name, s.start_time_unix_nano // SECOND, s.end_time_unix_nano // SECOND, s.status.message)
        for s in collector.spans
    ]


def test_a_sampled_pod_has_spans_for_each_wait_and_its_whole_time() -> None:
    assert told(ratio=1.0) == [
        ("queue", 100, 103, ""),
        ("queue", 100, 103, ""),
        ("pod", 100, 103, "it was deleted before it was bound"),
        ("queue", 103, 106, ""),
        ("pod", 100, 107, ""),
    ]


def test_other_pods_have_spans_for_failures_only() -> None:
    assert told(ratio=0.0) == [("pod", 100, 103, "it was deleted before it was bound")]
