"""Profiles that pack nodes: in rounds of any size each pod takes the best node, as if pods were decided one by one."""

from dataclasses import replace
from typing import Any

import pytest

from shared.framework.loading import load_frameworks
from shared.model.objects import DEFAULT_SCHEDULER
from testing.inprocess.quality import measure, scenes
from tests.rounds.script import Script, asked, written
from tests.rounds.support import small_pod

FITS: dict[str, dict[str, Any]] = {
    "LeastAllocated": {"type": "LeastAllocated"},
    "MostAllocated": {"type": "MostAllocated"},
    "rising": {"type": "RequestedToCapacityRatio", "shape": [(0, 0), (100, 10)]},
    "rising to half": {"type": "RequestedToCapacityRatio", "shape": [(0, 0), (50, 10), (100, 2)]},
    "falling": {"type": "RequestedToCapacityRatio", "shape": [(0, 10), (100, 0)]},
}


def config(strategy: str) -> dict[str, Any]:
    fit: dict[str, Any] = dict(FITS[strategy])
    shape = fit.pop("shape", None)
    if shape is not None:
        points = [{"utilization": at, "score": score} for at, score in shape]
        fit["requestedToCapacityRatio"] = {"shape": points}
    fit["resources"] = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": fit}}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("strategy", "packs"),
    [
        ("LeastAllocated", False),
        ("MostAllocated", True),
        ("rising", True),
        ("rising to half", True),
        ("falling", False),
    ],
)
def test_whether_a_profile_packs_is_known_from_its_configuration(strategy: str, packs: bool) -> None:
    assert load_frameworks(config(strategy))[DEFAULT_SCHEDULER].packs == packs


def test_a_profile_that_does_not_score_by_resources_does_not_pack() -> None:
    disabled = config("MostAllocated")
    disabled["profiles"][0]["plugins"]["score"] = {"disabled": [{"name": "NodeResourcesFit"}]}
    assert not load_frameworks(disabled)[DEFAULT_SCHEDULER].packs


@pytest.mark.parametrize("strategy", ["MostAllocated", "rising to half"])
def test_packing_in_rounds_costs_no_points(strategy: str) -> None:
    (scene,) = [each for each in scenes(nodes=8, pods=80) if each.name == "nodes of three sizes"]
    found = measure(replace(scene, config=config(strategy)), 64)
    assert found.placed == 80
    assert (found.regret, found.worst) == (0.0, 0)
    assert found.rounds < 40


def test_the_classes_of_a_packing_profile_follow_each_other_without_a_pause() -> None:
    script = Script("w", frameworks=load_frameworks(config("MostAllocated")), longest_pause=0.03)
    pods = [small_pod(f"{cpu}-{i}", cpu) for i in range(3) for cpu in ("1", "2")]
    asks = script.submit(*pods)
    assert [ask.count for ask in asks["w"].classes] == [3]
    effects = script.settle(asks, until="SendCommit", w=[("n1", 9), ("n1", 10), ("n1", 11)])
    assert [each.assignment.name for each in written(effects).decisions] == ["1-0", "1-1", "1-2"]
    following = asked(effects)
    assert [ask.count for ask in following["w"].classes] == [3], "the other class is asked about during the commit"
    assert following["w"].min_seq > asks["w"].min_seq
