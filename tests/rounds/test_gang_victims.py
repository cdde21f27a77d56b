"""Victims of gangs on small clusters, compared with every possible set of victims and every placement."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pytest

from services.cycle.preemption.gang_case import GangCase, Stage
from services.cycle.preemption.gang_search import GangSearch
from services.cycle.preemption.rehearsal import in_order_of_return
from services.cycle.round.assign import Unfit
from services.worker.proposer import Proposer
from shared.cluster.nodetable import NodeTable
from shared.framework.victim_sets import Cost, cost_of
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates, Victim
from shared.messages.queue import Gang
from shared.model.load import load_of
from shared.model.objects import ClusterObject, ObjectKind, object_from
from testing.builders import node, pod
from testing.inprocess.batches import pod_info
from tests.plugins.cluster import framework
from tests.rounds.preempting_gangs import WHOLE, pod_group

PRIORITY = 10
MADE = framework("NodeResourcesFit", "DefaultPreemption")
FRAMEWORKS = {MADE.name: MADE}
BUDGET = "default/full"
OWN = "train"
"""The gang's own group."""


@dataclass(frozen=True)
class Low:
    """A pod that may have to go. `group`: it goes with all pods of this group.

    `of`: its group, of which each pod goes by itself; the group's `priority` counts in place of what the pod `says`.
    """

    name: str
    node: int
    cpu: int
    priority: int
    started: float
    guarded: bool = False
    group: str = ""
    of: str = ""
    says: int | None = None

    @property
    def uid(self) -> str:
        return f"default/{self.name}"

    @cached_property
    def victim(self) -> Victim:
        return Victim(self.uid, self.uid, self.priority, self.started, budgets={BUDGET: -1} if self.guarded else {})


@dataclass(frozen=True)
class Small:
    """Nodes with their capacity, low pods on them, and the gang: cpus of each member, in queue order."""

    capacity: Sequence[int]
    low: Sequence[Low]
    gang: Sequence[int]
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of groups."""

    def units(self) -> list[tuple[Low, ...]]:
        by_unit: dict[str, list[Low]] = {}
        for each in self.low:
            by_unit.setdefault(each.group or each.name, []).append(each)
        return [tuple(of_unit) for of_unit in by_unit.values()]

    def fits(self, gone: Iterable[Low]) -> bool:
        """Whether all members can be placed, however they are spread."""
        left = list(self.capacity)
        away = {each.name for each in gone}
        for each in self.low:
            if each.name not in away:
                left[each.node] -= each.cpu
        return _packs(sorted(self.gang, reverse=True), left)

    def sets(self) -> Iterator[tuple[tuple[Low, ...], ...]]:
        """All sets of units that make room."""
        units = [unit for unit in self.units() if all(each.priority < PRIORITY for each in unit)]
        for size in range(len(units) + 1):
            for picked in itertools.combinations(units, size):
                if self.fits(itertools.chain(*picked)):
                    yield picked


def _packs(members: Sequence[int], left: list[int]) -> bool:
    if not members:
        return True
    first, *rest = members
    for i, room in enumerate(left):
        if room >= first and room not in left[:i]:
            left[i] -= first
            if _packs(rest, left):
                left[i] += first
                return True
            left[i] += first
    return False


def cost(gone: Iterable[Low]) -> Cost:
    return cost_of((each.victim for each in gone), {BUDGET: 0})


def objects(small: Small) -> list[ClusterObject]:
    budget = {"spec": {"selector": {"matchLabels": {"guarded": "yes"}}}, "status": {"disruptionsAllowed": 0}}
    groups = sorted({each.group for each in small.low if each.group})
    return [
        object_from(ObjectKind.POD_DISRUPTION_BUDGET, {"metadata": {"name": "full", "namespace": "default"}, **budget}),
        *(pod_group(name, 1, priority=small.priorities[name], **WHOLE) for name in groups),
        *(
            pod_group(each.of, 1, priority=each.priority, priorityClassName="of-group")
            for each in small.low
            if each.of not in ("", OWN)
        ),
    ]


def tables(small: Small, shards: int) -> list[NodeTable]:
    made = [NodeTable() for _ in range(shards)]
    for table in made:
        for each in objects(small):
            table.objects.upsert(each)
    for i, cpu in enumerate(small.capacity):
        made[i % shards].add_node(node(f"n{i}").capacity(cpu=cpu, pods=99).build())
    for low in small.low:
        of = pod(low.name).request(cpu=low.cpu).priority(low.priority if low.says is None else low.says)
        of = of.label(guarded="yes") if low.guarded else of
        of = of.group(low.group or low.of) if low.group or low.of else of
        made[low.node % shards].add_pod(low.uid, f"n{low.node}", load_of(of.build()), low.uid, low.started)
    return made


def search(small: Small, shards: int, stage: Stage = Stage.CHEAPEST) -> GangSearch:
    """Carried to its end."""
    proposers = [Proposer(table, FRAMEWORKS, Ties("name"), 1 / shards) for table in tables(small, shards)]
    gang = Gang("scheduling.k8s.io/v1alpha2/default/train", len(small.gang))
    members = [pod(f"m{i}").request(cpu=cpu).priority(PRIORITY).group(OWN).build() for i, cpu in enumerate(small.gang)]
    infos = [pod_info(each, MADE.class_of_template(each), gang=gang) for each in members]
    case = GangCase(gang.key, gang.least, PRIORITY, [(info, Unfit("", ())) for info in infos], stage=stage)
    found = GangSearch(1, case, FRAMEWORKS, lambda class_id: True)
    while found.open:
        ask = found.message(1, 0)
        for i, proposer in enumerate(proposers):
            assert found.take(Candidates(f"w{i}", 1, ask.search, ask.ask, 0, [i], proposer.search(ask)))
        found.gather(FRAMEWORKS)
    return found


def drawn(seed: int, *, classes: int = 1, groups: int = 0, sizes: Sequence[int] = (1, 2, 3)) -> Small:
    dice = random.Random(seed)
    capacity = [dice.randint(2, 5) for _ in range(dice.randint(1, 4))]
    priorities = {f"g{i}": dice.randint(0, 3) for i in range(groups)}
    low: list[Low] = []
    for i, cpu in enumerate(capacity):
        while cpu > 0 and len(low) < 9 and dice.random() < 0.9:
            size = min(dice.choice(sizes), cpu)
            cpu -= size
            group = dice.choice(["", *priorities]) if groups else ""
            priority = priorities[group] if group else dice.choice([0, 0, 1, 2, PRIORITY])
            name = f"low{len(low)}"
            low.append(Low(name, i, size, priority, float(dice.randint(1, 4)), dice.random() < 0.2, group))
    kinds = [dice.randint(1, 3) for _ in range(classes)]
    gang = [dice.choice(kinds) for _ in range(dice.randint(1, 5))]
    return Small(capacity, low, gang, priorities)


def disguised(small: Small, seed: int) -> Small:
    """As hard to make room in: but pods say other priorities than their groups, and some are the gang's own."""
    dice = random.Random(seed)
    low = [
        replace(each, of=OWN if each.priority == PRIORITY else f"g{each.priority}", says=dice.randint(0, 2 * PRIORITY))
        if dice.random() < 0.6
        else each
        for each in small.low
    ]
    return replace(small, low=[replace(each, says=0) if each.of == OWN else each for each in low])


def rehearsed(small: Small, found: GangSearch) -> list[Low]:
    """The victims without those that can be put back; none if they are not enough."""
    left = set(gone(small, found))
    if not left or not small.fits(left):
        return []
    by_uid = {each.uid: each for each in small.low}
    for unit in in_order_of_return(found.victims):
        without = left - {by_uid[victim.uid] for victim in unit}
        left = without if small.fits(without) else left
    return [each for each in small.low if each in left]


def all_stages(small: Small, shards: int) -> tuple[list[Low], bool]:
    """Who goes in the end, and whether the first stage has found as much."""
    found = search(small, shards)
    victims = rehearsed(small, found) if found.puts_back else gone(small, found)
    if victims or not found.may_have_missed:
        return victims, True
    return rehearsed(small, search(small, shards, Stage.ALL)), False


def gone(small: Small, found: GangSearch) -> list[Low]:
    by_uid = {each.uid: each for each in small.low}
    return [by_uid[victim.uid] for victim in found.victims]


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_the_best_set_of_all_where_pods_are_of_one_size(shards: int) -> None:
    """One class; whoever goes makes room for as much, so the dry run of one node finds its best victims, too."""
    for seed in range(60):
        small = drawn(1000 * shards + seed, sizes=(1,))
        if small.fits(()):
            continue
        found = search(small, shards)
        costs = [cost(itertools.chain(*picked)) for picked in small.sets()]
        assert bool(found.victims) is bool(costs), f"seed {seed}"
        if costs:
            assert cost(gone(small, found)) == min(costs), f"seed {seed}"


@pytest.mark.parametrize("shards", [1, 3])
def test_pods_count_with_the_priorities_of_their_groups_and_those_of_the_gang_stay(shards: int) -> None:
    tried = 0
    for seed in range(60):
        small = disguised(drawn(4000 * shards + seed, sizes=(1,)), seed)
        if small.fits(()):
            continue
        victims = gone(small, search(small, shards))
        costs = [cost(itertools.chain(*picked)) for picked in small.sets()]
        assert bool(victims) is bool(costs), f"seed {seed}"
        if costs:
            tried += any(each.of for each in victims)
            assert cost(victims) == min(costs), f"seed {seed}"
    assert tried > 5


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_victims_are_found_if_and_only_if_there_are_any(shards: int) -> None:
    """One class: nobody goes in vain, and nobody who need not."""
    for seed in range(60):
        small = drawn(2000 * shards + seed)
        if small.fits(()):
            continue
        found = search(small, shards)
        victims = gone(small, found)
        assert bool(victims) is (next(small.sets(), None) is not None), f"seed {seed}"
        if victims:
            assert small.fits(victims)
            assert all(each.priority < PRIORITY for each in victims)
            assert not any(small.fits(set(victims) - {each}) for each in victims), f"seed {seed}"


@pytest.mark.parametrize("shards", [1, 3])
def test_groups_that_are_evicted_whole(shards: int) -> None:
    """All pods of such a group go, wherever they are, and what they free counts. No group goes in vain."""
    whole = 0
    for seed in range(120):
        sizes = (1,) if seed % 2 else (1, 2, 3)
        small = drawn(3000 * shards + seed, groups=3, sizes=sizes)
        if small.fits(()):
            continue
        found = search(small, shards)
        victims = gone(small, found)
        assert bool(victims) is (next(small.sets(), None) is not None), f"seed {seed}"
        if not victims:
            continue
        names = {each.group for each in victims if each.group}
        assert set(victims) >= {each for each in small.low if each.group in names}, f"seed {seed}"
        assert small.fits(victims)
        units = [unit for unit in small.units() if set(unit) <= set(victims)]
        assert not any(small.fits(set(victims) - set(unit)) for unit in units), f"seed {seed}"
        without = [cost(itertools.chain(*each)) for each in small.sets() if not any(unit[0].group for unit in each)]
        whole += bool(names)
        if len(sizes) == 1 and without:
            assert cost(victims) <= min(without), f"seed {seed}"
    assert whole > 10


@pytest.mark.parametrize(("classes", "shards"), [(2, 1), (2, 3), (3, 2)])
def test_members_of_several_classes_preempt_if_and_only_if_that_helps(classes: int, shards: int) -> None:
    """No unit goes that could stay. Mostly it is the best set of all."""
    first = random.randrange(10**6)
    print(f"seeds from {first}")
    best = total = 0
    for seed in range(first, first + 80):
        small = drawn(seed, classes=classes, groups=seed % 3)
        if small.fits(()):
            continue
        victims, _ = all_stages(small, shards)
        costs = [cost(itertools.chain(*picked)) for picked in small.sets()]
        assert bool(victims) is bool(costs), f"seed {seed}"
        units = [unit for unit in small.units() if set(unit) <= set(victims)]
        assert not any(small.fits(set(victims) - set(unit)) for unit in units), f"seed {seed}"
        total += bool(costs)
        best += bool(costs) and cost(victims) == min(costs)
    print(f"{best} of {total} are the best set")
    assert best >= 0.6 * total
