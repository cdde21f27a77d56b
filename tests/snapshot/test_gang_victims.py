"""Nominations of gangs: the priorities of groups count, a gang spares its own pods, and groups that go whole are not
halved, whatever workers say.
"""

from typing import Any

import msgspec
import pytest

from services.snapshot.events import Effect, NodeGone, ObjectGone, ObjectSeen, PodSeen, WorkerFault
from shared.messages.preemption import Victim
from shared.messages.state import Assignment, Nominate, NominationGone
from shared.model.objects import GROUP_LABEL, ClusterObject, ObjectKind, Pod, object_from
from testing.builders import pod
from testing.inprocess.batches import nominated
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, changes, commit, refusals, small_node
from tests.snapshot.test_preemption import budget, evicted, nominations, promised, violations

HIGH, MIDDLE, LOW = 1000, 500, 5
WHOLE: dict[str, Any] = {"disruptionMode": "PodGroup"}


def group(name: str, kind: ObjectKind = ObjectKind.POD_GROUP, **spec: Any) -> ClusterObject:
    policy = {"gang": {"minGroupCount": 1} if kind is ObjectKind.COMPOSITE_POD_GROUP else {"minCount": 1}}
    metadata = {"name": name, "namespace": "default"}
    return object_from(kind, {"metadata": metadata, "spec": {"schedulingPolicy": policy} | spec})


def of(name: str, group: str = "", priority: int = 0) -> Pod:
    made = pod(name).request(cpu="1").priority(priority)
    return (made.group(group) if group else made).build()


def a_log(*objects: ClusterObject, **on: Pod) -> SnapshotLog:
    """`on`: a pod on each of these nodes."""
    log = SnapshotLog(*(small_node(name) for name in "abc"))
    for each in objects:
        log.handle(ObjectSeen(each))
    for where, placed in on.items():
        log.handle(PodSeen(bound(placed, where)))
    return log


def nominate(log: SnapshotLog, member: Pod, *victims: Pod, node: str = "a", priority: int = HIGH) -> Nominate:
    of = Assignment(member.uid, member.namespace, member.name, "default-scheduler", node)
    gone = [Victim(each.uid, each.key) for each in victims]
    return Nominate(of, 0, log.core.seq, gone, gang="scheduling.k8s.io/default/train", priority=priority, worker="w")


def taken(log: SnapshotLog, member: Pod, *victims: Pod, number: int = 1, priority: int = HIGH) -> list[Effect]:
    return log.handle(nominations(number, nominate(log, member, *victims, priority=priority), loads=(member,)))


def faults(effects: list[Effect]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, WorkerFault)]


def test_victims_of_all_members_of_a_gang_take_from_the_same_budget() -> None:
    members = [of(f"member-{i}", "train") for i in range(2)]
    web = [pod(f"web-{i}").label(app="web").request(cpu="1").build() for i in range(2)]
    log = a_log(TRAIN, a=web[0], b=web[1])
    log.handle(ObjectSeen(budget("web", "web", 1)))
    both = [nominate(log, member, each, node=node) for member, each, node in zip(members, web, "ab", strict=True)]
    assert violations(log.handle(nominations(1, *both, loads=members))) == {"web-0": (), "web-1": ("web",)}


MEMBER = of("member", "train")
TRAIN = group("train", priority=HIGH)


def test_nominations_below_the_priority_of_the_group_are_revoked_and_no_others() -> None:
    """Each counts with the priority of its own group, if that has one."""
    log = a_log(TRAIN, group("low", priority=LOW), group("top", priority=2 * HIGH), a=of("victim"))
    lower = [of("single", priority=HIGH - 1), of("of-low", "low", 3 * HIGH)]
    others = [of("top", priority=HIGH), of("of-top", "top", 0)]
    for each in (*lower, *others):
        log.handle(PodSeen(nominated(each, "a")))
    effects = taken(log, MEMBER, of("victim"))
    assert [each.uid for each in changes(effects) if isinstance(each, NominationGone)] == [each.uid for each in lower]
    assert set(promised(log)) == {MEMBER.uid, *(each.uid for each in others)}


def test_a_nomination_that_only_a_status_shows_counts_with_the_priority_of_its_group() -> None:
    """As after a change of the snapshot's leader."""
    log = a_log(TRAIN, a=of("victim"))
    log.handle(PodSeen(nominated(MEMBER, "a")))
    single = of("single", priority=MIDDLE)
    (evict,) = evicted(taken(log, single, of("victim"), priority=MIDDLE))
    assert evict.denominated == []
    assert set(promised(log)) == {MEMBER.uid, single.uid}


@pytest.mark.parametrize("mode", [{}, WHOLE])
@pytest.mark.parametrize(("priority", "is_refused"), [(HIGH, True), (HIGH - 1, False)])
def test_a_victim_is_as_important_as_its_group(priority: int, is_refused: bool, mode: dict[str, Any]) -> None:
    victim = of("victim", "old", 0 if is_refused else 2 * HIGH)
    log = a_log(TRAIN, group("old", priority=priority, **mode), a=victim)
    effects = taken(log, MEMBER, victim)
    assert bool(refusals(effects)) is is_refused
    assert faults(effects) == (["victims"] if is_refused else [])


def test_a_victim_in_a_tree_is_as_important_as_the_root() -> None:
    tree = [
        group("root", ObjectKind.COMPOSITE_POD_GROUP, priority=HIGH),
        group("old", parentCompositePodGroupName="root", priority=LOW),
    ]
    victim = of("victim", "old")
    log = a_log(TRAIN, *tree, a=victim)
    assert refusals(taken(log, MEMBER, victim)) == {MEMBER.uid: (f"pod {victim.key} is not of lower priority", False)}
    log.handle(ObjectGone(ObjectKind.COMPOSITE_POD_GROUP, "default/root"))
    assert refusals(taken(log, MEMBER, victim, number=2)) == {}


def test_a_single_pod_does_not_evict_one_of_a_more_important_group() -> None:
    victim, single = of("victim", "old"), of("single", priority=MIDDLE)
    log = a_log(group("old", priority=HIGH), a=victim)
    wanted = msgspec.structs.replace(nominate(log, single, victim), gang="", priority=None)
    reason = f"pod {victim.key} is not of lower priority"
    assert refusals(log.handle(nominations(1, wanted, loads=(single,)))) == {single.uid: (reason, False)}


@pytest.mark.parametrize("api", ["field", "label", "tree"])
def test_victims_of_the_gangs_own_groups_are_refused(api: str) -> None:
    objects = [group("train"), group("other")]
    member, victim = of("member", "train", HIGH), of("victim", "train")
    match api:
        case "label":
            labelled = pod("member").request(cpu="1").label({GROUP_LABEL: "train"})
            member = labelled.priority(HIGH).build()
            victim = pod("victim").request(cpu="1").label({GROUP_LABEL: "train"}).build()
        case "tree":
            root = group("root", ObjectKind.COMPOSITE_POD_GROUP)
            below = [group(name, parentCompositePodGroupName="root") for name in ("train", "other")]
            objects, victim = [*below, root], of("victim", "other")
    log = a_log(*objects, a=victim)
    effects = taken(log, member, victim)
    assert refusals(effects) == {member.uid: (f"pod {victim.key} is of the gang's own group", False)}
    assert faults(effects) == ["victims"]
    assert evicted(effects) == []


def test_a_group_of_the_same_name_and_another_api_is_not_its_own() -> None:
    victim = pod("victim").request(cpu="1").label({GROUP_LABEL: "train"}).build()
    log = a_log(TRAIN, a=victim)
    assert refusals(taken(log, MEMBER, victim)) == {}


# Groups that go whole


@pytest.mark.parametrize("how", ["bound", "assumed"])
def test_a_group_that_goes_whole_is_not_halved(how: str) -> None:
    """No fault: the worker did not know of the pod."""
    first, late = of("first", "old"), of("late", "old")
    log = a_log(TRAIN, group("old", **WHOLE), a=first)
    wanted = nominate(log, MEMBER, first)
    log.handle(PodSeen(bound(late, "b")) if how == "bound" else commit(1, (late, "b", log.core.seq)))
    effects = log.handle(nominations(2, wanted, loads=(MEMBER,)))
    reason = f"pod {late.key} of group default/old, which goes whole, has come since the evaluation"
    assert refusals(effects) == {MEMBER.uid: (reason, False)}
    assert (faults(effects), evicted(effects)) == ([], [])
    (evict,) = evicted(taken(log, MEMBER, first, late, number=3))
    assert {each.uid for each in evict.victims} == {first.uid, late.uid}


def test_victims_of_a_group_may_be_nominated_for_different_members() -> None:
    first, late = of("first", "old"), of("late", "old")
    log = a_log(TRAIN, group("old", **WHOLE), a=first, b=late)
    second = of("second", "train")
    wanted = nominate(log, MEMBER, first), nominate(log, second, late, node="b")
    assert refusals(log.handle(nominations(1, *wanted, loads=(MEMBER,)))) == {}


def test_pods_of_nodes_that_are_gone_are_not_asked_for() -> None:
    """No worker knows of them."""
    first, lost = of("first", "old"), of("lost", "old")
    log = a_log(TRAIN, group("old", **WHOLE), a=first, c=lost)
    log.handle(NodeGone("c"))
    assert refusals(taken(log, MEMBER, first)) == {}


def test_a_tree_that_goes_whole_is_not_halved() -> None:
    root = group("root", ObjectKind.COMPOSITE_POD_GROUP, disruptionMode={"all": {}})
    below = [group(name, parentCompositePodGroupName="root") for name in ("x", "y")]
    first, other = of("first", "x"), of("other", "y")
    log = a_log(TRAIN, root, *below, a=first, b=other)
    reason = f"pod {other.key} of group compositepodgroup/default/root, which goes whole, has come since the evaluation"
    assert refusals(taken(log, MEMBER, first)) == {MEMBER.uid: (reason, False)}
    assert refusals(taken(log, MEMBER, first, other, number=2)) == {}
