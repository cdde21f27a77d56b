"""Which events have a rejected gang tried again: those that help one of its members, and what happens to its groups."""

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from flotilla.events import Action, Resource
from services.queue.events import PodPending
from services.queue.introspection import Introspection, labels
from services.queue.scheduling.cluster_event import ClusterChange, node_events, pod_events
from services.queue.scheduling.queued_pod_info import PodState
from shared.framework.clusterevents import ClusterEvent
from shared.messages.inspection import ListQueue
from shared.model.objects import ClusterObject, Node, Pod, PodGroup, group_of, kind_of, object_from
from testing.builders import PodBuilder, node, pod, selector
from tests.queue.support import (
    FRAMEWORKS,
    NODE_ADDED,
    NODE_LABELS,
    POD_ADDED,
    POD_DELETED,
    Queue,
    names,
    telling,
    uid,
)
from tests.queue.test_group_trees import composite, group, member, see

GANG = "GangScheduling"
GROUP_UPDATED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE)
FRAMEWORK = FRAMEWORKS["default-scheduler"]
OF_TREE = ("scheduling.k8s.io/PodGroup", "AssignedPod", "UnschedulablePod")
STRANGER = pod("stranger").on("n").build()


def rejected(queue: Queue, *members: PodBuilder, plugins: Sequence[str]) -> None:
    """A gang that was rejected by these plugins and does not back off any more."""
    queue.add(*members)
    taken = queue.take()
    queue.reject(*taken, plugins=plugins)
    queue.at(queue.now + 20.0)


def waits(queue: Queue, *of: str) -> bool:
    states = {queue.state(name) for name in of}
    assert states in ({PodState.UNSCHEDULABLE}, {PodState.ACTIVE}), f"members of a gang stand together: {states}"
    return states == {PodState.UNSCHEDULABLE}


@pytest.fixture
def queue() -> Queue:
    """Gang `a`, whose pods want a disk that no node has."""
    queue = Queue()
    see(queue, group("a", 2), group("b", 2))
    rejected(queue, *(member(f"a-{i}").node_selector(disk="fast") for i in range(2)), plugins=(GANG, "NodeAffinity"))
    assert waits(queue, "a-0", "a-1")
    return queue


@pytest.mark.parametrize(
    ("event", "before", "now"),
    [
        (POD_DELETED, STRANGER, None),
        (POD_ADDED, None, STRANGER),
        (POD_ADDED, None, member("b-0").on("n").build()),
        (NODE_ADDED, None, node("n").build()),
        (NODE_LABELS, node("n").build(), node("n").label(disk="slow").build()),
    ],
)
def test_what_helps_none_of_its_members_does_not_wake_a_gang(
    queue: Queue, event: ClusterEvent, before: object, now: object
) -> None:
    queue.change(event, before, now)
    assert waits(queue, "a-0", "a-1")


@pytest.mark.parametrize(
    ("event", "before", "now"),
    [
        (NODE_ADDED, None, node("n").label(disk="fast").build()),
        (NODE_LABELS, node("n").build(), node("n").label(disk="fast").build()),
        (POD_ADDED, None, member("a-2").on("n").build()),
        (POD_DELETED, member("a-2").on("n").build(), None),
        (GROUP_UPDATED, group("a", 2), group("a", 2, priority=7)),
    ],
)
def test_what_helps_one_of_its_members_or_is_about_its_group_wakes_all(
    queue: Queue, event: ClusterEvent, before: object, now: object
) -> None:
    queue.change(event, before, now)
    assert not waits(queue, "a-0", "a-1")


def test_an_event_that_helps_one_member_wakes_all() -> None:
    """The room that one member lacks may be where another one would go."""
    queue = Queue()
    see(queue, group("a", 2))
    members = member("a-0").node_selector(disk="fast"), member("a-1").node_selector(disk="slow")
    rejected(queue, *members, plugins=(GANG, "NodeAffinity"))
    queue.change(NODE_ADDED, None, node("n").label(disk="slow").build())
    assert not waits(queue, "a-0", "a-1")


def test_of_a_gang_that_no_plugin_rejected_every_hint_of_the_profile_counts() -> None:
    queue = Queue()
    see(queue, group("a", 2))
    rejected(queue, member("a-0").request(cpu="2"), member("a-1").request(cpu="2"), plugins=(GANG,))
    queue.change(POD_ADDED, None, STRANGER)
    queue.change(GROUP_UPDATED, group("b", 2), group("b", 1))
    assert waits(queue, "a-0", "a-1")
    queue.change(NODE_ADDED, None, node("n").capacity(cpu=4, memory="4Gi", pods=10).build())
    assert not waits(queue, "a-0", "a-1")


def test_a_plugin_that_nothing_is_known_of_is_helped_by_any_event() -> None:
    queue = Queue()
    see(queue, group("a", 2))
    rejected(queue, member("a-0"), member("a-1"), plugins=(GANG, "Extender"))
    queue.change(POD_ADDED, None, STRANGER)
    assert not waits(queue, "a-0", "a-1")


def test_its_own_condition_does_not_wake_a_gang(queue: Queue) -> None:
    """It shows that the gang was rejected: it would be tried again for that, and for the next one."""
    shown = telling(member("a-0").node_selector(disk="fast"), version="2")
    queue.tell(PodPending(shown, queue.now))
    assert waits(queue, "a-0", "a-1")
    tolerant = telling(member("a-0").node_selector(disk="fast").tolerate("x"), version="3")
    queue.tell(PodPending(tolerant, queue.now))
    assert not waits(queue, "a-0", "a-1")


@pytest.mark.parametrize("now", ["", "b"])
def test_a_member_that_names_another_group_or_none_is_tried_for_that(now: str) -> None:
    """It is held for the first group, which may never be complete."""
    queue = Queue()
    see(queue, group("a", 2), group("b", 1))
    moved = pod("p")
    queue.add(moved.in_group("a"))
    queue.at(queue.now + 20.0)
    assert queue.state("p") is PodState.GATED
    queue.add(moved.in_group(now) if now else moved)
    assert queue.state("p") is PodState.ACTIVE


def test_labels_of_nodes_matter_if_they_tell_domains_apart() -> None:
    queue = Queue()
    see(queue, group("a", 2, topology="rack"))
    rejected(queue, member("a-0"), member("a-1"), plugins=(GANG, "NodeResourcesFit"))
    queue.change(NODE_LABELS, node("n").build(), node("n").label(shelf="1").build())
    assert waits(queue, "a-0", "a-1")
    queue.change(NODE_LABELS, node("n").label(rack="1").build(), node("n").label(rack="2").build())
    assert not waits(queue, "a-0", "a-1")


@pytest.mark.parametrize(
    "change",
    [
        ClusterChange(GROUP_UPDATED, composite("root", 2), composite("root", 1)),
        ClusterChange(GROUP_UPDATED, group("b", 1, "root"), group("b", 1)),
        ClusterChange(POD_ADDED, None, member("b-1").on("n").build()),
    ],
)
def test_a_tree_waits_for_all_of_its_groups(change: ClusterChange) -> None:
    queue = Queue()
    see(queue, composite("root", 2), group("a", 1, "root"), group("b", 1, "root"), group("c", 1))
    rejected(queue, member("a-0"), member("b-0"), plugins=(GANG, "NodeAffinity"))
    queue.change(POD_ADDED, None, member("c-0").on("n").build())
    queue.change(GROUP_UPDATED, group("c", 1), group("c", 2))
    assert waits(queue, "a-0", "b-0")
    queue.tell(change)
    assert queue.state("a-0") is not PodState.UNSCHEDULABLE


def test_a_member_that_leaves_wakes_the_others() -> None:
    """They may preempt others, for example, if it was the one that must not."""
    queue = Queue()
    see(queue, group("a", 2))
    rejected(queue, *(member(f"a-{i}") for i in range(3)), plugins=(GANG, "NodeAffinity"))
    queue.gone("a-2")
    assert not waits(queue, "a-0", "a-1")


def test_a_member_that_is_bound_counts_as_a_pod_that_appears() -> None:
    queue = Queue()
    see(queue, group("a", 2))
    rejected(queue, *(member(f"a-{i}") for i in range(3)), plugins=(GANG, "NodeAffinity"))
    queue.bound("a-2")
    assert waits(queue, "a-0", "a-1")
    queue.change(POD_ADDED, None, member("a-2").on("n").build())
    assert queue.state("a-0") is not PodState.UNSCHEDULABLE


@pytest.mark.parametrize("is_own", [False, True])
def test_events_while_it_is_decided_count_likewise(is_own: bool) -> None:
    queue = Queue()
    see(queue, group("a", 2), group("b", 2))
    queue.add(*(member(f"a-{i}").node_selector(disk="fast") for i in range(2)))
    taken = queue.take()
    for number in range(1000):
        queue.change(POD_DELETED, pod(f"s{number}").on("n").build(), None)
    if is_own:
        queue.change(POD_DELETED, member("a-2").on("n").build(), None)
    queue.reject(*taken, plugins=(GANG, "NodeAffinity"))
    queue.at(queue.now + 20.0)
    assert waits(queue, "a-0", "a-1") is not is_own


# Random events, compared with the rule

PLUGINS = ["NodeAffinity", "NodeResourcesFit", "TaintToleration", "InterPodAffinity", "PodTopologySpread", "NodePorts"]
APP = {"app": "db"}


def helped(queue: Queue, change: ClusterChange, gang: Sequence[str], groups: dict[str, PodGroup]) -> bool:
    """The rule, member by member and plugin by plugin."""
    return any(_member_helped(queue, change, name, groups) for name in gang)


def _member_helped(queue: Queue, change: ClusterChange, name: str, groups: dict[str, PodGroup]) -> bool:
    info = queue.core.pod(uid(name))
    assert info is not None
    own = group_of(info.pod)
    before, now = change.before, change.now
    for version in (before, now):
        if isinstance(version, Pod) and group_of(version) == own:
            return True
        if isinstance(version, PodGroup) and version.ref == own and spec_of(before) != spec_of(now):
            return True
    if isinstance(before, Node) and isinstance(now, Node) and change.event == NODE_LABELS:
        keys = [level.key for level in groups[name.partition("-")[0]].topology]
        if any(before.metadata.labels.get(key) != now.metadata.labels.get(key) for key in keys):
            return True
    return any(
        registration.hint is None or registration.hint(info.pod, before, now, queue.core.objects)
        for plugin in info.rejecting_plugins
        for registration in FRAMEWORK.registrations.get(plugin, ())
        if change.event.matches(registration)
    )


def spec_of(of: object) -> object:
    return of.spec if isinstance(of, PodGroup) else None


def members(rng: random.Random, name: str, count: int) -> Iterator[PodBuilder]:
    for number in range(count):
        made = member(f"{name}-{number}").label(APP if rng.random() < 0.5 else {"app": name})
        made = made.request(cpu=rng.choice(["1", "4", "64"]))
        if rng.random() < 0.5:
            made = made.node_selector(disk=rng.choice(["fast", "slow"]))
        if rng.random() < 0.3:
            made = made.require_pods("zone", selector(APP))
        if rng.random() < 0.3:
            made = made.host_port(80)
        if rng.random() < 0.3:
            made = made.tolerate("dedicated", effect="NoSchedule")
        yield made


def a_node(rng: random.Random) -> Node:
    made = node("n").capacity(cpu=rng.choice([2, 8, 128]), memory="64Gi", pods=10)
    for label, values in {"disk": ["fast", "slow"], "zone": ["z1", "z2"], "rack": ["r1", "r2"]}.items():
        if value := rng.choice(["", *values]):
            made = made.label({label: value})
    return (made.taint("dedicated") if rng.random() < 0.5 else made).build()


def a_pod(rng: random.Random) -> Pod:
    made = pod("s").on("n").label(app=rng.choice(["db", "web"])).request(cpu=rng.choice(["1", "2"]))
    made = made.host_port(80) if rng.random() < 0.3 else made
    return (made.in_group(rng.choice("abcx")) if rng.random() < 0.3 else made).build()


def with_condition(of: ClusterObject) -> ClusterObject:
    said = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    return object_from(kind_of(of), {**msgspec.to_builtins(of), "status": {"conditions": [said]}})


def of_node(rng: random.Random, groups: dict[str, PodGroup]) -> Sequence[ClusterChange]:
    before = None if rng.random() < 0.2 else a_node(rng)
    now = a_node(rng) if before is None or rng.random() < 0.9 else None
    return [ClusterChange(event, before, now) for event in node_events(before, now)]


def of_pod(rng: random.Random, groups: dict[str, PodGroup]) -> Sequence[ClusterChange]:
    before = None if rng.random() < 0.4 else a_pod(rng)
    now = a_pod(rng) if before is None or rng.random() < 0.5 else None
    if before is not None and now is not None:  # a pod does not change its group
        now = replace(now, spec=replace(now.spec, scheduling_group=before.spec.scheduling_group))
    return [ClusterChange(event, before, now) for event in pod_events(before, now)]


def of_group(rng: random.Random, groups: dict[str, PodGroup]) -> Sequence[ClusterChange]:
    name = rng.choice("abc")
    before, now = groups[name], with_condition(groups[name])
    if rng.random() < 0.5:
        now = group(name, 3, topology=rng.choice(["", "rack"]), priority=rng.randrange(9))
    assert isinstance(now, PodGroup)
    groups[name] = now
    return [ClusterChange(GROUP_UPDATED, before, now)]


@pytest.mark.parametrize("seed", range(40))
def test_random_events_wake_those_gangs_that_the_rule_names(seed: int) -> None:
    rng = random.Random(seed)
    queue, groups, gangs = Queue(), dict[str, PodGroup](), dict[str, list[str]]()
    for name in "abc":
        made = group(name, 3, topology=rng.choice(["", "rack"]))
        assert isinstance(made, PodGroup)
        groups[name], gangs[name] = made, [f"{name}-{number}" for number in range(3)]
        see(queue, made)
        rejected(queue, *members(rng, name, 3), plugins=(GANG, *rng.sample(PLUGINS, rng.randint(1, 2))))
    sources: list[Callable[[random.Random, dict[str, PodGroup]], Sequence[ClusterChange]]] = [of_node, of_pod, of_group]
    for _ in range(40):
        for change in rng.choice(sources)(rng, groups):
            waiting = [name for name, gang in gangs.items() if waits(queue, *gang)]
            due = {name for name in waiting if helped(queue, change, gangs[name], groups)}
            queue.tell(change)
            woken = {name for name in waiting if not waits(queue, *gangs[name])}
            assert woken == due, f"seed {seed}: {change.label}: {change.before} -> {change.now}"
        while taken := names(queue.ask()):
            for name in {each.partition("-")[0] for each in taken}:
                queue.reject(*gangs[name], plugins=(GANG, *rng.sample(PLUGINS, rng.randint(1, 2))))
        queue.at(queue.now + 20.0)


@pytest.mark.parametrize(
    ("own", "of_group", "woken"), [(10, 1, True), (1, 10, False), (10, None, False), (1, None, True)]
)
def test_room_that_a_nomination_gives_back_is_for_gangs_of_its_priority_or_lower(
    own: int, of_group: int | None, woken: bool
) -> None:
    """What a group says of priority counts for its pods, as for nominations."""
    queue = Queue()
    see(queue, group("a", 2) if of_group is None else group("a", 2, priority=of_group))
    rejected(queue, member("a-0").priority(own), member("a-1").priority(own), plugins=(GANG, "NodeResourcesFit"))
    queue.add(pod("p").priority(5).gate("x").nominated("n"))
    queue.gone("p")
    assert waits(queue, "a-0", "a-1") is not woken


@pytest.mark.parametrize(("of_group", "woken"), [(7, True), (3, False)])
def test_a_nomination_of_a_member_reserves_room_by_the_priority_of_its_group(of_group: int, woken: bool) -> None:
    queue = Queue()
    see(queue, group("a", 1, priority=of_group))
    queue.add(pod("p").priority(5))
    queue.take()
    queue.reject("p", plugins=("NodeResourcesFit",))
    queue.at(queue.now + 20.0)
    queue.add(member("a-0").priority(5).gate("x").nominated("n"))
    queue.gone("a-0")
    assert (queue.state("p") is PodState.ACTIVE) is woken


@pytest.mark.parametrize("topology", ["", "rack"])
def test_a_gang_shows_that_it_waits_for_its_groups_their_pods_and_the_labels_of_its_domains(topology: str) -> None:
    queue = Queue()
    see(queue, composite("root", topology=topology), group("a", 2, "root"))
    rejected(queue, member("a-0"), member("a-1"), plugins=(GANG, "NodePorts"))
    of_tree = {f"{what}{change}" for what in OF_TREE for change in ("Add", "Update", "Delete")}
    of_plugin = set(labels(FRAMEWORK.registrations["NodePorts"]))
    of_domains = {"NodeUpdateNodeLabel"} if topology else set()
    shown = Introspection(queue.core).answer(ListQueue(), queue.now).pods
    assert [set(each.requeue_events) for each in shown] == [of_tree | of_plugin | of_domains] * 2
