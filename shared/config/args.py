"""Define the arguments of the in-tree plugins, with the defaults of kube-scheduler v1.36.

Most are the same in a file and in force. For affinities and spread constraints, a file has kube-scheduler's lenient
types (V1...), and plugins get the ones that pods have.
"""

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from shared.config.struct_codec import CoreSection, Filled, Int32, Int64, OmitEmpty, Seconds, Section, TypedSection
from shared.model.objects import (
    NodeAffinity,
    NodeOperator,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
)

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_NAME: Final = "metadata.name"


class PluginArgs(TypedSection, frozen=True):
    """Arguments of a plugin that kube-scheduler has a type for."""

    def in_force(self) -> object:
        """As the plugin takes them."""
        return self


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many candidate nodes preemption evaluates at least: a percentage of all nodes, and an absolute number."""

    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Seconds to search for devices on one node (0: no limit), and to wait until devices are ready."""

    filter_timeout: Seconds | None = 10.0
    binding_timeout: OmitEmpty[Seconds | None] = 600.0


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """The score of a running pod's required affinity to the new pod, and whether running pods' preferences count."""

    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class ResourceSpec(Section, frozen=True):
    """A resource that counts in a score, and its weight."""

    name: str = ""
    weight: OmitEmpty[Filled[Int64]] = 1


class UtilizationShapePoint(Section, frozen=True):
    """The score, from 0 to 10, at a utilization in percent."""

    utilization: Int32 = 0
    score: Int32 = 0


class RequestedToCapacityRatioParam(Section, frozen=True):
    """A score by utilization: straight lines between points of rising utilization."""

    shape: OmitEmpty[tuple[UtilizationShapePoint, ...]] = ()


DEFAULT_RESOURCES: Final = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))


class ScoringStrategy(Section, frozen=True):
    """How NodeResourcesFit scores a node. A strategy that a file gives must have a type."""

    type: OmitEmpty[str] = ""
    resources: OmitEmpty[Filled[tuple[ResourceSpec, ...]]] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: OmitEmpty[RequestedToCapacityRatioParam | None] = None


DEFAULT_STRATEGY: Final = ScoringStrategy("LeastAllocated")


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """The extended resources that NodeResourcesFit ignores, and how it scores."""

    ignored_resources: OmitEmpty[tuple[str, ...]] = ()
    ignored_resource_groups: OmitEmpty[tuple[str, ...]] = ()
    scoring_strategy: OmitEmpty[ScoringStrategy | None] = DEFAULT_STRATEGY


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """The resources whose utilization a node should balance."""

    resources: OmitEmpty[Filled[tuple[ResourceSpec, ...]]] = DEFAULT_RESOURCES


DEFAULT_STORAGE_SHAPE: Final = (UtilizationShapePoint(0, 10), UtilizationShapePoint(100, 0))
"""Prefers nodes with much storage left."""


class VolumeBindingArgs(PluginArgs, frozen=True):
    """Seconds to wait until volumes are bound. `shape`: the score by the use of storage, for StorageCapacityScoring."""

    bind_timeout_seconds: Int64 = 600
    shape: OmitEmpty[tuple[UtilizationShapePoint, ...] | None] = None


class NodeAffinityArgs(msgspec.Struct, frozen=True):
    """An affinity that every pod of the profile has in addition to its own."""

    added_affinity: NodeAffinity | None = None


class PodTopologySpreadArgs(msgspec.Struct, frozen=True):
    """The constraints of pods that have none of their own: built in (System), or those listed here (List)."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: str = "System"


class V1Requirement(CoreSection, frozen=True):
    key: str = ""
    operator: str = ""
    values: OmitEmpty[tuple[str, ...] | None] = None


class V1NodeSelectorTerm(CoreSection, frozen=True):
    match_expressions: OmitEmpty[tuple[V1Requirement, ...]] = ()
    match_fields: OmitEmpty[tuple[V1Requirement, ...]] = ()

    def in_force(self) -> NodeSelectorTerm:
        expressions = [_requirement(r.key, r.operator, *r.values or ()) for r in self.match_expressions]
        fields = [_field_requirement(r.key, r.operator, *r.values or ()) for r in self.match_fields]
        return NodeSelectorTerm(match_expressions=expressions, match_fields=fields)


class V1NodeSelector(CoreSection, frozen=True):
    node_selector_terms: tuple[V1NodeSelectorTerm, ...] | None = None


class V1PreferredTerm(CoreSection, frozen=True):
    weight: Int32 = 0
    preference: V1NodeSelectorTerm = V1NodeSelectorTerm()

    def in_force(self) -> PreferredSchedulingTerm:
        # A term of weight 0 is not validated, and has no effect.
        preference = self.preference.in_force() if self.weight else NodeSelectorTerm()
        return PreferredSchedulingTerm(weight=self.weight, preference=preference)


class V1NodeAffinity(CoreSection, frozen=True):
    required: OmitEmpty[V1NodeSelector | None] = msgspec.field(name=REQUIRED, default=None)
    preferred: OmitEmpty[tuple[V1PreferredTerm, ...]] = msgspec.field(name=PREFERRED, default=())

    def in_force(self) -> NodeAffinity:
        required = self.required
        terms = [term.in_force() for term in required.node_selector_terms or ()] if required else []
        return NodeAffinity(
            required=NodeSelector(node_selector_terms=terms) if required else None,
            preferred=[term.in_force() for term in self.preferred],
        )


class V1NodeAffinityArgs(PluginArgs, frozen=True, tag="NodeAffinityArgs"):
    added_affinity: OmitEmpty[V1NodeAffinity | None] = None

    def in_force(self) -> NodeAffinityArgs:
        return NodeAffinityArgs(self.added_affinity.in_force() if self.added_affinity else None)


class V1LabelSelector(CoreSection, frozen=True):
    match_labels: OmitEmpty[dict[str, str]] = msgspec.field(default_factory=dict)
    match_expressions: OmitEmpty[tuple[V1Requirement, ...]] = ()


class V1SpreadConstraint(CoreSection, frozen=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: OmitEmpty[V1LabelSelector | None] = None
    min_domains: OmitEmpty[Int32 | None] = None
    node_affinity_policy: OmitEmpty[str | None] = None
    node_taints_policy: OmitEmpty[str | None] = None
    match_label_keys: OmitEmpty[tuple[str, ...]] = ()

    def in_force(self) -> TopologySpreadConstraint:
        return TopologySpreadConstraint(
            max_skew=self.max_skew,
            topology_key=self.topology_key,
            when_unsatisfiable=self.when_unsatisfiable,
            min_domains=self.min_domains,
            # kube-scheduler does not validate policies; any but Honor is Ignore.
            node_affinity_policy="Honor" if self.node_affinity_policy in (None, "Honor") else "Ignore",
            node_taints_policy="Honor" if self.node_taints_policy == "Honor" else "Ignore",
            match_label_keys=list(self.match_label_keys),
        )


class V1PodTopologySpreadArgs(PluginArgs, frozen=True, tag="PodTopologySpreadArgs"):
    default_constraints: OmitEmpty[tuple[V1SpreadConstraint, ...]] = ()
    defaulting_type: OmitEmpty[Filled[str]] = "System"

    def in_force(self) -> PodTopologySpreadArgs:
        return PodTopologySpreadArgs(tuple(c.in_force() for c in self.default_constraints), self.defaulting_type)


ARGS: Final[Mapping[str, type[PluginArgs]]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": V1NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": V1PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""The types of arguments by plugin. Arguments of other plugins are passed through as they are."""


def _requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=cast(NodeOperator, operator), values=list(values))


def _field_requirement(key: str, operator: str, value: str) -> NodeSelectorRequirement:
    """Nodes have one field to select by, their name. Any other is empty, hence equal on all nodes."""
    if key == NODE_NAME:
        return _requirement(key, operator, value)
    matches_all = (value == "") == (operator == "In")
    return _requirement(NODE_NAME, "NotIn" if matches_all else "In", "")
