"""NodeAffinity matches nodes against a pod's nodeSelector and node affinity, and the profile's addedAffinity."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.events import Action, Registration, Resource
from flotilla.results import SKIP, SUCCESS, PreFilterResult, Status, error, unresolvable
from shared.cluster.labels import LabelValue, match_requirement
from shared.config.args import NodeAffinityArgs
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import ScaleToHighest, Scores
from shared.framework.plugin import (
    FilterPlugin,
    PodParts,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ScorePlugin,
    Verdicts,
)
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.objects import NodeAffinity as NodeAffinitySpec
from shared.model.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PreferredSchedulingTerm,
)
from shared.model.selectors import unparsable
from shared.plugins.hints import nodeaffinity as hints

Mask = NDArray[np.bool_]

FITS, NOT_PODS, NOT_ENFORCED = range(3)


class NodeAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    name = "NodeAffinity"
    reads_of_pod = PodParts.TEMPLATE
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    normalizer = ScaleToHighest()

    def __init__(self, args: NodeAffinityArgs) -> None:
        added = args.added_affinity
        self._added_required = added.required if added is not None else None
        self._added_preferred = added.preferred if added is not None else []

    def signature(self, pod: Pod) -> Hashable:
        selector = tuple(sorted(pod.spec.node_selector.items()))
        affinity = _affinity(pod)
        return selector, None if affinity is None else msgspec.msgpack.encode(affinity)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return ()

    def events(self) -> Sequence[Registration]:
        hint = partial(hints.after_node_change, self._added_required)
        return (Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, hint),)

    def pre_filter(self, state: CycleState) -> PreFilterResult:
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

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        verdicts = np.full(len(view), FITS, dtype=np.int64)
        matching = np.ones(len(view), dtype=np.bool_)
        for key, value in state.pod.spec.node_selector.items():
            matching &= _matches_label(view, NodeSelectorRequirement(key=key, operator="In", values=[value]))
        required = _required(state.pod)
        if required is not None:
            matching &= _matches_any(view, required)
        verdicts[~matching] = NOT_PODS
        if self._added_required is not None:
            verdicts[~_matches_any(view, self._added_required)] = NOT_ENFORCED
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        if verdict == NOT_ENFORCED:
            return unresolvable("node(s) didn't match scheduler-enforced node affinity")
        return unresolvable("node(s) didn't match Pod's node affinity/selector")

    def pre_score(self, state: CycleState) -> Status:
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

    def score(self, state: CycleState, view: NodeView) -> Scores:
        scores = np.zeros(len(view), dtype=np.int64)
        for wish in (*self._added_preferred, *_preferred(state.pod)):
            if wish.weight:
                scores += wish.weight * _matches_term(view, wish.preference)
        return scores


def _affinity(pod: Pod) -> NodeAffinitySpec | None:
    return None if pod.spec.affinity is None else pod.spec.affinity.node_affinity


def _required(pod: Pod) -> NodeSelector | None:
    affinity = _affinity(pod)
    return None if affinity is None else affinity.required


def _preferred(pod: Pod) -> Iterable[PreferredSchedulingTerm]:
    affinity = _affinity(pod)
    return () if affinity is None else affinity.preferred


def _named_nodes(term: NodeSelectorTerm) -> frozenset[str] | None:
    """The nodes that a term names by metadata.name; None where it names none."""
    named: frozenset[str] | None = None
    for field in term.match_fields:
        if field.key == "metadata.name" and field.operator == "In":
            names = frozenset(field.values)
            named = names if named is None else named & names
    return named


def _matches_any(view: NodeView, selector: NodeSelector) -> Mask:
    matching = np.zeros(len(view), dtype=np.bool_)
    for term in selector.node_selector_terms:
        matching |= _matches_term(view, term)
    return matching


def _matches_term(view: NodeView, term: NodeSelectorTerm) -> Mask:
    """An empty term, and one that cannot be parsed, match nothing."""
    if not (term.match_expressions or term.match_fields) or unparsable(term) is not None:
        return np.zeros(len(view), dtype=np.bool_)
    matching = np.ones(len(view), dtype=np.bool_)
    for requirement in term.match_expressions:
        matching &= _matches_label(view, requirement)
    for requirement in term.match_fields:
        matching &= _matches_name(view, requirement)
    return matching


def _matches_label(view: NodeView, requirement: NodeSelectorRequirement) -> Mask:
    return match_requirement(view.table, requirement, view.of_nodes(LabelValue(requirement.key)))


def _matches_name(view: NodeView, requirement: NodeSelectorRequirement) -> Mask:
    rows = [row for name in requirement.values if (row := view.table.row_of(name)) is not None]
    named = np.isin(view.rows, rows)
    return named if requirement.operator == "In" else ~named
