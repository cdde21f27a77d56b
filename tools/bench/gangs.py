"""What gangs cost, and how whole they leave racks: `python -m tools.bench.gangs`.

First the CPU of the cores with two shards, without a network, on 5,000 nodes of 32 cpu in racks of 50; of gangs, and of
trees of groups that each go to one rack. Then gangs that come and go: in a cluster of 40 racks with 128 places each,
the order of domains beside choosing at random among the racks that hold the gang.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from services.cycle.events import Decided
from services.cycle.round.domains import Domain, Level, Room, Values, domains, holding
from shared.framework.loading import load_frameworks
from shared.messages.queue import Gang, GangGroup
from shared.model.objects import Pod
from shared.model.workloads import TopologyConstraint
from testing.builders import PodBuilder, node, pod
from testing.inprocess.pipeline import Pipeline

RACK = "example.com/rack"
NODES, RACK_NODES, TIMES = 5_000, 50, 3
CASES = (
    ("200 gangs of 64", 200, 64, False),
    ("200 gangs of 64, each in one rack", 200, 64, True),
    ("1 gang of 5,000", 1, 5_000, False),
    ("1 gang of 300, in one rack", 1, 300, True),
)
TREES = ((8, 64), (64, 16), (128, 16), (256, 16))
RACKS, PLACES, SIZES, GANGS = 40, 128, (8, 16, 32, 64, 128), 20_000


def cost(gangs: int, size: int, is_in_rack: bool) -> tuple[float, int]:
    """Seconds of CPU from the batches to the answers to the commits, and the rounds that were asked."""
    pipeline = _cluster()
    topology = (TopologyConstraint(key=RACK),) if is_in_rack else ()
    pods = [_workers(f"g{g}", size) for g in range(gangs)]
    began = time.process_time()
    for g, members in enumerate(pods):
        pipeline.submit(members, gang=Gang(f"ns/g{g}", size, topology=topology))
    return _settled(pipeline, began, gangs * size)


def cost_of_tree(groups: int, size: int) -> tuple[float, int]:
    """The same for one tree of this many groups, each of which goes to one rack."""
    pipeline = _cluster()
    in_one_rack = (TopologyConstraint(key=RACK),)
    leaves = [GangGroup(f"ns/g{g}", 0, False, size, in_one_rack) for g in range(1, groups + 1)]
    pods = {g: _workers(f"g{g}", size) for g in range(1, groups + 1)}
    began = time.process_time()
    key = "compositepodgroup.scheduling.k8s.io/ns/root"
    pipeline.submit_tree(key, [GangGroup("ns/root", 0, True, groups), *leaves], pods)
    return _settled(pipeline, began, groups * size)


def _cluster() -> Pipeline:
    pipeline = Pipeline(load_frameworks(None), shards=2)
    pipeline.add_nodes(
        node(f"n{i:05}").label({RACK: f"r{i // RACK_NODES}"}).capacity(cpu=32, memory="128Gi", pods=110).build()
        for i in range(NODES)
    )
    pipeline.settle()
    return pipeline


def _settled(pipeline: Pipeline, began: float, members: int) -> tuple[float, int]:
    pipeline.settle()
    took = time.process_time() - began
    placed = sum(isinstance(outcome, Decided) for outcome in pipeline.outcomes.values())
    if placed != members:
        raise SystemExit(f"only {placed} of {members} members were placed")
    return took, pipeline.cycle.rounds.begun


def _workers(gang: str, size: int) -> list[Pod]:
    worker = pod("worker").request(cpu=4, memory="8Gi").label(app="training")
    return [_named(worker, f"{gang}-{i}") for i in range(size)]


def _named(worker: PodBuilder, name: str) -> Pod:
    return replace(worker, metadata=msgspec.structs.replace(worker.metadata, name=name)).build()


class Fragmentation(NamedTuple):
    """`whole`: racks without any pod, on average. `refused`: share of the gangs of each size."""

    whole: float
    used: float
    refused: dict[int, float]


Choice = Callable[[Sequence[Domain], random.Random], Domain]


def fragmentation(choose: Choice, load: float, seed: int = 1) -> Fragmentation:
    """Gangs of all sizes come and stay for random times, small ones more often. One that no rack holds is lost."""
    dice = random.Random(seed)
    free = {f"r{i}": PLACES for i in range(RACKS)}
    leaving: list[tuple[float, int, str, int]] = []
    asked, refused = Counter[int](), Counter[int]()
    now, whole, used = 0.0, 0, 0
    weights = [1 / size for size in SIZES]
    mean = len(SIZES) / sum(weights)
    for number in range(GANGS):
        now += dice.expovariate(load * RACKS * PLACES / mean)
        while leaving and leaving[0][0] <= now:
            _, _, rack, size = heappop(leaving)
            free[rack] += size
        size = dice.choices(SIZES, weights)[0]
        rooms: dict[Values, Room] = {(rack,): Room({"c": places}) for rack, places in free.items()}
        candidates = holding(domains([Level(RACK)], rooms, {"c": size}), size)
        asked[size] += 1
        if candidates:
            rack = choose(candidates, dice).labels[RACK]
            free[rack] -= size
            heappush(leaving, (now + dice.expovariate(1), number, rack, size))
        else:
            refused[size] += 1
        whole += sum(places == PLACES for places in free.values())
        used += RACKS * PLACES - sum(free.values())
    shares = {size: refused[size] / asked[size] for size in SIZES}
    return Fragmentation(whole / GANGS, used / GANGS / (RACKS * PLACES), shares)


def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}")
    for name, gangs, size, is_in_rack in CASES:
        _print_cost(name, gangs * size, [cost(gangs, size, is_in_rack) for _ in range(TIMES)])
    for groups, size in TREES:
        name = f"1 tree of {groups} groups of {size}"
        _print_cost(name, groups * size, [cost_of_tree(groups, size) for _ in range(TIMES)])
    print(f"\n{'':<12}{'load':>6}{'used':>8}{'whole racks':>13}  refused, by size {SIZES}")
    for load in (0.6, 0.8, 1.0):
        for how, choose in (("in order", _first), ("at random", _any)):
            found = fragmentation(choose, load)
            shares = "".join(f"{share:>8.1%}" for share in found.refused.values())
            print(f"{how:<12}{load:>6.1f}{found.used:>8.1%}{found.whole:>13.2f}  {shares}")


def _print_cost(name: str, members: int, runs: Sequence[tuple[float, int]]) -> None:
    took, rounds = min(runs)
    print(f"{name:<36}{took:>8.2f} s {took / members * 1e6:>7.0f} us per member {rounds:>6} rounds")


def _first(candidates: Sequence[Domain], dice: random.Random) -> Domain:
    return candidates[0]


def _any(candidates: Sequence[Domain], dice: random.Random) -> Domain:
    return dice.choice(candidates)


if __name__ == "__main__":
    main()
