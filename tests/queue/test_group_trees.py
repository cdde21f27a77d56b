"""Trees of groups in the queue: held until they can be placed, popped together, and told to cycle."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from flotilla.events import Action, Resource
from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.queued_pod_info import PodState
from services.queue.scheduling.scheduling_queue import Timeouts
from services.queue.waiting_gangs import WaitingGangs
from shared.framework.clusterevents import ClusterEvent
from shared.messages.binding import GroupNotice
from shared.messages.queue import Batch, Gang, GangGroup
from shared.model.objects import ClusterObject, ObjectKind, Pod, TopologyConstraint, object_from
from testing.builders import PodBuilder, pod
from testing.inprocess.batches import pods_in
from testing.inprocess.pipeline import bound
from tests.queue.support import POD_ADDED, Queue, batch_in, names

GROUP_ADDED = ClusterEvent(Resource.POD_GROUP, Action.ADD)
RACK, BLOCK = TopologyConstraint(key="rack"), TopologyConstraint(key="block")


def composite(name: str, least: int | None = None, parent: str = "", topology: str = "", **spec: Any) -> ClusterObject:
    policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {"minGroupCount": least}}
    return _object(ObjectKind.COMPOSITE_POD_GROUP, name, policy, parent, topology, spec)


def group(name: str, least: int | None, parent: str = "", topology: str = "", **spec: Any) -> ClusterObject:
    policy: dict[str, Any] = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return _object(ObjectKind.POD_GROUP, name, policy, parent, topology, spec)


def _object(
    kind: ObjectKind, name: str, policy: dict[str, Any], parent: str, topology: str, spec: dict[str, Any]
) -> ClusterObject:
    spec = {"schedulingPolicy": policy} | spec
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    return object_from(kind, {"metadata": {"name": name}, "spec": spec})


def see(queue: Queue, *objects: ClusterObject) -> None:
    for each in objects:
        queue.tell(ClusterChange(GROUP_ADDED, None, each))


def lose(queue: Queue, *objects: ClusterObject) -> None:
    for each in objects:
        queue.tell(ClusterChange(GROUP_ADDED, each, None))


def member(name: str) -> PodBuilder:
    """`a-0` is of the group a."""
    return pod(name).in_group(name.partition("-")[0])


def add(queue: Queue, *members: str) -> None:
    queue.add(*map(member, members))


def nothing_due(queue: Queue) -> bool:
    """Whether no pod is handed out. The Take that asked is answered, without any."""
    found = queue.take()
    queue.at(queue.now + 2.0)
    return found == [] and names(batch_in(queue.effects)) == []


def handed_out(queue: Queue) -> Iterator[list[str]]:
    """One entry after the other, until nothing is due."""
    while batch := queue.take(1):
        yield batch
    queue.at(queue.now + 2.0)


def tree(queue: Queue) -> None:
    """Two groups of two pods each; both are needed."""
    see(queue, composite("root", 2), group("a", 2, "root"), group("b", 2, "root"))


def gangs(batch: Batch | None) -> dict[str, Gang | None]:
    told = [] if batch is None else [batch.whole(queued) for queued in batch.pods]
    return {each.name: queued.gang for each, queued in zip(pods_in(batch) if batch else (), told, strict=True)}


def groups_of(batch: Batch) -> dict[str, tuple[GangGroup, ...]]:
    return {key: gang.groups for key, gang in batch.gangs.items()}


def why(queue: Queue, name: str) -> str:
    info = queue.core.pod(f"default/{name}")
    assert info is not None
    return info.gate_reason


def test_a_tree_is_handed_out_once_enough_of_its_groups_have_their_pods() -> None:
    queue = Queue()
    tree(queue)
    add(queue, "a-0", "a-1", "b-0")
    assert nothing_due(queue)
    assert {queue.state(each) for each in ("a-0", "a-1", "b-0")} == {PodState.GATED}
    add(queue, "b-1")
    batch = queue.ask()
    assert sorted(names(batch)) == ["a-0", "a-1", "b-0", "b-1"]
    told = set(gangs(batch).values())
    assert told == {Gang("compositepodgroup.scheduling.k8s.io/default/root", 4)}, "all are needed, as in one group"


@pytest.mark.parametrize("order", range(6))
def test_the_order_in_which_groups_and_pods_come_does_not_matter(order: int) -> None:
    queue = Queue()
    objects = [composite("root", 2), composite("mid", 1, "root"), group("a", 2, "mid"), group("b", 2, "root")]
    steps: list[ClusterObject | str] = [*objects, "a-0", "a-1", "b-0", "b-1"]
    random.Random(order).shuffle(steps)
    for step in steps:
        assert nothing_due(queue)
        add(queue, step) if isinstance(step, str) else see(queue, step)
    assert sorted(queue.take()) == ["a-0", "a-1", "b-0", "b-1"]


def test_a_group_without_its_composite_group_is_held_with_a_reason() -> None:
    queue = Queue()
    see(queue, group("a", 1, "root"))
    add(queue, "a-0")
    assert nothing_due(queue)
    assert why(queue, "a-0") == "waiting for composite pod group root to appear in scheduling queue"
    root = composite("root", 1)
    see(queue, root)
    assert queue.take() == ["a-0"]
    queue.reject("a-0")
    lose(queue, root)
    queue.at(queue.now + 400.0)
    assert nothing_due(queue)
    see(queue, root)
    queue.at(queue.now + 60.0)
    assert queue.take() == ["a-0"]


def test_groups_that_name_each_other_as_parents_are_never_tried() -> None:
    queue = Queue()
    see(queue, composite("x", 1, "y"), composite("y", 1, "x"), group("a", 1, "x"))
    add(queue, "a-0")
    assert nothing_due(queue)
    assert why(queue, "a-0") == "the composite pod groups x and y name each other as parents"
    see(queue, composite("y", 1))
    assert queue.take() == ["a-0"], "the circle is broken"


def test_a_tree_of_more_than_four_levels_is_never_tried() -> None:
    queue = Queue()
    see(queue, composite("w"), composite("x", None, "w"), composite("y", None, "x"), composite("z", None, "y"))
    see(queue, group("a", 1, "y"), group("b", 1, "z"))
    add(queue, "a-0", "b-0")
    assert queue.take() == ["a-0"]
    assert why(queue, "b-0") == "pod group b and the groups above it are more than 4 levels: z in y in x in w"


def test_the_groups_of_a_basic_composite_are_placed_each_by_itself() -> None:
    queue = Queue()
    see(queue, composite("root"), group("a", 2, "root"), group("b", 2, "root"))
    add(queue, "a-0", "a-1", "b-0")
    assert gangs(queue.ask()) == dict.fromkeys(["a-0", "a-1"], Gang("scheduling.k8s.io/default/a", 2))
    add(queue, "b-1")
    assert queue.take() == ["b-0", "b-1"]


def test_once_enough_groups_are_placed_others_go_by_themselves() -> None:
    queue = Queue()
    tree(queue)
    see(queue, group("c", 2, "root"))
    add(queue, "a-0", "a-1", "b-0", "b-1")
    queue.take()
    queue.decide("a-0", "a-1", "b-0", "b-1")
    add(queue, "c-0")
    assert nothing_due(queue)
    add(queue, "c-1", "a-2")
    assert gangs(queue.ask()) == {**dict.fromkeys(["c-0", "c-1"], Gang("scheduling.k8s.io/default/c", 2)), "a-2": None}


def test_a_group_that_loses_a_pod_takes_part_again() -> None:
    """b is placed, and a needs one pod: the root lacks one group, so the pod goes by itself."""
    queue = Queue()
    tree(queue)
    add(queue, "a-0", "a-1", "b-0", "b-1")
    queue.take()
    queue.decide("a-0", "a-1", "b-0", "b-1")
    queue.gone("a-1")
    add(queue, "a-2")
    assert gangs(queue.ask()) == {"a-2": None}


def test_pods_of_a_group_that_cannot_be_complete_do_not_go_along() -> None:
    queue = Queue()
    see(queue, composite("root", 2), *(group(name, 2, "root") for name in "abc"))
    add(queue, "a-0", "a-1", "b-0", "b-1", "c-0")
    assert sorted(queue.take()) == ["a-0", "a-1", "b-0", "b-1"]
    assert queue.state("c-0") is PodState.GATED


def test_a_tree_with_more_groups_than_it_needs_is_told_group_by_group() -> None:
    queue = Queue()
    see(queue, composite("root", 2), *(group(name, 1, "root") for name in "abc"))
    add(queue, "a-0", "b-0", "c-0", "c-1")
    batch = queue.ask()
    assert batch is not None
    key = "compositepodgroup.scheduling.k8s.io/default/root"
    leaves = [GangGroup(name, 0, False, 1) for name in "abc"]
    assert groups_of(batch) == {key: (GangGroup("root", 0, True, 2), *leaves)}
    numbers = {name: gang.group for name, gang in gangs(batch).items() if gang is not None}
    assert numbers == {"a-0": 1, "b-0": 2, "c-0": 3, "c-1": 3}


def test_domains_of_groups_and_of_the_tree_are_told() -> None:
    queue = Queue()
    see(queue, composite("root", 2, topology="block"), group("a", 1, "root", "rack"), group("b", 1, "root"))
    add(queue, "a-0", "b-0")
    batch = queue.ask()
    assert batch is not None
    (groups,) = groups_of(batch).values()
    assert groups == (
        GangGroup("root", 0, True, 2, (BLOCK,)),
        GangGroup("a", 0, False, 1, (RACK,)),
        GangGroup("b", 0, False, 1),
    )
    queue.decide("a-0", node="n1")
    queue.decide("b-0", node="n2")
    add(queue, "a-1")
    batch = queue.ask()
    assert batch is not None
    ((key, groups),) = groups_of(batch).items()
    assert key == "scheduling.k8s.io/default/a"
    assert groups == (
        GangGroup("root", 0, True, 1, (BLOCK,), ("n1", "n2")),
        GangGroup("a", 0, False, 1, (RACK,), ("n1",)),
    )
    assert batch.pods[0].gang == Gang(key, 1, group=1)


def test_the_root_says_the_priority_of_all_and_whether_they_preempt() -> None:
    queue = Queue()
    see(queue, group("a", 2, "root", priority=7), group("b", 2, "root"))
    add(queue, "a-0", "a-1", "b-0", "b-1")
    queue.add(pod("other").priority(3))
    see(queue, composite("root", 2, priority=5, preemptionPolicy="Never"))
    told = gangs(queue.ask(4))
    assert sorted(told) == ["a-0", "a-1", "b-0", "b-1"], "before the pod of priority 3"
    assert {(gang.priority, gang.never_preempts) for gang in told.values() if gang is not None} == {(5, True)}


def test_a_tree_is_one_entry_with_one_back_off() -> None:
    queue = Queue()
    tree(queue)
    add(queue, "a-0", "a-1", "b-0", "b-1")
    queue.take()
    queue.reject("a-0", "a-1", "b-0", "b-1")
    queue.change()
    assert {queue.state(each) for each in ("a-0", "a-1", "b-0", "b-1")} == {PodState.BACKOFF}
    assert sorted(queue.take()) == ["a-0", "a-1", "b-0", "b-1"]


def test_a_lower_minimum_of_any_group_completes_the_tree() -> None:
    for lowered in (group("b", 1, "root"), composite("root", 1)):
        queue = Queue()
        tree(queue)
        add(queue, "a-0", "a-1", "b-0")
        assert nothing_due(queue)
        see(queue, lowered)
        assert sorted(each for batch in handed_out(queue) for each in batch)[:2] == ["a-0", "a-1"]


def test_a_branch_is_placed_while_another_one_that_is_not_needed_waits() -> None:
    queue = Queue()
    see(queue, composite("root", 1), group("main", 1, "root"), composite("sub", 2, "root"))
    see(queue, group("x", 1, "sub"), group("y", 2, "sub"))
    add(queue, "main-0", "x-0", "y-0")
    assert queue.take() == ["main-0"]
    queue.decide("main-0")
    assert nothing_due(queue)
    see(queue, group("y", 1, "sub"))
    assert sorted(queue.take()) == ["x-0", "y-0"]


def test_a_group_that_is_deleted_takes_no_part_until_it_is_back() -> None:
    queue = Queue()
    see(queue, composite("root", 2), *(group(name, 1, "root") for name in "abc"))
    lose(queue, group("a", 1, "root"))
    add(queue, "a-0", "b-0")
    assert nothing_due(queue)
    add(queue, "c-0")
    assert sorted(queue.take()) == ["b-0", "c-0"]
    queue.decide("b-0", "c-0")
    assert why(queue, "a-0") == 'waiting for pods\'s pod group "a" to appear in scheduling queue'
    see(queue, group("a", 1, "root"))
    assert queue.take() == ["a-0"]


def test_pods_on_nodes_count_after_a_restart_whichever_is_seen_first() -> None:
    """Of two groups with two pods each, all but one pod are on nodes when the queue starts."""
    objects = [composite("root", 2), group("a", 2, "root"), group("b", 2, "root")]
    on_nodes = [bound(member(name).build(), "n") for name in ("a-0", "a-1", "b-0")]
    for order in range(4):
        queue = Queue()
        steps: list[ClusterObject | Pod] = [*objects, *on_nodes]
        random.Random(order).shuffle(steps)
        for step in steps:
            see(queue, step) if not isinstance(step, Pod) else queue.change(POD_ADDED, None, step)
        add(queue, "b-1")
        assert gangs(queue.ask()) == {"b-1": None}


def told(queue: Queue) -> list[tuple[str, str, str]]:
    """What the last event has binders write to groups."""
    notices = [each for each in queue.effects if isinstance(each, GroupNotice)]
    return sorted((each.reason, each.message, each.key.partition("/")[2]) for each in notices)


def test_composite_groups_show_why_they_are_not_placed_and_that_they_are() -> None:
    queue = Queue()
    see(queue, composite("root", 2), composite("mid", 1, "root"), group("a", 2, "mid"), group("b", 1, "root"))
    add(queue, "a-0", "a-1", "b-0")
    queue.take()
    queue.reject("a-0", "a-1", "b-0", message="no room")
    assert told(queue) == [("Unschedulable", "no room", name) for name in ("a", "b", "mid", "root")]
    queue.change()
    queue.at(queue.now + 60.0)
    queue.take()
    queue.decide("b-0", "a-0")
    assert told(queue) == [("Scheduled", "", "b")]
    queue.decide("a-1")
    assert told(queue) == [("Scheduled", "", name) for name in ("a", "mid", "root")]


def test_groups_that_name_each_other_as_parents_say_that_they_are_invalid() -> None:
    queue = Queue()
    see(queue, composite("x", 1, "y"), group("a", 1, "x"))
    assert told(queue) == [], "the other one may be created yet"
    see(queue, composite("y", 1, "x"))
    message = "the composite pod groups x and y name each other as parents"
    assert told(queue) == [("Invalid", message, name) for name in "axy"]
    add(queue, "a-0")
    assert told(queue) == [], "nothing has changed"
    see(queue, composite("y", 1))
    assert queue.take() == ["a-0"]
    queue.decide("a-0")
    assert told(queue) == [("Scheduled", "", name) for name in "axy"]


def test_a_group_too_deep_says_that_it_is_invalid_and_groups_above_it_only_if_they_have_no_other() -> None:
    queue = Queue()
    see(queue, composite("w"), composite("x", None, "w"), composite("y", None, "x"), group("a", 1, "y"))
    see(queue, composite("z", None, "y"), group("b", 1, "z"))
    message = "pod group b and the groups above it are more than 4 levels: z in y in x in w"
    assert told(queue) == [("Invalid", message, name) for name in "bz"]


def test_groups_of_one_entry_are_counted_as_one_gang() -> None:
    queue = Queue()
    tree(queue)
    see(queue, group("c", 2))
    add(queue, "a-0", "a-1", "b-0", "c-0", "c-1")

    def by_state() -> dict[str, int]:
        return WaitingGangs(queue.core.groups.groups(), queue.now).count

    assert by_state() == {"held": 1, "active": 1}
    add(queue, "b-1")
    assert by_state() == {"active": 2}
    queue.take(256)
    assert by_state() == {"in-flight": 2}


def test_a_composite_group_that_is_seen_after_its_pods_were_placed_is_told_so() -> None:
    queue = Queue()
    see(queue, group("a", 1, "root"))
    queue.change(POD_ADDED, None, bound(member("a-0").build(), "n"))
    see(queue, composite("root", 1))
    assert told(queue) == [("Scheduled", "", "root")]


def _needs(node: dict[str, Any], placed: dict[str, int], pods: dict[str, int]) -> bool:
    """Whether these numbers of placed and pending pods are enough for the group."""
    if "groups" not in node:
        return placed.get(node["name"], 0) + pods.get(node["name"], 0) >= max(node["least"] or 1, 1)
    return sum(_needs(each, placed, pods) for each in node["groups"]) >= (node["least"] or 1)


def _tree(dice: random.Random, levels: int, names: list[str]) -> dict[str, Any]:
    name = f"{'c' if levels > 1 else 'p'}{len(names)}"
    names.append(name)
    if levels == 1 or (levels < 3 and dice.random() < 0.4):
        names[-1] = name = f"p{len(names)}"
        return {"name": name, "least": dice.choice([None, 1, 2])}
    groups = [_tree(dice, levels - 1, names) for _ in range(dice.randint(1, 3))]
    return {"name": name, "least": dice.choice([None, *range(1, len(groups) + 1)]), "groups": groups}


def _objects(node: dict[str, Any], parent: str = "") -> list[ClusterObject]:
    if "groups" not in node:
        return [group(node["name"], node["least"], parent)]
    below = [each for child in node["groups"] for each in _objects(child, node["name"])]
    return [composite(node["name"], node["least"], parent), *below]


def _pod_groups(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for child in node["groups"] for each in _pod_groups(child)] if "groups" in node else [node]


def _path(node: dict[str, Any], name: str) -> list[dict[str, Any]]:
    if node["name"] == name:
        return [node]
    for child in node.get("groups", ()):
        if below := _path(child, name):
            return [node, *below]
    return []


@pytest.mark.parametrize("case", range(8))
def test_whatever_is_handed_out_is_enough_and_nothing_that_is_enough_stays(case: int) -> None:
    """Random trees, whose pods and groups come, go, are placed and rejected in any order."""
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    dice = random.Random(seed)
    names: list[str] = []
    root = _tree(dice, 3, names)
    queue = Queue(timeouts=Timeouts(in_flight=1e6))
    placed: dict[str, str] = {}
    pending: dict[str, str] = {}
    waiting = _objects(root)
    dice.shuffle(waiting)
    numbers = 0
    for _ in range(60):
        action = dice.random()
        if waiting and action < 0.4:
            see(queue, waiting.pop())
        elif action < 0.8:
            name = dice.choice(_pod_groups(root))["name"]
            numbers += 1
            add(queue, f"{name}-{numbers}")
            pending[f"{name}-{numbers}"] = name
        elif placed and action < 0.9:
            gone = dice.choice(sorted(placed))
            queue.gone(gone)
            del placed[gone]
        for batch in handed_out(queue):
            counts = _counted(placed.values())
            taken = _counted(pending[each] for each in batch)
            for each in batch:
                path = _path(root, pending[each])
                assert not waiting or all(one["name"] not in {w.metadata.name for w in waiting} for one in path)
                assert all(_needs(one, counts, taken) for one in path), f"{batch} with {counts}"
            if dice.random() < 0.8:
                queue.decide(*batch)
                placed |= {each: pending.pop(each) for each in batch}
            else:
                queue.reject(*batch)
                queue.at(queue.now + 400.0)
    see(queue, *waiting)
    queue.at(queue.now + 400.0)
    for batch in handed_out(queue):
        queue.decide(*batch)
        placed |= {each: pending.pop(each) for each in batch}
    left = _counted(pending.values())
    for name in left:
        path = _path(root, name)
        assert not all(_needs(one, _counted(placed.values()), left) for one in path), f"{name} could start: {path}"


def _counted(names: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
