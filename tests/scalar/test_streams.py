"""A cluster that was reached by a random stream of changes decides as one that was loaded at once.

The clusters and answers are those of golden cases, with devices. `python -m tests.scalar.test_streams FIRST COUNT`
plays more seeds.
"""

import sys
from datetime import UTC, datetime
from random import Random

from testing.inprocess.cases import decoded
from testing.inprocess.golden_case import Replay
from tests.scalar.streams import stream
from tests.scalar.test_against_scalar import GROUPS, SHARDS, cases

DEVICES = ("dra-extended", "dra-conditions")
SEEDS_A_DAY = 60


def played(seed: int) -> list[str]:
    """The differences from the golden answers."""
    chance = Random(seed)
    case, before = (decoded(chance.choice(cases(chance.choice((*GROUPS, *DEVICES))))) for _ in range(2))
    return [str(each) for each in Replay(case, chance.choice(SHARDS), stream(chance, case, before)).run()]


def test_the_way_to_a_cluster_does_not_matter() -> None:
    first = int(f"{datetime.now(UTC):%Y%m%d}") * 1000
    for seed in range(first, first + SEEDS_A_DAY):
        differences = played(seed)
        assert not differences, f"seed {seed}: {differences[:3]}"


if __name__ == "__main__":
    start, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(start, start + count):
        if found := played(number):
            print(f"seed {number}: {found[:2]}", flush=True)
