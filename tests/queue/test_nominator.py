"""Which node a pod is nominated to, and who says so."""

import pytest

from services.queue.events import Notify
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.queue import Verdict
from testing.builders import pod
from tests.queue.support import Queue, notices, uid


@pytest.fixture
def queue() -> Queue:
    """With a pod whose preemption has nominated it."""
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n")
    return queue


def nominated_when_taken(queue: Queue) -> str:
    queue.at(queue.now + 20.0).change()
    batch = queue.ask()
    assert batch is not None
    (queued,) = batch.pods
    return queued.pod.status.nominated_node_name


def test_what_cycle_says_counts_before_the_pod_shows_it(queue: Queue) -> None:
    assert queue.core.nominated() == {"n": [uid("a")]}
    (notice,) = (effect.notice for effect in queue.effects if isinstance(effect, Notify))
    assert notice.nominated == "n"
    queue.add(pod("a").label(v="2"))
    assert nominated_when_taken(queue) == "n"


def test_what_the_status_says_counts_once_it_says_something_else(queue: Queue) -> None:
    queue.add(pod("a").nominated("m"))
    assert queue.core.nominated() == {"m": [uid("a")]}
    queue.add("a")
    assert queue.core.nominated() == {}
    assert nominated_when_taken(queue) == ""


def test_a_nomination_that_is_taken_away_is_gone_though_the_status_still_says_so() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    assert queue.core.nominated() == {"n": [uid("a")]}
    queue.take()
    (notice,) = notices(queue.reject("a", nominated=""))
    assert notice.nominated == ""
    assert queue.core.nominated() == {}
    assert nominated_when_taken(queue) == ""


def test_said_again_as_the_status_has_it_nobody_need_write_it() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    (notice,) = notices(queue.reject("a", nominated="n"))
    assert notice.nominated is None


def test_if_nothing_is_said_the_status_counts() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"), "b")
    queue.take()
    queue.reject("a", "b")
    assert queue.core.nominated() == {"n": [uid("a")]}


def test_a_decision_ends_it_and_a_failed_binding_does_not_bring_it_back() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    queue.decide("a")
    assert queue.core.nominated() == {}
    queue.forget("a")
    assert queue.core.nominated() == {}
    queue.at(queue.now + 2.0)
    batch = queue.ask()
    assert batch is not None and batch.pods[0].pod.status.nominated_node_name == ""


@pytest.mark.parametrize("bound", [True, False])
def test_it_ends_with_the_pod(queue: Queue, bound: bool) -> None:
    queue.bound("a") if bound else queue.gone("a")
    assert queue.core.nominated() == {}


def test_a_decision_that_was_lost_leaves_what_the_status_says() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    queue.report(Verdict.DECIDED, "a", node="n")
    queue.at(queue.now + 60.0)
    assert queue.core.nominated() == {"n": [uid("a")]}


def test_of_a_gated_pod_nothing_is_kept_free() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n").gate("x"))
    assert queue.core.nominated() == {}
    queue.add(pod("a").nominated("n"))
    assert queue.core.nominated() == {"n": [uid("a")]}


def test_room_that_was_kept_by_an_attempt_of_an_earlier_queue_is_not_forgotten() -> None:
    """1. The queue is started anew while cycle has a pod, and lists it. 2. Cycle tells it of that attempt: the pod is
    nominated. It used to be ignored; then nobody but the pod itself was kept out of the room, as it did not know.
    """
    queue = Queue()
    queue.add("a")
    (notice,) = notices(queue.reject("a", nominated="n"))
    assert notice.nominated == "n"
    assert queue.state("a") is PodState.ACTIVE
    batch = queue.ask()
    assert batch is not None
    (queued,) = batch.pods
    assert queued.pod.status.nominated_node_name == "n"


def test_a_late_word_of_a_pod_that_is_decided_keeps_no_room() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    assert notices(queue.reject("a", nominated="n")) == []
    assert queue.core.nominated() == {}


def test_what_the_status_comes_to_say_during_an_attempt_counts_after_it() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.add(pod("a").nominated("n"))
    queue.reject("a")
    assert queue.core.nominated() == {"n": [uid("a")]}
    assert nominated_when_taken(queue) == "n"


def test_what_an_attempt_comes_to_counts_more_than_what_the_status_came_to_say_during_it() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.add(pod("a").nominated("n"))
    queue.reject("a", nominated="m")
    assert nominated_when_taken(queue) == "m"


def test_a_word_that_does_not_come_to_show_is_told_again_with_the_next_one() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    queue.reject("a", nominated="")
    assert nominated_when_taken(queue) == ""
    (notice,) = notices(queue.reject("a"))
    assert notice.nominated == ""
    queue.add("a")
    assert nominated_when_taken(queue) == ""
    (notice,) = notices(queue.reject("a"))
    assert notice.nominated is None


@pytest.mark.parametrize("end", ["taken away", "deleted"])
def test_room_that_no_status_has_shown_to_be_kept_helps_others_when_it_is_free(queue: Queue, end: str) -> None:
    queue.add("b")
    assert queue.take() == ["b"]
    queue.reject("b")
    queue.at(queue.now + 20.0)
    assert queue.state("b") is PodState.UNSCHEDULABLE
    if end == "deleted":
        queue.gone("a")
    else:
        queue.change()
        queue.take()
        queue.reject("b")
        queue.reject("a", nominated="")
    assert queue.state("b") is not PodState.UNSCHEDULABLE
