"""Validate the arguments of the in-tree plugins as kube-scheduler v1.36 does."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from shared.config.args import (
    PREFERRED,
    REQUIRED,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    ScoringStrategy,
    UtilizationShapePoint,
    V1NodeAffinityArgs,
    V1NodeSelectorTerm,
    V1PodTopologySpreadArgs,
    V1Requirement,
    V1SpreadConstraint,
    VolumeBindingArgs,
)
from shared.config.feature_gates import Feature, FeatureGates
from shared.config.problems import Problem, duplicate, forbidden, invalid, not_supported, required, wrong
from shared.config.struct_codec import encode
from shared.model.durations import format_duration, nanoseconds_of

STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
DEFAULTING_TYPES: Final = ("System", "List")
ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
FIELD_OPERATORS: Final = ("In", "NotIn")

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64_DIGITS: Final = 19


def args_problems(args: PluginArgs, path: str, gates: FeatureGates) -> Iterator[Problem]:
    """Everything that is wrong in the arguments of a plugin. NodeResourcesFit's are validated where it is built."""
    if isinstance(args, VolumeBindingArgs):
        return _volume_binding(args, path, scores=gates.enabled(Feature.STORAGE_SCORING))
    return _CHECKS[type(args)](args, path)


def out_of_range(path: str, value: int, least: int, most: int | None = None, what: str = "") -> Iterator[Problem]:
    if value < least or (most is not None and value > most):
        allowed = f"must be at least {least}" if most is None else f"must be from {least} to {most}"
        yield invalid(path, value, f"{what}{allowed}")


def name_problems(path: str, name: str, what: str) -> Iterator[Problem]:
    for fault in label_key_faults(name):
        yield wrong(path, name, f"{name!r} is not {what}: {fault}")


def fit_problems(args: NodeResourcesFitArgs, path: str) -> Iterator[Problem]:
    for i, resource in enumerate(args.ignored_resources):
        yield from name_problems(f"{path}.ignoredResources[{i}]", resource, "a resource name")
    for i, group in enumerate(args.ignored_resource_groups):
        at = f"{path}.ignoredResourceGroups[{i}]"
        if "/" in group:
            yield wrong(at, group, f"{group!r} is not a resource group: it has a '/'")
        yield from name_problems(at, group, "a resource group")
    strategy, at = args.scoring_strategy, f"{path}.scoringStrategy"
    if strategy is None:
        yield required(at, "is needed")
        return
    yield from _one_of(f"{at}.type", strategy.type, STRATEGIES)
    for i, resource_spec in enumerate(strategy.resources):
        what = f"the weight of {resource_spec.name} "
        yield from out_of_range(f"{at}.resources[{i}].weight", resource_spec.weight, 1, 100, what)
    yield from _ratio_problems(strategy, f"{at}.requestedToCapacityRatio")


def _ratio_problems(strategy: ScoringStrategy, path: str) -> Iterator[Problem]:
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            yield required(path, "is needed for the type RequestedToCapacityRatio")
        else:
            yield from _shape_problems(ratio.shape, f"{path}.shape")
    elif ratio is not None:
        yield forbidden(path, "is for the type RequestedToCapacityRatio only")


def _shape_problems(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[Problem]:
    if not shape:
        yield required(path, "needs at least one point")
    for i, (before, point) in enumerate(pairwise(shape), start=1):
        if before.utilization >= point.utilization:
            allowed = f"must be greater than that of the point before ({before.utilization})"
            yield invalid(f"{path}[{i}].utilization", point.utilization, allowed)
            break
    for i, point in enumerate(shape):
        yield from out_of_range(f"{path}[{i}].utilization", point.utilization, 0, 100)
        yield from out_of_range(f"{path}[{i}].score", point.score, 0, 10)


def _default_preemption(args: DefaultPreemptionArgs, path: str) -> Iterator[Problem]:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    yield from out_of_range(f"{path}.minCandidateNodesPercentage", percentage, 0, 100)
    yield from out_of_range(f"{path}.minCandidateNodesAbsolute", absolute, 0)
    if percentage == 0 and absolute == 0:
        reason = "minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0"
        for field in ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"):
            yield wrong(f"{path}.{field}", 0, reason)


def _dynamic_resources(args: DynamicResourcesArgs, path: str) -> Iterator[Problem]:
    for field, seconds, least in (
        ("filterTimeout", args.filter_timeout, 0),
        ("bindingTimeout", args.binding_timeout, 1),
    ):
        if seconds is not None and seconds < least:
            yield invalid(f"{path}.{field}", format_duration(nanoseconds_of(seconds)), f"must be at least {least}s")


def _inter_pod_affinity(args: InterPodAffinityArgs, path: str) -> Iterator[Problem]:
    return out_of_range(f"{path}.hardPodAffinityWeight", args.hard_pod_affinity_weight, 0, 100)


def _balanced(args: NodeResourcesBalancedAllocationArgs, path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for i, resource in enumerate(args.resources):
        at = f"{path}.resources[{i}]"
        if resource.name in seen:
            yield duplicate(f"{at}.name", resource.name, f"{resource.name!r} is listed twice")
        seen.add(resource.name)
        if resource.weight != 1:
            yield invalid(f"{at}.weight", resource.weight, "must be 1")


def _pod_topology_spread(args: V1PodTopologySpreadArgs, path: str) -> Iterator[Problem]:
    kind = args.defaulting_type
    yield from _one_of(f"{path}.defaultingType", kind, DEFAULTING_TYPES)
    if kind == "System" and args.default_constraints:
        yield invalid(f"{path}.defaultingType", kind, "must be List where there are defaultConstraints")
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(args.default_constraints):
        at = f"{path}.defaultConstraints[{i}]"
        yield from _constraint_problems(constraint, at)
        key = constraint.topology_key, constraint.when_unsatisfiable
        if key in seen:
            reason = f"there is one with topologyKey {key[0]} and whenUnsatisfiable {key[1]} before it"
            yield duplicate(at, f"{{{key[0]}, {key[1]}}}", reason)
        seen.add(key)


def _constraint_problems(constraint: V1SpreadConstraint, path: str) -> Iterator[Problem]:
    yield from out_of_range(f"{path}.maxSkew", constraint.max_skew, 1)
    if constraint.topology_key:
        yield from name_problems(f"{path}.topologyKey", constraint.topology_key, "a label key")
    else:
        yield required(f"{path}.topologyKey", "is needed")
    if constraint.when_unsatisfiable:
        yield from _one_of(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, ACTIONS)
    else:
        yield required(f"{path}.whenUnsatisfiable", f"is needed: {' or '.join(ACTIONS)}")
    if constraint.label_selector is not None:
        reason = "must be absent: a default constraint selects the pods of the same Service or owner"
        yield forbidden(f"{path}.labelSelector", reason)


def _volume_binding(args: VolumeBindingArgs, path: str, *, scores: bool) -> Iterator[Problem]:
    yield from out_of_range(f"{path}.bindTimeoutSeconds", args.bind_timeout_seconds, 0)
    if scores:
        yield from _shape_problems(args.shape or (), f"{path}.shape")
    elif args.shape is not None:
        reason = "must be absent: it belongs to the feature gate StorageCapacityScoring, which is off"
        yield wrong(f"{path}.shape", encode(args.shape, go=True), reason)


def _node_affinity(args: V1NodeAffinityArgs, path: str) -> Iterator[Problem]:
    affinity = args.added_affinity
    if affinity is None:
        return
    path = f"{path}.addedAffinity"
    for i, term in enumerate((affinity.required.node_selector_terms if affinity.required else None) or ()):
        yield from _term_problems(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{i}]")
    for i, preferred in enumerate(affinity.preferred):
        # A term of weight 0 has no effect, and kube-scheduler does not validate it.
        if preferred.weight != 0:
            yield from _term_problems(preferred.preference, f"{path}.{PREFERRED}[{i}]")


def _term_problems(term: V1NodeSelectorTerm, path: str) -> Iterator[Problem]:
    for i, requirement in enumerate(term.match_expressions):
        yield from _expression_problems(requirement, f"{path}.matchExpressions[{i}]")
    for i, requirement in enumerate(term.match_fields):
        at = f"{path}.matchFields[{i}]"
        if requirement.operator not in FIELD_OPERATORS:
            yield not_supported(f"{at}.operator", requirement.operator, FIELD_OPERATORS)
        elif len(requirement.values or ()) != 1:
            yield wrong(f"{at}.values", encode(requirement.values), "must be exactly one value")


def _expression_problems(requirement: V1Requirement, path: str) -> Iterator[Problem]:
    key, operator, values = requirement.key, requirement.operator, requirement.values or ()
    if operator not in LABEL_OPERATORS:
        yield not_supported(f"{path}.operator", operator, LABEL_OPERATORS)
        return
    if faults := label_key_faults(key):
        yield wrong(f"{path}.key", key, f"{key!r} is not a label key: {'; '.join(faults)}")
    if fault := _wrong_count(operator, len(values)):
        yield wrong(f"{path}.values", encode(requirement.values), f"{operator} {fault}")
    for i, value in enumerate(values):
        if operator in ("Gt", "Lt") and not _is_int64(value):
            yield wrong(f"{path}.values[{i}]", value, f"{operator} needs a whole number, not {value!r}")
    for i, value in enumerate(values):
        if faults := label_value_faults(value):
            yield wrong(f"{path}.values[{i}][{key}]", value, f"{value!r} is not a label value: {'; '.join(faults)}")


def _wrong_count(operator: str, count: int) -> str:
    if operator in ("In", "NotIn"):
        return "" if count else "needs at least one value"
    if operator in ("Exists", "DoesNotExist"):
        return "takes no values" if count else ""
    return "" if count == 1 else f"needs exactly one value, not {count}"


def _is_int64(value: str) -> bool:
    digits = value.lstrip("+-").lstrip("0")
    # The length is bounded first: int() refuses strings of thousands of digits with an exception.
    if not _INTEGER.fullmatch(value) or len(digits) > _INT64_DIGITS:
        return False
    return int(digits or "0") <= 2**63 - (not value.startswith("-"))


def _one_of(path: str, value: str, supported: Collection[str]) -> Iterator[Problem]:
    if value not in supported:
        yield not_supported(path, value, tuple(supported))


_CHECKS: Final[Mapping[type[PluginArgs], Callable[[Any, str], Iterator[Problem]]]] = {
    DefaultPreemptionArgs: _default_preemption,
    DynamicResourcesArgs: _dynamic_resources,
    InterPodAffinityArgs: _inter_pod_affinity,
    V1NodeAffinityArgs: _node_affinity,
    NodeResourcesBalancedAllocationArgs: _balanced,
    V1PodTopologySpreadArgs: _pod_topology_spread,
}


# Names of labels


def label_key_faults(key: str) -> list[str]:
    """Every reason why this is no label key: a name, or a DNS subdomain, a slash and a name."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return ["has more than one '/'"]
    return [*(_prefix_faults(prefix) if slash else ()), *_name_faults(name)]


def label_value_faults(value: str) -> list[str]:
    """Every reason why this is no label value: empty, or a name."""
    return _name_faults(value) if value else []


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["the part before '/' is empty"]
    faults = []
    if _length(prefix) > _MAX_SUBDOMAIN:
        faults.append(f"the part before '/' is longer than {_MAX_SUBDOMAIN} bytes")
    if not _SUBDOMAIN.fullmatch(prefix):
        faults.append(
            "the part before '/' is no DNS subdomain: it may hold a-z, 0-9, '-' and '.' only, "
            "and each of its labels must start and end with a letter or digit"
        )
    return faults


def _name_faults(name: str) -> list[str]:
    faults = []
    if not name:
        faults.append("the name is empty")
    elif _length(name) > _MAX_NAME:
        faults.append(f"is longer than {_MAX_NAME} bytes")
    if not _NAME.fullmatch(name):
        faults.append("may hold letters, digits, '-', '_' and '.' only, and must start and end with a letter or digit")
    return faults


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
