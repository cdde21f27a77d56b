"""Trees of groups that preempt: all that they need, or nobody; compared with every set of victims and placement."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from shared.messages.queue import GangGroup
from shared.model.objects import Pod
from testing.builders import pod
from testing.inprocess.pipeline import bound
from tests.rounds.gangs import members
from tests.rounds.preempting_gangs import WHOLE
from tests.rounds.preempting_trees import (
    PRIORITY,
    PreemptingTrees,
    crowded,
    group_object,
    in_its_group,
    objects_of,
    world,
)
from tests.rounds.preempting_world import where_they_are
from tests.rounds.test_tree_placements import IN_ONE_BLOCK, IN_ONE_RACK, case_of, composite, leaf, rack

MEMBER = pod("member").request(cpu=2).priority(PRIORITY)
everywhere = pytest.mark.parametrize("shards", [1, 3])


def low(on: str, *, priority: int = 0, group: str = "", cpu: int = 1, count: int = 4) -> list[Pod]:
    made = pod("low").request(cpu=cpu).priority(priority).started("2024-01-01T00:00:00Z")
    made = made.group(group) if group else made
    return [bound(each, on) for each in members(made, count, f"low-{on}-")]


def submit(run: PreemptingTrees, groups: Sequence[GangGroup], *pods: Sequence[Pod]) -> list[Pod]:
    """The pods of each pod group, in its order."""
    run.add_objects(objects_of(groups))
    names = [each.name for each in groups if not each.is_composite]
    everyone = [in_its_group(each, name) for name, of in zip(names, pods, strict=True) for each in of]
    run.submit(everyone)
    return everyone


def run_to_first_evictions(run: PreemptingTrees, seconds: float) -> None:
    end = run.now + seconds
    while not run.evictions and run.now < end and run.step():
        pass


@everywhere
def test_a_tree_with_domains_makes_just_enough_pods_go(shards: int) -> None:
    """Each replica needs a rack of its own; the racks of one block have the cheaper pods."""
    nodes = [*rack("r1", 1), *rack("r2", 1), *rack("r3", 1, block="b1"), *rack("r4", 1, block="b1")]
    pods = [each for i in (1, 2) for each in low(f"r{i}-0", priority=3)]
    pods += [each for i in (3, 4) for each in low(f"r{i}-0", priority=1)]
    run = world(nodes, pods, shards)
    groups = [composite("root", 0, 2, IN_ONE_BLOCK), leaf("a", 0, 2, IN_ONE_RACK), leaf("b", 0, 1, IN_ONE_RACK)]
    a, b = members(MEMBER, 2, "a"), members(MEMBER, 1, "b")
    everyone = submit(run, groups, a, b)
    run.run_for(60)
    assert set(where_they_are(run, everyone).values()) == {"r3-0", "r4-0"}
    assert len(run.victims) == 6
    assert not run.promised


@everywhere
def test_only_as_many_groups_as_are_needed_make_others_go(shards: int) -> None:
    run = world(rack("r1", 3), [*low("r1-0"), *low("r1-1", priority=3), *low("r1-2", priority=2)], shards)
    groups = [composite("root", 0, 2), *(leaf(name, 0, 2) for name in "abc")]
    everyone = submit(run, groups, *(members(MEMBER, 2, name) for name in "abc"))
    run_to_first_evictions(run, 60)
    assert {each.rpartition("-")[0] for each in run.victims} == {"default/low-r1-0", "default/low-r1-2"}
    assert len(run.victims) == 8
    run.run_for(60)
    assert len(where_they_are(run, everyone)) == 6, "the third group preempts by itself"


@everywhere
def test_nobody_goes_for_a_tree_that_would_not_fit_all_the_same(shards: int) -> None:
    run = world([*rack("r1", 1), *rack("r2", 1)], [*low("r1-0"), *low("r2-0", priority=PRIORITY)], shards)
    groups = [composite("root", 0, 2), leaf("a", 0, 1, IN_ONE_RACK), leaf("b", 0, 2, IN_ONE_RACK)]
    everyone = submit(run, groups, members(MEMBER, 1, "a"), members(MEMBER, 2, "b"))
    run.run_for(60)
    assert not run.victims and not run.promised
    reasons = {each.unfit.message.partition("preemption: ")[2] for each in run.unfit(everyone).values()}
    assert reasons == {"no pods of lower priority make enough room for the composite pod group"}


@everywhere
@pytest.mark.parametrize("mode", ["all", "single"])
def test_a_tree_goes_whole_if_it_says_so(shards: int, mode: str) -> None:
    """Its groups say Single: the root's All outweighs that, and its priority counts for all its pods."""
    run = world(rack("r1", 2), [], shards)
    run.add_objects(
        [
            group_object("old", 1, composite=True, disruptionMode={mode: {}}, priority=1),
            group_object("old-a", 1, "old", disruptionMode={"single": {}}),
            group_object("old-b", 1, "old", disruptionMode={"single": {}}),
        ]
    )
    old = [*low("r1-0", group="old-a", priority=3), *low("r1-1", group="old-b", priority=3)]
    run.add_pods(old)
    run.settle()
    groups = [composite("root", 0, 2), leaf("a", 0, 1, IN_ONE_RACK), leaf("b", 0, 1)]
    everyone = submit(run, groups, members(MEMBER, 1, "a"), members(MEMBER, 1, "b"))
    run.run_for(60)
    assert len(where_they_are(run, everyone)) == 2
    assert len(run.victims) == (8 if mode == "all" else 4)


@everywhere
def test_pods_of_its_own_tree_never_make_way(shards: int) -> None:
    """The tree's priority is higher than that of its pods, one of whose groups is placed."""
    run = world(rack("r1", 1), [], shards)
    cheap = MEMBER.priority(0)
    run.add_objects(
        [
            group_object("root", 1, composite=True, priority=PRIORITY),
            group_object("a", 2, "root"),
            group_object("b", 2, "root"),
        ]
    )
    run.add_pods([bound(in_its_group(each, "a"), "r1-0") for each in members(cheap, 2, "a")])
    run.settle()
    late = [in_its_group(each, "b") for each in members(cheap, 2, "b")]
    run.submit(late)
    run.run_for(30)
    assert not run.victims
    assert not where_they_are(run, late)


def check(seed: int, shards: int) -> str:
    """What became of a random tree in a random crowd."""
    case = case_of(seed)
    if not 0 < sum(map(len, case.pods.values())) <= 4:
        return "skipped"
    found = crowded(case, seed)
    run = world(found.case.nodes, [], shards)
    run.add_objects(group_object(name, 1, priority=2, **WHOLE) for name in found.groups)
    run.add_pods(found.low)
    run.settle()
    numbers = [number for number, each in enumerate(found.case.groups) if not each.is_composite]
    everyone = submit(run, found.case.groups, *(found.case.pods.get(number, []) for number in numbers))
    run_to_first_evictions(run, 40)
    placed, victims = where_they_are(run, everyone), set(run.victims)
    if victims and (placed or not all(each.gang.endswith("/g0") for each in run.evictions)):
        return "independent"  # a group, or a pod, that no other one depends on preempts for itself
    run.run_for(40)
    placed = where_they_are(run, everyone)
    told = f"seed {seed}, {shards} shards: {found.case.groups}, placed {placed}, gone {victims}"
    if not victims:
        if placed:
            return "without victims"
        needs = found.fits(each.uid for each in found.low)
        reasons = " ".join(each.unfit.message for each in run.unfit(everyone).values())
        assert not needs or "ended" in reasons, f"{told}: {reasons}"
        return "ended" if needs else "none"
    units = found.units()
    assert all(unit <= victims or not unit & victims for unit in units), f"{told}: a group goes in part"
    assert found.fits(victims), told
    assert placed, told
    needless = [unit for unit in units if unit <= victims and found.fits(victims - unit)]
    assert not needless, f"{told}: {needless} need not go"
    return "preempted"


@pytest.mark.parametrize("shards", [1, 3])
def test_a_tree_preempts_if_and_only_if_that_helps_and_nobody_goes_in_vain(shards: int) -> None:
    first = random.randrange(10**6)
    print(f"seeds from {first}")
    found: Counter[str] = Counter()
    for seed in range(first, first + 400):
        found[check(seed, shards)] += 1
        if found["preempted"] == 4:
            break
    print(dict(found))
    assert found["preempted"] == 4
    assert found["ended"] <= 4
