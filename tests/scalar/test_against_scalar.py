"""The services' cores against a slow scheduler written from kube-scheduler's rules, one pod and one node at a time.

Clusters are drawn from golden cases, and profiles are drawn. `python -m tests.scalar.test_against_scalar FIRST COUNT`
plays more seeds.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from shared.errors import InvalidObject
from shared.model.devices import DEVICE_CLASS_PREFIX
from testing.inprocess.cases import RawCase
from testing.inprocess.conformance import read_cases
from testing.inprocess.golden_case import Replay
from tests.scalar.clusters import draw_cluster
from tests.scalar.profiles import draw_config
from tests.scalar.scheduler import Unscored, scalar_case

DATA = Path(__file__).parents[1] / "conformance" / "data"
GROUPS = (
    *("resources", "taints", "nodeaffinity", "ports", "images", "spread-hard", "spread-soft", "spread-default"),
    *("podaffinity-hard", "podaffinity-soft", "volumes", "preemption", "nominated", "config", "mixed", "sequence"),
    *("dra", "dra-allocate", "dra-shared", "dra-capacity", "dra-many"),
)
SHARDS = (1, 2, 3, 7)
SEEDS_A_DAY = 60
CASES: dict[str, list[RawCase]] = {}


def cases(group: str) -> list[RawCase]:
    if group not in CASES:
        CASES[group] = list(read_cases(DATA / f"{group}.jsonl.gz"))
    return CASES[group]


def without_extended_resources(group: str) -> list[RawCase]:
    """The scalar scheduler does not know how devices provide them."""
    return [raw for raw in cases(group) if not _has_extended_resources(raw)]


def _has_extended_resources(raw: RawCase) -> bool:
    classes = raw["objects"].get("deviceclasses", ())
    is_named = any("extendedResourceName" in each.get("spec", {}) for each in classes)
    return is_named or DEVICE_CLASS_PREFIX in str(raw["pending"])


@pytest.mark.parametrize("group", GROUPS)
def test_the_scalar_scheduler_answers_as_kube_scheduler(group: str) -> None:
    """By way of the cores, which are held against the golden answers themselves."""
    for raw in without_extended_resources(group)[::4]:
        assert [str(each) for each in Replay(scalar_case(raw), 1).run()] == [], raw["name"]


def played(seed: int) -> list[str]:
    """The differences between the cores and the scalar scheduler."""
    chance = Random(seed)
    group = without_extended_resources(chance.choice(GROUPS))
    while True:
        raw = draw_cluster(chance, group) if chance.random() < 0.7 else chance.choice(group)
        has_own = raw.get("config") is not None  # its pods may name its profiles
        drawn: RawCase = raw if has_own or chance.random() < 0.2 else {**raw, "config": draw_config(chance)}
        try:
            replay = Replay(scalar_case(drawn), chance.choice(SHARDS))
        except (InvalidObject, Unscored):
            continue
        return [str(each) for each in replay.run()]


def test_random_clusters_and_profiles_decide_as_the_scalar_scheduler() -> None:
    first = int(f"{datetime.now(UTC):%Y%m%d}") * 1000
    for seed in range(first, first + SEEDS_A_DAY):
        differences = played(seed)
        assert not differences, f"seed {seed}: {differences[:3]}"


if __name__ == "__main__":
    start, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(start, start + count):
        if found := played(number):
            print(f"seed {number}: {found[:2]}", flush=True)
