"""Gangs that are trees of groups, against a solver that tries all placements."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pytest

from services.cycle.round.group_tree import GroupTree, path_of, with_placed
from services.snapshot import events as snapshot
from shared.messages.queue import Gang, GangGroup
from shared.model.objects import Node, Pod, TopologyConstraint
from testing.builders import node, pod
from testing.inprocess.batches import batch_of
from testing.inprocess.pipeline import bound
from tests.rounds.all_placements import BLOCK, RACK
from tests.rounds.gangs import GangRun, members
from tests.rounds.hardrules import admits
from tests.rounds.test_hard_rules import HOST, _apart

ENDED = "the search for a placement ended"
KEY = "compositepodgroup.scheduling.k8s.io/ns/root"
IN_ONE_RACK, IN_ONE_BLOCK = (TopologyConstraint(key=RACK),), (TopologyConstraint(key=BLOCK),)
everywhere = pytest.mark.parametrize("shards", [1, 3, 7])
WORKER = pod("worker").request(cpu=1).never_preempting()


def composite(name: str, parent: int, least: int, topology: tuple[TopologyConstraint, ...] = ()) -> GangGroup:
    return GangGroup(name, parent, True, least, topology)


def leaf(
    name: str, parent: int, least: int, topology: tuple[TopologyConstraint, ...] = (), placed_on: tuple[str, ...] = ()
) -> GangGroup:
    return GangGroup(name, parent, False, least, topology, placed_on)


class TreeRun(GangRun):
    def take_tree(self, groups: Sequence[GangGroup], pods: Mapping[int, Sequence[Pod]], namespace: str = "ns") -> None:
        """`pods`: by the number of their group; they are renamed after another `namespace`."""
        key = KEY.replace("/ns/", f"/{namespace}/")
        pods = {number: [_of(namespace, each) for each in of] for number, of in pods.items()}
        everyone = [each for of in pods.values() for each in of]
        gangs = {each.uid: Gang(key, len(everyone), group=number) for number, of in pods.items() for each in of}
        self.submitted |= {each.uid: each for each in everyone}
        self._pods.update((each.uid, each) for each in everyone)
        whole = Gang(key, len(everyone), groups=tuple(groups))
        batch = msgspec.structs.replace(batch_of(everyone, gangs=gangs), gangs={key: whole})
        self._carry_out_cycle(self.cycle.handle(batch, self.now))


def _of(namespace: str, made: Pod) -> Pod:
    if namespace == "ns":
        return made
    name = f"{namespace}-{made.name}"
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=name, uid=name))


def run_with(nodes: Iterable[Node], shards: int = 1, round_size: int = 256) -> TreeRun:
    run = TreeRun(shards=shards, round_size=round_size)
    run.add_nodes(nodes)
    run.settle()
    return run


def rack(name: str, nodes: int, cpu: int = 4, block: str = "b0") -> list[Node]:
    names = (f"{name}-{i}" for i in range(nodes))
    return [node(each).label({RACK: name, BLOCK: block}).capacity(cpu=cpu, memory="64Gi").build() for each in names]


def racks_of(run: TreeRun, pods: Sequence[Pod]) -> set[str]:
    return {where.partition("-")[0] for where in run.places(pods).values()}


def decide(run: TreeRun, groups: Sequence[GangGroup], *pods: Sequence[Pod], first: int = 1) -> list[dict[str, str]]:
    """Where the pods of each group go; `first`: the number of the first of these groups."""
    run.take_tree(groups, dict(enumerate(pods, start=first)))
    run.settle()
    assert run.told_once(each for of in pods for each in of)
    return [run.places(of) for of in pods]


# Placed


@everywhere
def test_each_replica_goes_to_a_rack_of_its_own_if_it_must(shards: int) -> None:
    run = run_with([*rack("r1", 1), *rack("r2", 1), *rack("r3", 1, cpu=3)], shards)
    groups = [composite("root", 0, 2), leaf("a", 0, 4, IN_ONE_RACK), leaf("b", 0, 4, IN_ONE_RACK)]
    a, b = members(WORKER, 4, "a"), members(WORKER, 4, "b")
    decide(run, groups, a, b)
    assert {len(racks_of(run, a)), len(racks_of(run, b))} == {1}
    assert racks_of(run, a) | racks_of(run, b) == {"r1", "r2"}


@everywhere
def test_the_block_is_chosen_for_all_and_the_racks_within_it(shards: int) -> None:
    """The example of the proposal: b1 has two racks with room for one group each, b0 only one."""
    b0, b1 = [*rack("r1", 1, 3), *rack("r2", 1, 5)], [*rack("r3", 1, 5, "b1"), *rack("r4", 1, 5, "b1")]
    run = run_with([*b0, *b1], shards)
    groups = [composite("root", 0, 2, IN_ONE_BLOCK), leaf("a", 0, 5, IN_ONE_RACK), leaf("b", 0, 5, IN_ONE_RACK)]
    a, b = members(WORKER, 5, "a"), members(WORKER, 5, "b")
    decide(run, groups, a, b)
    assert racks_of(run, a) | racks_of(run, b) == {"r3", "r4"}


@everywhere
def test_a_group_that_is_not_needed_takes_no_room_from_those_that_are(shards: int) -> None:
    run = run_with(rack("r1", 1, cpu=4), shards)
    groups = [composite("root", 0, 2), leaf("a", 0, 2), leaf("b", 0, 2), leaf("c", 0, 2)]
    a, b, c = (members(WORKER, count, name) for count, name in ((3, "a"), (2, "b"), (2, "c")))
    places = decide(run, groups, a, b, c)
    assert sorted(map(len, places)) == [0, 2, 2]


@everywhere
def test_members_beyond_the_minimum_are_placed_as_they_fit(shards: int) -> None:
    run = run_with(rack("r1", 1, cpu=5), shards)
    groups = [composite("root", 0, 2), leaf("a", 0, 1), leaf("b", 0, 3)]
    places = decide(run, groups, members(WORKER, 3, "a"), members(WORKER, 3, "b"))
    assert list(map(len, places)) == [2, 3]


@everywhere
def test_if_one_group_has_no_room_none_of_the_others_is_placed(shards: int) -> None:
    run = run_with([*rack("r1", 1), *rack("r2", 1, cpu=3)], shards)
    groups = [composite("root", 0, 2), leaf("a", 0, 4, IN_ONE_RACK), leaf("b", 0, 4, IN_ONE_RACK)]
    a, b = members(WORKER, 4, "a"), members(WORKER, 4, "b")
    assert decide(run, groups, a, b) == [{}, {}]
    reasons = {name: told.unfit for name, told in (run.unfit(a) | run.unfit(b)).items()}
    assert len(reasons) == 8
    assert all({"GangScheduling", "NodeResourcesFit"} <= set(each.plugins) for each in reasons.values())
    sentence = f'Composite pod group "{KEY}": fewer than 2 of its 2 groups fit together.'
    assert all(each.message.endswith(sentence) for each in reasons.values())


@everywhere
def test_a_late_group_goes_to_the_block_of_the_others_and_a_rack_of_its_own(shards: int) -> None:
    run = run_with([*rack("r1", 1), *rack("r2", 1), *rack("r3", 2, block="b1")], shards)
    groups = [GangGroup("root", 0, True, 1, IN_ONE_BLOCK, ("r1-0",)), leaf("b", 0, 4, IN_ONE_RACK)]
    b = members(WORKER, 4, "b")
    run.add_pods([])
    decide(run, groups, b)
    assert racks_of(run, b) <= {"r1", "r2"}
    assert len(racks_of(run, b)) == 1


def test_groups_on_their_way_go_to_the_block_where_the_first_was_placed() -> None:
    """They left the queue before it knew where the first one is."""
    run = run_with([*rack("r1", 1, cpu=2), *rack("r2", 1, cpu=4, block="b1")])
    root = composite("root", 0, 1, IN_ONE_BLOCK)
    a, b = members(WORKER, 2, "a"), members(WORKER, 2, "b")
    run.take_tree([root, leaf("a", 0, 2, IN_ONE_RACK)], {1: a})
    run.take_tree([root, leaf("b", 0, 2, IN_ONE_RACK)], {1: b})
    run.settle()
    assert racks_of(run, a) == {"r1"}
    assert run.places(b) == {}


def test_a_tree_that_is_none_fails_and_stops_nothing() -> None:
    run = run_with(rack("r1", 1))
    pods = members(WORKER, 2, "a")
    run.take_tree([leaf("a", 0, 1), leaf("b", 0, 1)], {1: pods})
    other = members(WORKER, 1, "other")
    run.take(*other)
    run.settle()
    assert run.places(pods) == {}
    assert run.places(other)


@everywhere
@pytest.mark.parametrize("at", [2, 4, 6, 8])
def test_after_a_conflict_the_tree_is_decided_again_as_a_whole(shards: int, at: int) -> None:
    """Another scheduler takes room in the first rack at some step of the decision."""
    run = run_with([*rack("r1", 1, block="b1"), *rack("r2", 1, block="b1"), *rack("r3", 1), *rack("r4", 2)], shards)
    groups = [composite("root", 0, 2, IN_ONE_BLOCK), leaf("a", 0, 4, IN_ONE_RACK), leaf("b", 0, 3, IN_ONE_RACK)]
    a, b = members(WORKER, 4, "a"), members(WORKER, 4, "b")
    run.take_tree(groups, {1: a, 2: b})
    for step in range(12):
        run.step()
        if step == at:
            for where in ("r1-0", "r2-0"):
                run.observe(snapshot.PodSeen(bound(members(WORKER.request(cpu=3), 1, where)[0], where)))
    run.settle()
    assert run.told_once([*a, *b])
    assert len(run.places(a)) == 4
    assert len(run.places(b)) >= 3
    assert len(racks_of(run, a)) == len(racks_of(run, b)) == 1
    assert racks_of(run, a) | racks_of(run, b) <= {"r3", "r4"} or racks_of(run, a) | racks_of(run, b) <= {"r1", "r2"}


def test_members_that_lost_a_conflict_alone_go_where_the_others_are() -> None:
    """The root is met, one pod of a has to be placed again: in the block of all and the rack of a."""
    root = GangGroup("root", 0, True, 2, IN_ONE_BLOCK)
    gang = Gang(KEY, 4, groups=(root, leaf("a", 0, 2, IN_ONE_RACK), leaf("b", 0, 2)), group=1)
    again = with_placed(gang, [(1, "r1-0"), (2, "r2-0"), (2, "r2-1")])
    assert again.groups == (
        GangGroup("root", 0, True, 2, IN_ONE_BLOCK, ("r1-0", "r2-0", "r2-1")),
        leaf("a", 0, 1, IN_ONE_RACK, ("r1-0",)),
        leaf("b", 0, 0),
    )
    run = run_with([*rack("r1", 2, cpu=1), *rack("r2", 2, cpu=1), *rack("r3", 1, block="b1")])
    last = members(WORKER, 1, "a")
    run.take_tree(again.groups, {1: last})
    run.settle()
    assert set(run.places(last).values()) <= {"r1-0", "r1-1"}
    assert run.places(last)


@everywhere
def test_a_tree_that_takes_too_many_steps_is_given_up_whole(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.cycle.round.tree_round.MAX_STEPS", 3)
    monkeypatch.setattr("services.cycle.round.tree_round.MAX_STEPS_OF_GROUP", 0)
    run = run_with([*rack("r1", 1), *rack("r2", 1)], shards)
    groups = [composite("root", 0, 2), leaf("a", 0, 4, IN_ONE_RACK), leaf("b", 0, 4, IN_ONE_RACK)]
    a, b = members(WORKER, 4, "a"), members(WORKER, 4, "b")
    assert decide(run, groups, a, b) == [{}, {}]
    assert all(f"{ENDED} after 3 steps" in told.unfit.message for told in run.unfit([*a, *b]).values())


# Against all placements


class Case(NamedTuple):
    nodes: list[Node]
    groups: list[GangGroup]
    pods: dict[int, list[Pod]]


def case_of(seed: int) -> Case:
    dice = random.Random(seed)
    nodes: list[Node] = []
    for i in range(dice.randint(2, 4)):
        place = dice.randrange(3)
        built = node(f"n{i}").capacity(cpu=dice.randint(1, 4), memory="8Gi", pods="20")
        built = built.label({RACK: f"r{place}", BLOCK: f"b{place // 2}", "disk": dice.choice(["ssd", "hdd"])})
        built = built.label({HOST: f"n{i}"})
        nodes.append(built.build())
    groups: list[GangGroup] = []
    pods: dict[int, list[Pod]] = {}
    _grow(dice, groups, pods, 0, 3, dice.random() < 0.3)
    return Case(nodes, groups, pods)


def _grow(
    dice: random.Random,
    groups: list[GangGroup],
    pods: dict[int, list[Pod]],
    parent: int,
    levels: int,
    apart: bool,
) -> None:
    """`apart`: pods keep off nodes with pods of some label."""
    number = len(groups)
    if number and (levels == 1 or dice.random() < 0.6):
        count = min(dice.choice((1, 1, 2, 3)), 6 - sum(map(len, pods.values())))
        if count:
            topology = dice.choice(((), (), IN_ONE_RACK))
            made = pod("x").request(cpu=dice.randint(1, 2)).never_preempting()
            made = made.node_selector(disk="ssd") if dice.random() < 0.2 else made
            if apart:
                made = _apart(HOST, dice.choice("ab"))(made.label(app=dice.choice("ab")))
            groups.append(leaf(f"g{number}", parent, dice.choice((count, count, dice.randint(1, count))), topology))
            pods[number] = members(made, count, f"g{number}-")
        return
    topology = dice.choice(((), (), IN_ONE_BLOCK, IN_ONE_RACK))
    groups.append(composite(f"g{number}", parent, 0, topology))
    for _ in range(dice.randint(1, 3)):
        _grow(dice, groups, pods, number, levels - 1, apart)
    below = sum(each.parent == number for each in groups[number + 1 :])
    least = dice.choice((below, below, dice.randint(1, max(below, 1))))
    groups[number] = msgspec.structs.replace(groups[number], least=max(least, 1))


Placed = dict[int, list[Node]]
"""By group, where its members are."""


def placements(case: Case) -> Iterator[Placed]:
    """All ways to place some of the members, whose pods are alike within a group."""
    slots = [(number, each) for number, of in case.pods.items() for each in of]
    there: list[tuple[Pod, Node]] = []
    free = {each.name: int(each.status.allocatable["cpu"].milli) for each in case.nodes}

    def place(at: int, placed: Placed) -> Iterator[Placed]:
        if at == len(slots):
            yield placed
            return
        number, each = slots[at]
        yield from place(at + 1, placed)
        for where in case.nodes:
            labels, cpu = where.metadata.labels, _cpu(each)
            if free[where.name] < cpu or not each.spec.node_selector.items() <= labels.items():
                continue
            if not admits(each, where, case.nodes, there):
                continue
            free[where.name] -= cpu
            there.append((each, where))
            placed.setdefault(number, []).append(where)
            yield from place(at + 1, placed)
            placed[number].pop()
            there.pop()
            free[where.name] += cpu

    yield from place(0, {})


def _cpu(each: Pod) -> int:
    return sum(int(container.resources.requests["cpu"].milli) for container in each.spec.containers)


def wrong(case: Case, placed: Placed) -> str:
    """What the placement of the tree breaks; empty if it is one."""
    tree = GroupTree(case.groups, {})
    counts = Counter({number: len(nodes) for number, nodes in placed.items()})
    if not tree.is_met(0, counts):
        return "the root is not met"
    for number in (number for number, nodes in placed.items() if nodes):
        for above in path_of(case.groups, number):
            if not tree.is_met(above, counts):
                return f"{case.groups[above].name} is placed in part"
    for number, group in enumerate(case.groups):
        there = [where for each in tree.leaves(number) for where in placed.get(each, ())]
        for level in group.topology:
            if len({where.metadata.labels[level.key] for where in there}) > 1:
                return f"{group.name} is in several domains"
    return ""


def check(seed: int, shards: int) -> str:
    """Whether it was placed, has no placement, or was given up."""
    case = case_of(seed)
    if not case.pods:
        return "empty"
    run = run_with(case.nodes, shards)
    run.take_tree(case.groups, case.pods)
    run.settle()
    everyone = [each for of in case.pods.values() for each in of]
    assert run.told_once(everyone)
    by_name = {each.name: each for each in case.nodes}
    placed = {number: [by_name[where] for where in run.places(of).values()] for number, of in case.pods.items()}
    told = f"seed {seed}, {shards} shards: {case.groups}, placed {run.places(everyone)}"
    if any(placed.values()):
        assert not wrong(case, placed), f"{told}: {wrong(case, placed)}"
        return "placed"
    why = next(iter(run.unfit(everyone).values())).unfit.message
    has_one = any(any(each.values()) and not wrong(case, each) for each in placements(case))
    assert not has_one or ENDED in why, f"{told}: {why}"
    return "ended" if ENDED in why else "none"


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_a_tree_is_placed_if_and_only_if_it_has_a_placement(shards: int) -> None:
    first = random.randrange(10**6)
    print(f"seeds from {first}")
    found = Counter(check(first + i, shards) for i in range(15))
    print(dict(found))
    assert found["ended"] <= 4
    assert found["placed"] >= 3
