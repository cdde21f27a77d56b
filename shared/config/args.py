"""Arguments of the plugins that Flotilla has types for: read, defaulted and checked as kube-scheduler v1.36 does."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Literal, cast, get_args

import msgspec

from shared.config.affinity import PlainNodeAffinity, affinity_problems, model_affinity
from shared.config.decoding import Int32, Int64, child, decode, normalized
from shared.config.defaults import PLUGINS_WITH_ARGS
from shared.config.names import label_key_fault
from shared.errors import InvalidConfig
from shared.model.objects import NodeAffinity

ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
MAX_RESOURCE_WEIGHT: Final = 100
MAX_UTILIZATION: Final = 100
MAX_SHAPE_SCORE: Final = 10


class NodeAffinityArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The affinity that every pod of the profile has on top of its own."""

    added_affinity: NodeAffinity | None = None


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A resource that counts in a score, and how much."""

    name: str = ""
    weight: Int64 = 1


class UtilizationShapePoint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The score, from 0 to 10, at a utilization in percent."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A score by utilization: straight lines between the points, which rise in utilization."""

    shape: tuple[UtilizationShapePoint, ...] = ()


DEFAULT_RESOURCES: Final = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))


class ScoringStrategy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How NodeResourcesFit scores a node."""

    type: ScoringStrategyType = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which extended resources NodeResourcesFit leaves to others, and how it scores."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class NodeResourcesBalancedAllocationArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The resources between which a node shall be balanced."""

    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES


DEFAULT_ARGS: Final[Mapping[str, object]] = {
    "NodeAffinity": NodeAffinityArgs(),
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(),
    "NodeResourcesFit": NodeResourcesFitArgs(),
}
"""The arguments of a plugin that was given none, for each plugin whose arguments have a type here."""


def decode_args(name: str, raw: object, path: str) -> object:
    """The arguments of one plugin, with defaults filled in but unchecked otherwise; None if it was given none.

    A plugin that has a type here is to be checked with `args_problems` and then finished with `finished_args`, for
    every other this is the plain value as it is.
    Raises InvalidConfig for unknown fields, for values of a wrong type and for arguments of another plugin.
    """
    if name not in PLUGINS_WITH_ARGS:
        return raw
    if raw is None:
        return DEFAULT_ARGS.get(name, {})
    if not isinstance(raw, dict):
        raise InvalidConfig(path, f"must be a map, got {type(raw).__name__}")
    if raw.get("apiVersion") not in (None, "", API_VERSION):
        raise InvalidConfig(child(path, "apiVersion"), f"must be {API_VERSION}, got {raw['apiVersion']!r}")
    if raw.get("kind") not in (None, "", f"{name}Args"):
        raise InvalidConfig(child(path, "kind"), f"must be {name}Args, got {raw['kind']!r}")
    decoder = _DECODERS.get(name)
    return raw if decoder is None else decoder(_plain(raw, path), path)


def args_problems(args: object, path: str) -> Iterator[InvalidConfig]:
    """Everything that is wrong in arguments that `decode_args` made."""
    match args:
        case _PlainNodeAffinityArgs(added_affinity=PlainNodeAffinity() as affinity):
            yield from affinity_problems(affinity, f"{path}.addedAffinity")
        case NodeResourcesBalancedAllocationArgs():
            yield from _balanced_problems(args, path)
        case NodeResourcesFitArgs():
            yield from _fit_problems(args, path)


def finished_args(args: object, path: str) -> object:
    """The arguments as their plugin takes them, from `decode_args` and without any problem."""
    if not isinstance(args, _PlainNodeAffinityArgs):
        return args
    affinity = args.added_affinity
    return NodeAffinityArgs(None if affinity is None else model_affinity(affinity, f"{path}.addedAffinity"))


class _PlainNodeAffinityArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    added_affinity: PlainNodeAffinity | None = None


def _plain(raw: dict[str, Any], path: str) -> dict[str, Any]:
    fields = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    return cast(dict[str, Any], normalized(fields, path))


def _decode_node_affinity(raw: dict[str, Any], path: str) -> _PlainNodeAffinityArgs:
    return decode(raw, _PlainNodeAffinityArgs, path)


def _decode_balanced(raw: dict[str, Any], path: str) -> NodeResourcesBalancedAllocationArgs:
    args = decode(raw, NodeResourcesBalancedAllocationArgs, path)
    return NodeResourcesBalancedAllocationArgs(_with_weights(args.resources))


def _decode_fit(raw: dict[str, Any], path: str) -> NodeResourcesFitArgs:
    kind: object = "LeastAllocated"
    strategy = raw.get("scoringStrategy")
    if isinstance(strategy, dict):
        # An unknown type is no matter of reading: kube-scheduler looks at it only if it sets the plugin up.
        kind = strategy.get("type", "")
        raw = {**raw, "scoringStrategy": {key: value for key, value in strategy.items() if key != "type"}}
        if not isinstance(kind, str):
            raise InvalidConfig(f"{path}.scoringStrategy.type", f"must be a text, got {kind!r}")
    args = decode(raw, NodeResourcesFitArgs, path)
    return msgspec.structs.replace(
        args,
        scoring_strategy=ScoringStrategy(
            cast(ScoringStrategyType, kind),
            _with_weights(args.scoring_strategy.resources),
            args.scoring_strategy.requested_to_capacity_ratio,
        ),
    )


_DECODERS: Final[Mapping[str, Callable[[dict[str, Any], str], object]]] = {
    "NodeAffinity": _decode_node_affinity,
    "NodeResourcesBalancedAllocation": _decode_balanced,
    "NodeResourcesFit": _decode_fit,
}


def _with_weights(resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    if not resources:
        return DEFAULT_RESOURCES
    return tuple(ResourceSpec(resource.name, resource.weight or 1) for resource in resources)


def _balanced_problems(args: NodeResourcesBalancedAllocationArgs, path: str) -> Iterator[InvalidConfig]:
    seen: set[str] = set()
    for i, resource in enumerate(args.resources):
        at = f"{path}.resources[{i}]"
        if resource.name in seen:
            yield InvalidConfig(f"{at}.name", f"{resource.name!r} is listed twice")
        seen.add(resource.name)
        if resource.weight != 1:
            yield InvalidConfig(f"{at}.weight", f"must be 1, got {resource.weight}")


def _fit_problems(args: NodeResourcesFitArgs, path: str) -> Iterator[InvalidConfig]:
    for i, resource in enumerate(args.ignored_resources):
        if fault := label_key_fault(resource):
            yield InvalidConfig(f"{path}.ignoredResources[{i}]", f"{resource!r} is not a resource name: {fault}")
    for i, group in enumerate(args.ignored_resource_groups):
        at = f"{path}.ignoredResourceGroups[{i}]"
        if "/" in group:
            yield InvalidConfig(at, f"{group!r} is not a resource group: it has a '/'")
        if fault := label_key_fault(group):
            yield InvalidConfig(at, f"{group!r} is not a resource group: {fault}")

    strategy, at = args.scoring_strategy, f"{path}.scoringStrategy"
    supported = get_args(ScoringStrategyType)
    if strategy.type not in supported:
        yield InvalidConfig(f"{at}.type", f"{strategy.type!r} is not supported, only {', '.join(supported)}")
    for i, spec in enumerate(strategy.resources):
        if not 0 < spec.weight <= MAX_RESOURCE_WEIGHT:
            reason = f"the weight of {spec.name} must be 1 to {MAX_RESOURCE_WEIGHT}, got {spec.weight}"
            yield InvalidConfig(f"{at}.resources[{i}].weight", reason)
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            yield InvalidConfig(f"{at}.requestedToCapacityRatio", "is needed for the type RequestedToCapacityRatio")
        else:
            yield from _shape_problems(ratio.shape, f"{at}.requestedToCapacityRatio.shape")
    elif ratio is not None:
        yield InvalidConfig(f"{at}.requestedToCapacityRatio", "is for the type RequestedToCapacityRatio only")


def _shape_problems(shape: tuple[UtilizationShapePoint, ...], path: str) -> Iterator[InvalidConfig]:
    if not shape:
        yield InvalidConfig(path, "needs at least one point")
    for i, (before, point) in enumerate(pairwise(shape), start=1):
        if before.utilization >= point.utilization:
            yield InvalidConfig(f"{path}[{i}].utilization", "must be greater than that of the point before")
            break
    for i, point in enumerate(shape):
        if not 0 <= point.utilization <= MAX_UTILIZATION:
            yield InvalidConfig(f"{path}[{i}].utilization", f"must be 0 to {MAX_UTILIZATION}, got {point.utilization}")
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            yield InvalidConfig(f"{path}[{i}].score", f"must be 0 to {MAX_SHAPE_SCORE}, got {point.score}")
