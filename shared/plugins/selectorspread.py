"""SelectorSpread prefers nodes, and zones, with fewer pods of the same services and controller.

Earlier versions of kube-scheduler had this plugin by default; PodTopologySpread has replaced it, and it is off by
default. Pods with spread constraints of their own are skipped.

Summary: the selector of these pods. Summary of feasible nodes: `Zoned`.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.nodes import ABSENT, Mask, NodeView, TextColumn
from flotilla.plugin import ClassState, PreScorePlugin, ScorePlugin, Scores, StateKey, SummaryPlugin, Tracker
from flotilla.results import MAX_NODE_SCORE, SKIP, SUCCESS, NodeDomains, Range, Status, Topology
from shared.cluster.topology import PodCount, merge_counts, pod_count
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector, Node, Pod
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from shared.plugins.base import InTreePlugin
from shared.plugins.podtopologyspread.constraints import controller_of, default_selector, default_selector_kinds

ZONE_LABELS = (BETA_ZONE, ZONE)
REGION_LABELS = (BETA_REGION, REGION)
ZONE_SHARE = 2.0 / 3.0
"""The weight of the zone; the node itself has the rest."""

SELECTOR = StateKey[LabelSelector | None]("the selector of the pod's services and controller")


class Zoned(TypedDict):
    """The most pods on a feasible node, and how many there are on the feasible nodes of each zone."""

    most: int
    zones: dict[str, int]


@dataclass(frozen=True, slots=True)
class Zone(TextColumn):
    """A node's zone: a region and a zone in it."""

    def value(self, node: Node) -> str | None:
        return _zone(node.metadata.labels)


class SelectorSpread(InTreePlugin, SummaryPlugin[Any, Zoned], PreScorePlugin, ScorePlugin):
    name = "SelectorSpread"

    def signature(self, pod: Pod) -> Hashable:
        if pod.spec.topology_spread_constraints:
            return None
        owner = controller_of(pod)
        identity = None if owner is None else (owner.api_version, owner.kind, owner.name)
        return pod.namespace, tuple(sorted(pod.metadata.labels.items())), identity

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        return () if state.pod.spec.topology_spread_constraints else default_selector_kinds(state.pod)

    def pre_score(self, state: ClassState) -> Status:
        if state.pod.spec.topology_spread_constraints:
            return SKIP
        state[SELECTOR] = default_selector(state.pod, state.objects)
        return SUCCESS

    def summarize(self, state: ClassState, nodes: NodeView) -> Any:
        selector = state.get(SELECTOR)
        return None if selector is None else msgspec.to_builtins(selector)

    def merge(self, one: Any, other: Any) -> Any:
        """Shards with the same objects agree; while they do not, one of them is right."""
        return max(one, other, key=repr)

    def summarize_feasible(self, state: ClassState, nodes: NodeView, feasible: Mask) -> Zoned | None:
        column = _column(state)
        if column is None:
            return None
        zones = nodes.texts(Zone())
        zone, pods = zones.numbers[feasible], nodes.of_pods(column)[feasible]
        zoned = zone != ABSENT
        totals = np.bincount(zone[zoned], weights=pods[zoned], minlength=len(zones.values))
        return Zoned(
            most=int(pods.max(initial=0)),
            zones={zones.values[number]: int(totals[number]) for number in np.unique(zone[zoned]).tolist()},
        )

    def merge_feasible(self, one: Zoned, other: Zoned) -> Zoned:
        return Zoned(most=max(one["most"], other["most"]), zones=merge_counts(one["zones"], other["zones"]))

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        column, summary = _column(state), self.feasible_summary(state)
        if column is None or summary is None:
            return np.full(len(nodes), MAX_NODE_SCORE, dtype=np.int64)
        zones = nodes.texts(Zone())
        in_zones = np.zeros(len(zones.values) + 1, dtype=np.int64)
        for name, count in summary["zones"].items():
            number = zones.number(name)
            if number is not None:
                in_zones[number] = count
        of_node = _few(nodes.of_pods(column), summary["most"])
        in_zone = in_zones[zones.numbers] + nodes.change_of(column)
        of_zone = _few(in_zone, max(summary["zones"].values(), default=0))
        both = of_node * (1.0 - ZONE_SHARE) + ZONE_SHARE * of_zone
        return np.where(zones.numbers == ABSENT, of_node, both).astype(np.int64)

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        return None if _column(state) is None else Topology((*ZONE_LABELS, *REGION_LABELS), (ZONE_LABELS[1],))

    def tracker(self, pod: Pod, summary: Any, feasible: Zoned | None, scores: Range | None) -> Tracker | None:
        return None if summary is None or feasible is None else ZoneTracker(pod, summary, feasible["zones"])


def _column(state: ClassState) -> PodCount | None:
    selector = state.get(SELECTOR)
    return None if selector is None else pod_count([state.pod.namespace], selector)


class ZoneTracker(Tracker):
    """Follows how a round's decisions change the scores of zones."""

    def __init__(self, pod: Pod, summary: Any, zones: dict[str, int]) -> None:
        self._summary = summary
        selector = msgspec.convert(summary, LabelSelector)
        self._column = pod_count([pod.namespace], selector)
        self._own = int(label_selector_matches(selector, pod.metadata.labels))
        self._before = zones
        self._now = dict(zones)
        self._counted: dict[str, int] = {}

    def admits(self, place: NodeDomains) -> bool:
        return True

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        if class_id not in self._counted:
            self._counted[class_id] = self._column.amount(load)
        zone = _zone(place.domains)
        if zone in self._now:
            self._now[zone] += self._counted[class_id]

    def shift(self, place: NodeDomains, own: int) -> int:
        zone = _zone(place.domains)
        if zone not in self._now:
            return 0
        seen = self._before[zone] + own * self._own
        before = _few_of(seen, max(self._before.values()))
        return int(ZONE_SHARE * (_few_of(self._now[zone], max(self._now.values())) - before))

    def summary(self) -> Any:
        return self._summary


def _few(counts: NDArray[np.int64], most: int) -> NDArray[np.float64]:
    """From 0 for as many as there are at most, to 100 for none."""
    if not most:
        return np.full(len(counts), float(MAX_NODE_SCORE))
    few: NDArray[np.float64] = float(MAX_NODE_SCORE) * (np.maximum(most - counts, 0) / float(most))
    return few


def _few_of(count: int, most: int) -> float:
    return float(_few(np.array([count]), most)[0])


def _zone(labels: dict[str, str]) -> str | None:
    zone = next((labels[key] for key in ZONE_LABELS if key in labels), "")
    region = next((labels[key] for key in REGION_LABELS if key in labels), "")
    return f"{region}/{zone}" if region or zone else None
