"""What the watcher tells of a pod's way."""

import random

from services.watcher.metrics import WatchSpans
from shared.messages.watch import NodeChange, PodChange, WatchBeat, Watched
from shared.telemetry.export import SpanSink
from shared.telemetry.tracing import Tracer
from tests.telemetry.collector import a_collector

OURS = frozenset({"default-scheduler"})


def change(uid: str, *, scheduler: str = "default-scheduler", node: str = "", gone: bool = False) -> PodChange:
    return PodChange(uid, "default", uid, scheduler, node, gone=gone, seen_at=100.0)


def test_pending_pods_of_our_schedulers_get_a_span() -> None:
    with a_collector() as collector:
        tracer = Tracer("watcher", "w", ratio=1.0, ids=random.Random(1), sink=SpanSink(collector.url), date=float)
        others = [change("theirs", scheduler="other"), change("bound", node="n"), change("gone", gone=True)]
        told: list[Watched | WatchBeat] = [
            Watched(1, 1, [change("a"), NodeChange("n", gone=True), *others]),
            WatchBeat(1, 1),
        ]
        WatchSpans(tracer, OURS).told(told, 100.0, 100.5)
        tracer.close()
    (span,) = collector.spans
    pod = tracer.pod("a")
    assert span.name == "watch"
    assert int.from_bytes(span.trace_id) == pod.trace_id
    assert int.from_bytes(span.parent_span_id) == pod.span_id
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (100_000_000_000, 100_500_000_000)


def test_pods_that_are_not_sampled_get_no_span() -> None:
    with a_collector() as collector:
        tracer = Tracer("watcher", "w", ratio=0.0, ids=random.Random(1), sink=SpanSink(collector.url), date=float)
        WatchSpans(tracer, OURS).told([Watched(1, 1, [change("a")])], 100.0, 100.5)
        tracer.close()
    assert collector.spans == []
