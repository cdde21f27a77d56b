"""Gangs in random clusters: nothing that a search for counter-examples finds."""

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cycle.events import Decided, Unschedulable
from services.cycle.round import attempts, placement_search
from shared.messages.evaluation import Ties
from shared.messages.queue import Gang
from shared.model.objects import ClusterObject, Node, Pod
from testing.builders import pod
from tests.plugins.volumes.storage import HOSTNAME, claim, storage_class, volume
from tests.rounds.gangs import GangRun, Part, as_told, members
from tests.rounds.hardrules import admits
from tests.rounds.support import BY_NAME, relabelled, small_node
from tests.rounds.test_hard_rules import KINDS, OBJECTS, Rule, _pods, clusters
from tests.rounds.world import BadLuck, World

SHARDS = [1, 2, 3, 7]
TIES = st.one_of(st.just(BY_NAME), st.integers(0, 99).map(lambda seed: Ties(seed=seed)))
ORDERS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@pytest.fixture(scope="module", autouse=True)
def short_searches() -> Iterator[None]:
    """Gangs that do not fit are searched for; test_gang_placements.py is about that."""
    before = placement_search.MAX_STEPS
    attempts.MAX_STEPS = 8  # type: ignore[attr-defined]
    yield
    attempts.MAX_STEPS = before  # type: ignore[attr-defined]


def one_by_one(run: GangRun, pods: Sequence[Pod]) -> dict[str, str]:
    run.take(*pods)
    run.settle()
    return as_told(run.outcomes[each.uid] for each in pods)


def check_as_one_by_one(
    nodes: Sequence[Node], pods: Sequence[Pod], least: int, ties: Ties, objects: Sequence[ClusterObject] = ()
) -> None:
    """In strict mode the members of a gang go where they would go by themselves. If too few would, they go nowhere, or
    to other nodes where enough have room.
    """

    def run(shards: int) -> GangRun:
        made = GangRun(shards=shards, round_size=1, ties=ties)
        made.add_objects(objects)
        made.add_nodes(nodes)
        made.settle()
        return made

    alone = one_by_one(run(1), pods)
    placed = sum(told.startswith("on ") for told in alone.values())
    for shards in SHARDS:
        gang = run(shards)
        gang.take((Gang("ns/g", least), pods))
        gang.settle()
        told = as_told(gang.outcomes[each.uid] for each in pods)
        if placed >= least:
            assert told == alone, f"{shards} shards"
            continue
        if gang.decisions:
            assert len(gang.places(pods)) >= least
            continue
        for each in pods:
            if alone[each.uid].startswith("on "):
                assert f"only {placed} of the {least} members" in told[each.uid]
            else:
                assert told[each.uid].startswith(alone[each.uid]), f"{shards} shards"


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 16), st.integers(1, 16), TIES)
def test_a_gang_is_decided_as_its_members_would_be(seed: int, nodes: int, pods: int, least: int, ties: Ties) -> None:
    world = World(seed)
    check_as_one_by_one(world.nodes(nodes), world.pods(pods), least, ties)


@settings(deadline=None, max_examples=12)
@given(clusters(), KINDS, ORDERS, st.integers(1, 12), TIES)
def test_a_gang_with_topology_is_decided_as_its_members_would_be(
    nodes: list[Node], kinds: list[tuple[str, list[Rule], int]], order: list[int], least: int, ties: Ties
) -> None:
    check_as_one_by_one(nodes, _pods(kinds, order), least, ties, OBJECTS)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_a_gang_with_volumes_is_decided_as_its_members_would_be(seed: int, volumes: int, pods: int, least: int) -> None:
    """Each has a claim of its own; the volumes are there, and reach some nodes."""
    dice = random.Random(seed)
    hosts = [relabelled(small_node(f"n{i}"), **{HOSTNAME: f"n{i}"}) for i in range(4)]
    reached = [dice.sample([each.name for each in hosts], dice.randint(1, 3)) for _ in range(volumes)]
    objects = [
        storage_class(provisioner="kubernetes.io/no-provisioner"),
        *(volume(f"pv{i}", nodes={HOSTNAME: names}) for i, names in enumerate(reached)),
        *(claim(f"data{i}") for i in range(pods)),
    ]
    wanted = [pod(f"p{i}").request(cpu=1).claim(f"data{i}").build() for i in range(pods)]
    check_as_one_by_one(hosts, wanted, least, BY_NAME, objects)


@settings(deadline=None, max_examples=30)
@given(
    clusters(), KINDS, ORDERS, st.integers(1, 12), st.sampled_from(SHARDS), st.sampled_from([1, 2, 5, 256]), st.data()
)
def test_hard_rules_hold_within_a_gang(
    nodes: list[Node],
    kinds: list[tuple[str, list[Rule], int]],
    order: list[int],
    least: int,
    shards: int,
    round_size: int,
    data: st.DataObject,
) -> None:
    """Beside single pods before and behind it."""
    pods = _pods(kinds, order)
    first, last = sorted((data.draw(st.integers(0, len(pods))), data.draw(st.integers(0, len(pods)))))
    run = GangRun(shards=shards, round_size=round_size)
    run.add_objects(OBJECTS)
    run.add_nodes(nodes)
    run.settle()
    gang = pods[first:last]
    run.take(*pods[:first], *([(Gang("ns/g", least), gang)] if gang else []), *pods[last:])
    run.settle()
    assert run.told_once(pods)
    by_name, by_uid = {each.name: each for each in nodes}, {each.uid: each for each in pods}
    placed: list[tuple[Pod, Node]] = []
    for uid, outcome in run.outcomes.items():
        assert isinstance(outcome, Decided | Unschedulable)
        if isinstance(outcome, Decided):
            where = by_name[outcome.node]
            assert admits(by_uid[uid], where, nodes, placed), f"{uid} on {outcome.node}"
            placed.append((by_uid[uid], where))
    assert len(run.places(gang)) == 0 or len(run.places(gang)) >= least


@pytest.mark.parametrize("seed", range(16))
def test_of_two_gangs_that_do_not_fit_together_one_is_placed(seed: int) -> None:
    """Each fits alone. Among single pods that are small, in any batches, over a bad wire, with any rounds."""
    dice = random.Random(seed)
    luck = BadLuck(seed, dice.choice([0.0, 0.0, 0.2]))
    run = GangRun(shards=dice.choice(SHARDS), round_size=dice.choice([1, 2, 8, 256]), fate=luck)
    run.add_nodes(small_node(f"n{i}", cpu=4) for i in range(4))
    run.settle()
    one = members(pod("one").label(gang="one").request(cpu=1), dice.randint(9, 12), "a")
    other = members(pod("other").label(gang="other").request(cpu="1500m"), dice.randint(6, 8), "b")
    singles = members(pod("single").request(cpu="10m"), dice.randint(0, 8), "s")
    gangs = [(Gang("ns/one", len(one)), one), (Gang("ns/other", len(other)), other)]
    dice.shuffle(gangs)
    parts: list[Part] = [*singles[: len(singles) // 2], gangs[0], *singles[len(singles) // 2 :], gangs[1]]
    dice.shuffle(parts)
    while parts:
        count = dice.randint(1, len(parts))
        run.take(*parts[:count])
        del parts[:count]
        run.steps(dice.randint(0, 40))
    luck.over = True
    run.settle()
    assert run.told_once([*one, *other, *singles])
    assert sorted((len(run.places(one)) / len(one), len(run.places(other)) / len(other))) == [0.0, 1.0]


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(SHARDS), st.sampled_from([1, 3, 256]))
def test_gangs_in_a_changing_cluster_are_placed_whole(seed: int, shards: int, round_size: int) -> None:
    """Nodes come and go, others bind pods, workers start over, messages are lost: `GangRun` looks at every commit."""
    world, luck = World(seed), BadLuck(seed, 0.1)
    dice = random.Random(seed)
    run = GangRun(shards=shards, round_size=round_size, fate=luck)
    run.add_nodes(world.nodes(dice.randint(2, 8)))
    told: list[Pod] = []
    for number in range(4):
        pods = world.pods(dice.randint(1, 10))
        told += pods
        if dice.random() < 0.5:
            run.take((Gang(f"ns/g{number}", dice.randint(1, len(pods))), pods))
        else:
            run.take(*pods)
        for _ in range(dice.randint(0, 6)):
            world.event(run)
            run.steps(dice.randint(0, 30))
    luck.over = True
    run.settle()
    assert run.outcomes.keys() >= {each.uid for each in told}
