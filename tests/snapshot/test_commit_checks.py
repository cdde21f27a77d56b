"""The owner checks: the snapshot verifies what a worker proposes against its own state."""

from collections.abc import Sequence

import msgspec
import pytest

from services.snapshot.commit_checks import ProfileFilters
from services.snapshot.core import SnapshotCore
from services.snapshot.events import Effect, NodeGone, NodeSeen, ObjectSeen, PodSeen, WorkerFault
from shared.cluster.volumes import VolumeDecision
from shared.framework.loading import load_scheduler_config
from shared.messages.binding import Evict
from shared.messages.preemption import Victim
from shared.messages.state import EPOCH_SHIFT, Assignment, Commit, Decision, Nominate
from shared.model.load import load_of
from shared.model.objects import Node, Pod, Volume
from shared.model.pod import GcePersistentDisk
from testing.builders import node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, commit, kinds, reassigned, refusals, small_node
from tests.samples import a_claim

A, B = small_node("a"), small_node("b")
SYSTEM = 2_000_001_000
FAR = 1 << 62


def of_worker(worker: str, made: Commit) -> Commit:
    decisions = [msgspec.structs.replace(each, worker=worker) for each in made.decisions]
    nominations = [msgspec.structs.replace(each, worker=worker) for each in made.nominations]
    return msgspec.structs.replace(made, decisions=decisions, nominations=nominations)


def forged(number: int, *placements: tuple[Pod, str, int]) -> Commit:
    return of_worker("liar", commit(number, *placements))


def faults(effects: Sequence[Effect]) -> list[tuple[str, str]]:
    return [(each.worker, each.kind) for each in effects if isinstance(each, WorkerFault)]


def reasons(effects: Sequence[Effect]) -> dict[str, str]:
    return {uid: reason for uid, (reason, _) in refusals(effects).items()}


def nominate(of: Pod, seen: int, *victims: Pod, on: str = "a", narrowed: bool = False, never: bool = False) -> Commit:
    named = [Victim(each.uid, each.key, 0) for each in victims]  # the priority that the worker claims
    assignment = Assignment(of.uid, of.namespace, of.name, "default-scheduler", on)
    wanted = Nominate(assignment, 0, seen, named, "liar", None, narrowed, never)
    return Commit(1, 1, [load_of(of)], [], [wanted])


def a_log(*nodes: Node, on_a: Sequence[Pod] = ()) -> SnapshotLog:
    log = SnapshotLog(*(nodes or (A, B)))
    for each in on_a:
        log.handle(PodSeen(bound(each, "a")))
    return log


def cpu(name: str, amount: str, priority: int = 0) -> Pod:
    return pod(name).request(cpu=amount).priority(priority).build()


# Capacity


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (cpu("p", "5"), "Insufficient cpu"),
        (pod("p").request(memory="9Gi").build(), "Insufficient memory"),
        (pod("p").request({"ephemeral-storage": "1Gi"}).build(), "Insufficient ephemeral-storage"),
        (pod("p").request({"example.com/gpu": "1"}).build(), "Insufficient example.com/gpu"),
    ],
)
def test_a_pod_over_the_capacity_of_its_node_is_refused_as_a_fault_of_the_worker(wanted: Pod, reason: str) -> None:
    log = a_log()
    before = log.core.seq
    effects = log.handle(forged(1, (wanted, "a", before)))
    assert reasons(effects) == {wanted.uid: f"node a has no room for it: {reason}"}
    assert faults(effects) == [("liar", "capacity")]
    assert (log.core.ledger, log.core.seq) == ({}, before)


def test_the_places_of_assumed_and_bound_pods_count() -> None:
    log = a_log(on_a=[cpu("bound", "1")])
    log.handle(commit(1, (cpu("assumed", "2"), "a", log.core.seq)))
    effects = log.handle(forged(2, (cpu("p", "1100m"), "a", log.core.seq)))
    assert faults(effects) == [("liar", "capacity")]
    assert refusals(log.handle(forged(3, (cpu("p", "1"), "a", log.core.seq)))) == {}


def test_decisions_of_one_commit_count_for_those_after_them() -> None:
    log = a_log()
    effects = log.handle(forged(1, *((cpu(name, "2"), "a", log.core.seq) for name in "pqr")))
    assert list(refusals(effects)) == ["default/r"]
    assert faults(effects) == [("liar", "capacity")]


def test_the_members_of_a_gang_count_for_each_other_and_none_is_taken() -> None:
    log = a_log()
    made = forged(1, *((cpu(name, "2"), "a", log.core.seq) for name in "pqr"))
    gang = [msgspec.structs.replace(each, gang="default/g") for each in made.decisions]
    effects = log.handle(msgspec.structs.replace(made, decisions=gang))
    assert len(refusals(effects)) == 3
    assert faults(effects) == [("liar", "capacity")]
    assert log.core.ledger == {}


def test_the_number_of_pods_is_a_resource_as_well() -> None:
    log = a_log(node("a").capacity(cpu=4, pods=1).build(), on_a=[cpu("there", "0")])
    effects = log.handle(forged(1, (cpu("p", "0"), "a", log.core.seq)))
    assert reasons(effects) == {"default/p": "node a has no room for it: Too many pods"}


def test_a_node_that_is_over_its_capacity_already_takes_a_pod_that_asks_for_nothing() -> None:
    log = a_log(on_a=[cpu("by hand", "7")])
    assert refusals(log.handle(forged(1, (cpu("p", "0"), "a", log.core.seq)))) == {}
    effects = log.handle(forged(2, (cpu("q", "1m"), "a", log.core.seq)))
    assert faults(effects) == [("liar", "capacity")]


def test_room_that_became_free_counts() -> None:
    log = a_log(on_a=[cpu("there", "4")])
    seen = log.core.seq
    log.handle(PodSeen(pod("there").on("a").phase("Succeeded").build()))
    assert refusals(log.handle(forged(1, (cpu("p", "4"), "a", seen)))) == {}


def test_requests_that_only_the_status_adds_need_not_be_free() -> None:
    """As in kube-scheduler, a pod that waits is judged by its spec, and takes what its status says."""
    log = a_log()
    made = forged(1, (cpu("p", "5"), "a", log.core.seq))
    (decision,) = made.decisions
    asks = msgspec.structs.replace(made, decisions=[msgspec.structs.replace(decision, asks={"cpu": 4000})])
    assert refusals(log.handle(asks)) == {}


# What the scheduler itself does not enforce


def log_with(*profiles: dict[str, object], **more: object) -> SnapshotLog:
    given = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": list(profiles),
        **more,
    }
    log = SnapshotLog()
    log.core = SnapshotCore(0, filters=ProfileFilters.of(load_scheduler_config(given)))
    for each in (A, B):
        log.handle(NodeSeen(each))
    return log


def without(plugin: str, at: str = "filter") -> dict[str, object]:
    return {"plugins": {at: {"disabled": [{"name": plugin}]}}}


def test_a_profile_without_the_filter_of_resources_may_fill_a_node_beyond_its_capacity() -> None:
    log = log_with(without("NodeResourcesFit", "multiPoint"))
    assert refusals(log.handle(forged(1, (cpu("p", "5"), "a", log.core.seq)))) == {}


def test_ignored_resources_are_ignored() -> None:
    args = {"ignoredResources": ["example.com/one"], "ignoredResourceGroups": ["example.org"]}
    log = log_with({"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]})
    for number, (name, fits) in enumerate(
        [("example.com/one", True), ("example.org/two", True), ("example.com/two", False)], 1
    ):
        wanted = pod(f"p{number}").request({name: "1"}).build()
        effects = log.handle(forged(number, (wanted, "a", log.core.seq)))
        assert (refusals(effects) == {}) is fits, name


def test_resources_of_an_extender_are_the_extenders() -> None:
    extender = {
        "urlPrefix": "http://127.0.0.1:1",
        "filterVerb": "filter",
        "managedResources": [{"name": "example.com/foo", "ignoredByScheduler": True}],
    }
    log = log_with({}, extenders=[extender])
    wanted = pod("p").request({"example.com/foo": "1"}).build()
    assert refusals(log.handle(forged(1, (wanted, "a", log.core.seq)))) == {}


def test_a_profile_without_the_filter_of_ports_may_have_a_port_twice() -> None:
    log = log_with(without("NodePorts", "multiPoint"))
    log.handle(PodSeen(bound(with_port("there", 80), "a")))
    assert refusals(log.handle(forged(1, (with_port("p", 80), "a", log.core.seq)))) == {}


# Host ports


def with_port(name: str, port: int, ip: str = "", protocol: str = "TCP") -> Pod:
    return pod(name).host_port(port, ip=ip, protocol=protocol).build()


@pytest.mark.parametrize(
    ("there", "wanted", "clash"),
    [
        (with_port("t", 80), with_port("p", 80), True),
        (with_port("t", 80), with_port("p", 81), False),
        (with_port("t", 80, "10.0.0.1"), with_port("p", 80), True),
        (with_port("t", 80, "10.0.0.1"), with_port("p", 80, "10.0.0.2"), False),
        (with_port("t", 80, "10.0.0.1"), with_port("p", 80, "10.0.0.1", "UDP"), False),
        (with_port("t", 80, "0.0.0.0"), with_port("p", 80, "10.0.0.1"), True),
    ],
)
def test_a_host_port_that_is_taken_is_refused(there: Pod, wanted: Pod, clash: bool) -> None:
    log = a_log(on_a=[there])
    effects = log.handle(forged(1, (wanted, "a", log.core.seq)))
    assert faults(effects) == ([("liar", "ports")] if clash else [])
    assert (wanted.uid in log.core.ledger) is not clash


def test_a_host_port_is_free_once_its_last_user_is_gone() -> None:
    log = a_log(on_a=[with_port("t", 80)])
    log.handle(commit(1, (with_port("p", 81), "a", log.core.seq)))
    assert faults(log.handle(forged(2, (with_port("q", 81), "a", log.core.seq)))) == [("liar", "ports")]


# Volumes


def with_claim(name: str) -> Pod:
    return pod(name).claim("data").build()


def test_a_claim_for_one_pod_only_is_not_used_by_two_wherever_they_are() -> None:
    """The other may have come since the evaluation, on any node: so that is a conflict, not a fault."""
    log = a_log()
    log.handle(ObjectSeen(a_claim("data", accessModes=["ReadWriteOncePod"])))
    log.handle(PodSeen(bound(with_claim("there"), "b")))
    effects = log.handle(forged(1, (with_claim("p"), "a", log.core.seq)))
    assert reasons(effects) == {"default/p": "claim default/data is ReadWriteOncePod, and in use"}
    assert faults(effects) == []


def test_a_gang_does_not_share_a_claim_for_one_pod_only() -> None:
    log = a_log()
    log.handle(ObjectSeen(a_claim("data", accessModes=["ReadWriteOncePod"])))
    made = forged(1, (with_claim("p"), "a", log.core.seq), (with_claim("q"), "b", log.core.seq))
    gang = [msgspec.structs.replace(each, gang="default/g") for each in made.decisions]
    assert len(refusals(log.handle(msgspec.structs.replace(made, decisions=gang)))) == 2


def test_a_claim_that_several_may_use_is_shared() -> None:
    log = a_log()
    log.handle(ObjectSeen(a_claim("data", accessModes=["ReadWriteOnce"])))
    log.handle(PodSeen(bound(with_claim("there"), "a")))
    assert refusals(log.handle(forged(1, (with_claim("p"), "a", log.core.seq)))) == {}


def test_volumes_of_which_none_has_changed_and_that_were_never_to_be_had_are_a_fault() -> None:
    log = a_log()
    log.handle(ObjectSeen(a_claim("data", volumeName="pv-1")))
    seen = log.core.seq
    (decision,) = commit(1, (with_claim("p"), "a", seen)).decisions
    taken = reassigned(decision, volumes=VolumeDecision(provisions=["default/data"]))
    taken = msgspec.structs.replace(taken, worker="liar")
    effects = log.handle(Commit(1, 1, [load_of(with_claim("p"))], [taken]))
    assert faults(effects) == [("liar", "volumes")]


def test_a_disk_is_not_shared_on_one_node() -> None:
    disk = Volume(name="d", gce_persistent_disk=GcePersistentDisk(pd_name="d"))
    log = a_log(on_a=[pod("there").volume(disk).build()])
    effects = log.handle(forged(1, (pod("p").volume(disk).build(), "a", log.core.seq)))
    assert faults(effects) == [("liar", "volumes")]


# What an evaluation claims to have seen


def test_an_evaluation_of_a_future_state_is_rejected() -> None:
    log = a_log(on_a=[cpu("there", "1")])
    assert faults(log.handle(forged(1, (cpu("p", "1"), "a", log.core.seq + 1)))) == [("liar", "sequence")]
    assert list(refusals(log.handle(forged(2, (cpu("p", "1"), "a", FAR))))) == ["default/p"]
    assert log.core.ledger == {}
    assert refusals(log.handle(forged(3, (cpu("p", "1"), "a", log.core.seq)))) == {}


def test_a_deposed_snapshot_blames_no_worker_that_has_seen_a_later_term() -> None:
    log = a_log()
    effects = log.handle(forged(1, (cpu("p", "1"), "a", 1 << EPOCH_SHIFT)))
    assert len(refusals(effects)) == 1
    assert faults(effects) == []


def test_a_node_that_was_never_there_is_a_fault_and_one_that_is_gone_since_is_not() -> None:
    log = a_log()
    assert faults(log.handle(forged(1, (cpu("p", "1"), "none", log.core.seq)))) == [("liar", "node")]
    seen = log.core.seq
    log.handle(NodeGone("a"))
    assert faults(log.handle(forged(2, (cpu("p", "1"), "a", seen)))) == []
    assert faults(log.handle(forged(3, (cpu("p", "1"), "a", log.core.seq)))) == [("liar", "node")]


# Victims


def test_a_pod_of_the_highest_priority_does_not_make_way_for_one_of_priority_1() -> None:
    log = a_log(on_a=[cpu("system", "4", SYSTEM)])
    effects = log.handle(nominate(cpu("p", "1", 1), log.core.seq, cpu("system", "4")))
    assert reasons(effects) == {"default/p": "pod default/system is not of lower priority"}
    assert faults(effects) == [("liar", "victims")]
    assert "Evict" not in kinds(effects)
    assert log.core.state().nominations == []


def test_a_victim_of_equal_priority_is_rejected() -> None:
    log = a_log(on_a=[cpu("low", "4", 1)])
    assert faults(log.handle(nominate(cpu("p", "1", 1), log.core.seq, cpu("low", "4")))) == [("liar", "victims")]


def test_one_victim_of_higher_priority_among_others_is_one_too_many() -> None:
    log = a_log(on_a=[cpu("low", "3", 1), cpu("high", "1", 9)])
    effects = log.handle(nominate(cpu("p", "1", 5), log.core.seq, cpu("low", "3"), cpu("high", "1")))
    assert faults(effects) == [("liar", "victims")]
    assert not any(isinstance(each, Evict) for each in effects)


def test_a_pod_with_preemption_policy_never_gets_no_victims() -> None:
    log = a_log(on_a=[cpu("low", "4")])
    effects = log.handle(nominate(cpu("p", "1", 5), log.core.seq, cpu("low", "4"), never=True))
    assert reasons(effects) == {"default/p": "its preemptionPolicy is Never"}


def test_victims_must_leave_enough_room() -> None:
    log = a_log(on_a=[cpu("low", "1"), cpu("high", "3", 9)])
    effects = log.handle(nominate(cpu("p", "2", 5), log.core.seq, cpu("low", "1")))
    assert reasons(effects) == {"default/p": "node a has no room for it even without these pods: Insufficient cpu"}
    assert faults(effects) == [("liar", "victims")]


def test_a_victim_counts_once() -> None:
    log = a_log(on_a=[cpu("low", "1"), cpu("high", "3", 9)])
    low = cpu("low", "1")
    assert faults(log.handle(nominate(cpu("p", "2", 5), log.core.seq, low, low))) == [("liar", "victims")]


def test_victims_that_an_extender_narrowed_need_not_leave_room() -> None:
    """kube-scheduler has those go whom the extender leaves, and does not ask again whether that is enough."""
    log = a_log(on_a=[cpu("low", "1"), cpu("other", "3")])
    wanted = nominate(cpu("p", "2", 5), log.core.seq, cpu("low", "1"), narrowed=True)
    assert refusals(log.handle(wanted)) == {}


def test_a_port_of_a_pod_that_stays_is_in_the_way_of_a_nomination() -> None:
    log = a_log(on_a=[pod("low").host_port(80).request(cpu="1").build(), pod("web").host_port(81).priority(9).build()])
    low, both = pod("low").build(), pod("p").host_port(80).host_port(81).priority(5).build()
    assert faults(log.handle(nominate(both, log.core.seq, low))) == [("liar", "victims")]
    one = nominate(pod("p").host_port(80).priority(5).build(), log.core.seq, low)
    assert refusals(log.handle(msgspec.structs.replace(one, number=2))) == {}


def test_a_decision_without_a_worker_is_checked_as_well() -> None:
    log = a_log()
    decision = Decision(Assignment("default/p", "default", "p", "default-scheduler", "a"), 0, log.core.seq)
    effects = log.handle(Commit(1, 1, [load_of(cpu("p", "5"))], [decision]))
    assert faults(effects) == [("", "capacity")]
