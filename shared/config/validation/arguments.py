"""The arguments of the in-tree plugins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from shared.config.durations import SECOND
from shared.config.names import label_key_faults
from shared.config.problems import (
    Fault,
    Problem,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from shared.config.schema import SHAPE, Tree, TypedArgs
from shared.config.validation.nodeaffinity import affinity_problems

MAX_PERCENTAGE: Final = 100
MAX_RESOURCE_WEIGHT: Final = 100
MAX_UTILIZATION: Final = 100
MAX_SHAPE_SCORE: Final = 10
MAX_HARD_POD_AFFINITY_WEIGHT: Final = 100
STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
DEFAULTING_TYPES: Final = ("System", "List")
ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")


def args_problems(args: TypedArgs, path: str) -> Iterator[Problem]:
    """Everything that is wrong in the arguments of a plugin."""
    return _CHECKS[args.plugin](args.tree, path)


def _default_preemption(tree: Tree, path: str) -> Iterator[Problem]:
    percentage, absolute = tree["minCandidateNodesPercentage"], tree["minCandidateNodesAbsolute"]
    if not 0 <= percentage <= MAX_PERCENTAGE:
        yield invalid(f"{path}.minCandidateNodesPercentage", percentage, f"must be from 0 to {MAX_PERCENTAGE}")
    if absolute < 0:
        yield invalid(f"{path}.minCandidateNodesAbsolute", absolute, "must be at least 0")
    if percentage == 0 and absolute == 0:
        reason = "minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0"
        for field in ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"):
            yield Problem(f"{path}.{field}", Fault.INVALID, 0, reason)


def _dynamic_resources(tree: Tree, path: str) -> Iterator[Problem]:
    if tree["filterTimeout"] is not None and tree["filterTimeout"] < 0:
        yield invalid(f"{path}.filterTimeout", str(tree["filterTimeout"]), "must be at least 0s")
    if tree["bindingTimeout"] is not None and tree["bindingTimeout"] < SECOND:
        yield invalid(f"{path}.bindingTimeout", str(tree["bindingTimeout"]), "must be at least 1s")


def _inter_pod_affinity(tree: Tree, path: str) -> Iterator[Problem]:
    weight = tree["hardPodAffinityWeight"]
    if not 0 <= weight <= MAX_HARD_POD_AFFINITY_WEIGHT:
        allowed = f"must be from 0 to {MAX_HARD_POD_AFFINITY_WEIGHT}"
        yield invalid(f"{path}.hardPodAffinityWeight", weight, allowed)


def _node_affinity(tree: Tree, path: str) -> Iterator[Problem]:
    if tree["addedAffinity"] is not None:
        yield from affinity_problems(tree["addedAffinity"], f"{path}.addedAffinity")


def _balanced(tree: Tree, path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, resource in enumerate(tree["resources"] or ()):
        at, name = f"{path}.resources[{i}]", resource["name"]
        if name in seen:
            yield duplicate(f"{at}.name", name, f"{name!r} is listed twice")
        seen.add(name)
        if resource["weight"] != 1:
            yield invalid(f"{at}.weight", resource["weight"], "must be 1")


def _fit(tree: Tree, path: str) -> Iterator[Problem]:
    for i, resource in enumerate(tree["ignoredResources"] or ()):
        yield from _name_problems(f"{path}.ignoredResources[{i}]", resource, "a resource name")
    for i, group in enumerate(tree["ignoredResourceGroups"] or ()):
        at = f"{path}.ignoredResourceGroups[{i}]"
        if "/" in group:
            yield Problem(at, Fault.INVALID, group, f"{group!r} is not a resource group: it has a '/'")
        yield from _name_problems(at, group, "a resource group")
    strategy, at = tree["scoringStrategy"], f"{path}.scoringStrategy"
    if strategy is None:
        yield required(at, "is needed")
        return
    if strategy["type"] not in STRATEGIES:
        yield not_supported(f"{at}.type", strategy["type"], STRATEGIES)
    for i, resource in enumerate(strategy["resources"] or ()):
        if not 0 < resource["weight"] <= MAX_RESOURCE_WEIGHT:
            allowed = f"the weight of {resource['name']} must be from 1 to {MAX_RESOURCE_WEIGHT}"
            yield invalid(f"{at}.resources[{i}].weight", resource["weight"], allowed)
    yield from _ratio_problems(strategy, f"{at}.requestedToCapacityRatio")


def _ratio_problems(strategy: Tree, path: str) -> Iterator[Problem]:
    ratio = strategy["requestedToCapacityRatio"]
    if strategy["type"] == "RequestedToCapacityRatio":
        if ratio is None:
            yield required(path, "is needed for the type RequestedToCapacityRatio")
        else:
            yield from shape_problems(ratio["shape"] or [], f"{path}.shape")
    elif ratio is not None:
        yield forbidden(path, "is for the type RequestedToCapacityRatio only")


def shape_problems(shape: Sequence[Tree], path: str) -> Iterator[Problem]:
    """What is wrong in the points of a score by utilization."""
    if not shape:
        yield required(path, "needs at least one point")
    for i, (before, point) in enumerate(pairwise(shape), start=1):
        if before["utilization"] >= point["utilization"]:
            allowed = f"must be greater than that of the point before ({before['utilization']})"
            yield invalid(f"{path}[{i}].utilization", point["utilization"], allowed)
            break
    for i, point in enumerate(shape):
        for field, most in (("utilization", MAX_UTILIZATION), ("score", MAX_SHAPE_SCORE)):
            if not 0 <= point[field] <= most:
                yield invalid(f"{path}[{i}].{field}", point[field], f"must be from 0 to {most}")


def _pod_topology_spread(tree: Tree, path: str) -> Iterator[Problem]:
    kind, constraints = tree["defaultingType"], tree["defaultConstraints"] or []
    if kind not in DEFAULTING_TYPES:
        yield not_supported(f"{path}.defaultingType", kind, DEFAULTING_TYPES)
    elif kind == "System" and constraints:
        yield invalid(f"{path}.defaultingType", kind, "must be List where there are defaultConstraints")
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(constraints):
        at = f"{path}.defaultConstraints[{i}]"
        yield from _constraint_problems(constraint, at)
        key = constraint["topologyKey"], constraint["whenUnsatisfiable"]
        if key in seen:
            reason = f"there is one with topologyKey {key[0]} and whenUnsatisfiable {key[1]} before it"
            yield duplicate(at, f"{{{key[0]}, {key[1]}}}", reason)
        seen.add(key)


def _constraint_problems(constraint: Tree, path: str) -> Iterator[Problem]:
    if constraint["maxSkew"] <= 0:
        yield invalid(f"{path}.maxSkew", constraint["maxSkew"], "must be at least 1")
    if not constraint["topologyKey"]:
        yield required(f"{path}.topologyKey", "is needed")
    else:
        yield from _name_problems(f"{path}.topologyKey", constraint["topologyKey"], "a label key")
    action = constraint["whenUnsatisfiable"]
    if not action:
        yield required(f"{path}.whenUnsatisfiable", f"is needed: {' or '.join(ACTIONS)}")
    elif action not in ACTIONS:
        yield not_supported(f"{path}.whenUnsatisfiable", action, ACTIONS)
    if constraint["labelSelector"] is not None:
        reason = "must not be there: a default constraint selects the pods of the same Service or owner"
        yield forbidden(f"{path}.labelSelector", reason)


def _volume_binding(tree: Tree, path: str) -> Iterator[Problem]:
    if tree["bindTimeoutSeconds"] < 0:
        yield invalid(f"{path}.bindTimeoutSeconds", tree["bindTimeoutSeconds"], "must be at least 0")
    if tree["shape"] is not None:
        reason = "must not be there: it belongs to the feature gate StorageCapacityScoring, which is off"
        yield Problem(f"{path}.shape", Fault.INVALID, SHAPE.capitalised(tree["shape"]), reason)


def _name_problems(path: str, name: str, what: str) -> Iterator[Problem]:
    for fault in label_key_faults(name):
        yield Problem(path, Fault.INVALID, name, f"{name!r} is not {what}: {fault}")


_CHECKS: Final[Mapping[str, Callable[[Tree, str], Iterator[Problem]]]] = {
    "DefaultPreemption": _default_preemption,
    "DynamicResources": _dynamic_resources,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeResourcesFit": _fit,
    "PodTopologySpread": _pod_topology_spread,
    "VolumeBinding": _volume_binding,
}
