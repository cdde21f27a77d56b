"""Every workload of the benchmarks can be measured."""

import pytest

from testing.inprocess.bench import PARTS, Case, measure
from testing.inprocess.workloads import WORKLOADS


@pytest.mark.parametrize("workload", WORKLOADS)
def test_all_pods_are_decided(workload: str) -> None:
    costs, _ = measure(Case(nodes=40, classes=5, round_size=16, pods=32, workload=workload))
    assert costs.pods == 32
    assert all(costs.micros(part) > 0 for part in PARTS)
