"""Which Events are written, and when: by hand, and for all courses of things."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kube.event_series import (
    BURST,
    FIRST_REWRITE,
    LAST_REWRITE,
    MAX_TRIES,
    RATE,
    REFILL_POLL,
    SERIES_ENDS,
    SPAM_BURST,
    SPAM_REFILL,
    Admission,
    EventSeries,
    Limits,
    Write,
    WriteEnd,
)
from shared.kube.events_and_conditions import PodEvent, PodRef, event_name
from shared.kube.outcome import CallOutcome, CallResult

OK = CallResult(CallOutcome.OK, 201)
GONE = CallResult(CallOutcome.NOT_FOUND, 404)
EXISTS = CallResult(CallOutcome.CONFLICT, 409)
FORBIDDEN = CallResult(CallOutcome.FAILED, 403)
BROKEN = CallResult(CallOutcome.UNKNOWN, 500)
THROTTLED = CallResult(CallOutcome.THROTTLED, 429, retry_after=7.0)
UNANSWERED = CallResult(CallOutcome.UNKNOWN)
UNREACHABLE = CallResult(CallOutcome.UNREACHABLE)
EPOCH = 1_700_000_000.0
"""What the clock of Events says at time 0."""


def event(pod: str = "p", reason: str = "FailedScheduling", note: str = "no", at: float = 0.0) -> PodEvent:
    type_ = "Normal" if reason == "Scheduled" else "Warning"
    return PodEvent(PodRef("default", pod, f"uid-{pod}"), type_, reason, "Scheduling", note, "s", "s-1", EPOCH + at)


class Desk:
    """An API server that keeps Events: what counts is what it has."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.core = EventSeries(limits)
        self.now = 0.0
        self.counts: dict[str, int] = {}
        self.calls: list[tuple[float, str, int]] = []

    def happens(self, pod: str = "p", reason: str = "FailedScheduling", note: str = "no") -> Admission:
        fate = self.core.occurred(event(pod, reason, note, self.now), self.now)
        self.core.validate()
        return fate

    def take(self, *, yielding: bool = False) -> Write | None:
        return self.core.next(self.now, yielding=yielding)

    def taken(self) -> Write:
        write = self.take()
        assert write is not None
        return write

    def answer(self, write: Write, result: CallResult = OK) -> WriteEnd:
        name = event_name(write.event.pod.name, write.event.at)
        self.calls.append((self.now, "create" if write.creates else "patch", write.event.count))
        if result.ok:
            self.counts[name] = write.event.count
        ending = self.core.ended(write, result, self.now)
        self.core.validate()
        return ending

    def write_all(self, result: CallResult = OK) -> int:
        written = 0
        while (write := self.take()) is not None:
            self.answer(write, result)
            written += 1
        return written

    def pass_time(self, seconds: float, step: float = 1.0, each: Callable[[], object] = lambda: None) -> None:
        for _ in range(round(seconds / step)):
            self.now += step
            each()
            self.write_all()


def test_the_first_occurrence_is_written_at_once() -> None:
    desk = Desk()
    assert desk.happens() is Admission.WAITS
    write = desk.taken()
    assert (write.creates, write.event) == (True, event())
    assert desk.answer(write) is WriteEnd.WRITTEN
    assert (desk.take(), desk.core.wait(desk.now)) == (None, None)


def test_a_repeat_is_patched_later_with_its_time() -> None:
    desk = Desk()
    desk.happens()
    desk.write_all()
    desk.now = 2.0
    assert desk.happens(note="for another reason now") is Admission.COUNTED
    assert desk.take() is None
    assert desk.core.wait(desk.now) == FIRST_REWRITE - 2.0
    desk.now = FIRST_REWRITE
    write = desk.taken()
    assert (write.creates, write.event.count, write.event.last) == (False, 2, EPOCH + 2.0)
    assert (write.event.note, write.event.at) == ("no", EPOCH)


@pytest.mark.parametrize("seconds, calls", [(10.0, 2), (100.0, 5), (3600.0, 17)])
def test_many_repeats_cost_few_calls_and_all_count(seconds: float, calls: int) -> None:
    desk = Desk()
    desk.happens()
    desk.write_all()
    desk.pass_time(seconds, each=desk.happens)
    assert len(desk.calls) == calls
    desk.pass_time(LAST_REWRITE)
    assert list(desk.counts.values()) == [1 + seconds]


def test_repeats_of_a_waiting_event_cost_no_call() -> None:
    desk = Desk()
    for _ in range(30):
        desk.happens()
    write = desk.taken()
    assert (write.creates, write.event.count) == (True, 30)
    desk.answer(write)
    assert desk.core.due == 0


def test_repeats_during_a_write_are_written_later() -> None:
    desk = Desk()
    desk.happens()
    write = desk.taken()
    desk.happens()
    assert desk.take() is None
    desk.answer(write)
    desk.now = FIRST_REWRITE
    write = desk.taken()
    desk.happens()
    desk.answer(write)
    desk.pass_time(LAST_REWRITE)
    assert desk.calls[1:] == [(10.0, "patch", 2), (20.0, "patch", 3)]


@pytest.mark.parametrize("silence, events", [(SERIES_ENDS, 1), (SERIES_ENDS + 1.0, 2)])
def test_after_the_series_ends_there_is_a_new_event(silence: float, events: int) -> None:
    desk = Desk()
    desk.happens()
    desk.write_all()
    desk.now += silence
    desk.happens()
    desk.pass_time(LAST_REWRITE)
    assert len(desk.counts) == events


def test_different_occurrences_are_different_series() -> None:
    desk = Desk()
    fates = [desk.happens("p"), desk.happens("q"), desk.happens("p", "Preempted"), desk.happens("p")]
    assert fates == [Admission.WAITS, Admission.WAITS, Admission.WAITS, Admission.COUNTED]


def test_an_event_that_the_server_forgot_is_created_again_with_its_count() -> None:
    desk = Desk()
    desk.happens()
    desk.write_all()
    desk.happens()
    desk.now = FIRST_REWRITE
    assert desk.answer(desk.taken(), GONE) is WriteEnd.LATER
    write = desk.taken()
    assert (write.creates, write.event.count) == (True, 2)
    assert desk.answer(write) is WriteEnd.WRITTEN


def test_events_of_a_deleted_namespace_are_dropped() -> None:
    desk = Desk()
    desk.happens()
    assert desk.answer(desk.taken(), GONE) is WriteEnd.FAILED
    assert (desk.core.remembered, desk.core.waiting) == (0, 0)


def test_an_event_with_a_lost_answer_gets_its_repeats() -> None:
    desk = Desk()
    desk.happens()
    assert desk.answer(desk.taken(), UNANSWERED) is WriteEnd.LATER
    desk.happens()
    desk.now = 1.0
    write = desk.taken()
    assert (write.creates, write.event.count) == (True, 2)
    assert desk.answer(write, EXISTS) is WriteEnd.WRITTEN
    desk.pass_time(FIRST_REWRITE)
    assert desk.calls[-1] == (11.0, "patch", 2)


@pytest.mark.parametrize("result", [FORBIDDEN, BROKEN])
def test_a_refused_event_is_not_retried(result: CallResult) -> None:
    desk = Desk()
    desk.happens("p")
    desk.happens("q")
    assert desk.answer(desk.taken(), result) is WriteEnd.FAILED
    assert desk.answer(desk.taken()) is WriteEnd.WRITTEN
    assert desk.happens("p") is Admission.WAITS


def test_a_refused_count_is_retried_with_a_later_repeat() -> None:
    desk = Desk()
    desk.happens()
    desk.write_all()
    desk.happens()
    desk.now = FIRST_REWRITE
    assert desk.answer(desk.taken(), FORBIDDEN) is WriteEnd.FAILED
    assert desk.core.wait(desk.now) is None
    desk.happens()
    assert desk.take() is None
    desk.pass_time(FIRST_REWRITE)
    assert desk.calls[-1] == (20.0, "patch", 3)


def test_throttling_pauses_all_events() -> None:
    desk = Desk()
    for name in ("p", "q"):
        desk.happens(name)
    assert desk.answer(desk.taken(), THROTTLED) is WriteEnd.LATER
    assert desk.take() is None
    assert desk.core.wait(desk.now) == 7.0
    desk.now = 7.0
    assert desk.taken().event.pod.name == "p"
    assert desk.taken().event.pod.name == "q"


def test_retries_back_off_and_are_limited_per_event() -> None:
    desk = Desk()
    desk.happens()
    times = []
    ending = WriteEnd.LATER
    while ending is WriteEnd.LATER:
        times.append(desk.now)
        ending = desk.answer(desk.taken(), UNREACHABLE)
        desk.now += desk.core.wait(desk.now) or 0.0
    assert ending is WriteEnd.FAILED
    assert len(times) == MAX_TRIES
    assert [b - a for a, b in pairwise(times[:8])] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_routine_events_come_last_and_have_no_series() -> None:
    desk = Desk()
    assert [desk.happens("p", "Scheduled") for _ in range(2)] == [Admission.WAITS, Admission.WAITS]
    desk.happens("q")
    reasons = [desk.taken().event.reason for _ in range(3)]
    assert reasons == ["FailedScheduling", "Scheduled", "Scheduled"]
    assert desk.core.remembered == 1


def test_event_names_are_unique() -> None:
    desk = Desk(Limits(burst=2000))
    for i in range(1000):
        desk.happens("p", "Scheduled")
        desk.now += 0.0 if i % 3 else 1e-7
    desk.write_all()
    assert len(desk.counts) == 1000


def test_counts_are_written_despite_constant_new_events() -> None:
    desk = Desk(Limits(rate=10.0, burst=1))
    desk.happens("p")
    desk.write_all()
    desk.happens("p")

    def many() -> None:
        for i in range(20):
            desk.happens(f"{desk.now}-{i}")

    desk.pass_time(20.0, each=many)
    assert desk.core.waiting > 100
    assert any(kind == "patch" for _, kind, _ in desk.calls)


def test_spam_about_one_object_is_dropped() -> None:
    desk = Desk()
    fates = [desk.happens("p", f"Reason{i}") for i in range(int(SPAM_BURST) + 1)]
    assert set(fates[:-1]) == {Admission.WAITS}
    assert fates[-1] is Admission.SPAM
    assert desk.happens("q") is Admission.WAITS
    assert desk.happens("p", "Reason1") is Admission.COUNTED
    desk.now += SPAM_REFILL
    assert [desk.happens("p", "New"), desk.happens("p", "Newer")] == [Admission.WAITS, Admission.SPAM]


def test_the_queue_is_bounded_and_the_rate_limit_holds() -> None:
    desk = Desk(Limits(most_waiting=1000))
    fates = [desk.happens(f"p{i}", "Scheduled") for i in range(1200)]
    assert (fates.count(Admission.WAITS), fates.count(Admission.CROWDED)) == (1000, 200)
    assert desk.write_all() == BURST
    desk.pass_time(1.0, step=0.02)
    assert len(desk.calls) == pytest.approx(600, abs=1)
    desk.pass_time(3.0, step=0.02)
    assert len(desk.counts) == 1000


def test_events_beyond_the_rate_limit_go_out_together() -> None:
    desk = Desk()
    for i in range(BURST + 2 * int(RATE * REFILL_POLL)):
        desk.core.occurred(event(f"p{i}", reason="Scheduled", at=float(i)), desk.now)
    calls: list[int] = []
    while (wait := desk.core.wait(desk.now)) is not None:
        desk.now += wait
        calls.append(0)
        while (write := desk.take()) is not None:
            desk.core.ended(write, CallResult(CallOutcome.OK, 201), desk.now)
            calls[-1] += 1
    assert calls == [BURST, int(RATE * REFILL_POLL), int(RATE * REFILL_POLL)]


def test_while_pods_wait_to_be_bound_few_events_are_written() -> None:
    desk = Desk()
    for i in range(1000):
        desk.happens(f"p{i}", "Scheduled")
    taken = 0
    for _ in range(100):
        desk.now += 0.01
        while (write := desk.take(yielding=True)) is not None:
            desk.answer(write)
            taken += 1
    assert 18 <= taken <= 21


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["happens", "happens", "happens", "next", "next", "answer"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.01, 0.5, 4.0, 100.0, 400.0]),
        st.sampled_from([OK, OK, OK, GONE, EXISTS, FORBIDDEN, THROTTLED, UNANSWERED, UNREACHABLE]),
    ),
    max_size=120,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_memory_is_bounded_and_the_rate_limit_holds(steps: list[tuple[str, int, float, CallResult]]) -> None:
    limits = Limits(rate=2.0, burst=3, yielding_rate=0.5, most_waiting=3, most_series=4)
    desk = Desk(limits)
    writing: list[Write] = []
    times: list[float] = []
    for step, number, seconds, result in steps:
        desk.now += seconds
        if step == "happens":
            desk.happens(f"p{number}", "Scheduled" if number == 5 else "FailedScheduling")
        elif step == "next" and len(writing) < 3:
            write = desk.take(yielding=number > 3)
            if write is not None:
                writing.append(write)
                times.append(desk.now)
        elif step == "answer" and writing:
            desk.answer(writing.pop(0), result)
        # What is tried again comes on top of what waits.
        assert desk.core.waiting <= 2 * limits.most_waiting + 3 + limits.most_series
        desk.core.validate()
    for i, began in enumerate(times):
        for j in range(i, len(times)):
            assert j - i + 1 <= limits.burst + limits.rate * (times[j] - began) + 1e-6


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.3, 5.0, 60.0])), max_size=80),
    st.lists(st.sampled_from([OK, OK, THROTTLED, UNANSWERED, UNREACHABLE, GONE]), max_size=30),
)
def test_every_repeat_is_eventually_counted(happenings: list[tuple[int, float]], answers: list[CallResult]) -> None:
    """A server that answers so or so for a while, and then well."""
    desk = Desk()
    happened = [0, 0, 0, 0]
    for number, seconds in happenings:
        desk.now += seconds
        assert desk.happens(f"p{number}") in (Admission.WAITS, Admission.COUNTED)
        happened[number] += 1
        write = desk.take()
        if write is not None:
            result = answers.pop(0) if answers else OK
            desk.answer(write, OK if write.creates and result is GONE else result)
    desk.pass_time(LAST_REWRITE + 40.0, step=10.0)
    assert desk.core.wait(desk.now) is None
    for number, times in enumerate(happened):
        counts = [count for name, count in desk.counts.items() if name.startswith(f"p{number}.")]
        assert sum(counts) == times
