"""The default profile: the plugin list, the points, the expansion and the arguments of v1.36."""

import pytest

from shared.config.args import (
    ARGS,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ResourceSpec,
    ScoringStrategy,
    VolumeBindingArgs,
)
from shared.config.plugin_lists import DEFAULT_PLUGINS, DEFAULT_POINTS, PLACEMENT_POINTS
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.reading import load_config

EXPANDED: dict[str, tuple[str, ...]] = {
    "preEnqueue": ("SchedulingGates", "DynamicResources", "DefaultPreemption"),
    "queueSort": ("PrioritySort",),
    "preFilter": (
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ),
    "filter": (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ),
    "postFilter": ("DynamicResources", "DefaultPreemption"),
    "preScore": (
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeResourcesBalancedAllocation",
    ),
    "reserve": ("VolumeBinding", "DynamicResources"),
    "permit": (),
    "preBind": ("VolumeBinding", "DynamicResources"),
    "bind": ("DefaultBinder",),
    "postBind": (),
}

SCORE = (
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeBinding", 1),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("DynamicResources", 2),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
)


def test_extension_points_are_those_of_the_api() -> None:
    assert {point.value for point in ExtensionPoint} == {*EXPANDED, "score"}


@pytest.mark.parametrize(
    "obj",
    [
        None,
        {},
        {"profiles": None, "percentageOfNodesToScore": None},
        {"profiles": []},
        {"profiles": [None]},
        {"profiles": [{"schedulerName": None, "plugins": None, "pluginConfig": None}]},
        {"profiles": [{"plugins": {"multiPoint": {}, "score": {"enabled": [], "disabled": None}, "filter": None}}]},
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "parallelism": 4},
    ],
)
def test_an_empty_file_is_the_default(obj: object) -> None:
    config = load_config(obj)
    assert config.percentage_of_nodes_to_score == 0
    (profile,) = config.profiles
    assert profile.scheduler_name == "default-scheduler"
    assert profile.percentage_of_nodes_to_score is None
    assert profile.plugins == {
        ExtensionPoint.SCORE: SCORE,
        **{ExtensionPoint(point): tuple(PluginRef(name) for name in names) for point, names in EXPANDED.items()},
    }
    assert profile.args == {
        "DefaultPreemption": DefaultPreemptionArgs(10, 100),
        "DynamicResources": DynamicResourcesArgs(10.0, 600.0),
        "InterPodAffinity": InterPodAffinityArgs(1, False),
        "PodTopologySpread": PodTopologySpreadArgs((), "System"),
        "VolumeBinding": VolumeBindingArgs(600),
        "NodeAffinity": NodeAffinityArgs(added_affinity=None),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(
            (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))
        ),
        "NodeResourcesFit": NodeResourcesFitArgs(
            (), (), ScoringStrategy("LeastAllocated", (ResourceSpec("cpu", 1), ResourceSpec("memory", 1)), None)
        ),
    }


def test_every_default_plugin_and_every_plugin_with_arguments_is_in_tree() -> None:
    names = [ref.name for ref in DEFAULT_PLUGINS]
    assert len(set(names)) == len(names) == 20
    assert set(DEFAULT_POINTS) >= set(names) | set(ARGS) | set(PLACEMENT_POINTS)
    of_groups = {"GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount"}
    assert set(DEFAULT_POINTS) - set(names) == of_groups | {"NodePreferAvoidPods"}


def test_only_default_plugins_that_score_have_a_default_weight() -> None:
    assert {ref.name for ref in DEFAULT_PLUGINS if ref.weight} == {ref.name for ref in SCORE} - {"VolumeBinding"}
