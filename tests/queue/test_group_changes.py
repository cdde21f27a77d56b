"""A group whose status changes says nothing new of its pods."""

from collections.abc import Iterator

import msgspec
import pytest

from flotilla.events import Action, Resource
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.group_forest import Forest
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import ClusterEvent
from shared.model.objects import ClusterObject, kind_of, object_from
from tests.queue.support import Queue
from tests.queue.test_group_trees import composite, group, member, see

GROUP_UPDATED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE)


def with_condition(of: ClusterObject) -> ClusterObject:
    condition = {"type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    said = msgspec.to_builtins(of)
    return object_from(kind_of(of), {**said, "status": {"conditions": [condition]}})


@pytest.mark.parametrize("number", [0, 1])
def test_a_condition_of_a_group_moves_no_pod(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has failed, and says so: to be tried again for that would go on for ever."""
    queue, groups = Queue(), [composite("root", 2), group("a", 1, "root"), group("b", 1, "root")]
    see(queue, *groups)
    queue.add(member("a-0"), member("b-0"))
    queue.take()
    queue.reject("a-0", "b-0", plugins=("GangScheduling",))
    queue.at(queue.now + 30.0)
    looked: list[object] = []

    def look(forest: Forest, below: object) -> Iterator[object]:
        looked.append(below)
        return iter(())

    monkeypatch.setattr(Forest, "leaves", look)
    queue.tell(ClusterChange(GROUP_UPDATED, groups[number], with_condition(groups[number])))
    assert queue.state("a-0") is queue.state("b-0") is PodState.UNSCHEDULABLE
    assert not looked, "the other groups of the tree have nothing to do with it"


@pytest.mark.parametrize("least", [1, 2])
def test_a_lower_minimum_does(least: int) -> None:
    queue, before = Queue(), group("a", 3)
    see(queue, before)
    queue.add(member("a-0"), member("a-1"), member("a-2"))
    queue.take()
    queue.reject("a-0", "a-1", "a-2", plugins=("GangScheduling",))
    queue.at(queue.now + 30.0)
    queue.tell(ClusterChange(GROUP_UPDATED, before, group("a", least)))
    assert sorted(queue.take()) == ["a-0", "a-1", "a-2"]


def test_the_group_of_others_does_not() -> None:
    queue, of_others = Queue(), group("b", 3)
    see(queue, group("a", 3), of_others)
    queue.add(member("a-0"), member("a-1"), member("a-2"))
    queue.take()
    queue.reject("a-0", "a-1", "a-2", plugins=("GangScheduling",))
    queue.at(queue.now + 30.0)
    queue.tell(ClusterChange(GROUP_UPDATED, of_others, group("b", 1)))
    assert queue.take() == []
