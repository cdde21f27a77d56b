"""A gang is one entry of the queue: one place in the order, one back-off, one count of attempts."""

import pytest

from flotilla.events import Action, Resource
from services.queue.group_listing import GroupListing
from services.queue.metrics import QueueMetrics
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.pod_queues import BackoffPolicy
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.waiting_gangs import WaitingGangs
from shared.framework.clusterevents import ClusterEvent
from shared.messages.inspection import DescribedGroup, ListGroups
from shared.messages.queue import Activate
from shared.model.objects import ObjectKind, object_from
from testing.builders import PodBuilder, pod
from testing.inprocess.batches import pods_in
from tests.bus.support import a_telemetry, sample
from tests.queue.support import NODE_ADDED, NODE_LABELS, Queue, names, notices, uid

POD_GROUP = ClusterEvent(Resource.POD_GROUP, Action.ADD)
SLOW = BackoffPolicy(initial=10.0, maximum=100.0)


def group(least: int, **spec: object) -> ClusterChange:
    raw = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"gang": {"minCount": least}}} | spec}
    return ClusterChange(POD_GROUP, None, object_from(ObjectKind.POD_GROUP, raw))


def member(name: str) -> PodBuilder:
    return pod(name).in_group("g")


def a_gang(*members: str, least: int, queue: Queue | None = None, **spec: object) -> Queue:
    queue = queue or Queue(SLOW)
    queue.tell(group(least, **spec))
    queue.add(*map(member, members))
    return queue


def states(queue: Queue, members: str) -> set[PodState | None]:
    return {queue.state(name) for name in members}


def attempts(queue: Queue) -> dict[str, int]:
    """The pods that are handed out next, with the numbers of their attempts."""
    batch = queue.ask()
    return {} if batch is None else {p.name: q.attempt for p, q in zip(pods_in(batch), batch.pods, strict=True)}


def described(queue: Queue) -> DescribedGroup:
    (found,) = GroupListing(queue.core.groups, queue.core.nominator).answer(ListGroups(), queue.now).groups
    return found


def test_an_event_that_helps_one_member_moves_all() -> None:
    queue = a_gang("a", "b", "c", least=3)
    queue.take()
    queue.reject("a", "b", plugins=("NodeResourcesFit",))
    queue.reject("c", plugins=("NodeAffinity",))
    assert states(queue, "abc") == {PodState.UNSCHEDULABLE}
    queue.change(NODE_LABELS)
    assert states(queue, "abc") == {PodState.BACKOFF}
    queue.at(queue.now + 30.0)
    assert states(queue, "abc") == {PodState.ACTIVE}


def test_a_gang_backs_off_once_for_each_attempt_however_many_members_fail() -> None:
    queue = a_gang("a", "b", least=2)
    for attempt, seconds in enumerate((10, 20, 40), start=1):
        assert attempts(queue) == {"a": attempt, "b": attempt}
        queue.reject("a", "b")
        queue.change()
        failed = queue.now
        assert described(queue).backoff_until == failed + seconds + 1.0
        queue.at(failed + seconds + 2.0)


def test_a_new_member_waits_as_long_as_the_gang_that_backs_off_and_shares_its_attempts() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", "b")
    queue.change()
    queue.add(member("late"), "other")
    assert queue.state("late") is PodState.BACKOFF
    assert queue.take(1) == ["other"]
    queue.at(queue.now + 15.0)
    assert attempts(queue) == {"a": 2, "b": 2, "late": 2}


def test_a_new_member_wakes_a_gang_that_waits_for_an_event() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", "b")
    queue.at(queue.now + 15.0)
    assert states(queue, "ab") == {PodState.UNSCHEDULABLE}
    queue.add(member("late"))
    assert queue.take() == ["a", "b", "late"]


def test_an_error_of_one_member_counts_as_one_of_the_gang() -> None:
    queue = a_gang("a", "b", "c", least=3)
    queue.take()
    queue.fail("a")
    queue.reject("b", "c")
    assert states(queue, "abc") == {PodState.ERROR_BACKOFF}
    assert queue.take() == [], "an error is never tried again early"
    queue.at(queue.now + 15.0)
    assert sorted(queue.take()) == ["a", "b", "c"]


def test_a_gang_that_backs_off_is_popped_early_if_nothing_is_active() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", "b")
    queue.add("x")
    queue.change()
    assert queue.take(1) == ["x"]
    assert queue.take() == ["a", "b"]


def test_an_activated_member_takes_the_others_along() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", "b")
    queue.change()
    queue.add("x")
    queue.tell(Activate([uid("b")]))
    assert states(queue, "ab") == {PodState.ACTIVE}


def test_a_failed_gang_stands_behind_pods_that_came_before_its_failure() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.now += 1.0
    queue.add("x")
    queue.now += 1.0
    queue.reject("a", "b")
    queue.now += 1.0
    queue.add("y", member("late"))
    queue.at(queue.now + 20.0)
    assert queue.take() == ["x", "a", "b", "late", "y"]


def test_the_queue_lists_a_gang_where_it_is_popped() -> None:
    queue = Queue()
    queue.tell(group(3))
    queue.add(member("a"), "x", member("b").priority(5), "y", member("c"))
    order = [uid(name) for name in ("b", "a", "c", "x", "y")]
    assert queue.core.contents().active == order
    assert [uid(name) for name in queue.take()] == order


def test_the_first_place_is_lost_with_the_member_that_had_it() -> None:
    queue = Queue()
    queue.tell(group(2))
    queue.add(member("a").priority(9), pod("x").priority(5), member("b"), member("c"))
    queue.gone("a")
    assert queue.take() == ["x", "b", "c"]


def test_members_beyond_the_minimum_have_entries_of_their_own_until_it_is_lost() -> None:
    queue = a_gang("a", "b", "c", "d", least=2)
    queue.take()
    queue.decide("a", "b")
    queue.reject("c", "d")
    queue.add(pod("blocker"))
    queue.tell(Activate([uid("c")]))
    assert (queue.state("c"), queue.state("d")) == (PodState.ACTIVE, PodState.UNSCHEDULABLE)
    queue.gone("a")
    assert (queue.state("c"), queue.state("d")) == (PodState.ACTIVE, PodState.BACKOFF)
    queue.gone("b")
    assert states(queue, "cd") == {PodState.ACTIVE}, "two are missing, so both must be placed together"
    assert queue.take() == ["c", "d", "blocker"]


def test_a_gang_that_was_placed_begins_again_without_attempts() -> None:
    queue = a_gang("a", "b", least=2, schedulingConstraints={"topology": [{"key": "rack"}]})
    queue.take()
    queue.reject("a", "b")
    queue.at(queue.now + 400.0)
    assert attempts(queue) == {"a": 2, "b": 2}
    queue.decide("a", "b")
    queue.gone("a")
    queue.add(member("again"))
    assert attempts(queue) == {"again": 1}


def test_a_restarted_queue_knows_the_attempts_of_a_gang_by_those_of_its_members() -> None:
    before = a_gang("a", "b", least=2)
    before.take()
    before.reject("a", "b")
    after = Queue(SLOW, records=before.stored)
    after.now, after.epoch = before.now, 2
    a_gang("new", "a", "b", least=2, queue=after)
    assert states(after, "ab") == {PodState.BACKOFF}
    after.add("x")
    after.at(after.now + 15.0)
    assert attempts(after) == {"new": 2, "a": 2, "b": 2, "x": 1}


def test_a_gang_waits_until_the_victims_of_all_members_are_evicted() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", nominated="n", preemption=1)
    queue.reject("b", nominated="m", preemption=2)
    queue.at(queue.now + 15.0)
    queue.evicted("a", 1)
    queue.change()
    assert queue.take() == []
    queue.evicted("b", 2)
    assert names(queue.ask_again()) == ["a", "b"]


def test_members_beyond_the_minimum_do_not_go_without_one_whose_victims_are_not_evicted_yet() -> None:
    queue = a_gang("a", "b", "c", least=2)
    queue.take()
    queue.reject("a", nominated="n", preemption=1)
    queue.reject("b", nominated="m")
    queue.reject("c")
    queue.at(queue.now + 15.0)
    queue.change()
    assert queue.take() == [], "b and c are enough, but a has made room for the three of them"
    queue.evicted("a", 1)
    assert names(queue.ask_again()) == ["a", "b", "c"]


def test_members_go_without_one_that_is_deleted_while_its_victims_are_evicted() -> None:
    queue = a_gang("a", "b", "c", least=2)
    queue.take()
    queue.reject("a", nominated="n", preemption=1)
    queue.reject("b", "c")
    queue.at(queue.now + 15.0)
    queue.change()
    assert queue.take() == []
    queue.gone("a")
    assert names(queue.ask_again()) == ["b", "c"]


@pytest.mark.parametrize("is_early", [False, True])
def test_a_gang_of_which_a_victim_was_refused_backs_off_and_reserves_no_room(is_early: bool) -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", nominated="n", preemption=1)
    if is_early:
        queue.evicted("b", 2, "a webhook denies it")
    queue.reject("b", nominated="m", preemption=2)
    if not is_early:
        queue.evicted("b", 2, "a webhook denies it")
    assert queue.take() == []
    assert states(queue, "ab") == {PodState.ERROR_BACKOFF}
    assert queue.core.nominated() == {}
    queue.at(queue.now + 15.0)
    assert queue.take() == ["a", "b"]


def test_a_gang_backs_off_though_the_victims_of_its_other_members_are_gone() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", nominated="n", preemption=1)
    queue.reject("b", nominated="m", preemption=2)
    queue.change()
    queue.evicted("a", 1)
    queue.evicted("b", 2, "a webhook denies it")
    assert queue.take() == []
    assert states(queue, "ab") == {PodState.ERROR_BACKOFF}
    assert queue.core.nominated() == {}


def test_a_held_gang_is_held_whole_and_released_whole() -> None:
    queue = a_gang("a", "b", "c", least=3)
    queue.gone("c")
    assert queue.take() == []
    assert states(queue, "ab") == {PodState.GATED}
    queue.add(member("d"))
    assert names(queue.ask_again()) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("report", "result"),
    [("reject", "unschedulable"), ("fail", "error"), ("decide", "scheduled"), ("preempt", "waiting_on_preemption")],
)
def test_attempts_of_gangs_are_counted_once(report: str, result: str) -> None:
    queue = a_gang("a", "b", least=2)
    telemetry = a_telemetry()
    metrics = QueueMetrics(telemetry.metrics)

    def count() -> float:
        metrics.show(queue.core, queue.now)
        labels = {"result": result, "profile": "default-scheduler"}
        return sample(telemetry, "scheduler_podgroup_schedule_attempts_total", **labels)

    queue.take()
    if report == "preempt":
        queue.reject("a", "b", nominated="n", preemption=1)
    else:
        getattr(queue, report)("a", "b")
    assert count() == 1.0
    queue.add("x")
    queue.take()
    queue.reject("x")
    assert count() == 1.0, "a pod by itself is no gang"


def test_gangs_are_counted_by_where_they_are() -> None:
    queue = a_gang("a", "b", least=2)
    telemetry = a_telemetry()
    metrics = QueueMetrics(telemetry.metrics)

    def places() -> list[str]:
        metrics.show(queue.core, queue.now)
        known = ("active", "backoff", "unschedulable", "in-flight", "held")
        return [place for place in known if sample(telemetry, "flotilla_queue_gangs", place=place)]

    assert places() == ["active"]
    queue.take()
    assert places() == ["in-flight"]
    queue.reject("a", "b")
    assert places() == ["unschedulable"]
    queue.change(NODE_ADDED)
    assert places() == ["backoff"]
    queue.gone("a")
    queue.take()
    assert places() == ["held"]
    queue.add(member("c"))
    queue.take()
    queue.decide("b", "c")
    assert places() == []


def test_the_longest_wait_of_gangs_is_known_and_which_plugins_rejected_them() -> None:
    queue = a_gang("a", "b", least=2)
    telemetry = a_telemetry()
    metrics = QueueMetrics(telemetry.metrics)

    def shown(place: str, plugin: str) -> tuple[float, float]:
        metrics.show(queue.core, queue.now)
        wait = sample(telemetry, "flotilla_queue_gang_longest_wait_seconds", place=place)
        return wait, sample(telemetry, "flotilla_queue_gangs_rejected", plugin=plugin)

    queue.now += 10
    assert shown("active", "NodeResourcesFit") == (10.0, 0.0)
    queue.take()
    queue.reject("a", "b", plugins=("NodeResourcesFit",))
    queue.now += 5
    assert shown("active", "NodeResourcesFit") == (0.0, 1.0)
    assert shown("unschedulable", "NodeAffinity") == (15.0, 0.0)
    queue.gone("a")
    assert shown("unschedulable", "NodeResourcesFit")[0] == 0.0
    assert shown("held", "NodeAffinity") == (15.0, 0.0)
    queue.add(member("c"))
    queue.take()
    queue.decide("b", "c")
    assert shown("held", "NodeResourcesFit") == (0.0, 0.0)


def test_a_gang_waits_from_when_its_first_pod_has_no_gate_of_its_own() -> None:
    """Members that are held for others wait; those behind scheduling gates do not."""
    queue = Queue(SLOW)
    queue.tell(group(2))
    queue.add(*(member(name).gate("quota") for name in "ab"))

    def waited() -> dict[str, float]:
        return WaitingGangs(queue.core.groups.groups(), queue.now).longest

    queue.now += 86_400
    assert waited() == {}
    queue.add(member("b").label(v="2"))
    queue.take()
    queue.now += 10
    assert waited() == {"held": 10.0}
    queue.now += 10
    queue.add(member("a").label(v="2"))
    queue.now += 5
    assert waited() == {"in-flight": 25.0}
    queue.reject("a", "b", plugins=("NodeResourcesFit",))
    queue.now += 5
    assert waited() == {"unschedulable": 30.0}


def test_an_incomplete_gang_gives_up_its_nominations() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", "b", nominated="n")
    queue.add(member("a").label(v="2").nominated("n"), member("b").label(v="2").nominated("n"))
    assert sorted(queue.core.nominated()["n"]) == [uid("a"), uid("b")]
    said = notices(queue.gone("b"))
    assert queue.core.nominated() == {}
    cleared = [(told.name, told.nominated, told.event, told.patch) for told in said]
    assert ("a", "", False, False) in cleared


def test_a_gang_that_waits_for_evictions_keeps_its_nominations() -> None:
    queue = a_gang("a", "b", least=2)
    queue.take()
    queue.reject("a", nominated="n", preemption=1)
    queue.reject("b", nominated="m", preemption=2)
    queue.at(queue.now + 15.0)
    queue.evicted("a", 1)
    queue.change()
    assert queue.take() == []
    assert queue.core.nominated() == {"n": [uid("a")], "m": [uid("b")]}
