"""One pod's way through all services is one trace, as a collector gets it."""

import asyncio
from collections.abc import Iterable

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from shared.config.settings import Settings
from testing.builders import node
from tests.pipeline.corner import a_corner, unfit
from tests.pipeline.support import until
from tests.telemetry.collector import Collector, a_collector
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

pytestmark = pytest.mark.asyncio

PODS = 20
WORKERS = 2
WAY = {"watch", "queue", "attempt", "assume", "bind", "pod"}


def options(collector: Collector, ratio: float) -> PipelineOptions:
    return PipelineOptions(workers=WORKERS, settings=Settings(trace_ratio=ratio, otlp_endpoint=collector.url))


def attribute(span: Span, key: str) -> str:
    return next((found.value.string_value for found in span.attributes if found.key == key), "")


def named(spans: Iterable[Span], name: str) -> list[Span]:
    return [span for span in spans if span.name == name]


async def test_a_pods_trace_is_whole_from_the_watch_to_the_binding() -> None:
    with a_collector() as collector:
        async with Pipeline.running(options(collector, 1.0)) as pipeline, a_corner(pipeline, "traced") as corner:
            await corner.has_nodes(node("a").capacity(cpu=4, memory="8Gi"), node("b").capacity(cpu=4, memory="8Gi"))
            await asyncio.gather(*(corner.cluster.create(corner.pod(f"p{i}")) for i in range(PODS)))
            for i in range(PODS):
                await corner.lands(f"p{i}")
    assert len(named(collector.spans, "pod")) == PODS
    for root in named(collector.spans, "pod"):
        the_way_is_whole(root, collector.spans)
    assert {"flotilla-watcher", "flotilla-queue", "flotilla-cycle", "flotilla-snapshot", "flotilla-binder"} < {
        found.value.string_value for r in collector.resources for found in r.attributes if found.key == "service.name"
    }


def the_way_is_whole(root: Span, spans: list[Span]) -> None:
    trace = [span for span in spans if span.trace_id == root.trace_id]
    assert {span.name for span in trace} >= WAY
    assert not root.parent_span_id
    ids = {span.span_id for span in trace}
    assert all(span.parent_span_id in ids for span in trace if span is not root)
    assert {attribute(span, "pod") for span in trace if span.name in WAY} == {attribute(root, "pod")}
    (bind,) = named(trace, "bind")
    assert [span.parent_span_id for span in trace if span.name.startswith("POST ")] == [bind.span_id]
    (attempt,) = named(trace, "attempt")
    the_round_is_whole(attempt, spans)


def the_round_is_whole(attempt: Span, spans: list[Span]) -> None:
    (link,) = attempt.links
    trace = [span for span in spans if span.trace_id == link.trace_id]
    (round_,) = named(trace, "round")
    assert round_.span_id == link.span_id
    assert {attribute(span, "worker") for span in named(trace, "evaluate")} == {f"worker-{i}" for i in range(WORKERS)}
    assert named(trace, "commit")
    assert all(span.parent_span_id == round_.span_id for span in trace if span is not round_)


async def test_a_failure_is_traced_though_nothing_else_is() -> None:
    message = unfit(1, "1 Insufficient cpu")
    with a_collector() as collector:
        async with Pipeline.running(options(collector, 0.0)) as pipeline, a_corner(pipeline, "failing") as corner:
            await corner.has_nodes(node("a").capacity(cpu=4, memory="8Gi"))
            await corner.cluster.create(corner.pod("fits"), corner.pod("does-not").request(cpu=5))
            await corner.lands("fits")
            await corner.is_unschedulable("does-not", message)
            corner.left = {"does-not"}

            async def collected() -> bool:
                return bool(collector.spans)

            await until(collected, "no span has come")
    attempts = named(collector.spans, "attempt")
    assert {attribute(span, "pod") for span in collector.spans} == {"failing/does-not"}
    assert [(span.status.code, span.status.message) for span in attempts] == [(Status.STATUS_CODE_ERROR, message)]
