"""The schedule of faults and the pods are functions of the seed."""

from itertools import pairwise

import pytest

from testing.inprocess.workloads import Object
from tools.faults.injection import Affects, Fault, plan
from tools.faults.workload import (
    CROWD,
    FILLER,
    FILLERS_PER_NODE,
    INITIAL_SHARE,
    MISFITS,
    URGENT,
    FaultWorkload,
    kind_of,
)
from tools.supervisor.options import PipelineOptions

SERVICES = list(PipelineOptions(workers=2, binders=2, standbys=True).services())
SEEDS = pytest.mark.parametrize("seed", [1, 2, 3])


def test_the_seed_determines_the_plan() -> None:
    assert plan(1, 60, SERVICES) == plan(1, 60, SERVICES)
    assert plan(1, 60, SERVICES) != plan(2, 60, SERVICES)


@SEEDS
def test_a_minute_has_all_faults_for_all_services(seed: int) -> None:
    injections = plan(seed, 60, SERVICES)
    assert {each.fault for each in injections} == set(Fault)
    affected = {name for each in injections if each.fault.value.affects is Affects.SERVICES for name in each.targets}
    assert affected == set(SERVICES)
    assert sum(each.fault is Fault.KILLED for each in injections) >= 8


@SEEDS
@pytest.mark.parametrize("seconds", [3.0, 10.0, 60.0])
def test_all_faults_are_over_in_time(seed: int, seconds: float) -> None:
    injections = plan(seed, seconds, SERVICES)
    assert injections
    assert all(one.at <= next.at for one, next in pairwise(injections))
    assert all(each.at + each.seconds <= seconds + 0.01 for each in injections)
    assert all(bool(each.targets) for each in injections if each.fault.value.affects is not None)


def test_an_injection_describes_itself() -> None:
    shown = {str(each) for each in plan(1, 60, SERVICES)}
    assert any(text.startswith("API server: answers 500 (") and ", for " in text for text in shown)
    assert any(text.endswith(": killed") for text in shown)


@SEEDS
@pytest.mark.parametrize(("pods", "nodes"), [(300, 20), (5_000, 200)])
def test_the_seed_determines_the_pods_and_their_number_is_exact(seed: int, pods: int, nodes: int) -> None:
    load = FaultWorkload(pods, nodes, seed)
    waves = [load.initial(), *load.waves(10)]
    assert waves == [load.initial(), *load.waves(10)]
    assert waves != [FaultWorkload(pods, nodes, seed + 1).initial(), *FaultWorkload(pods, nodes, seed + 1).waves(10)]
    names = [made["metadata"]["name"] for wave in waves for made in wave.created]
    assert len(names) == len(set(names)) == pods
    assert len(waves[0].created) >= INITIAL_SHARE * pods


@SEEDS
def test_pods_are_deleted_once_and_after_their_creation(seed: int) -> None:
    created: set[str] = set()
    load = FaultWorkload(1_000, 40, seed)
    for wave in [load.initial(), *load.waves(10)]:
        created |= {made["metadata"]["name"] for made in wave.created}
        gone = wave.deleted
        assert created.issuperset(gone)
        assert len(set(gone)) == len(gone)
        created -= set(gone)
    assert {kind_of(name) for name in created} >= {FILLER, URGENT, CROWD, *MISFITS}


@pytest.mark.parametrize(("pods", "nodes"), [(100, 20), (300, 20), (5_000, 200)])
def test_each_zone_of_wide_nodes_has_room_for_all_pods_that_must_fit(pods: int, nodes: int) -> None:
    """Hence they fit in any order of placement."""
    load = FaultWorkload(pods, nodes, 1)
    made = [each for wave in [load.initial(), *load.waves(10)] for each in wave.created]
    wanted = [_milli(each) for each in made if _kind(each) not in (FILLER, URGENT, CROWD, *MISFITS)]
    assert sum(wanted) < load.wide // 3 * 16_000
    assert len(wanted) < load.wide // 3 * 110
    assert sum(_kind(each) == FILLER for each in load.initial().created) == FILLERS_PER_NODE * load.tight


def _kind(made: Object) -> str:
    return kind_of(made["metadata"]["name"])


def _milli(made: Object) -> int:
    return int(made["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
