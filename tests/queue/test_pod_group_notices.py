"""Notices for held members of gangs."""

from services.queue.scheduling.group_info import GROUP_TIMEOUT
from services.queue.scheduling.holds import FIRST_EVENT
from tests.queue.pod_group_support import THEIRS, GroupQueue


def told(line: GroupQueue, now: float) -> dict[str, str]:
    line.now = now
    return {overdue.info.uid: overdue.message for overdue in line.groups.held_too_long(now)}


def test_the_owners_of_an_incomplete_gang_are_told_once() -> None:
    line = GroupQueue()
    line.see(3, timeout=10, ref=THEIRS)
    line.add("a", ref=THEIRS)
    line.now = 4.0
    line.add("b", ref=THEIRS)
    assert line.groups.next_deadline() == 10.0
    assert told(line, 9.9) == {}
    why = "2 of its pods exist, and at least 3 are needed"
    assert told(line, 10.0) == {"a": f"waiting for pod group scheduling.x-k8s.io/default/g for 10 s: {why}"}
    assert list(told(line, 14.0)) == ["b"]
    assert told(line, 1000.0) == {}
    assert line.groups.next_deadline() is None
    line.groups.validate()


def test_owners_are_told_that_the_group_does_not_exist() -> None:
    line = GroupQueue()
    line.add("a")
    assert line.groups.next_deadline() == GROUP_TIMEOUT
    assert told(line, GROUP_TIMEOUT)["a"].endswith("default/g for 60 s: the pod group does not exist")


def test_owners_are_told_of_gated_members() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a")
    line.add("b", shut=True)
    line.take()
    assert told(line, GROUP_TIMEOUT)["a"].endswith("scheduled together, but 1 of them are gated")


def test_a_new_or_changed_group_changes_the_timeout() -> None:
    line = GroupQueue()
    line.add("a", ref=THEIRS)
    line.see(2, timeout=5, ref=THEIRS)
    assert line.groups.next_deadline() == 5.0
    line.see(2, timeout=90, ref=THEIRS)
    assert line.groups.next_deadline() == 90.0


def test_owners_of_released_members_are_not_told() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a")
    line.add("b")
    assert line.groups.next_deadline() is None
    assert told(line, 1000.0) == {}


# The first Event of a group


def first(line: GroupQueue, now: float) -> dict[str, str]:
    line.now = now
    found = {told.info.uid: told.message for told in line.groups.first_events(now)}
    line.groups.validate()
    return found


def test_a_group_that_is_completed_in_time_says_nothing() -> None:
    line = GroupQueue()
    line.see(2)
    line.add("a")
    assert line.groups.next_first_event() == FIRST_EVENT
    line.add("b")
    assert line.groups.next_first_event() is None
    assert first(line, 100.0) == {}


def test_each_hold_has_one_first_event() -> None:
    line = GroupQueue()
    line.see(3)
    line.add("a")
    line.now = 1.0
    line.add("b")
    assert first(line, FIRST_EVENT - 0.1) == {}
    assert list(first(line, FIRST_EVENT)) == ["a"]
    assert first(line, 100.0) == {}
    line.add("c")
    line.delete("c")
    line.take()
    assert list(first(line, 103.0)) == ["a"], "it is held again"


def test_a_group_whose_owners_know_needs_no_first_event() -> None:
    line = GroupQueue()
    line.see(3, timeout=1, ref=THEIRS)
    line.add("a", ref=THEIRS)
    assert list(told(line, 1.0)) == ["a"]
    assert first(line, FIRST_EVENT) == {}


def test_a_deleted_member_leaves_no_first_event_behind() -> None:
    line = GroupQueue()
    line.add("a")
    line.delete("a")
    assert line.groups.next_first_event() is None
