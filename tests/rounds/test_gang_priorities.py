"""Gangs whose groups have priorities, and pods none: nobody is evicted in vain, in turn, or by its own group."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from flotilla.events import Action, Resource
from services.queue import events as queue
from services.queue.scheduling.cluster_event import ClusterChange
from services.snapshot import events as snapshot
from services.worker import events as worker
from shared.framework.clusterevents import ClusterEvent
from shared.messages.binding import Evict
from shared.messages.preemption import Preempt
from shared.messages.state import Commit
from shared.model.composite_groups import CompositePodGroup
from shared.model.objects import GROUP_LABEL, ObjectKind, Pod, PodGroup, object_from
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.gangs import members
from tests.rounds.preempting_gangs import WHOLE, PreemptingGangs, gang_of, pod_group

LONG_AGO = "2024-01-01T00:00:00Z"
HIGH: dict[str, Any] = {"priority": 1000, "priorityClassName": "high"}
MIDDLE: dict[str, Any] = {"priority": 500, "priorityClassName": "middle"}


class Controlled(PreemptingGangs):
    """A controller makes each victim again as soon as it is to go. Pods called `slow` take 10 s to go."""

    def __init__(self, nodes: int) -> None:
        super().__init__(shards=2, round_size=256)
        self.made = 0
        self.searches: set[int] = set()
        self.add_nodes([node(f"n{i}").capacity(cpu=1, memory="64Gi").build() for i in range(nodes)])

    def place(self, *pods: Pod) -> None:
        """These run already, each on a node of its own."""
        placed = [each if each.spec.node_name else bound(each, f"n{i}") for i, each in enumerate(pods)]
        self.submitted |= {each.uid: each for each in placed}
        self.add_pods(placed)
        added = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
        self._tell_queue(queue.WatchEvents([ClusterChange(added, None, each) for each in placed]))

    def _to_worker(self, name: str, message: worker.Event) -> None:
        if isinstance(message, Preempt):
            self.searches.add(message.search)
        super()._to_worker(name, message)

    def _later(self, delay: float, happen: Any) -> None:
        is_slow = isinstance(happen, partial) and happen.func == self._go and "slow" in happen.args[0]
        super()._later(10.0 if is_slow else delay, happen)

    def _evict(self, evict: Evict) -> None:
        for victim in evict.victims:
            self.made += 1
            was = self.submitted[victim.uid]
            group = was.spec.scheduling_group
            again = pod(f"{victim.name.split('-')[0]}-again{self.made}").request(cpu=1).priority(was.priority)
            again = again if group is None else again.group(group.pod_group_name or "")
            self._later(0.1, partial(self.submit, [again.build()]))
        super()._evict(evict)


def low(name: str, priority: int = 5) -> Pod:
    return pod(name).request(cpu=1).priority(priority).started(LONG_AGO).build()


def evicted(run: PreemptingGangs) -> list[str]:
    return sorted(victim.name for evict in run.evictions for victim in evict.victims)


def placed(run: PreemptingGangs, pods: Iterable[Pod]) -> int:
    return sum(each.uid in run.placed for each in pods)


def test_room_that_a_gang_waits_for_is_not_given_to_pods_of_lower_priority() -> None:
    """1. The gang evicts both pods of priority 5; one is gone at once, the other after 10 s.
    2. The first one's replacement has a higher priority than the gang's pods: it must not get the room. <-- it did
    """
    run = Controlled(2)
    run.place(low("fast-0"), low("slow-0"))
    gang = gang_of("train", 2, pod("w").request(cpu=1).priority(0))
    run.submit_gang(pod_group("train", 2, **HIGH), gang)
    run.run_for(60)
    assert placed(run, gang) == 2
    assert evicted(run) == ["fast-0", "slow-0"]


@pytest.mark.parametrize("of_pods", [0, 700])
def test_a_gang_takes_room_that_is_reserved_for_a_pod_of_lower_priority(of_pods: int) -> None:
    """Whatever the priorities of its pods are: nominations below that of the group do not bind it, and are revoked."""
    run = Controlled(1)
    run.place(low("slow-0"))
    single = pod("single").request(cpu=1).priority(600).build()
    run.submit([single])
    run._later(2.0, lambda: None)  # the next event, before the victim is gone
    run.run_for(1)
    assert single.uid in run.promised
    gang = gang_of("train", 1, pod("w").request(cpu=1).priority(of_pods))
    run.submit_gang(pod_group("train", 1, **HIGH), gang)
    run.run_for(60)
    assert (placed(run, gang), single.uid in run.promised) == (1, False)
    assert evicted(run) == ["slow-0"]


@pytest.mark.parametrize("mode", [{}, WHOLE])
@pytest.mark.parametrize("first", ["high", "middle"])
def test_two_gangs_do_not_evict_each_other_in_turn(first: str, mode: dict[str, Any]) -> None:
    run = Controlled(2)
    groups = {"high": pod_group("high", 2, **HIGH, **mode), "middle": pod_group("middle", 2, **MIDDLE, **mode)}
    for name in (first, *(groups.keys() - {first})):
        run.submit_gang(groups[name], gang_of(name, 2, pod("w").request(cpu=1)))
        run.run_for(3)
    run.run_for(60)
    assert evicted(run) == ([] if first == "high" else ["middle-0", "middle-1"])
    assert {uid.split("/")[1].split("-")[0] for uid in run.placed} == {"high"}


def test_a_pod_does_not_evict_a_gang_whose_group_is_of_higher_priority() -> None:
    """It would be evicted for the gang in its turn."""
    run = Controlled(2)
    gang = gang_of("high", 2, pod("w").request(cpu=1))
    run.submit_gang(pod_group("high", 2, **HIGH), gang)
    run.run_for(3)
    run.submit([low("single")])
    run.run_for(30)
    assert (evicted(run), placed(run, gang)) == ([], 2)
    run.submit([low("urgent", priority=2000)])
    run.run_for(30)
    assert len(evicted(run)) == 1


def coscheduling(run: Controlled) -> Sequence[Pod]:
    """Two members of priority 0 run, two of priority 10 wait."""
    spec = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": 4}}
    group = object_from(ObjectKind.COSCHEDULING_POD_GROUP, spec)
    assert isinstance(group, PodGroup)
    run.add_group(group)
    of = pod("w").request(cpu=1).label({GROUP_LABEL: "train"})
    run.place(*members(of.started(LONG_AGO), 2, "own-"), low("a", 100), low("b", 100))
    return members(pod("w").request(cpu=1).label({GROUP_LABEL: "train"}).priority(10), 2, "new-")


def tree(run: Controlled) -> Sequence[Pod]:
    """One group of three runs; the root needs all of them."""
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": 3}}}
    raw = {"metadata": {"name": "root", "namespace": "default"}, "spec": policy | HIGH}
    root = object_from(ObjectKind.COMPOSITE_POD_GROUP, raw)
    assert isinstance(root, CompositePodGroup)
    run.add_group(root)
    for name in "xyz":
        run.add_group(pod_group(name, 1, parentCompositePodGroupName="root"))
    own = pod("own-0").request(cpu=1).group("x").started(LONG_AGO).build()
    run.place(own, low("a", 10), low("b", 2000), low("c", 2000))
    return [pod(f"new-{name}").request(cpu=1).group(name).build() for name in "yz"]


@pytest.mark.parametrize("api", [coscheduling, tree])
def test_a_gang_never_evicts_pods_of_its_own_groups(api: Any) -> None:
    run = Controlled(4)
    waiting = api(run)
    run.submit(waiting)
    run.run_for(10)
    assert (evicted(run), placed(run, waiting)) == ([], 0)


@pytest.mark.parametrize("others", [0, 1])
def test_a_late_member_that_is_decided_alone_evicts_none_of_its_own_group(others: int) -> None:
    """1. Two members of priority 3 run; the group needs three, and the third, of priority 10, is decided by itself.
    2. It evicts one of them, so that two are missing, and waits for a fourth that nobody creates. <-- it did
    Other pods, of no group, are judged alike, and searched for at the same time.
    """
    run = Controlled(2 + others)
    run.add_group(pod_group("train", 3))
    own = members(pod("w").request(cpu=1).priority(3).group("train").started(LONG_AGO), 2, "own-")
    run.place(*own, *(low(f"low-{i}", 1) for i in range(others)))
    wants = [pod(f"single-{i}").request(cpu=1).priority(10) for i in range(others)]
    late = pod("late").request(cpu=1).priority(10).group("train")
    pods = [each.build() for each in (*wants, late)]
    run.submit(pods)
    run.run_for(60)
    assert evicted(run) == [f"low-{i}" for i in range(others)]
    assert (placed(run, own), placed(run, pods)) == (2, others)


@pytest.mark.parametrize("own", [0, 3])
@pytest.mark.parametrize("may_go", [0, 20])
def test_pods_of_many_groups_are_searched_for_together_but_where_they_spare_their_own(may_go: int, own: int) -> None:
    """Each search costs every worker an evaluation: one for each group would hold up all other pods."""
    run = Controlled(23)
    singles = [pod(f"late-{i}").request(cpu=1).priority(10).group(f"job-{i}").build() for i in range(20)]
    for i in range(20):
        run.add_group(pod_group(f"job-{i}", 0, schedulingPolicy={"basic": {}}))
    their_own = [pod(f"own-{i}").request(cpu=1).priority(5).group(f"job-{i}").build() for i in range(own)]
    run.place(*their_own, *(low(f"other-{i}", 5 if i < may_go else 100) for i in range(23 - own)))
    run.submit(singles)
    run.run_for(60)
    assert len(run.searches) <= 10
    assert placed(run, singles) == min(20, may_go + own)


def test_of_a_group_that_goes_whole_no_pod_stays_that_came_during_the_search() -> None:
    came = bound(pod("old-late").request(cpu=1).group("old").build(), "n9")
    told: list[Commit] = []

    def fate(message: object) -> tuple[float, ...]:
        if isinstance(message, Commit) and message.nominations and not told:
            told.append(message)
            run.submitted[came.uid] = came
            run.observe(snapshot.PodSeen(came))
        return (0.0,)

    run = PreemptingGangs(shards=2, round_size=256, fate=fate)
    small = node("n9").capacity(cpu=1, memory="1Gi").build()
    run.add_nodes([*(node(f"n{i}").capacity(cpu=1, memory="64Gi").build() for i in range(2)), small])
    run.add_group(pod_group("old", 2, **WHOLE))
    olds = gang_of("old", 2, pod("w").request(cpu=1).started(LONG_AGO))
    placed_olds = [bound(each, f"n{i}") for i, each in enumerate(olds)]
    run.submitted |= {each.uid: each for each in placed_olds}
    run.add_pods(placed_olds)
    new = gang_of("new", 2, pod("w").request(cpu=1, memory="2Gi").priority(10))
    run.submit_gang(pod_group("new", 2), new)
    run.run_for(5)
    assert told
    assert evicted(run) == ["old-0", "old-1", "old-late"]
    assert placed(run, new) == 2
