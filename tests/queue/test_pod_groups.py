"""Gangs: which members are held and popped together, and that no two wait for each other."""

from random import Random

import pytest

from flotilla.results import Status
from services.queue.group_listing import GroupListing
from services.queue.scheduling import pod_groups as module
from services.queue.scheduling.gang_plugins import GANG_PLUGINS
from services.queue.scheduling.pod_groups import PodGroups
from services.queue.scheduling.popped_together import PoppedTogether
from services.queue.scheduling.queued_pod_info import PodState
from shared.messages.inspection import ListGroups
from shared.messages.queue import Gang
from shared.model.objects import (
    GroupApi,
    GroupRef,
    ObjectKind,
    PodGroup,
    TopologyConstraint,
    object_from,
    object_from_msgpack,
)
from tests.queue.pod_group_support import OURS, THEIRS, GroupQueue, a_group, a_pod_info

# Gates


def test_a_pod_without_a_group_is_popped_alone() -> None:
    line = GroupQueue()
    line.add("a", ref=None)
    assert line.take() == (["a"], 0)
    assert len(line.groups) == 0


def test_pods_wait_for_their_group_with_kube_schedulers_message() -> None:
    line = GroupQueue()
    status = line.groups.pre_enqueue(a_pod_info("a"))
    assert status.message == 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    assert (status.plugin, status.rejected) == ("GangScheduling", True)
    line.add("a", "b")
    assert line.take() == ([], 0)
    line.see(2)
    assert line.take() == (["a", "b"], 2)


@pytest.mark.parametrize(
    ("ref", "plugin", "count"), [(OURS, "GangScheduling", "minCount"), (THEIRS, "Coscheduling", "minMember")]
)
def test_pods_wait_for_the_minimum_of_members(ref: GroupRef, plugin: str, count: str) -> None:
    line = GroupQueue()
    line.see(3, ref=ref)
    line.add("a", "b", ref=ref)
    status = line.groups.pre_enqueue(line.pods["a"])
    assert status.message == f"waiting for {count} pods from a gang to appear in scheduling queue"
    assert (status.plugin, line.held()) == (plugin, ["a", "b"])
    line.add("c", ref=ref)
    assert line.held() == []
    assert line.take() == (["a", "b", "c"], 3)


def test_groups_of_two_apis_with_one_name_are_separate() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a")
    line.add("b", ref=THEIRS)
    assert line.held() == ["a", "b"]
    line.see(1, ref=THEIRS)
    assert line.all_taken() == [(["b"], 0)]


@pytest.mark.parametrize("least", [None, 1])
def test_without_a_minimum_each_member_is_popped_alone(least: int | None) -> None:
    line = GroupQueue()
    line.see(least)
    line.add("a", "b")
    assert line.all_taken() == [(["a"], 0), (["b"], 0)]


# Popped together


@pytest.mark.parametrize("state", [PodState.UNSCHEDULABLE, PodState.BACKOFF, PodState.ERROR_BACKOFF])
def test_a_member_is_popped_with_those_that_back_off_or_are_unschedulable(state: PodState) -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c")
    assert line.take() == (["a", "b", "c"], 2)
    line.reject("a", "b", "c", state=state)
    assert line.take() == ([], 0)
    line.wake("b")
    assert line.take() == (["a", "b", "c"], 2)


def test_members_are_popped_by_priority_then_age() -> None:
    line = GroupQueue()
    line.see(4)
    line.add("a", "b")
    line.now = 1.0
    line.add("c", priority=5)
    line.add("d")
    assert line.take() == (["c", "a", "b", "d"], 4)


def test_very_large_gangs_are_popped_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POPPED_TOGETHER", 3)
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c", "d", "e")
    assert line.all_taken() == [(["a", "b", "c"], 2), (["d", "e"], 2)]
    line = GroupQueue()
    line.see(4)
    line.add("a", "b", "c", "d", "e")
    assert line.take() == (["a", "b", "c", "d"], 4)


def test_placed_members_are_not_missing() -> None:
    line = GroupQueue()
    line.see(3)
    line.groups.assigned("elsewhere", OURS)
    line.add("a", "b")
    assert line.take() == (["a", "b"], 2)


def test_once_enough_members_are_placed_the_others_are_popped_alone() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b")
    line.reject("c")
    line.wake("c")
    assert line.take() == (["c"], 0)


# In flight and blocked members


def test_a_member_added_while_the_others_are_in_flight_is_held() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.add("d")
    assert line.take() == ([], 0)
    assert line.held() == ["d"]
    line.decide("a", "b", "c")
    assert line.take() == (["d"], 0)


def test_a_held_member_is_popped_with_the_others_after_their_rejection() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.add("d")
    line.take()
    line.reject("a", "b", "c")
    assert line.take() == (["a", "b", "c", "d"], 3)


def test_a_gated_member_holds_the_others() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b")
    line.add("c", shut=True)
    assert line.take() == ([], 0)
    line.add("d")
    assert line.take() == (["a", "b", "d"], 3)
    line.reject("a", "b", "d")
    line.wake("c")
    assert line.take() == (["a", "b", "c", "d"], 3)


def test_members_of_a_lost_cycle_are_popped_together_again() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    for name in ("a", "b", "c"):
        line.wake(name)
    assert line.all_taken() == [(["a", "b", "c"], 3)]


# Changes of groups


def test_one_member_with_a_failed_binding_is_popped_alone_and_two_together() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b", "c")
    line.bound("a")
    line.reject("b", state=PodState.ERROR_BACKOFF)
    line.wake("b")
    assert line.take() == (["b"], 0)
    line.reject("c", state=PodState.ERROR_BACKOFF)
    line.wake("c")
    assert line.take() == ([], 0)
    line.reject("b")
    assert line.take() == (["b", "c"], 2)


def test_deleted_members_are_missing_again() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b", "c")
    line.bound("a", "b", "c")
    line.delete("a", "b")
    line.add("d")
    assert line.take() == ([], 0)
    line.add("e")
    assert line.take() == (["d", "e"], 2)


def test_deleting_a_waiting_member_holds_the_others() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.delete("b")
    assert line.take() == ([], 0)
    assert line.held() == ["a", "c"]
    line.add("d")
    assert line.take() == (["a", "c", "d"], 3)


def test_deleting_the_group_holds_its_members_until_it_is_back() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b")
    line.groups.delete_group(OURS)
    assert line.take() == ([], 0)
    line.see(2)
    assert line.take() == (["a", "b"], 2)


def test_a_changed_minimum_holds_or_releases_members() -> None:
    line = GroupQueue()
    line.see(2, ref=THEIRS)
    line.add("a", "b", ref=THEIRS)
    line.see(3, ref=THEIRS)
    assert line.take() == ([], 0)
    line.see(2, ref=THEIRS)
    assert line.take() == (["a", "b"], 2)


def test_a_pod_may_change_its_group() -> None:
    line = GroupQueue()
    line.see(2, ref=THEIRS)
    line.add("a", ref=THEIRS)
    line.add("b", ref=None)
    entry = line.pods["b"]
    entry.pod = a_pod_info("b", THEIRS).pod
    line.groups.moved(entry, line.now)
    line.settle()
    assert line.take() == (["b", "a"][::-1], 2)
    line.reject("a", "b")
    entry.pod = a_pod_info("b", None).pod
    line.groups.moved(entry, line.now)
    line.wake("a")
    line.wake("b")
    assert line.all_taken() == [(["b"], 0)]
    assert line.held() == ["a"]


def test_empty_groups_are_dropped() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b")
    line.take()
    line.decide("a", "b")
    line.bound("a")
    line.delete("a", "b")
    assert len(line.groups) == 1
    line.groups.delete_group(OURS)
    assert len(line.groups) == 0
    line.groups.delete_group(OURS)
    line.groups.remove("a")


# Random histories


@pytest.mark.parametrize("seed", range(60))
def test_no_random_history_blocks_a_member_or_splits_a_gang(seed: int) -> None:
    line, random, number = GroupQueue(), Random(seed), 0
    groups = [OURS, THEIRS, GroupRef(GroupApi.SCHEDULING, "default/h"), None]
    for _ in range(200):
        line.now += random.random() * 20
        at = {state: [e for e in line.pods.values() if e.state is state] for state in PodState}
        match random.choice(["add", "add", "group", "lose", "take", "take", "decide", "reject", "wake", "end", "time"]):
            case "add":
                number += 1
                line.add(f"p{number}", ref=random.choice(groups), shut=random.random() < 0.2)
            case "group":
                ref = random.choice(groups)
                if ref is not None:
                    line.see(random.choice([1, 2, 3, 5]), random.choice([None, 5, 50]), ref)
            case "lose":
                if (ref := random.choice(groups)) is not None and random.random() < 0.3:
                    line.groups.delete_group(ref)
            case "take":
                names, least = line.take()
                assert len(names) >= least
            case "decide":
                line.decide(*[entry.uid for entry in at[PodState.IN_FLIGHT]][: random.randrange(5)])
            case "reject":
                state = random.choice(
                    [PodState.UNSCHEDULABLE, PodState.BACKOFF, PodState.ERROR_BACKOFF, PodState.ACTIVE]
                )
                away = at[PodState.IN_FLIGHT] if random.random() < 0.7 else at[PodState.BINDING]
                line.reject(*[entry.uid for entry in away][: random.randrange(5)], state=state)
            case "wake":
                for entry in random.sample(list(line.pods.values()), min(2, len(line.pods))):
                    if entry.state not in (PodState.IN_FLIGHT, PodState.BINDING, PodState.ACTIVE):
                        line.wake(entry.uid)
            case "end":
                for entry in at[PodState.BINDING][:2]:
                    line.bound(entry.uid) if entry.pod.spec.scheduling_group else line.delete(entry.uid)
                if at[PodState.ACTIVE] and random.random() < 0.5:
                    line.delete(at[PodState.ACTIVE][0].uid)
            case "time":
                line.groups.held_too_long(line.now)
        line.settle()
    finish(line, groups)


def finish(line: GroupQueue, groups: list[GroupRef | None]) -> None:
    """With groups that need no more than are there, and with no gate shut, every member gets a state.

    Members that back off or were rejected are requeued by events; held members must be released without.
    """
    for ref in groups:
        if ref is not None:
            line.see(2, ref=ref)
            line.add(f"last-{ref}", f"last-but-one-{ref}", ref=ref)
    for entry in list(line.pods.values()):
        if entry.state is PodState.IN_FLIGHT:
            line.reject(entry.uid)
    for entry in list(line.pods.values()):
        if entry.state not in (PodState.BINDING, PodState.ACTIVE) and entry.gating_plugin not in GANG_PLUGINS:
            line.wake(entry.uid)
    while (taken := line.take())[0]:
        line.decide(*taken[0])
    assert {entry.state for entry in line.pods.values()} == {PodState.BINDING}
    assert line.groups.next_deadline() is None


def test_groups_and_assigned_pods_are_observed() -> None:
    gangs, group = PodGroups(), a_group(2, ref=THEIRS)
    pod = a_pod_info("a", THEIRS).pod
    gangs.observe(None, group)
    gangs.observe(None, pod)
    gangs.observe(None, "something else")
    gangs.validate()
    assert "a" in gangs
    gangs.observe(pod, a_pod_info("a", None).pod)
    assert "a" not in gangs
    gangs.observe(None, pod)
    gangs.observe(pod, None)
    gangs.observe(group, None)
    assert len(gangs) == 0


def test_popped_pods_are_handed_out() -> None:
    entry = a_pod_info("a", None)
    assert PodGroups().pop_with(entry) == PoppedTogether([entry])


def test_a_listing_with_bodies_has_the_group_and_its_placed_members() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b")
    line.bound("b")
    (plain,) = GroupListing(line.groups, line.nominator).answer(ListGroups(), 0.0).groups
    (full,) = GroupListing(line.groups, line.nominator).answer(ListGroups(bodies=True), 0.0).groups
    assert (plain.body, plain.placed, plain.counts) == (b"", {}, full.counts)
    assert (object_from_msgpack(full.body), full.placed) == (a_group(2), {"a": "a", "b": ""})


def a_rack_group(least: int, **spec: object) -> PodGroup:
    gang = {"schedulingPolicy": {"gang": {"minCount": least}}}
    racks = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    group = object_from(ObjectKind.POD_GROUP, {"metadata": {"name": "g"}, "spec": gang | racks | spec})
    assert isinstance(group, PodGroup)
    return group


def test_a_late_member_of_a_group_with_topology_is_told_where_the_others_are() -> None:
    line = GroupQueue()
    line.groups.set_group(a_rack_group(2, priority=7, preemptionPolicy="Never"))
    for number in range(3):
        line.groups.assigned(f"placed-{number}", OURS, f"placed-{number}", "n1" if number else "n0")
    line.add("late")
    together = line.groups.pop_with(line.pods["late"])
    assert not isinstance(together, Status)
    assert together.gang == Gang(str(OURS), 1, (TopologyConstraint(key="rack"),), ("n1", "n0"), 7, never_preempts=True)


def test_the_nodes_named_to_the_cycle_are_bounded() -> None:
    line = GroupQueue()
    line.groups.set_group(a_rack_group(1))
    for number in range(20):
        line.groups.assigned(f"placed-{number}", OURS, f"placed-{number}", f"{number:0>100}")
    line.add("late")
    together = line.groups.pop_with(line.pods["late"])
    assert not isinstance(together, Status)
    assert together.gang is not None
    assert together.gang.placed_on == tuple(f"{number:0>100}" for number in range(5))


@pytest.mark.parametrize(
    ("spec", "own_priority", "alone"),
    [({}, 0, True), ({"priority": 5}, 5, True), ({"priority": 5}, 0, False), ({"preemptionPolicy": "Never"}, 0, False)],
)
def test_a_late_member_goes_alone_unless_the_group_says_something_else_of_it(
    spec: dict[str, object], own_priority: int, alone: bool
) -> None:
    line = GroupQueue()
    group = object_from(ObjectKind.POD_GROUP, {"metadata": {"name": "g"}, "spec": spec})
    assert isinstance(group, PodGroup)
    line.groups.set_group(group)
    line.add("late", priority=own_priority)
    together = line.groups.pop_with(line.pods["late"])
    assert not isinstance(together, Status)
    assert (together.gang is None) is alone
