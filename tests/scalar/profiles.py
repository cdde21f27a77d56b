"""Random profiles: any extension point of any plugin disabled, weights and arguments varied."""

from random import Random
from typing import Any

Object = dict[str, Any]

SCHEDULER = "default-scheduler"
FILTERS = (
    *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    *("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity"),
    "NodeDeclaredFeatures",
)
SCORES = (
    *("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"),
    *("NodeResourcesBalancedAllocation", "ImageLocality"),
)
STAGES = (("preFilter", "filter", FILTERS), ("preScore", "score", SCORES))
"""A point that prepares another one, and the plugins that may be disabled at either, or at both."""
DISABLED = 0.07
"""The share of plugins that are disabled at a point."""
KEPT = frozenset({"VolumeBinding"})
"""Its PreFilter: without it kube-scheduler's Reserve fails, and Flotilla may report another of several errors."""
SHARES = (0.02, DISABLED)
"""Of plugins that are disabled at the first point only, which fails most pods, and at the second only."""
REWEIGHTED = 0.3


def draw_config(chance: Random) -> Object:
    plugins: Object = {}
    for before, after, names in STAGES:
        both = {name for name in names if chance.random() < DISABLED}
        only_before, only_after = ({name for name in names if chance.random() < share} for share in SHARES)
        for point, disabled in ((before, (both | only_before) - KEPT), (after, both | only_after)):
            if disabled:
                plugins[point] = {"disabled": [{"name": name} for name in sorted(disabled)]}
    if chance.random() < REWEIGHTED:
        off = {each["name"] for each in plugins.get("score", {}).get("disabled", ())}
        name = chance.choice([each for each in SCORES if each not in off])
        plugins.setdefault("score", {})["enabled"] = [{"name": name, "weight": chance.randint(1, 50)}]
    if chance.random() < DISABLED:
        plugins["postFilter"] = {"disabled": [{"name": "DefaultPreemption"}]}
    profile: Object = {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": _args(chance)}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def _args(chance: Random) -> list[Object]:
    found: list[Object] = []
    if chance.random() < 0.5:
        names = chance.sample(["cpu", "memory", "ephemeral-storage", "example.com/gpu"], chance.randint(1, 3))
        strategy: Object = {
            "type": chance.choice(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
            "resources": [{"name": name, "weight": chance.randint(1, 10)} for name in names],
        }
        if strategy["type"] == "RequestedToCapacityRatio":
            shape = [{"utilization": at, "score": chance.randint(0, 10)} for at in (0, chance.randint(1, 99), 100)]
            strategy["requestedToCapacityRatio"] = {"shape": shape}
        found.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}})
    if chance.random() < 0.3:
        args = {
            "hardPodAffinityWeight": chance.randint(0, 100),
            "ignorePreferredTermsOfExistingPods": chance.random() < 0.5,
        }
        found.append({"name": "InterPodAffinity", "args": args})
    if chance.random() < 0.2:
        found.append({"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": []}})
    return found
