"""The order in which pods are handed out."""

import random
from collections import Counter
from itertools import count

import msgspec
import pytest

from services.queue.batch_contents import MAX_BATCH_BYTES
from services.queue.events import PodPending, WatchEvents
from services.queue.scheduling.pod_queues import PodHeap
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.model.objects import encode_msgpack
from testing.builders import pod
from tests.queue.support import FRAMEWORKS, Queue, batch_in, built, names


def test_higher_priority_first_then_earlier_pods() -> None:
    queue = Queue()
    queue.add("a", pod("b").priority(5), "c", pod("d").priority(5), pod("e").priority(-1))
    assert queue.take() == ["b", "d", "a", "c", "e"]


def test_pods_seen_at_once_keep_their_order() -> None:
    queue = Queue()
    queue.add(*(f"p{i:02}" for i in range(40)))
    assert queue.take() == [f"p{i:02}" for i in range(40)]


def test_no_more_than_asked_for() -> None:
    queue = Queue()
    queue.add("a", "b", "c")
    assert queue.take(2) == ["a", "b"]
    assert queue.take(2) == ["c"]


def test_a_failed_pod_is_queued_behind_the_others() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.at(101.0).add("b")
    queue.reject("a")
    queue.at(110.0).change()
    queue.add("c")
    assert queue.take() == ["b", "a", "c"]


def test_an_event_that_moves_a_pod_does_not_renew_its_time() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.take(1)
    queue.reject("a")  # at 100
    queue.at(105.0).add("c")
    queue.at(110.0).change()
    assert queue.take() == ["b", "a", "c"]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_leaves_in_between_the_first_pod_is_always_the_smallest(seed: int) -> None:
    rng, numbers = random.Random(seed), count(1)
    heap, waiting = PodHeap(lambda info: info.sort_key, numbers), dict[str, QueuedPodInfo]()
    framework = next(iter(FRAMEWORKS.values()))
    for number in range(600):
        come = pod(f"p{number}").build()
        # Most come in order; some have a priority of their own, and stand before or behind most others.
        priority = rng.choice((0, 0, 0, 0, -1, 1))
        info = QueuedPodInfo(come.uid, come, framework, 0.0, sort_key=(-priority, number))
        waiting[info.uid] = info
        heap.add(info)
        for _ in range(rng.choice((0, 0, 1, 3))):
            if waiting:
                first = min(waiting.values(), key=lambda info: info.sort_key)
                assert heap.first() is first
                leaving = rng.choice((first, first, rng.choice(list(waiting.values()))))
                heap.discard(waiting.pop(leaving.uid))
        heap.validate()
        assert len(heap) == len(waiting)
    assert [info.uid for info in heap] == sorted(waiting, key=lambda uid: waiting[uid].sort_key)


def test_a_new_priority_counts_at_once() -> None:
    queue = Queue()
    queue.add("a", "b", "c")
    queue.add(pod("c").priority(1))
    assert queue.take() == ["c", "a", "b"]


def test_backing_off_pods_are_popped_only_when_none_is_active_by_second_then_priority() -> None:
    queue = Queue()
    queue.add("a", pod("b").priority(1), "c")
    queue.take()
    queue.change()
    queue.reject("a", "b", "c")
    assert queue.state("a") is PodState.BACKOFF
    queue.add(pod("d").priority(-5))
    assert queue.take() == ["d", "b", "a", "c"]
    assert queue.core.counters.incoming[PodState.ACTIVE, "PopFromBackoffQ"] == 3


def test_error_backoffs_are_never_cut_short() -> None:
    queue = Queue()
    queue.add("a")
    queue.take()
    queue.fail("a")
    assert queue.state("a") is PodState.ERROR_BACKOFF
    assert queue.take() == []
    queue.at(101.9)
    assert queue.take() == []
    queue.at(102.0)
    assert queue.state("a") is PodState.IN_FLIGHT  # the last Take was still waiting


def test_pods_that_never_fit_starve_no_others() -> None:
    """High-priority pods never fit, though events requeue them each time: the others are still popped."""
    queue = Queue()
    queue.add(*(pod(f"high-{i}").priority(100) for i in range(20)), *(f"low-{i}" for i in range(20)))
    turns: Counter[str] = Counter()
    for _ in range(40):
        for name in queue.take(5):
            turns[name.split("-")[0]] += 1
            if name.startswith("high"):
                queue.reject(name)
            else:
                queue.decide(name)
                queue.bound(name)
        queue.change()
        queue.at(queue.now + 0.5)
    assert turns["low"] == 20
    assert turns["high"] > 20


def test_pods_of_other_schedulers_are_ignored() -> None:
    queue = Queue()
    queue.add(pod("a").scheduler("another-scheduler"))
    assert queue.state("a") is None
    assert queue.take() == []


def test_a_batch_fits_in_a_message_and_a_large_pod_goes_alone() -> None:
    queue = Queue()
    for name, size in [
        ("a", MAX_BATCH_BYTES // 2),
        ("b", MAX_BATCH_BYTES // 2),
        ("c", 1 << 10),
        ("d", MAX_BATCH_BYTES + (1 << 20)),
        ("e", 1),
    ]:
        large = pod(name).label(notes="x" * max(0, size - (1 << 8))).build()
        queue.tell(PodPending(large, queue.now, msgspec.Raw(encode_msgpack(large))))
    assert [queue.take() for _ in range(4)] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_a_queued_pod_has_its_attempt_and_times() -> None:
    queue = Queue()
    queue.add("a")
    queue.at(103.0)
    batch = queue.ask()
    assert batch is not None and names(batch) == ["a"]
    assert (batch.pods[0].attempt, batch.pods[0].queued_at, batch.pods[0].taken_at) == (1, 100.0, 103.0)
    queue.reject("a")
    queue.at(110.0).change()
    batch = queue.ask()
    assert batch is not None
    assert (batch.pods[0].attempt, batch.pods[0].queued_at, batch.pods[0].taken_at) == (2, 100.0, 110.0)


def test_pods_seen_at_once_are_handed_out_together() -> None:
    queue = Queue()
    queue.ask()
    pods = [pod("a"), pod("b").priority(1), pod("c")]
    batch = batch_in(queue.tell(WatchEvents([PodPending(built(one), queue.now) for one in pods])))
    assert names(batch) == ["b", "a", "c"]
