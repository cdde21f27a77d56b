"""Gangs that preempt, carried out: searches, rehearsals, commits and evictions together, on virtual time."""

import random

import pytest

from services.snapshot.events import Event, NodeGone, PodDeleted
from shared.model.objects import Node, Pod, ResourceClaim
from testing.builders import node, pod, selector
from testing.inprocess.pipeline import bound
from tests.plugins.volumes.storage import HOSTNAME
from tests.rounds.preempting_gangs import WHOLE, PreemptingGangs, claim_on, gang_of, pod_group
from tests.rounds.preempting_world import Full, load_of_nodes, where_they_are
from tests.rounds.support import BY_NAME
from tests.rounds.test_gang_claims import CLASS, a_claim, devices_of
from tests.rounds.world import BadLuck

RACK = "example.com/rack"
MEMBER = pod("member").request(cpu=2).priority(10)


def racks(nodes: int, per_rack: int) -> list[Node]:
    named = ((f"n{i}", f"rack{i // per_rack}") for i in range(nodes))
    return [
        node(name).capacity(cpu=4, memory="64Gi", pods=110).label({RACK: rack, HOSTNAME: name}).build()
        for name, rack in named
    ]


def low(name: str, on: int, priority: int = 0, group: str = "") -> Pod:
    made = pod(name).request(cpu=1).priority(priority).started("2024-01-01T00:00:00Z")
    return bound((made.group(group) if group else made).build(), f"n{on}")


def full(nodes: int, priority: int = 0) -> list[Pod]:
    return [low(f"low{i}-{j}", i, priority) for i in range(nodes) for j in range(4)]


def world(nodes: list[Node], pods: list[Pod], shards: int, *, round_size: int = 256) -> PreemptingGangs:
    run = PreemptingGangs(shards=shards, round_size=round_size, ties=BY_NAME)
    run.add_nodes(nodes)
    run.add_pods(pods)
    run.settle()
    return run


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("round_size", [1, 256])
def test_a_gang_makes_just_enough_pods_go(shards: int, round_size: int) -> None:
    run = world(racks(3, 1), full(3), shards, round_size=round_size)
    gang = gang_of("train", 5, MEMBER)
    run.submit_gang(pod_group("train", 5), gang)
    run.run_for(60)
    assert len(where_they_are(run, gang)) == 5
    assert len(run.victims) == 10
    assert not run.promised


@pytest.mark.parametrize("shards", [1, 3])
def test_members_of_two_classes_need_one_victim(shards: int) -> None:
    run = world(racks(1, 1), [low("low", 0)], shards)
    sizes = {"large": "2", "small": "1", "tiny": "500m"}
    gang = [pod(name).request({"cpu": cpu}).priority(10).group("train").build() for name, cpu in sizes.items()]
    run.submit_gang(pod_group("train", 3), gang)
    run.run_for(60)
    assert len(where_they_are(run, gang)) == 3
    assert len(run.victims) == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_nobody_goes_if_the_gang_would_not_fit_all_the_same(shards: int) -> None:
    run = world(racks(3, 1), full(3), shards)
    gang = gang_of("train", 7, MEMBER)
    run.submit_gang(pod_group("train", 7), gang)
    run.run_for(60)
    assert not run.victims and not run.promised
    [why] = {each.unfit.message.partition("preemption: ")[2] for each in run.unfit(gang).values()}
    assert why == "no pods of lower priority make enough room for 7 members of the pod group"


@pytest.mark.parametrize("priority", [10, 11])
def test_only_pods_of_lower_priority_than_the_group_go(priority: int) -> None:
    """The group's own priority counts for all its members."""
    run = world(racks(2, 1), full(2, priority=10), 2)
    gang = gang_of("train", 2, pod("member").request(cpu=4).priority(0))
    run.submit_gang(pod_group("train", 2, priority=priority), gang)
    run.run_for(60)
    assert len(run.victims) == (8 if priority > 10 else 0)


@pytest.mark.parametrize("by", ["group", "member"])
def test_a_gang_that_never_preempts(by: str) -> None:
    run = world(racks(2, 1), full(2), 1)
    never = MEMBER.never_preempting() if by == "member" else MEMBER
    gang = gang_of("train", 2, never)
    spec = {"preemptionPolicy": "Never"} if by == "group" else {}
    run.submit_gang(pod_group("train", 2, **spec), gang)
    run.run_for(30)
    assert not run.victims
    assert all("preemptionPolicy=Never" in each.unfit.message for each in run.unfit(gang).values())


@pytest.mark.parametrize("shards", [1, 3])
def test_victims_that_go_whole_go_on_all_nodes(shards: int) -> None:
    """The group that is evicted frees room on two nodes, and the gang uses both."""
    nodes = racks(4, 1)
    pods = [low(f"job{i}-{j}", i, group="job") for i in range(2) for j in range(4)]
    pods += [low(f"dear{i}-{j}", i, priority=5) for i in range(2, 4) for j in range(4)]
    run = world(nodes, [], shards)
    run.add_group(pod_group("job", 1, priority=0, **WHOLE))
    run.add_pods(pods)
    run.settle()
    gang = gang_of("train", 2, MEMBER)
    run.submit_gang(pod_group("train", 2), gang)
    run.run_for(60)
    assert run.victims == sorted(each.uid for each in pods if each.name.startswith("job"))
    assert len(where_they_are(run, gang)) == 2


@pytest.mark.parametrize("shards", [1, 3])
def test_the_domain_with_the_cheapest_victims(shards: int) -> None:
    nodes = racks(6, 2)
    pods = [low(f"low{i}-{j}", i, priority=3 if i // 2 != 1 else 1) for i in range(6) for j in range(4)]
    run = world(nodes, pods, shards)
    gang = gang_of("train", 3, MEMBER)
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    run.submit_gang(pod_group("train", 3, **rack), gang)
    run.run_for(60)
    assert set(where_they_are(run, gang).values()) == {"n2", "n3"}
    assert len(run.victims) == 6


class Replacing(PreemptingGangs):
    """Each pod of a controller that goes is made again at once."""

    def __init__(self, shards: int) -> None:
        self.of_controller: set[str] = set()
        super().__init__(shards=shards, round_size=256, ties=BY_NAME)

    def observe(self, event: Event) -> None:
        super().observe(event)
        if isinstance(event, PodDeleted) and event.uid in self.of_controller:
            again = pod(f"again{len(self.of_controller)}").request(cpu=1).priority(1).build()
            self.of_controller.add(again.uid)
            self.submit([again])


@pytest.mark.parametrize("shards", [1, 3])
def test_the_room_of_a_gang_with_a_domain_is_kept_from_its_victims_successors(shards: int) -> None:
    """What its members' nominations reserve counts as room for them when domains are counted."""
    run = Replacing(shards)
    run.add_nodes(racks(6, 2))
    victims = full(6, priority=1)
    run.of_controller = {each.uid for each in victims}
    run.add_pods(victims)
    run.settle()
    gang = gang_of("train", 4, MEMBER)
    run.submit_gang(pod_group("train", 4, schedulingConstraints={"topology": [{"key": RACK}]}), gang)
    run.run_for(60)
    assert len({int(node[1:]) // 2 for node in where_they_are(run, gang).values()}) == 1
    assert len(where_they_are(run, gang)) == 4
    assert len(run.victims) == 8


@pytest.mark.parametrize("shards", [1, 3])
def test_members_that_may_not_share_a_node(shards: int) -> None:
    """They are placed one after another, and each needs a node of its own."""
    run = world(racks(4, 1), full(4), shards)
    apart = MEMBER.label(app="train").require_no_pods(HOSTNAME, selector(app="train"))
    gang = gang_of("train", 3, apart)
    run.submit_gang(pod_group("train", 3), gang)
    run.run_for(60)
    assert len(set(where_they_are(run, gang).values())) == 3
    assert len(run.victims) == 6


@pytest.mark.parametrize("shards", [1, 3])
def test_a_victim_that_another_class_makes_needless_stays(shards: int) -> None:
    """The small member would have the small pod go, until the big one has the big pod go, which is room for both."""
    small = bound(pod("small").request(cpu=1).priority(0).build(), "n0")
    big = bound(pod("big").request(cpu=3).priority(1).build(), "n0")
    run = world(racks(1, 1), [small, big], shards)
    gang = [*gang_of("train", 1, pod("a").request(cpu=1).priority(10)), *gang_of("train", 2, MEMBER)[1:]]
    run.submit_gang(pod_group("train", 2), gang)
    run.run_for(60)
    assert run.victims == [big.uid]
    assert len(where_they_are(run, gang)) == 2


def test_a_node_that_goes_meanwhile_makes_the_gang_be_decided_again() -> None:
    run = world(racks(4, 1), full(4), 2)
    gang = gang_of("train", 4, MEMBER)
    run.submit_gang(pod_group("train", 4), gang)
    while len(run.promised) < 4:
        assert run.step()
    run.observe(NodeGone(min(name for name, _ in run.promised.values())))
    run.run_for(100)
    assert len(where_they_are(run, gang)) == 4
    assert not run.promised


@pytest.mark.parametrize("seed", range(8))
def test_with_messages_lost_doubled_and_delayed(seed: int) -> None:
    """Gangs and single pods of several priorities: all of higher priority are bound, and none twice."""
    print(f"seed {seed}")
    dice, luck = random.Random(seed), BadLuck(seed, 0.1)
    world_ = Full(seed)
    run = PreemptingGangs(shards=dice.choice([1, 2, 3]), round_size=dice.choice([1, 4, 256]), fate=luck)
    for core in run.workers.values():
        core.judged_at_once = dice.choice([None, 1, 50])
    world_.into(run)
    gangs = [gang_of(f"g{i}", 4, pod("m").request(cpu=dice.choice(["1", "1500m"])).priority(20 - i)) for i in range(2)]
    run.submit(world_.high[:2])
    run.submit_gang(pod_group("g0", 4), gangs[0])
    run.steps(dice.randint(0, 60))
    run.submit_gang(pod_group("g1", 4), gangs[1])
    run.run_with_beats(200)
    luck.over = True
    run.run_with_beats(100)
    for each in gangs:
        assert len(where_they_are(run, each)) == 4
    assert all(taken <= 4000 for taken in load_of_nodes(run).values())
    assert not run.promised


@pytest.mark.parametrize("policy", ["", "Never"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_claim_that_no_member_can_use_gives_its_devices_back(shards: int, policy: str) -> None:
    """It has a device of a node that is gone, and no pod uses it."""
    run = world(racks(3, 1), [], shards)
    run.add_claim(claim_on("n9"))
    gang = gang_of("train", 2, MEMBER.resource_claim("c", "shared"))
    run.submit_gang(pod_group("train", 2, **({"preemptionPolicy": policy} if policy else {})), gang)
    run.run_for(1)
    found = [each.preemption for each in run.unfit(gang).values()]
    assert len(found) == 2
    assert {each.deallocate for each in found if each is not None} == {("default/shared",)}


@pytest.mark.parametrize("shards", [1, 3])
def test_members_that_share_a_claim_without_devices_all_go_to_the_node_of_its_device(shards: int) -> None:
    """The cheapest victims are where no device is, or where not all members have room. Too many pods may go to try
    them all.
    """
    run = world(racks(20, 1), full(20, priority=1), shards)
    run.add_objects([CLASS, *(devices_of(name, "g0") for name in ("n7", "n9"))])
    claim = a_claim()
    assert isinstance(claim, ResourceClaim)
    run.add_claim(claim)
    run.add_pods([bound(pod("dear").request(cpu=0).priority(5).build(), "n9")])
    run.settle()
    gang = gang_of("train", 2, MEMBER.resource_claim("gpu", "shared"))
    run.submit_gang(pod_group("train", 2), gang)
    run.run_for(60)
    assert set(where_they_are(run, gang).values()) == {"n7"}
    assert run.victims == [f"default/low7-{j}" for j in range(4)]
