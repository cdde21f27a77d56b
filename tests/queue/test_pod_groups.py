"""Gangs: who waits for whom, who comes along with whom, and that nobody waits for who waits."""

from random import Random

import pytest

from services.queue.scheduling import pod_groups as module
from services.queue.scheduling.pod_groups import GANG_PLUGINS, PodGroups, PoppedTogether
from services.queue.scheduling.queued_pod_info import PodState
from shared.model.objects import GroupApi, GroupRef
from tests.queue.pod_group_support import OURS, THEIRS, GroupQueue, a_group, a_pod_info

# Who is let in


def test_a_pod_of_no_group_goes_its_way() -> None:
    line = GroupQueue()
    line.add("a", ref=None)
    assert line.take() == (["a"], 0)
    assert len(line.groups) == 0


def test_pods_wait_for_their_group_and_it_says_so() -> None:
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
def test_pods_wait_until_so_many_are_there(ref: GroupRef, plugin: str, count: str) -> None:
    line = GroupQueue()
    line.see(3, ref=ref)
    line.add("a", "b", ref=ref)
    status = line.groups.pre_enqueue(line.pods["a"])
    assert status.message == f"waiting for {count} pods from a gang to appear in scheduling queue"
    assert (status.plugin, line.held(), line.groups.can_schedule(ref)) == (plugin, ["a", "b"], False)
    line.add("c", ref=ref)
    assert (line.held(), line.groups.can_schedule(ref)) == ([], True)
    assert line.take() == (["a", "b", "c"], 3)


def test_groups_of_one_name_and_two_apis_are_two() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a")
    line.add("b", ref=THEIRS)
    assert line.held() == ["a", "b"]
    line.see(1, ref=THEIRS)
    assert line.all_taken() == [(["b"], 0)]


@pytest.mark.parametrize("least", [None, 1])
def test_where_none_needs_another_each_goes_alone(least: int | None) -> None:
    line = GroupQueue()
    line.see(least)
    line.add("a", "b")
    assert line.all_taken() == [(["a"], 0), (["b"], 0)]


# Who comes along


@pytest.mark.parametrize("place", [PodState.UNSCHEDULABLE, PodState.BACKOFF, PodState.ERROR_BACKOFF])
def test_when_one_is_drawn_all_are_that_rest_or_were_rejected(place: PodState) -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c")
    assert line.take() == (["a", "b", "c"], 2)
    line.reject("a", "b", "c", place=place)
    assert line.take() == ([], 0)
    line.wake("b")
    assert line.take() == (["a", "b", "c"], 2)


def test_they_are_decided_by_priority_and_then_by_age() -> None:
    line = GroupQueue()
    line.see(4)
    line.add("a", "b")
    line.now = 1.0
    line.add("c", priority=5)
    line.add("d")
    assert line.take() == (["c", "a", "b", "d"], 4)


def test_very_large_gangs_are_drawn_in_parts_that_can_be_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POPPED_TOGETHER", 3)
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c", "d", "e")
    assert line.all_taken() == [(["a", "b", "c"], 2), (["d", "e"], 2)]
    line = GroupQueue()
    line.see(4)
    line.add("a", "b", "c", "d", "e")
    assert line.take() == (["a", "b", "c", "d"], 4)


def test_who_has_a_place_is_not_needed_any_more() -> None:
    line = GroupQueue()
    line.see(3)
    line.groups.assigned("elsewhere", OURS)
    line.add("a", "b")
    assert line.take() == (["a", "b"], 2)


def test_once_enough_have_a_place_the_others_go_alone() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b")
    line.reject("c")
    line.wake("c")
    assert line.take() == (["c"], 0)


# Those who are away, or kept out by something else


def test_who_comes_while_the_others_are_being_decided_waits_for_the_outcome() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.add("d")
    assert line.take() == ([], 0)
    assert line.held() == ["d"]
    line.decide("a", "b", "c")
    assert line.take() == (["d"], 0)


def test_who_comes_while_the_others_are_being_decided_goes_with_them_when_they_are_rejected() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.add("d")
    line.take()
    line.reject("a", "b", "c")
    assert line.take() == (["a", "b", "c", "d"], 3)


def test_a_member_with_gates_of_its_own_keeps_the_others() -> None:
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


def test_those_that_a_lost_cycle_had_go_together_again() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    for name in ("a", "b", "c"):
        line.wake(name)
    assert line.all_taken() == [(["a", "b", "c"], 3)]


# What becomes of a group


def test_a_member_whose_binding_fails_goes_alone_and_two_go_together() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b", "c")
    line.bound("a")
    line.reject("b", place=PodState.ERROR_BACKOFF)
    line.wake("b")
    assert line.take() == (["b"], 0)
    line.reject("c", place=PodState.ERROR_BACKOFF)
    line.wake("c")
    assert line.take() == ([], 0)
    line.reject("b")
    assert line.take() == (["b", "c"], 2)


def test_members_that_go_are_missing_again() -> None:
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


def test_a_member_that_is_deleted_while_they_wait_their_turn_holds_the_others() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a", "b", "c")
    line.delete("b")
    assert line.take() == ([], 0)
    assert line.held() == ["a", "c"]
    line.add("d")
    assert line.take() == (["a", "c", "d"], 3)


def test_a_group_that_is_deleted_holds_its_members_until_it_is_back() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a", "b")
    line.groups.delete_group(OURS)
    assert line.take() == ([], 0)
    line.see(2)
    assert line.take() == (["a", "b"], 2)


def test_a_group_that_asks_for_more_or_less() -> None:
    line = GroupQueue()
    line.see(2, ref=THEIRS)
    line.add("a", "b", ref=THEIRS)
    line.see(3, ref=THEIRS)
    assert line.take() == ([], 0)
    line.see(2, ref=THEIRS)
    assert line.take() == (["a", "b"], 2)


def test_a_pod_that_changes_its_group() -> None:
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


def test_nothing_is_remembered_of_what_is_gone() -> None:
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


# All of it


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nobody_is_stuck_and_no_gang_is_torn(seed: int) -> None:
    line, random, number = GroupQueue(), Random(seed), 0
    groups = [OURS, THEIRS, GroupRef(GroupApi.SCHEDULING, "default/h"), None]
    for _ in range(200):
        line.now += random.random() * 20
        at = {place: [e for e in line.pods.values() if e.state is place] for place in PodState}
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
                place = random.choice(
                    [PodState.UNSCHEDULABLE, PodState.BACKOFF, PodState.ERROR_BACKOFF, PodState.ACTIVE]
                )
                away = at[PodState.IN_FLIGHT] if random.random() < 0.7 else at[PodState.BINDING]
                line.reject(*[entry.uid for entry in away][: random.randrange(5)], place=place)
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
    """With groups that need no more than are there, and with no gate shut, everybody gets a place.

    Those that rest or were rejected are woken; those that are held must be let go without.
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


def test_what_the_watch_tells_of() -> None:
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


def test_drawn_is_what_is_handed_out() -> None:
    entry = a_pod_info("a", None)
    assert PodGroups().pop_with(entry) == PoppedTogether([entry])
