"""Gangs from the batch to the outcomes: placed whole or not at all, and as their members would be one by one."""

from collections.abc import Sequence

import pytest

from services.cycle.events import Failed
from services.snapshot.core import SnapshotCore
from services.snapshot.events import NodeSeen, PodSeen
from services.snapshot.state.pending_pods import PendingPods
from shared.config.points import ExtensionPoint
from shared.messages.limits import MAX_GANG
from shared.messages.queue import Gang
from shared.messages.rounds import Propose
from shared.messages.state import Commit
from shared.model.objects import ClusterObject, Node, Pod
from testing.builders import node, pod, selector
from testing.inprocess.pipeline import bound
from tests.plugins.volumes.storage import HOSTNAME, ZONE, claim, storage_class, volume
from tests.rounds.gangs import GangRun, members
from tests.rounds.support import Moody, framework_with, small_node
from tests.snapshot.test_pending_pods import shown

SHARDS, SIZES = [1, 2, 3, 7], [1, 4, 256]
everywhere = pytest.mark.parametrize(("shards", "round_size"), [(s, r) for s in SHARDS for r in SIZES])
WORKER = pod("worker").request(cpu=1)


def decide(
    nodes: Sequence[Node],
    gang: Gang,
    pods: Sequence[Pod],
    *,
    shards: int = 1,
    round_size: int = 256,
    objects: Sequence[ClusterObject] = (),
) -> GangRun:
    run = GangRun(shards=shards, round_size=round_size)
    run.add_objects(objects)
    run.add_nodes(nodes)
    run.settle()
    run.take((gang, pods))
    run.settle()
    assert run.told_once(pods)
    return run


def hosts(count: int, cpu: int = 4, zones: int = 2) -> list[Node]:
    return [
        node(f"n{i}").capacity(cpu=cpu, memory="32Gi").label({HOSTNAME: f"n{i}", ZONE: f"z{i % zones}"}).build()
        for i in range(count)
    ]


# All or nothing


@everywhere
def test_a_gang_that_fits_is_placed_whole(shards: int, round_size: int) -> None:
    pods = members(WORKER, 8)
    run = decide(hosts(2), Gang("ns/g", 8), pods, shards=shards, round_size=round_size)
    assert sorted(run.places(pods).values()) == ["n0"] * 4 + ["n1"] * 4


@everywhere
def test_no_member_of_a_gang_that_does_not_fit_is_placed(shards: int, round_size: int) -> None:
    pods = members(WORKER, 9)
    run = decide(hosts(2), Gang("ns/g", 9), pods, shards=shards, round_size=round_size)
    assert run.decisions == []
    told = {name: outcome.unfit for name, outcome in run.unfit(pods).items()}
    assert {name: unfit.plugins for name, unfit in told.items()} == {
        each.name: ("GangScheduling", "NodeResourcesFit") for each in pods
    }
    assert told["m8"].message == "0/2 nodes are available: 2 Insufficient cpu."
    assert told["m0"].message == (
        "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled: only 8 of the 9 members of "
        'pod group "ns/g" that are needed fit: 0/2 nodes are available: 2 Insufficient cpu.'
    )


@everywhere
def test_members_beyond_the_minimum_may_be_left_over(shards: int, round_size: int) -> None:
    pods = members(WORKER, 9)
    run = decide(hosts(2), Gang("ns/g", 5), pods, shards=shards, round_size=round_size)
    assert len(run.places(pods)) == 8
    left_over = run.unfit(pods)["m8"].unfit
    assert (left_over.message, left_over.plugins) == (
        "0/2 nodes are available: 2 Insufficient cpu.",
        ("NodeResourcesFit",),
    )


def test_a_gang_that_does_not_fit_reserves_nothing() -> None:
    run = GangRun(shards=2)
    run.add_nodes(hosts(1))
    single = pod("single").request(cpu=4).build()
    run.take((Gang("ns/g", 5), members(WORKER, 5)), single)
    run.settle()
    assert run.places([single]) == {"single": "n0"}


def test_a_gang_that_has_its_quorum_already_is_decided_pod_by_pod() -> None:
    pods = members(WORKER, 9)
    run = decide(hosts(2), Gang("ns/g", 0), pods)
    assert len(run.places(pods)) == 8


# Several classes


@everywhere
def test_one_driver_and_its_workers_share_the_same_nodes(shards: int, round_size: int) -> None:
    """Every node is written by both classes, so this takes several steps."""
    driver = pod("driver").request(cpu=2).build()
    workers = members(WORKER.label(role="worker"), 8)
    run = decide(hosts(2, cpu=5), Gang("ns/job", 9), [driver, *workers], shards=shards, round_size=round_size)
    placed = run.places([driver, *workers])
    assert len(placed) == 9
    assert sorted(list(placed.values()).count(f"n{i}") for i in range(2)) == [4, 5]


@everywhere
def test_members_keep_apart(shards: int, round_size: int) -> None:
    apart = WORKER.label(app="db")
    kinds = [apart.require_no_pods(HOSTNAME, selector(app="db")), apart.label(role="x")]
    pods = [*members(kinds[0], 3, "a"), *members(kinds[1], 2, "b")]
    fits = decide(hosts(5), Gang("ns/db", 5), pods, shards=shards, round_size=round_size)
    placed = fits.places(pods)
    assert len({placed[f"a{i}"] for i in range(3)}) == 3
    assert not {placed[f"a{i}"] for i in range(3)} & {placed[f"b{i}"] for i in range(2)}
    too_few = decide(hosts(3), Gang("ns/db", 5), pods, shards=shards, round_size=round_size)
    assert too_few.decisions == []
    assert {"GangScheduling", "InterPodAffinity"} <= set(too_few.unfit(pods)["a0"].unfit.plugins)


@everywhere
def test_members_that_need_each_other_come_together(shards: int, round_size: int) -> None:
    """The driver goes anywhere, the workers to its zone."""
    driver = pod("driver").label(role="driver").request(cpu=1).build()
    workers = members(WORKER.require_pods(ZONE, selector(role="driver")), 6)
    run = decide(hosts(4), Gang("ns/job", 7), [driver, *workers], shards=shards, round_size=round_size)
    placed = run.places([driver, *workers])
    assert len({int(name[1:]) % 2 for name in placed.values()}) == 1
    assert len(placed) == 7


@everywhere
def test_members_spread(shards: int, round_size: int) -> None:
    kind = WORKER.label(app="web").spread_hard(ZONE, selector(app="web"))
    pods = [*members(kind, 5, "a"), *members(kind.label(version="2"), 4, "b")]
    run = decide(hosts(6, zones=3), Gang("ns/web", 9), pods, shards=shards, round_size=round_size)
    zones = [int(name[1:]) % 3 for name in run.places(pods).values()]
    assert [zones.count(zone) for zone in range(3)] == [3, 3, 3]


# Volumes


def local_volumes(count: int) -> list[ClusterObject]:
    return [volume(f"pv{i}", nodes={HOSTNAME: [f"n{i}"]}) for i in range(count)]


@everywhere
def test_no_two_members_are_given_the_same_volume(shards: int, round_size: int) -> None:
    """Each would take the same volume if it did not know of the others; committed together, none would be placed."""
    names = [f"data{i}" for i in range(3)]
    pods = [pod(f"p{i}").request(cpu=1).claim(name).build() for i, name in enumerate(names)]
    objects = [storage_class(), *local_volumes(3), *(claim(name) for name in names)]
    run = decide(hosts(3), Gang("ns/db", 3), pods, shards=shards, round_size=round_size, objects=objects)
    assert len(set(run.places(pods).values())) == 3
    assert run.conflicts == []


@everywhere
def test_members_that_share_a_claim_share_its_volume(shards: int, round_size: int) -> None:
    modes = ("ReadWriteMany",)
    objects = [storage_class(), *(volume(f"pv{i}", nodes={HOSTNAME: [f"n{i}"]}, modes=modes) for i in range(3))]
    pods = members(WORKER.claim("data"), 3)
    run = decide(
        hosts(3), Gang("ns/g", 3), pods, shards=shards, round_size=round_size, objects=[*objects, claim(modes=modes)]
    )
    assert len(run.places(pods)) == 3
    assert len(set(run.places(pods).values())) == 1
    assert {entry.node for entry in run.snapshot.ledger.values()} <= set(run.places(pods).values())


@everywhere
def test_a_volume_is_provisioned_where_the_first_member_goes(shards: int, round_size: int) -> None:
    objects = [storage_class(), claim(modes=("ReadWriteMany",))]
    pods = members(WORKER.claim("data"), 3)
    run = decide(hosts(3), Gang("ns/g", 3), pods, shards=shards, round_size=round_size, objects=objects)
    assert len(set(run.places(pods).values())) == 1
    assert len(run.places(pods)) == 3


def test_a_gang_with_one_volume_too_few_is_unschedulable() -> None:
    names = [f"data{i}" for i in range(3)]
    pods = [pod(f"p{i}").request(cpu=1).claim(name).build() for i, name in enumerate(names)]
    static = storage_class(provisioner="kubernetes.io/no-provisioner")
    objects = [static, *local_volumes(2), *(claim(name) for name in names)]
    run = decide(hosts(3), Gang("ns/db", 3), pods, objects=objects)
    assert run.decisions == []
    for core in run.workers.values():
        assert all(pv.spec.claim_ref is None for pv in core.table.objects.persistent_volumes.values())


# What may happen meanwhile


class SlowCommit:
    """The first commit is half a second on its way."""

    def __init__(self) -> None:
        self.begun = False

    def __call__(self, message: object) -> Sequence[float]:
        is_first = isinstance(message, Commit) and not self.begun
        self.begun |= is_first
        return (0.5,) if is_first else (0.0,)


def test_a_change_before_the_commit_has_the_whole_gang_decided_again() -> None:
    """1. The gang is decided. 2. Before its commit arrives, a pod of others takes one of its places."""
    slow = SlowCommit()
    run = GangRun(shards=3, fate=slow)
    run.add_nodes(hosts(3))
    run.settle()
    pods = members(WORKER, 8)
    single = pod("single").request(cpu=1).build()
    run.take((Gang("ns/g", 8), pods), single)
    while not slow.begun:
        run.step()
    intruder = pod("intruder").request(cpu=3).build()
    run.observe(PodSeen(bound(intruder, "n1")))
    run.settle()
    assert len(run.conflicts) == 8
    assert len(run.places(pods)) == 8
    assert run.told_once([*pods, single])
    assert run.places([single])


def test_a_gang_that_lost_a_conflict_goes_first() -> None:
    """There is room for the gang or for the pod behind it."""
    slow = SlowCommit()
    run = GangRun(fate=slow)
    run.add_nodes(hosts(1))
    run.settle()
    pods = members(WORKER, 3)
    behind = pod("behind").request(cpu=2).build()
    run.take((Gang("ns/g", 3), pods), behind)
    while not slow.begun:
        run.step()
    run.observe(NodeSeen(node("n0").capacity(cpu=4, memory="32Gi").label({HOSTNAME: "n0", "new": "yes"}).build()))
    run.settle()
    assert run.conflicts
    assert len(run.places(pods)) == 3
    assert not run.places([behind])


def test_members_placed_meanwhile_are_no_longer_needed() -> None:
    """1. A member turns out to hold a place. 2. The other two are all that is needed, and all that fit."""
    slow = SlowCommit()
    run = GangRun(fate=slow)
    run.add_nodes(hosts(1, cpu=3))
    run.settle()
    pods = members(WORKER, 3)
    run.take((Gang("ns/g", 3), pods))
    while not slow.begun:
        run.step()
    run.gangs = {uid: Gang("ns/g", 2) for uid in run.gangs}
    run.observe(PodSeen(bound(pods[0], "n0")))
    run.settle()
    assert run.places(pods) == {"m1": "n0", "m2": "n0"}
    assert run.told_once(pods)


def test_when_shards_move_the_new_holders_are_told_what_is_given() -> None:
    run = GangRun(shards=2)
    run.add_nodes(hosts(2, cpu=5))
    run.settle()
    driver = pod("driver").request(cpu=2).build()
    pods = [driver, *members(WORKER.label(role="worker"), 8)]
    run.take((Gang("ns/job", 9), pods))
    for _ in range(200):
        run.restart_worker("worker-1")
        run.steps(3)
    run.settle()
    assert len(run.places(pods)) == 9


# What cannot be decided


def test_a_gang_that_is_too_large_fails() -> None:
    pods = members(WORKER, MAX_GANG + 1)
    run = decide(hosts(2), Gang("ns/g", 2), pods)
    told = run.outcomes[pods[0].uid]
    assert isinstance(told, Failed)
    assert told.status.message == 'pod group "ns/g": at most 8192 pods are placed together, not 8193'


def test_a_large_gang_is_placed_whole() -> None:
    pods = members(WORKER, 1024)
    run = decide(hosts(16, cpu=64), Gang("ns/g", 1024), pods, shards=3)
    assert len(run.places(pods)) == 1024


def test_a_plugin_that_fails_on_one_member_fails_all() -> None:
    run = GangRun(frameworks=framework_with(Moody, ExtensionPoint.FILTER), shards=2)
    run.add_nodes([small_node("n0"), small_node("n1")])
    pods = [*members(WORKER, 2), *members(WORKER.label(mood="bad"), 1, "bad")]
    single = pod("single").request(cpu=1).build()
    run.take((Gang("ns/g", 2), pods), single)
    run.settle()
    told = {each.name: run.outcomes[each.uid] for each in pods}
    messages = {name: outcome.status.message for name, outcome in told.items() if isinstance(outcome, Failed)}
    assert "one of those days" in messages["bad0"]
    assert messages["m0"] == f"failed to schedule other pod from a pod group: {messages['bad0']}"
    assert run.places([single])


def test_members_that_are_no_longer_alone_in_the_state_leave_no_trace() -> None:
    """After a gang that did not fit, the workers' tables are as they were."""
    run = GangRun(shards=3)
    run.add_nodes(hosts(3))
    run.settle()
    run.take((Gang("ns/g", 13), members(WORKER, 13)))
    run.settle()
    for core in run.workers.values():
        core.validate()
        assert core.table.pod_count == 0


def test_only_the_asks_of_a_gang_say_what_is_given() -> None:
    asks: list[Propose] = []

    def fate(message: object) -> Sequence[float]:
        if isinstance(message, Propose):
            asks.append(message)
        return (0.0,)

    run = GangRun(fate=fate)
    run.add_nodes(hosts(1, cpu=5))
    run.take((Gang("ns/g", 2), [pod("a").request(cpu=1).build(), pod("b").request(cpu=2).build()]))
    run.take(pod("c").request(cpu=1).build())
    run.settle()
    assert [[given.uid for given in ask.given] for ask in asks][-1] == []
    assert ["default/a"] in [[given.uid for given in ask.given] for ask in asks]


class DeletesOne:
    """Lets the snapshot see that these pods are gone before it gets the first commit."""

    def __init__(self, *gone: Pod) -> None:
        self.gone, self.commits = gone, 0
        self.pending = PendingPods()

    def __call__(self, message: object) -> Sequence[float]:
        if isinstance(message, Commit):
            self.commits += bool(message.decisions)
            for each in self.gone:
                self.pending.forget(each.uid)
        return (0.0,)


@pytest.mark.parametrize(("least", "placed"), [(6, 7), (8, 0)])
def test_a_gang_of_which_a_member_was_deleted_is_decided_at_once_without_it(least: int, placed: int) -> None:
    pods = members(WORKER, 8)
    deletes = DeletesOne(pods[3])
    run = GangRun(fate=deletes)
    run.snapshot = SnapshotCore(1, pending=deletes.pending)
    run.restart_worker("worker-0")
    run.add_nodes(hosts(3))
    run.settle()
    behind = pod("behind").request(cpu=1).build()
    for each in (*pods, behind):
        deletes.pending.upsert(shown(each))
    run.take((Gang("ns/g", least), pods), behind)
    run.settle()
    assert len(run.places(pods)) == placed
    assert isinstance(run.outcomes[pods[3].uid], Failed)
    assert len(run.unfit(pods)) == 7 - placed
    assert run.places([behind])
    assert deletes.commits == 2 + (placed > 0)
