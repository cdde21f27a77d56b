"""What PodGroups are told: once that they are placed, and before that why they are not, until the watch shows it."""

from typing import Any

from flotilla.events import Action, Resource
from services.queue.events import Tick
from services.queue.scheduling.cluster_event import ClusterChange
from shared.framework.clusterevents import ClusterEvent
from shared.messages.binding import GroupNotice
from shared.model.objects import ObjectKind, object_from
from testing.builders import PodBuilder, pod
from tests.queue.support import POD_ADDED, Queue

PLACED = GroupNotice("default/g", "g-uid", "Scheduled")


def group(least: int | None = 2, uid: str = "g-uid", condition: tuple[str, str, str] | None = None) -> ClusterChange:
    """`condition`: status, reason and message that the group shows."""
    policy: Any = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    told = [] if condition is None else [dict(zip(("status", "reason", "message"), condition, strict=True))]
    raw = {
        "metadata": {"name": "g", "uid": uid},
        "spec": {"schedulingPolicy": policy},
        "status": {"conditions": [{"type": "PodGroupInitiallyScheduled"} | each for each in told]},
    }
    return ClusterChange(ClusterEvent(Resource.POD_GROUP, Action.ADD), None, object_from(ObjectKind.POD_GROUP, raw))


def member(name: str) -> PodBuilder:
    return pod(name).in_group("g")


def told(queue: Queue) -> list[GroupNotice]:
    return [effect for effect in queue.effects if isinstance(effect, GroupNotice)]


def pass_time(queue: Queue, seconds: float) -> Queue:
    queue.now += seconds
    queue.tell(Tick())
    return queue


def a_gang(least: int | None = 2) -> Queue:
    queue = Queue()
    queue.tell(group(least))
    queue.add(member("a"), member("b"))
    queue.take()
    return queue


def test_a_placed_gang_is_told_once() -> None:
    queue = a_gang()
    queue.decide("a")
    assert told(queue) == []
    queue.decide("b")
    assert told(queue) == [PLACED]
    queue.bound("a")
    assert told(queue) == []


def test_a_gang_is_told_why_it_is_not_placed_and_the_same_reason_once() -> None:
    queue = a_gang()
    queue.reject("a", "b", message="no room")
    assert told(queue) == [GroupNotice("default/g", "g-uid", "Unschedulable", "no room")]
    for message, expected in (
        ("no room", []),
        ("no disk", [GroupNotice("default/g", "g-uid", "Unschedulable", "no disk")]),
    ):
        queue.change()
        queue.at(queue.now + 10.0)
        queue.take()
        queue.reject("a", "b", message=message)
        assert [each for each in told(queue) if each.message == message] == expected


def test_an_error_is_told_as_such() -> None:
    queue = a_gang()
    queue.fail("a", "b")
    assert [each.reason for each in told(queue)] == ["SchedulerError"]


def test_what_the_group_does_not_show_is_sent_again() -> None:
    queue = a_gang()
    queue.decide("a", "b")
    assert told(pass_time(queue, 10.0)) == [PLACED]
    queue.tell(group(2, condition=("True", "Scheduled", "")))
    assert told(pass_time(queue, 20.0)) == []


def test_a_group_that_was_placed_before_is_told_nothing_more() -> None:
    queue = Queue()
    queue.tell(group(2, condition=("True", "Scheduled", "")))
    queue.add(member("a"), member("b"))
    queue.take()
    queue.reject("a", "b")
    assert told(queue) == []


def test_after_a_restart_a_group_learns_that_its_members_are_on_nodes() -> None:
    queue = Queue()
    for name in "ab":
        queue.tell(ClusterChange(POD_ADDED, None, member(name).on("n").build()))
    assert told(queue) == []
    queue.tell(group(2, condition=("False", "Unschedulable", "no room")))
    assert told(queue) == [PLACED]


def test_a_late_member_that_fits_nowhere_does_not_take_the_condition_back() -> None:
    queue = a_gang()
    queue.decide("a", "b")
    queue.add(member("late"))
    queue.take()
    queue.reject("late")
    assert told(queue) == []


def test_a_basic_group_is_placed_with_its_first_pod() -> None:
    queue = a_gang(None)
    queue.reject("a")
    assert [each.reason for each in told(queue)] == ["Unschedulable"]
    queue.decide("b")
    assert told(queue) == [PLACED]


def test_a_group_recreated_under_its_name_is_told_anew() -> None:
    queue = a_gang()
    queue.reject("a", "b")
    queue.tell(group(2, uid="other"))
    assert told(pass_time(queue, 10.0)) == []
    queue.change()
    queue.take()
    queue.reject("a", "b")
    assert [each.uid for each in told(queue)] == ["other"]
