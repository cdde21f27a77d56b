"""The queue remembers the moves of the last pods that left it."""

from services.queue.introspection import Introspection
from services.queue.scheduling.left_pods import LeftPods
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.messages.inspection import ListQueue, PodLeft
from testing.builders import pod
from tests.queue.support import FRAMEWORKS, Queue, uid


def left(queue: Queue, name: str) -> PodLeft | None:
    return Introspection(queue.core).answer(ListQueue(namespace="default", name=name), queue.now).left


def test_the_moves_of_pods_that_were_bound_or_deleted_are_listed() -> None:
    queue = Queue()
    queue.add("a", "b")
    queue.at(101.0).take()
    queue.reject("b")
    queue.decide("a")
    assert left(queue, "a") is None  # it is still here
    queue.at(102.0).bound("a")
    queue.gone("b")
    found = left(queue, "a")
    assert found is not None and (found.uid, found.attempts) == (uid("a"), 1)
    moves = [(move.at, move.state) for move in found.history]
    assert moves == [(100.0, "active"), (101.0, "in-flight"), (101.0, "binding"), (102.0, "done")]
    gone = left(queue, "b")
    assert gone is not None and (gone.history[-1].state, gone.history[-1].why) == ("done", "gone")
    assert left(queue, "never") is None


def test_of_pods_of_one_name_the_last_is_remembered_and_of_many_the_latest() -> None:
    pods = LeftPods(most=2)
    for name, number in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        built = pod(name).uid(f"{name}-{number}").build()
        pods.record(QueuedPodInfo(built.uid, built, FRAMEWORKS["default-scheduler"], 1.0))
    remembered = [pods.of("default", name) for name in "abc"]
    assert [None if each is None else each.uid for each in remembered] == ["a-2", None, "c-1"]
