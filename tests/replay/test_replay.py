"""A replay makes the recorded decisions again without a difference, also after mishaps on the wire."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest

from shared.messages.evaluation import Ties
from shared.messages.queue import Gang
from shared.messages.recording import RoundDecided, SearchDecided
from shared.model.objects import Node, Pod
from testing.builders import node, pod, selector
from tests.replay.worlds import Overheard
from tests.rounds.gangs import GangRun, members
from tests.rounds.preempting_gangs import PreemptingGangs, gang_of, pod_group
from tests.rounds.preempting_world import Full, Preempting
from tests.rounds.support import FRAMEWORKS
from tests.rounds.test_gang_placements import case_of
from tests.rounds.test_tree_placements import TreeRun
from tests.rounds.test_tree_placements import case_of as tree_of
from tests.rounds.world import BadLuck
from tools.recording.file import Entry, RecordingReader
from tools.replay.replay import Comparison, Replay

ZONE, HOSTNAME = "zone", "kubernetes.io/hostname"
STEPS = 3
DEMO = Path(__file__).parents[1] / "recordings" / "demo.rec"


def replayed(entries: Sequence[Entry], shards: int | None = None) -> Comparison:
    return Replay(shards).take_all(entries)


def no_difference(found: Comparison) -> None:
    assert not found.differences, "\n".join(each.text() for each in found.differences[:5])
    assert not found.incomparable
    assert not found.gaps


@cache
def preempting(seed: int, shards: int, round_size: int = 8) -> Sequence[Entry]:
    """A full cluster in which pods of higher priority arrive, over a wire with mishaps."""
    luck = BadLuck(seed, 0.2)
    overheard = Overheard(luck)
    world = Full(seed, nodes=9)
    run = Preempting(shards=shards, round_size=round_size, fate=overheard, ties=Ties(seed=seed))
    world.into(run)
    overheard.begin(run)
    for at in range(0, len(world.high), 4):
        run.submit(world.high[at : at + 4])
        run.run_with_beats(3.0)
    luck.over = True
    run.run_with_beats(60.0)
    return overheard.entries


@cache
def preempting_gangs(seed: int, shards: int, round_size: int = 8) -> Sequence[Entry]:
    """A full cluster in which gangs of higher priority arrive, over a wire with mishaps."""
    luck = BadLuck(seed, 0.2)
    overheard = Overheard(luck)
    world = Full(seed, nodes=9)
    run = PreemptingGangs(shards=shards, round_size=round_size, fate=overheard, ties=Ties(seed=seed))
    world.into(run)
    overheard.begin(run)
    for i, (cpu, count) in enumerate((("1", 6), ("2", 4))):
        gang = gang_of(f"train{i}", count, pod("member").request(cpu=cpu).priority(9))
        run.submit_gang(pod_group(f"train{i}", count), gang)
        run.run_with_beats(3.0)
    luck.over = True
    run.run_with_beats(60.0)
    return overheard.entries


def zoned(count: int) -> list[Node]:
    labels = [{ZONE: "abc"[i % 3], HOSTNAME: f"n{i:02}"} for i in range(count)]
    return [node(each[HOSTNAME]).capacity(cpu=4, memory="16Gi").label(each).build() for each in labels]


def spreading(dice: random.Random, count: int, name: str) -> list[Pod]:
    kinds = [
        pod("k").label(app="a").request(cpu="300m").spread_hard(ZONE, selector(app="a")),
        pod("k").label(app="b").request(cpu="500m").spread_soft(ZONE, selector(app="b")),
        pod("k").label(app="c").request(cpu="700m").require_no_pods(HOSTNAME, selector(app="c")),
        pod("k").label(app="d").request(cpu="200m").require_pods(ZONE, selector(app="b")),
        pod("k").request(cpu="400m"),
    ]
    return [members(dice.choice(kinds), 1, f"{name}-{i}-")[0] for i in range(count)]


@cache
def gangs_and_spreading(seed: int, shards: int, round_size: int = 16) -> Sequence[Entry]:
    dice, luck = random.Random(seed), BadLuck(seed, 0.2)
    overheard = Overheard(luck)
    run = GangRun(shards=shards, round_size=round_size, fate=overheard, ties=Ties(seed=seed), frameworks=FRAMEWORKS)
    luck.over = True
    run.add_nodes(zoned(12))
    run.settle()
    luck.over = False
    overheard.begin(run)
    for step in range(STEPS):
        run.take(*spreading(dice, 12, f"p{step}"))
        gang = pod("g").label(app=f"g{step}").request(cpu="1").require_pods(ZONE, selector(app=f"g{step}"))
        run.take((Gang(f"ns/g{step}", 4), members(gang, 5, f"g{step}-")))
        run.settle()
    return overheard.entries


def gangs_in_racks(seed: int, shards: int) -> Sequence[Entry]:
    """Gangs of up to three classes: some are tried in several racks, and some are searched a placement for."""
    overheard = Overheard()
    run = GangRun(shards=shards, fate=overheard, ties=Ties(seed=seed), frameworks=FRAMEWORKS)
    run.add_nodes(case_of(5).nodes)
    run.settle()
    overheard.begin(run)
    for step in range(seed, seed + STEPS):
        case = case_of(step)
        pods = [
            msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, name=f"{each.name}-{step}"))
            for each in case.pods
        ]
        run.take((Gang(f"ns/g{step}", case.least, topology=case.topology), pods))
        run.settle()
    return overheard.entries


@pytest.mark.parametrize("seed", [0, 40])
def test_gangs_in_racks(seed: int) -> None:
    found = replayed(gangs_in_racks(seed, 2))
    no_difference(found)
    assert found.gangs == STEPS


def test_trees_of_groups() -> None:
    """Decided group by group, and some searched a placement for."""
    overheard = Overheard()
    run = TreeRun(shards=2, fate=overheard, ties=Ties(seed=1), frameworks=FRAMEWORKS)
    run.add_nodes(tree_of(5).nodes)
    run.settle()
    overheard.begin(run)
    for step in range(6):
        run.take_tree(tree_of(step).groups, tree_of(step).pods, f"t{step}")
        run.settle()
    found = replayed(overheard.entries)
    no_difference(found)
    assert found.gangs == 6
    assert found.verdicts["placed"] and found.verdicts["unfit"]


def test_preemptions() -> None:
    found = replayed(preempting(2, 3))
    no_difference(found)
    assert found.searches and found.verdicts["nominated"]
    assert found.verdicts["placed"] >= 8


def test_gangs_that_preempt() -> None:
    """The search finds the same victims, and the rehearsal places the members on the same nodes."""
    found = replayed(preempting_gangs(3, 3))
    no_difference(found)
    assert found.searches >= 2
    assert found.gangs >= 4


def test_gangs_and_spreading() -> None:
    found = replayed(gangs_and_spreading(1, 2))
    no_difference(found)
    assert found.gangs == STEPS
    assert found.verdicts["placed"] > 20


@pytest.mark.parametrize("record", [preempting, preempting_gangs, gangs_and_spreading])
def test_strict_mode_decides_the_same_however_the_nodes_are_divided(
    record: Callable[[int, int, int], Sequence[Entry]],
) -> None:
    entries = record(3, 2, 1)
    for shards in (1, 3):
        no_difference(replayed(entries, shards))


def test_a_wrong_decision_is_found() -> None:
    entries = [*gangs_and_spreading(1, 2)]
    at, record = next((i, each) for i, each in enumerate(entries) if isinstance(each, RoundDecided) and not each.gang)
    first = record.pods[0]
    other = msgspec.structs.replace(first, node="n11" if first.node != "n11" else "n10")
    entries[at] = msgspec.structs.replace(record, pods=[other, *record.pods[1:]])
    (difference,) = replayed(entries).differences
    assert difference.pod == first.uid
    assert f"recorded node {other.node} (score {first.score})" in difference.text()
    assert f"replayed node {first.node} (score {first.score})" in difference.text()


def test_a_difference_names_the_victims() -> None:
    entries = [*RecordingReader(DEMO).entries()]
    at, record = next((i, each) for i, each in enumerate(entries) if isinstance(each, SearchDecided))
    wrong = msgspec.structs.replace(record.pods[0], node="elsewhere")
    entries[at] = msgspec.structs.replace(record, pods=[wrong, *record.pods[1:]])
    (difference,) = replayed(entries).differences
    names = ", ".join(difference.victims[uid] for uid in wrong.victims)
    assert names.startswith("demo/")
    assert f"recorded nominated to node elsewhere, victims {names}, replayed nominated to node " in difference.text()
