"""Nominations, by cycle and by the pod's status."""

import pytest

from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.binding import Notice
from shared.messages.queue import Verdict
from testing.builders import pod
from testing.inprocess.batches import pods_in
from tests.queue.support import Queue, notices, uid


@pytest.fixture
def queue() -> Queue:
    """With a pod that its preemption nominated."""
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n")
    return queue


def nominated_when_taken(queue: Queue) -> str:
    queue.at(queue.now + 20.0).change()
    batch = queue.ask()
    assert batch is not None
    (popped,) = pods_in(batch)
    return popped.status.nominated_node_name


def test_cycles_nomination_counts_before_the_status_shows_it(queue: Queue) -> None:
    assert queue.core.nominated() == {"n": [uid("a")]}
    (notice,) = (effect for effect in queue.effects if isinstance(effect, Notice))
    assert notice.nominated == "n"
    queue.add(pod("a").label(v="2"))
    assert nominated_when_taken(queue) == "n"


def test_a_changed_status_overrides_cycles_nomination(queue: Queue) -> None:
    queue.add(pod("a").nominated("m"))
    assert queue.core.nominated() == {"m": [uid("a")]}
    queue.add("a")
    assert queue.core.nominated() == {}
    assert nominated_when_taken(queue) == ""


def test_a_cleared_nomination_is_gone_though_the_status_shows_it() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    assert queue.core.nominated() == {"n": [uid("a")]}
    queue.take()
    (notice,) = notices(queue.reject("a", nominated=""))
    assert notice.nominated == ""
    assert queue.core.nominated() == {}
    assert nominated_when_taken(queue) == ""


def test_a_nomination_that_the_status_shows_is_not_written_again() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    (notice,) = notices(queue.reject("a", nominated="n"))
    assert notice.nominated is None


def test_without_cycles_word_the_status_counts() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"), "b")
    queue.take()
    queue.reject("a", "b")
    assert queue.core.nominated() == {"n": [uid("a")]}


def test_a_decision_clears_the_nomination_and_a_failed_binding_does_not_restore_it() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    queue.decide("a")
    assert queue.core.nominated() == {}
    queue.forget("a")
    assert queue.core.nominated() == {}
    queue.at(queue.now + 2.0)
    batch = queue.ask()
    assert batch is not None and pods_in(batch)[0].status.nominated_node_name == ""


@pytest.mark.parametrize("bound", [True, False])
def test_a_nomination_ends_with_the_pod(queue: Queue, bound: bool) -> None:
    queue.bound("a") if bound else queue.gone("a")
    assert queue.core.nominated() == {}


def test_after_a_lost_decision_the_status_counts() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n"))
    queue.take()
    queue.report(Verdict.DECIDED, "a", node="n")
    queue.at(queue.now + 60.0)
    assert queue.core.nominated() == {"n": [uid("a")]}


def test_a_gated_pods_nomination_does_not_count() -> None:
    queue = Queue()
    queue.add(pod("a").nominated("n").gate("x"))
    assert queue.core.nominated() == {}
    queue.add(pod("a").nominated("n"))
    assert queue.core.nominated() == {"n": [uid("a")]}


def test_a_nomination_from_an_earlier_queues_attempt_counts() -> None:
    """1. The queue is restarted while cycle has a pod, and lists it. 2. Cycle reports that attempt: the pod is
    nominated. It used to be ignored; then only the pod itself was kept from the node, because it did not know.
    """
    queue = Queue()
    queue.add("a")
    (notice,) = notices(queue.reject("a", nominated="n"))
    assert notice.nominated == "n"
    assert queue.state("a") is PodState.ACTIVE
    batch = queue.ask()
    assert batch is not None
    (popped,) = pods_in(batch)
    assert popped.status.nominated_node_name == "n"


def test_a_late_nomination_of_a_decided_pod_is_ignored() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.decide("a")
    assert notices(queue.reject("a", nominated="n")) == []
    assert queue.core.nominated() == {}


def test_a_nomination_shown_during_an_attempt_counts_after_it() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.add(pod("a").nominated("n"))
    queue.reject("a")
    assert queue.core.nominated() == {"n": [uid("a")]}
    assert nominated_when_taken(queue) == "n"


def test_an_attempts_nomination_overrides_the_one_shown_during_it() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.add(pod("a").nominated("n"))
    queue.reject("a", nominated="m")
    assert nominated_when_taken(queue) == "m"


def test_an_unshown_nomination_is_sent_with_the_next_notice() -> None:
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


def test_a_nomination_that_is_taken_back_is_cleared_though_no_status_shows_it() -> None:
    """The notice of the nomination may still be on its way, and land after the notice that says nothing of it."""
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.reject("a", nominated="n")
    queue.change()
    assert nominated_when_taken(queue) == "n"
    (notice,) = notices(queue.reject("a", nominated=""))
    assert notice.nominated == ""


def reject_another(queue: Queue) -> None:
    """Pod b, rejected and no longer backing off."""
    queue.add("b")
    assert queue.take() == ["b"]
    queue.reject("b")
    queue.at(queue.now + 20.0)
    assert queue.state("b") is PodState.UNSCHEDULABLE


def test_a_nomination_that_is_taken_back_before_the_status_shows_it_helps_other_pods(queue: Queue) -> None:
    reject_another(queue)
    queue.change()
    queue.take()
    queue.reject("b")
    queue.reject("a", nominated="")
    assert queue.state("b") is not PodState.UNSCHEDULABLE


@pytest.mark.parametrize(("shown", "expected"), [("n", PodState.ACTIVE), ("", PodState.UNSCHEDULABLE)])
def test_a_deleted_pod_helps_others_only_if_its_status_showed_a_nomination(
    queue: Queue, shown: str, expected: PodState
) -> None:
    reject_another(queue)
    if shown:
        queue.add(pod("a").nominated(shown))
    queue.gone("a")
    assert queue.state("b") is expected


def test_a_deleted_pod_whose_nomination_cycle_cleared_helps_others_while_its_status_shows_it(queue: Queue) -> None:
    queue.add(pod("a").nominated("n"))
    queue.change()
    queue.take()
    queue.reject("a", nominated="")
    reject_another(queue)
    queue.gone("a")
    assert queue.state("b") is PodState.ACTIVE
