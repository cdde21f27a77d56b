"""Spans told after the fact, as a collector gets them."""

import logging
import random
import socket
import time
import uuid

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from shared.telemetry.export import CLOSE_SECONDS, MAX_WAITING, SpanSink
from shared.telemetry.tracing import AttributeValue, TraceContext, Tracer
from tests.telemetry.collector import Collector, a_collector

MAX_KINDS_OF_LINES = 6
"""About one failing collector, however many spans and tries there are."""


def a_tracer(
    collector: Collector | None = None, *, ratio: float = 1.0, service: str = "cycle", seed: int = 1
) -> Tracer:
    sink = None if collector is None else SpanSink(collector.url)
    return Tracer(service, f"{service}-1", ratio=ratio, ids=random.Random(seed), sink=sink, date=float)


def by_name(collector: Collector) -> dict[str, Span]:
    return {span.name: span for span in collector.spans}


# What the collector gets


def test_a_span_arrives_with_its_ids_times_parent_links_and_attributes() -> None:
    with a_collector() as collector:
        tracer = a_tracer(collector)
        root, other = tracer.pod("uid-1"), tracer.new(True)
        child = tracer.child(root)
        attributes: dict[str, AttributeValue] = {"pod": "default/p", "attempt": 2, "score": 0.5, "nominated": False}
        tracer.record("decide", child, 100.25, 100.5, parent=root, attributes=attributes, links=[other])
        tracer.record("schedule", root, 100.0, 101.0)
        tracer.close()
    spans = by_name(collector)
    decide, schedule = spans["decide"], spans["schedule"]
    assert int.from_bytes(decide.trace_id) == int.from_bytes(schedule.trace_id) == root.trace_id
    assert decide.parent_span_id == schedule.span_id == root.span_id.to_bytes(8)
    assert (int.from_bytes(decide.span_id), schedule.parent_span_id) == (child.span_id, b"")
    assert (decide.start_time_unix_nano, decide.end_time_unix_nano) == (100_250_000_000, 100_500_000_000)
    assert {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in decide.attributes} == attributes
    assert [(int.from_bytes(link.trace_id), int.from_bytes(link.span_id)) for link in decide.links] == [
        (other.trace_id, other.span_id)
    ]
    assert decide.status.code == Status.STATUS_CODE_UNSET


def test_a_resource_says_which_service_and_which_of_its_processes() -> None:
    with a_collector() as collector:
        for service in ("queue", "cycle"):
            tracer = a_tracer(collector, service=service)
            tracer.record("x", tracer.new(True), 1.0, 2.0)
            tracer.close()
    told = [{a.key: a.value.string_value for a in resource.attributes} for resource in collector.resources]
    assert [(each["service.name"], each["service.instance.id"]) for each in told] == [
        ("flotilla-queue", "queue-1"),
        ("flotilla-cycle", "cycle-1"),
    ]


def test_services_agree_on_a_pods_trace_without_communication() -> None:
    with a_collector() as collector:
        for service in ("queue", "binder"):
            tracer = a_tracer(collector, service=service, seed=hash(service))
            pod = tracer.pod("uid-1")
            tracer.record(service, tracer.child(pod), 1.0, 2.0, parent=pod)
            tracer.close()
    queue, binder = by_name(collector)["queue"], by_name(collector)["binder"]
    assert (queue.trace_id, queue.parent_span_id) == (binder.trace_id, binder.parent_span_id)
    assert queue.span_id != binder.span_id


def test_the_clock_of_spans_is_the_monotonic_one_and_the_collector_gets_unix_times() -> None:
    with a_collector() as collector:
        tracer = Tracer("cycle", "c", ratio=1.0, ids=random.Random(1), sink=SpanSink(collector.url))
        tracer.record("x", tracer.new(True), time.monotonic() - 2.0, time.monotonic())
        tracer.close()
    (span,) = collector.spans
    assert span.end_time_unix_nano - span.start_time_unix_nano == pytest.approx(2e9, abs=1e8)
    assert span.end_time_unix_nano == pytest.approx(time.time() * 1e9, abs=5e9)


def test_only_sampled_and_failed_spans_are_exported() -> None:
    with a_collector() as collector:
        tracer = a_tracer(collector, ratio=0.0)
        tracer.record("quiet", tracer.pod("uid-1"), 1.0, 2.0)
        tracer.record("failed", tracer.pod("uid-1"), 1.0, 2.0, failed="no node is large enough")
        tracer.record("sampled", tracer.new(True), 1.0, 2.0)
        tracer.close()
    assert set(by_name(collector)) == {"failed", "sampled"}
    status = by_name(collector)["failed"].status
    assert (status.code, status.message) == (Status.STATUS_CODE_ERROR, "no node is large enough")


def test_a_span_never_ends_before_it_starts() -> None:
    with a_collector() as collector:
        tracer = a_tracer(collector)
        tracer.record("x", tracer.new(True), 2.0, 1.0)
        tracer.close()
    assert collector.spans[0].end_time_unix_nano == collector.spans[0].start_time_unix_nano


# When the collector fails


@pytest.mark.parametrize("status", [400, 500, 503])
def test_a_refusing_collector_affects_nothing(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with a_collector() as collector:
        collector.status = status
        tracer = a_tracer(collector)
        for number in range(2000):
            tracer.record(str(number), tracer.new(True), 1.0, 2.0)
        began = time.monotonic()
        tracer.close()
    assert time.monotonic() - began < CLOSE_SECONDS + 1
    assert collector.requests >= 1
    assert len(caplog.records) <= MAX_KINDS_OF_LINES


def test_an_unreachable_collector_affects_nothing_and_the_queue_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        tracer = Tracer(
            "queue",
            "q",
            ratio=1.0,
            ids=random.Random(1),
            sink=SpanSink(f"http://127.0.0.1:{nobody.getsockname()[1]}/"),
        )
        context, began = tracer.new(True), time.monotonic()
        for number in range(2 * MAX_WAITING):
            tracer.record(str(number), context, 1.0, 2.0)
        assert time.monotonic() - began < 2
        tracer.close()
        assert time.monotonic() - began < CLOSE_SECONDS + 3
    assert len(caplog.records) <= MAX_KINDS_OF_LINES


def test_without_a_collector_nothing_is_recorded() -> None:
    tracer = a_tracer(None)
    assert not tracer.enabled
    tracer.record("x", tracer.new(True), 1.0, 2.0, failed="yes")
    tracer.close()


# Sampling and ids


def test_the_share_of_sampled_pods_is_the_ratio_and_the_same_pods_everywhere() -> None:
    uids = [str(uuid.UUID(int=random.Random(n).getrandbits(128))) for n in range(20_000)]
    one, two = a_tracer(ratio=0.1, service="queue", seed=1), a_tracer(ratio=0.1, service="binder", seed=2)
    sampled = [one.pod(uid) for uid in uids]
    assert sampled == [two.pod(uid) for uid in uids]
    assert 0.09 < sum(context.sampled for context in sampled) / len(uids) < 0.11
    assert len({context.trace_id for context in sampled}) == len(uids)
    assert not any(a_tracer(ratio=0.0).pod(uid).sampled for uid in uids[:1000])
    assert all(a_tracer(ratio=1.0).pod(uid).sampled for uid in uids[:1000])
    more = a_tracer(ratio=0.5)
    assert all(more.pod(uid).sampled for uid, context in zip(uids, sampled, strict=True) if context.sampled)


def test_ids_come_from_the_given_randomness() -> None:
    assert a_tracer(seed=3).new(True) == a_tracer(seed=3).new(True) != a_tracer(seed=4).new(True)
    assert a_tracer().child(TraceContext(1, 2, True)).sampled
    assert not a_tracer().child(TraceContext(1, 2, False)).sampled


@pytest.mark.parametrize("sampled", [True, False])
def test_a_traceparent_comes_back(sampled: bool) -> None:
    context = TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0x00AD6B7169203331, sampled)
    assert context.traceparent() == f"00-0af7651916cd43dd8448eb211c80319c-00ad6b7169203331-0{int(sampled)}"
    assert TraceContext.parse(context.traceparent()) == context


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-x",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-+{TRACE[1:]}-{SPAN}-01",
        f"00 {TRACE} {SPAN} 01",
    ],
)
def test_an_invalid_traceparent_is_none(header: str) -> None:
    assert TraceContext.parse(header) is None


def test_a_traceparent_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    context = TraceContext.parse(f"01-{TRACE}-{SPAN}-03-more")
    assert context == TraceContext(int(TRACE, 16), int(SPAN, 16), True)


def setup_module() -> None:
    logging.getLogger("opentelemetry").setLevel(logging.INFO)


def test_a_log_line_has_the_ids_of_the_trace() -> None:
    context = TraceContext(0xABC, 0xDEF, True)
    fields = context.fields()
    assert context.traceparent() == f"00-{fields['trace_id']}-{fields['span_id']}-01"
