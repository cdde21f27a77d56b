"""The small parts of the shell: pool, spans, and what the API server's answers mean."""

import asyncio
import random
from typing import cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from flotilla.results import ApiCall
from services.binder import eviction_state as eviction
from services.binder.api_calls import result_of
from services.binder.events import AttemptEnded, Call, Done, Refused, Unknown
from services.binder.eviction_calls import reply_of
from services.binder.metrics import BindSpans
from services.binder.worker_pool import WorkerPool
from shared.kube.outcome import CallOutcome
from shared.kube.outcome import CallResult as Answered
from shared.telemetry.export import SpanSink
from shared.telemetry.tracing import Tracer
from tests.binder.support import Script, one


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def put(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def traced(ratio: float, result: Done | Refused) -> list[ReadableSpan]:
    sink = Sink()
    spans = BindSpans(Tracer("binder", "b", ratio=ratio, ids=random.Random(1), sink=cast(SpanSink, sink), date=float))
    script = Script()
    call = one(Call, script.order())
    spans.called(call, result, script.now + 1, script.now + 2)
    end = one(AttemptEnded, script.answer(call, result))
    spans.ended(end, script.now + 3)
    assert spans._calls == {}
    return sink.spans


def test_a_sampled_pod_has_a_span_for_its_binding_and_one_for_the_call() -> None:
    bind, call = traced(1.0, Done())
    assert (bind.name, call.name) == ("bind", "POST /api/v1/namespaces/default/pods/p/binding")
    assert bind.attributes == {"pod": "default/p", "node": "n1", "attempt": 1}
    assert call.parent is not None
    assert bind.context is not None
    assert call.parent.span_id == bind.context.span_id
    assert (bind.start_time, bind.end_time) == (1_000 * 10**9, 1_003 * 10**9)


def test_of_pods_that_are_not_sampled_only_failures_are_told() -> None:
    assert traced(0.0, Done()) == []
    bind, call = traced(0.0, Refused(0, "no"))
    assert bind.status.description == 'running Bind plugin "DefaultBinder": no'
    assert call.status.description == "no"


@pytest.mark.parametrize(
    ("answered", "result"),
    [
        (Answered(CallOutcome.OK, 201), Done()),
        (Answered(CallOutcome.CONFLICT, 409, "c"), Refused(409, "c")),
        (Answered(CallOutcome.NOT_FOUND, 404, "n"), Refused(404, "n")),
        (Answered(CallOutcome.THROTTLED, 429, "t"), Refused(429, "t")),
        (Answered(CallOutcome.UNREACHABLE, 0, "not there"), Refused(0, "not there")),
        (Answered(CallOutcome.FAILED, 500, "f"), Unknown("f")),
        (Answered(CallOutcome.UNKNOWN, 0, "u"), Unknown("u")),
    ],
)
def test_what_answers_mean(answered: Answered, result: Done | Refused | Unknown) -> None:
    assert result_of(answered) == result


@pytest.mark.parametrize(
    ("answered", "reply"),
    [
        (Answered(CallOutcome.OK, 200), eviction.Done()),
        (Answered(CallOutcome.NOT_FOUND, 404, "n"), eviction.Gone()),
        (Answered(CallOutcome.CONFLICT, 409, "c"), eviction.Failed("c")),
        (Answered(CallOutcome.THROTTLED, 429, "t"), eviction.Failed("t")),
        (Answered(CallOutcome.UNREACHABLE, 0, "not there"), eviction.Failed("not there")),
        (Answered(CallOutcome.FAILED, 403, "f"), eviction.Failed("f", final=True)),
        (Answered(CallOutcome.FAILED, 500, "f"), eviction.Failed("f", maybe_done=True)),
        (Answered(CallOutcome.UNKNOWN, 0, "u"), eviction.Failed("u", maybe_done=True)),
    ],
)
def test_what_answers_mean_for_a_victim(answered: Answered, reply: eviction.Reply) -> None:
    assert reply_of(answered) == reply


@pytest.mark.asyncio
async def test_a_pool_works_in_order_with_a_bounded_number_at_a_time() -> None:
    begun: list[int] = []
    go_on = asyncio.Event()

    async def work(item: int) -> None:
        begun.append(item)
        await go_on.wait()

    pool = WorkerPool(work, max_workers=2, max_waiting=3, failed=lambda _: None)
    assert [pool.put(item) for item in range(3)] == [True] * 3
    await asyncio.sleep(0)
    assert begun == [0, 1]
    assert [pool.put(item) for item in range(3, 6)] == [True, True, False]
    go_on.set()
    async with asyncio.timeout(5):
        while not pool.idle:
            await asyncio.sleep(0)
    assert begun == [0, 1, 2, 3, 4]


@pytest.mark.asyncio
async def test_work_that_raises_stops_nothing() -> None:
    done: list[int] = []
    failures: list[BaseException] = []

    async def work(item: int) -> None:
        if item == 0:
            raise KeyError(item)
        done.append(item)

    pool = WorkerPool(work, max_workers=1, max_waiting=9, failed=failures.append)
    for item in range(3):
        pool.put(item)
    async with asyncio.timeout(5):
        while not pool.idle:
            await asyncio.sleep(0)
    assert (done, [type(failure) for failure in failures]) == ([1, 2], [KeyError])


@pytest.mark.asyncio
async def test_a_pool_that_is_closed_leaves_nothing_behind() -> None:
    async def work(item: int) -> None:
        await asyncio.Event().wait()

    pool = WorkerPool(work, max_workers=1, max_waiting=9, failed=lambda _: None)
    pool.put(1)
    pool.put(2)
    await asyncio.sleep(0)
    await pool.close()
    await asyncio.sleep(0)
    assert pool.idle


def test_an_item_may_go_before_those_that_wait() -> None:
    async def story() -> list[str]:
        taken: list[str] = []
        gate = asyncio.Event()

        async def work(item: str) -> None:
            await gate.wait()
            taken.append(item)

        pool = WorkerPool(work, max_workers=1, max_waiting=8, failed=lambda cause: None)
        for item in ("first", "second", "third"):
            pool.put(item)
        await asyncio.sleep(0)
        pool.put("continued", ahead=True)
        gate.set()
        while not pool.idle:
            await asyncio.sleep(0)
        return taken

    assert asyncio.run(story()) == ["first", "continued", "second", "third"]


def test_calls_that_continue_an_attempt_go_first_but_polls_do_not() -> None:
    def call(step: int, method: str) -> Call:
        return Call("p", 1, step, ApiCall(method, "/x", {}), 10.0, False)

    assert [call(*each).continues for each in ((1, "GET"), (1, "POST"), (2, "GET"), (2, "PUT"), (5, "POST"))] == [
        *(False, False, False),
        *(True, True),
    ]
