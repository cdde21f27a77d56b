"""NodeAffinity matches nodes against a pod's nodeSelector and node affinity, and the profile's addedAffinity."""

from collections.abc import Hashable, Iterable
from functools import partial

import msgspec
import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import Mask, NodeView, match_requirement
from flotilla.objects import ClusterObjects, Node, NodeSelector, NodeSelectorTerm, Pod
from flotilla.plugin import (
    ClassState,
    FilterPlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ScaleToHighest,
    ScorePlugin,
    Scores,
)
from flotilla.results import SKIP, SUCCESS, PreFilterResult, Status, error, unresolvable
from shared.config.args import NodeAffinityArgs
from shared.errors import InvalidObject
from shared.model.objects import NodeAffinity as NodeAffinitySpec
from shared.model.objects import PreferredSchedulingTerm
from shared.model.selectors import node_selector_matches, node_selector_term_matches, unparsable
from shared.plugins.base import InTreePlugin

NO_MATCH = unresolvable("node(s) didn't match Pod's node affinity/selector")
NOT_ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
_FIELD = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(InTreePlugin, PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "NodeAffinity"
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest()

    def __init__(self, args: NodeAffinityArgs) -> None:
        added = args.added_affinity
        self._added_required = added.required if added is not None else None
        self._added_preferred = added.preferred if added is not None else []
        hint = partial(after_node_change, self._added_required)
        self.registrations = (Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, hint),)

    def signature(self, pod: Pod) -> Hashable:
        selector = tuple(sorted(pod.spec.node_selector.items()))
        affinity = _affinity(pod)
        return selector, None if affinity is None else msgspec.msgpack.encode(affinity)

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        required = _required(state.pod)
        if required is None and self._added_required is None and not state.pod.spec.node_selector:
            return PreFilterResult(SKIP)
        if required is None or not required.node_selector_terms:
            return PreFilterResult()
        nodes: frozenset[str] = frozenset()
        for term in required.node_selector_terms:
            named = _named_nodes(term)
            if named is None:
                return PreFilterResult()
            nodes |= named
        if not nodes:
            return PreFilterResult(unresolvable("pod affinity terms conflict"))
        return PreFilterResult(nodes=nodes)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        if self._added_required is not None:
            nodes.reject(~_matches_any(nodes, self._added_required), NOT_ENFORCED)
        nodes.reject(~selected(state.pod, nodes), NO_MATCH)

    def pre_score(self, state: ClassState) -> Status:
        preferred = _preferred(state.pod)
        if not preferred and not self._added_preferred:
            return SKIP
        faults = [
            f"[{i}].{fault}"
            for i, wish in enumerate(preferred)
            if wish.weight and (fault := unparsable(wish.preference)) is not None
        ]
        if not faults:
            return SUCCESS
        return error(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        scores = np.zeros(len(nodes), dtype=np.int64)
        for wish in (*self._added_preferred, *_preferred(state.pod)):
            if wish.weight:
                scores += wish.weight * _matches_term(nodes, wish.preference)
        return scores


def selected(pod: Pod, nodes: NodeView) -> Mask:
    """Which nodes the pod's own nodeSelector and required node affinity match."""
    matching = np.ones(len(nodes), dtype=np.bool_)
    for key, value in pod.spec.node_selector.items():
        matching &= nodes.label(key).any_of([value])
    required = _required(pod)
    return matching if required is None else matching & _matches_any(nodes, required)


def _affinity(pod: Pod) -> NodeAffinitySpec | None:
    return None if pod.spec.affinity is None else pod.spec.affinity.node_affinity


def _required(pod: Pod) -> NodeSelector | None:
    affinity = _affinity(pod)
    return None if affinity is None else affinity.required


def _preferred(pod: Pod) -> Iterable[PreferredSchedulingTerm]:
    affinity = _affinity(pod)
    return () if affinity is None else affinity.preferred


def _named_nodes(term: NodeSelectorTerm) -> frozenset[str] | None:
    """The nodes that a term names by metadata.name; None if it names none."""
    named: frozenset[str] | None = None
    for field in term.match_fields:
        if field.key == "metadata.name" and field.operator == "In":
            names = frozenset(field.values)
            named = names if named is None else named & names
    return named


def _matches_any(nodes: NodeView, selector: NodeSelector) -> Mask:
    matching = np.zeros(len(nodes), dtype=np.bool_)
    for term in selector.node_selector_terms:
        matching |= _matches_term(nodes, term)
    return matching


def _matches_term(nodes: NodeView, term: NodeSelectorTerm) -> Mask:
    """An empty term, and one that cannot be parsed, match nothing."""
    if not (term.match_expressions or term.match_fields) or unparsable(term) is not None:
        return np.zeros(len(nodes), dtype=np.bool_)
    matching = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.match_expressions:
        matching &= match_requirement(nodes, requirement)
    for requirement in term.match_fields:
        named = nodes.named(requirement.values)
        matching &= named if requirement.operator == "In" else ~named
    return matching


def after_node_change(added: NodeSelector | None, pod: Pod, before: Node | None, now: Node, _: ClusterObjects) -> bool:
    """The node matches the pod and did not before.

    `added`: the profile's own requirement, which the node only has to satisfy now.
    """
    if added is not None and not node_selector_matches(added, now.metadata.labels, now.name):
        return False
    return _matches(pod, now) and (before is None or not _matches(pod, before))


def _matches(pod: Pod, node: Node) -> bool:
    """Raises InvalidObject if no term matches and one of them cannot be parsed."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    required = _required(pod)
    if required is None:
        return True
    terms = required.node_selector_terms
    if any(node_selector_term_matches(term, labels, node.name) for term in terms):
        return True
    for index, term in enumerate(terms):
        fault = unparsable(term)
        if fault is not None:
            raise InvalidObject("Pod", pod.key, f"{_FIELD}.nodeSelectorTerms[{index}]", fault)
    return False
