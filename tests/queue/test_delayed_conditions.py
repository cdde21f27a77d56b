"""A condition that says the same in other words is written at most once in five seconds, and the last one stays."""

import random
from itertools import pairwise

import pytest

from services.queue.events import PodUnreadable, TermEnds, Tick
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.binding import GroupNotice, Notice
from shared.messages.limits import CONDITION_SECONDS
from shared.messages.queue import Verdict
from tests.queue.support import Queue, notices, telling
from tests.queue.test_group_conditions import group, member

GANG = [f"m{number}" for number in range(4)]


class Written:
    """A queue without back-offs, and what it has binders write to pods and groups, with the times."""

    def __init__(self) -> None:
        self.queue = Queue(BackoffPolicy(maximum=0.0))
        self.patches: list[tuple[float, Notice]] = []
        self.events: list[tuple[float, Notice]] = []
        self.groups: list[tuple[float, GroupNotice]] = []

    def note(self) -> None:
        now = self.queue.now
        told = notices(self.queue.effects)
        self.patches += [(now, notice) for notice in told if notice.patch]
        self.events += [(now, notice) for notice in told if notice.event]
        self.groups += [(now, effect) for effect in self.queue.effects if isinstance(effect, GroupNotice)]

    def reject(self, *names: str, message: str = "no room", error: bool = False, nominated: str | None = None) -> None:
        """An attempt."""
        queue = self.queue
        if any(queue.state(name) is not PodState.IN_FLIGHT for name in names):
            queue.ask()
        verdict = Verdict.FAILED if error else Verdict.UNSCHEDULABLE
        queue.report(verdict, *names, message=message, nominated=nominated)
        self.note()

    def wait(self, seconds: float) -> None:
        queue = self.queue
        end = queue.now + seconds
        while (due := queue.core.next_deadline()) is not None and due <= end:
            queue.now = max(due, queue.now)
            queue.tell(Tick())
            self.note()
        queue.now = end

    def said(self, name: str) -> list[tuple[float, str]]:
        return [(at - 100.0, notice.message) for at, notice in self.patches if notice.name == name]


@pytest.fixture
def written() -> Written:
    """A pod of which no plugin is known that rejects it: it is tried again at once."""
    written = Written()
    written.queue.add("a")
    return written


def test_of_several_messages_the_latest_is_written_after_five_seconds(written: Written) -> None:
    for number in range(4):
        written.reject("a", message=f"{number}")
        written.wait(1.0)
    written.wait(5.0)
    assert written.said("a") == [(0.0, "0"), (5.0, "3")]
    assert [notice.message for _, notice in written.events] == ["0", "1", "2", "3"], "Events are another matter"


def test_another_reason_is_written_at_once(written: Written) -> None:
    written.reject("a", message="no room")
    written.wait(1.0)
    written.reject("a", message="broken", error=True)
    written.wait(1.0)
    written.reject("a", message="broken again", error=True)
    written.wait(1.0)
    written.reject("a", message="no room")
    written.wait(9.0)
    assert written.said("a") == [(0.0, "no room"), (1.0, "broken"), (3.0, "no room")]


def test_a_nomination_is_not_delayed(written: Written) -> None:
    written.reject("a", message="1")
    written.wait(1.0)
    written.reject("a", message="2", nominated="n")
    (notice,) = notices(written.queue.effects)
    assert (notice.nominated, notice.patch) == ("n", False)


def test_nothing_is_written_that_the_pod_shows_by_then(written: Written) -> None:
    written.reject("a", message="1")
    written.wait(1.0)
    written.reject("a", message="2")
    written.queue.add(telling("a", "2", version="7"))
    written.wait(20.0)
    assert written.said("a") == [(0.0, "1")]


def test_a_message_that_the_pod_shows_replaces_one_that_is_delayed(written: Written) -> None:
    written.reject("a", message="1")
    written.queue.add(telling("a", "1", version="7"))
    written.wait(1.0)
    written.reject("a", message="2")
    written.reject("a", message="1")
    written.wait(100.0)
    assert written.said("a") == [(0.0, "1")]


def test_nothing_is_written_to_a_pod_that_is_tried_or_gone(written: Written) -> None:
    for end in (written.queue.bound, written.queue.gone):
        written.queue.add("a")
        written.patches.clear()
        written.reject("a", message="1")
        written.reject("a", message="2")
        written.queue.ask()
        written.wait(20.0)
        end("a")
        written.wait(20.0)
        assert [message for _, message in written.said("a")] == ["1"]


def test_what_a_binder_has_written_counts(written: Written) -> None:
    queue = written.queue
    queue.ask()
    queue.decide("a")
    queue.forget("a", reason="not permitted", plugin="Permit")
    written.note()
    queue.change()
    written.wait(1.0)
    written.reject("a", message="no room")
    written.wait(9.0)
    assert written.said("a") == [(5.0, "no room")]


def test_what_a_binder_has_written_of_an_error_counts(written: Written) -> None:
    queue = written.queue
    queue.ask()
    queue.decide("a")
    queue.forget("a", reason="the API server is away")
    written.note()
    written.wait(1.0)
    written.reject("a", message="a plugin broke down", error=True)
    written.wait(9.0)
    assert written.said("a") == [(5.0, "a plugin broke down")]


def test_the_end_of_a_term_writes_what_is_delayed(written: Written) -> None:
    written.reject("a", message="1")
    written.reject("a", message="2")
    written.queue.tell(TermEnds())
    written.note()
    assert written.said("a") == [(0.0, "1"), (0.0, "2")]


def test_the_problems_of_an_unreadable_pod_are_delayed_likewise() -> None:
    written = Written()
    for problem in ("x", "y", "z"):
        written.queue.tell(PodUnreadable("default/a", "default", "a", "default-scheduler", problem))
        written.note()
    written.wait(9.0)
    assert written.said("a") == [(0.0, "x"), (5.0, "z")]


def a_gang() -> Written:
    written = Written()
    written.queue.tell(group(len(GANG)))
    written.queue.add(*map(member, GANG))
    return written


def test_a_gang_that_is_rejected_again_and_again_is_written_to_rarely() -> None:
    """400 attempts in 20 s, with two messages in turn."""
    written = a_gang()
    for number in range(400):
        written.reject(*GANG, message=f"{number % 2}: no room")
        written.wait(0.05)
    written.wait(5.0)
    for name in GANG:
        assert [round(at) for at, _ in written.said(name)] == [0, 5, 10, 15, 20]
        assert written.said(name)[-1][1] == "1: no room"
    assert [round(at - 100.0) for at, _ in written.groups] == [0, 5, 10, 15, 20]
    assert written.groups[-1][1].message == "1: no room"


def test_that_a_gang_is_placed_is_written_to_its_group_at_once() -> None:
    written = a_gang()
    written.reject(*GANG)
    written.queue.ask()
    written.queue.decide(*GANG)
    written.note()
    assert [(at, notice.reason) for at, notice in written.groups] == [(100.0, "Unschedulable"), (100.0, "Scheduled")]


def test_a_group_that_shows_the_latest_message_gets_no_other_one() -> None:
    written = a_gang()
    written.reject(*GANG, message="1")
    written.queue.tell(group(len(GANG), condition=("False", "Unschedulable", "1")))
    written.reject(*GANG, message="2")
    written.reject(*GANG, message="1")
    written.wait(100.0)
    assert [notice.message for _, notice in written.groups] == ["1"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_reported_conditions_are_written_rarely_and_the_last_one_stays(seed: int) -> None:
    rng = random.Random(seed)
    written = Written()
    names = ["a", "b", "c"]
    written.queue.add(*names)
    for _ in range(100):
        written.reject(rng.choice(names), message=rng.choice("xyz"), error=rng.random() < 0.2)
        written.wait(rng.choice([0.0, 0.125, 1.0, 2.0]))
    written.reject(*names, message="end")
    written.wait(CONDITION_SECONDS)
    for name in names:
        own = [(at, notice) for at, notice in written.patches if notice.name == name]
        assert own[-1][1].message == "end", f"seed {seed}"
        for (at, notice), (later, following) in pairwise(own):
            assert notice.reason != following.reason or later - at >= CONDITION_SECONDS, f"seed {seed}: {name}, {at}"
