"""Gangs: who waits for whom, who comes along with whom, and that nobody waits for who waits."""

from random import Random
from typing import Any

import pytest

from services.queue import gangs as module
from services.queue.entry import Entry
from services.queue.gangs import Drawn, Gangs
from services.queue.places import Place
from services.queue.standing import HOLDERS, PATIENCE
from shared.framework.status import Status
from shared.model.objects import GROUP_LABEL, GroupApi, GroupRef, ObjectKind, PodGroup, object_from, pod_from
from shared.plugins.frameworks import load_frameworks

FRAMEWORK = load_frameworks(None)["default-scheduler"]
OURS, THEIRS = GroupRef(GroupApi.SCHEDULING, "default/g"), GroupRef(GroupApi.COSCHEDULING, "default/g")
SHUT = "SchedulingGates"


def a_group(least: int | None, timeout: int | None = None, ref: GroupRef = OURS) -> PodGroup:
    """`least` None: each for itself."""
    spec: dict[str, Any] = {"minMember": least, "scheduleTimeoutSeconds": timeout}
    kind = ObjectKind.COSCHEDULING_POD_GROUP
    if ref.api is GroupApi.SCHEDULING:
        spec = {"schedulingPolicy": {"basic": {}} if least is None else {"gang": {"minCount": least}}}
        kind = ObjectKind.POD_GROUP
    group = object_from(kind, {"metadata": {"name": ref.name}, "spec": spec})
    assert isinstance(group, PodGroup)
    return group


def an_entry(name: str, ref: GroupRef | None = OURS, priority: int = 0, seen_at: float = 0.0) -> Entry:
    labels = {GROUP_LABEL: ref.name} if ref is not None and ref.api is GroupApi.COSCHEDULING else {}
    group = {"podGroupName": ref.name} if ref is not None and ref.api is GroupApi.SCHEDULING else None
    spec = {"schedulingGroup": group, "priority": priority}
    pod = pod_from({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec})
    return Entry(name, pod, FRAMEWORK, seen_at)


class Line:
    """As the queue uses it: pods are drawn in the order in which they became active."""

    def __init__(self) -> None:
        self.gangs = Gangs()
        self.entries: dict[str, Entry] = {}
        self.active: list[Entry] = []
        self.now = 0.0

    def add(self, *names: str, ref: GroupRef | None = OURS, shut: bool = False, priority: int = 0) -> None:
        for name in names:
            entry = self.entries[name] = an_entry(name, ref, priority, self.now)
            if shut:
                self.put(entry, Place.GATED, SHUT)
            else:
                self.queue(entry)

    def queue(self, entry: Entry, place: Place = Place.ACTIVE) -> None:
        status = self.gangs.gate(entry)
        self.put(entry, place if status.ok else Place.GATED, status.plugin)

    def put(self, entry: Entry, place: Place, gate: str = "") -> None:
        if entry in self.active:
            self.active.remove(entry)
        entry.place, entry.gate = place, gate if place is Place.GATED else None
        if place is Place.ACTIVE:
            self.active.append(entry)
        self.gangs.moved(entry, self.now)
        self.settle()

    def settle(self) -> None:
        for entry in self.gangs.released():
            self.queue(entry)
        self.gangs.validate()

    def see(self, least: int | None, timeout: int | None = None, ref: GroupRef = OURS) -> None:
        self.gangs.see(a_group(least, timeout, ref))
        self.settle()

    def take(self) -> tuple[list[str], int]:
        """The names of those who are drawn next, and how many of them are needed; 0 if there is no gang."""
        while self.active:
            first = self.active[0]
            drawn = self.gangs.draw(first)
            if isinstance(drawn, Status):
                self.put(first, Place.GATED, drawn.plugin)
                continue
            assert first in drawn.entries
            for entry in drawn.entries:
                self.put(entry, Place.IN_FLIGHT)
            return [entry.uid for entry in drawn.entries], drawn.gang.least if drawn.gang else 0
        return [], 0

    def all_taken(self) -> list[tuple[list[str], int]]:
        taken = []
        while (one := self.take())[0]:
            taken.append(one)
        return taken

    def decide(self, *names: str) -> None:
        for name in names:
            self.put(self.entries[name], Place.BINDING)

    def reject(self, *names: str, place: Place = Place.UNSCHEDULABLE) -> None:
        for name in names:
            entry = self.entries[name]
            if place in (Place.UNSCHEDULABLE, Place.GATED):
                self.put(entry, place)
            else:
                self.queue(entry, place)

    def wake(self, name: str) -> None:
        self.queue(self.entries[name])

    def bound(self, *names: str) -> None:
        for name in names:
            self.gangs.on_node(name, OURS)
            self.put(self.entries.pop(name), Place.DONE)

    def delete(self, *names: str) -> None:
        for name in names:
            self.gangs.gone(name)
            if name in self.entries:
                self.put(self.entries.pop(name), Place.DONE)
        self.settle()

    def held(self) -> list[str]:
        return [entry.uid for entry in self.entries.values() if entry.gate in HOLDERS]


# Who is let in


def test_a_pod_of_no_group_goes_its_way() -> None:
    line = Line()
    line.add("a", ref=None)
    assert line.take() == (["a"], 0)
    assert len(line.gangs) == 0


def test_pods_wait_for_their_group_and_it_says_so() -> None:
    line = Line()
    status = line.gangs.gate(an_entry("a"))
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
    line = Line()
    line.see(3, ref=ref)
    line.add("a", "b", ref=ref)
    status = line.gangs.gate(line.entries["a"])
    assert status.message == f"waiting for {count} pods from a gang to appear in scheduling queue"
    assert (status.plugin, line.held(), line.gangs.ready(ref)) == (plugin, ["a", "b"], False)
    line.add("c", ref=ref)
    assert (line.held(), line.gangs.ready(ref)) == ([], True)
    assert line.take() == (["a", "b", "c"], 3)


def test_groups_of_one_name_and_two_apis_are_two() -> None:
    line = Line()
    line.see(2)
    line.add("a")
    line.add("b", ref=THEIRS)
    assert line.held() == ["a", "b"]
    line.see(1, ref=THEIRS)
    assert line.all_taken() == [(["b"], 0)]


@pytest.mark.parametrize("least", [None, 1])
def test_where_none_needs_another_each_goes_alone(least: int | None) -> None:
    line = Line()
    line.see(least)
    line.add("a", "b")
    assert line.all_taken() == [(["a"], 0), (["b"], 0)]


# Who comes along


@pytest.mark.parametrize("place", [Place.UNSCHEDULABLE, Place.BACKOFF, Place.ERROR_BACKOFF])
def test_when_one_is_drawn_all_are_that_rest_or_were_rejected(place: Place) -> None:
    line = Line()
    line.see(2)
    line.add("a", "b", "c")
    assert line.take() == (["a", "b", "c"], 2)
    line.reject("a", "b", "c", place=place)
    assert line.take() == ([], 0)
    line.wake("b")
    assert line.take() == (["a", "b", "c"], 2)


def test_they_are_decided_by_priority_and_then_by_age() -> None:
    line = Line()
    line.see(4)
    line.add("a", "b")
    line.now = 1.0
    line.add("c", priority=5)
    line.add("d")
    assert line.take() == (["c", "a", "b", "d"], 4)


def test_very_large_gangs_are_drawn_in_parts_that_can_be_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOGETHER", 3)
    line = Line()
    line.see(2)
    line.add("a", "b", "c", "d", "e")
    assert line.all_taken() == [(["a", "b", "c"], 2), (["d", "e"], 2)]
    line = Line()
    line.see(4)
    line.add("a", "b", "c", "d", "e")
    assert line.take() == (["a", "b", "c", "d"], 4)


def test_who_has_a_place_is_not_needed_any_more() -> None:
    line = Line()
    line.see(3)
    line.gangs.on_node("elsewhere", OURS)
    line.add("a", "b")
    assert line.take() == (["a", "b"], 2)


def test_once_enough_have_a_place_the_others_go_alone() -> None:
    line = Line()
    line.see(2)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b")
    line.reject("c")
    line.wake("c")
    assert line.take() == (["c"], 0)


# Those who are away, or kept out by something else


def test_who_comes_while_the_others_are_being_decided_waits_for_the_outcome() -> None:
    line = Line()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.add("d")
    assert line.take() == ([], 0)
    assert line.held() == ["d"]
    line.decide("a", "b", "c")
    assert line.take() == (["d"], 0)


def test_who_comes_while_the_others_are_being_decided_goes_with_them_when_they_are_rejected() -> None:
    line = Line()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.add("d")
    line.take()
    line.reject("a", "b", "c")
    assert line.take() == (["a", "b", "c", "d"], 3)


def test_a_member_with_gates_of_its_own_keeps_the_others() -> None:
    line = Line()
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
    line = Line()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    for name in ("a", "b", "c"):
        line.wake(name)
    assert line.all_taken() == [(["a", "b", "c"], 3)]


# What becomes of a group


def test_a_member_whose_binding_fails_goes_alone_and_two_go_together() -> None:
    line = Line()
    line.see(3)
    line.add("a", "b", "c")
    line.take()
    line.decide("a", "b", "c")
    line.bound("a")
    line.reject("b", place=Place.ERROR_BACKOFF)
    line.wake("b")
    assert line.take() == (["b"], 0)
    line.reject("c", place=Place.ERROR_BACKOFF)
    line.wake("c")
    assert line.take() == ([], 0)
    line.reject("b")
    assert line.take() == (["b", "c"], 2)


def test_members_that_go_are_missing_again() -> None:
    line = Line()
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
    line = Line()
    line.see(3)
    line.add("a", "b", "c")
    line.delete("b")
    assert line.take() == ([], 0)
    assert line.held() == ["a", "c"]
    line.add("d")
    assert line.take() == (["a", "c", "d"], 3)


def test_a_group_that_is_deleted_holds_its_members_until_it_is_back() -> None:
    line = Line()
    line.see(2)
    line.add("a", "b")
    line.gangs.lose(OURS)
    assert line.take() == ([], 0)
    line.see(2)
    assert line.take() == (["a", "b"], 2)


def test_a_group_that_asks_for_more_or_less() -> None:
    line = Line()
    line.see(2, ref=THEIRS)
    line.add("a", "b", ref=THEIRS)
    line.see(3, ref=THEIRS)
    assert line.take() == ([], 0)
    line.see(2, ref=THEIRS)
    assert line.take() == (["a", "b"], 2)


def test_a_pod_that_changes_its_group() -> None:
    line = Line()
    line.see(2, ref=THEIRS)
    line.add("a", ref=THEIRS)
    line.add("b", ref=None)
    entry = line.entries["b"]
    entry.pod = an_entry("b", THEIRS).pod
    line.gangs.moved(entry, line.now)
    line.settle()
    assert line.take() == (["b", "a"][::-1], 2)
    line.reject("a", "b")
    entry.pod = an_entry("b", None).pod
    line.gangs.moved(entry, line.now)
    line.wake("a")
    line.wake("b")
    assert line.all_taken() == [(["b"], 0)]
    assert line.held() == ["a"]


def test_nothing_is_remembered_of_what_is_gone() -> None:
    line = Line()
    line.see(2)
    line.add("a", "b")
    line.take()
    line.decide("a", "b")
    line.bound("a")
    line.delete("a", "b")
    assert len(line.gangs) == 1
    line.gangs.lose(OURS)
    assert len(line.gangs) == 0
    line.gangs.lose(OURS)
    line.gangs.gone("a")


# Owners


def told(line: Line, now: float) -> dict[str, str]:
    line.now = now
    return {overdue.entry.uid: overdue.message for overdue in line.gangs.overdue(now)}


def test_the_owners_of_an_incomplete_gang_are_told_once() -> None:
    line = Line()
    line.see(3, timeout=10, ref=THEIRS)
    line.add("a", ref=THEIRS)
    line.now = 4.0
    line.add("b", ref=THEIRS)
    assert line.gangs.next_deadline() == 10.0
    assert told(line, 9.9) == {}
    why = "2 of its pods are there, and none is scheduled before there are 3"
    assert told(line, 10.0) == {"a": f"waiting for pod group scheduling.x-k8s.io/default/g since 10 s: {why}"}
    assert list(told(line, 14.0)) == ["b"]
    assert told(line, 1000.0) == {}
    assert line.gangs.next_deadline() is None
    line.gangs.validate()


def test_owners_are_told_that_a_group_does_not_exist() -> None:
    line = Line()
    line.add("a")
    assert line.gangs.next_deadline() == PATIENCE
    assert told(line, PATIENCE)["a"].endswith("default/g since 60 s: there is no such object")


def test_owners_are_told_that_gates_keep_some_out() -> None:
    line = Line()
    line.see(2)
    line.add("a")
    line.add("b", shut=True)
    line.take()
    assert told(line, PATIENCE)["a"].endswith("scheduled together, but 1 of them are kept out by their gates")


def test_a_group_that_appears_or_changes_says_anew_how_long_that_takes() -> None:
    line = Line()
    line.add("a", ref=THEIRS)
    line.see(2, timeout=5, ref=THEIRS)
    assert line.gangs.next_deadline() == 5.0
    line.see(2, timeout=90, ref=THEIRS)
    assert line.gangs.next_deadline() == 90.0


def test_who_is_let_go_is_not_spoken_of() -> None:
    line = Line()
    line.see(2)
    line.add("a")
    line.add("b")
    assert line.gangs.next_deadline() is None
    assert told(line, 1000.0) == {}


# All of it


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_nobody_is_stuck_and_no_gang_is_torn(seed: int) -> None:
    line, random, number = Line(), Random(seed), 0
    groups = [OURS, THEIRS, GroupRef(GroupApi.SCHEDULING, "default/h"), None]
    for _ in range(200):
        line.now += random.random() * 20
        at = {place: [e for e in line.entries.values() if e.place is place] for place in Place}
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
                    line.gangs.lose(ref)
            case "take":
                names, least = line.take()
                assert len(names) >= least
            case "decide":
                line.decide(*[entry.uid for entry in at[Place.IN_FLIGHT]][: random.randrange(5)])
            case "reject":
                place = random.choice([Place.UNSCHEDULABLE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.ACTIVE])
                away = at[Place.IN_FLIGHT] if random.random() < 0.7 else at[Place.BINDING]
                line.reject(*[entry.uid for entry in away][: random.randrange(5)], place=place)
            case "wake":
                for entry in random.sample(list(line.entries.values()), min(2, len(line.entries))):
                    if entry.place not in (Place.IN_FLIGHT, Place.BINDING, Place.ACTIVE):
                        line.wake(entry.uid)
            case "end":
                for entry in at[Place.BINDING][:2]:
                    line.bound(entry.uid) if entry.pod.spec.scheduling_group else line.delete(entry.uid)
                if at[Place.ACTIVE] and random.random() < 0.5:
                    line.delete(at[Place.ACTIVE][0].uid)
            case "time":
                line.gangs.overdue(line.now)
        line.settle()
    finish(line, groups)


def finish(line: Line, groups: list[GroupRef | None]) -> None:
    """With groups that need no more than are there, and with no gate shut, everybody gets a place.

    Those that rest or were rejected are woken; those that are held must be let go without.
    """
    for ref in groups:
        if ref is not None:
            line.see(2, ref=ref)
            line.add(f"last-{ref}", f"last-but-one-{ref}", ref=ref)
    for entry in list(line.entries.values()):
        if entry.place is Place.IN_FLIGHT:
            line.reject(entry.uid)
    for entry in list(line.entries.values()):
        if entry.place not in (Place.BINDING, Place.ACTIVE) and entry.gate not in HOLDERS:
            line.wake(entry.uid)
    while (taken := line.take())[0]:
        line.decide(*taken[0])
    assert {entry.place for entry in line.entries.values()} == {Place.BINDING}
    assert line.gangs.next_deadline() is None


def test_what_the_watch_tells_of() -> None:
    gangs, group = Gangs(), a_group(2, ref=THEIRS)
    pod = an_entry("a", THEIRS).pod
    gangs.observe(None, group)
    gangs.observe(None, pod)
    gangs.observe(None, "something else")
    gangs.validate()
    assert "a" in gangs
    gangs.observe(pod, an_entry("a", None).pod)
    assert "a" not in gangs
    gangs.observe(None, pod)
    gangs.observe(pod, None)
    gangs.observe(group, None)
    assert len(gangs) == 0


def test_drawn_is_what_is_handed_out() -> None:
    entry = an_entry("a", None)
    assert Gangs().draw(entry) == Drawn([entry])
