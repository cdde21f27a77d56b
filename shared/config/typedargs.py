"""From the tree of arguments that are without faults to the type that their plugin takes."""

from collections.abc import Callable, Mapping
from typing import Final, cast

from shared.config.args import (
    DefaultingType,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    ScoringStrategyType,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from shared.config.durations import Duration
from shared.config.schema import Tree, TypedArgs
from shared.config.validation.nodeaffinity import PREFERRED, REQUIRED
from shared.model.objects import (
    NodeAffinity,
    NodeOperator,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
)

NODE_NAME: Final = "metadata.name"


def args_struct(args: TypedArgs) -> object:
    """The arguments in their plugin's type."""
    return _STRUCTS[args.plugin](args.tree)


def _default_preemption(tree: Tree) -> DefaultPreemptionArgs:
    return DefaultPreemptionArgs(tree["minCandidateNodesPercentage"], tree["minCandidateNodesAbsolute"])


def _dynamic_resources(tree: Tree) -> DynamicResourcesArgs:
    default = DynamicResourcesArgs()
    binding: Duration | None = tree["bindingTimeout"]
    return DynamicResourcesArgs(
        tree["filterTimeout"].seconds if tree["filterTimeout"] is not None else 0.0,
        binding.seconds if binding is not None else default.binding_timeout_seconds,
    )


def _inter_pod_affinity(tree: Tree) -> InterPodAffinityArgs:
    return InterPodAffinityArgs(tree["hardPodAffinityWeight"], tree["ignorePreferredTermsOfExistingPods"])


def _balanced(tree: Tree) -> NodeResourcesBalancedAllocationArgs:
    return NodeResourcesBalancedAllocationArgs(_resources(tree))


def _fit(tree: Tree) -> NodeResourcesFitArgs:
    strategy: Tree | None = tree["scoringStrategy"]
    return NodeResourcesFitArgs(
        tuple(tree["ignoredResources"] or ()),
        tuple(tree["ignoredResourceGroups"] or ()),
        ScoringStrategy() if strategy is None else _strategy(strategy),
    )


def _strategy(tree: Tree) -> ScoringStrategy:
    ratio: Tree | None = tree["requestedToCapacityRatio"]
    # An unknown type is there only where NodeResourcesFit runs nowhere.
    return ScoringStrategy(
        cast(ScoringStrategyType, tree["type"]),
        _resources(tree),
        None if ratio is None else RequestedToCapacityRatioParam(_shape(ratio)),
    )


def _resources(tree: Tree) -> tuple[ResourceSpec, ...]:
    return tuple(ResourceSpec(resource["name"], resource["weight"]) for resource in tree["resources"] or ())


def _shape(tree: Tree) -> tuple[UtilizationShapePoint, ...]:
    return tuple(UtilizationShapePoint(point["utilization"], point["score"]) for point in tree["shape"] or ())


def _pod_topology_spread(tree: Tree) -> PodTopologySpreadArgs:
    constraints = tuple(_constraint(constraint) for constraint in tree["defaultConstraints"] or ())
    return PodTopologySpreadArgs(constraints, cast(DefaultingType, tree["defaultingType"]))


def _constraint(tree: Tree) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=tree["maxSkew"],
        topology_key=tree["topologyKey"],
        when_unsatisfiable=tree["whenUnsatisfiable"],
        min_domains=tree["minDomains"],
        node_affinity_policy=_policy(tree["nodeAffinityPolicy"], "Honor"),
        node_taints_policy=_policy(tree["nodeTaintsPolicy"], "Ignore"),
        match_label_keys=list(tree["matchLabelKeys"] or ()),
    )


def _policy(given: str | None, default: str) -> str:
    """kube-scheduler does not check it, and takes whatever is not Honor for Ignore."""
    if given is None:
        return default
    return "Honor" if given == "Honor" else "Ignore"


def _volume_binding(tree: Tree) -> VolumeBindingArgs:
    return VolumeBindingArgs(tree["bindTimeoutSeconds"], _shape(tree))


def _node_affinity(tree: Tree) -> NodeAffinityArgs:
    affinity: Tree | None = tree["addedAffinity"]
    if affinity is None:
        return NodeAffinityArgs()
    required: Tree | None = affinity[REQUIRED]
    terms = [_term(term) for term in (required["nodeSelectorTerms"] if required else None) or ()]
    return NodeAffinityArgs(
        NodeAffinity(
            required=None if required is None else NodeSelector(node_selector_terms=terms),
            preferred=[_preferred(preferred) for preferred in affinity[PREFERRED] or ()],
        )
    )


def _preferred(tree: Tree) -> PreferredSchedulingTerm:
    # What a term of weight nought says has not been checked, and is not looked at either.
    preference = _term(tree["preference"]) if tree["weight"] else NodeSelectorTerm()
    return PreferredSchedulingTerm(weight=tree["weight"], preference=preference)


def _term(tree: Tree) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=[
            NodeSelectorRequirement(key=r["key"], operator=r["operator"], values=list(r["values"] or ()))
            for r in tree["matchExpressions"] or ()
        ],
        match_fields=[_of_field(r["key"], r["operator"], r["values"][0]) for r in tree["matchFields"] or ()],
    )


def _of_field(key: str, operator: NodeOperator, value: str) -> NodeSelectorRequirement:
    """A node has one field to be selected by, its name; any other is the empty text, and so the same for all nodes."""
    if key == NODE_NAME:
        return NodeSelectorRequirement(key=key, operator=operator, values=[value])
    holds = (value == "") == (operator == "In")
    return NodeSelectorRequirement(key=NODE_NAME, operator="NotIn" if holds else "In", values=[""])


_STRUCTS: Final[Mapping[str, Callable[[Tree], object]]] = {
    "DefaultPreemption": _default_preemption,
    "DynamicResources": _dynamic_resources,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeResourcesFit": _fit,
    "PodTopologySpread": _pod_topology_spread,
    "VolumeBinding": _volume_binding,
}
