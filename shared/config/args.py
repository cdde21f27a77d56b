"""Arguments of the in-tree plugins, as their plugins take them: defaulted and checked as kube-scheduler v1.36 does."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from shared.model.objects import NodeAffinity, TopologySpreadConstraint

ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
DefaultingType = Literal["System", "List"]


class DefaultPreemptionArgs(msgspec.Struct, frozen=True):
    """How many nodes preemption looks at, at least: a percentage of all nodes, and an absolute number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DynamicResourcesArgs(msgspec.Struct, frozen=True):
    """How long the search for devices may take a node, and how long devices may take to become ready; seconds.

    A filter time-out of nought is none.
    """

    filter_timeout_seconds: float = 10.0
    binding_timeout_seconds: float = 600.0


class InterPodAffinityArgs(msgspec.Struct, frozen=True):
    """What a required affinity of a pod that runs already is worth to a new one, and whether preferences count."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(msgspec.Struct, frozen=True):
    """The affinity that every pod of the profile has on top of its own."""

    added_affinity: NodeAffinity | None = None


class ResourceSpec(msgspec.Struct, frozen=True):
    """A resource that counts in a score, and how much."""

    name: str = ""
    weight: int = 1


class UtilizationShapePoint(msgspec.Struct, frozen=True):
    """The score, from 0 to 10, at a utilization in percent."""

    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatioParam(msgspec.Struct, frozen=True):
    """A score by utilization: straight lines between the points, which rise in utilization."""

    shape: tuple[UtilizationShapePoint, ...] = ()


DEFAULT_RESOURCES: Final = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))


class ScoringStrategy(msgspec.Struct, frozen=True):
    """How NodeResourcesFit scores a node."""

    type: ScoringStrategyType = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(msgspec.Struct, frozen=True):
    """Which extended resources NodeResourcesFit leaves to others, and how it scores."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class NodeResourcesBalancedAllocationArgs(msgspec.Struct, frozen=True):
    """The resources between which a node shall be balanced."""

    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES


class PodTopologySpreadArgs(msgspec.Struct, frozen=True):
    """The constraints of pods that have none of their own: built in (System) or those listed here (List)."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: DefaultingType = "System"


class VolumeBindingArgs(msgspec.Struct, frozen=True):
    """How long volumes may take to be bound. `shape` stays empty: it belongs to a gate that v1.36 has off."""

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationShapePoint, ...] = ()


DEFAULT_ARGS: Final[Mapping[str, object]] = {
    "DefaultPreemption": DefaultPreemptionArgs(),
    "DynamicResources": DynamicResourcesArgs(),
    "InterPodAffinity": InterPodAffinityArgs(),
    "NodeAffinity": NodeAffinityArgs(),
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(),
    "NodeResourcesFit": NodeResourcesFitArgs(),
    "PodTopologySpread": PodTopologySpreadArgs(),
    "VolumeBinding": VolumeBindingArgs(),
}
"""The arguments of a plugin that was given none, for each plugin whose arguments have a type."""
