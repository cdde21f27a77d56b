"""SelectorSpread prefers nodes, and zones, with fewer of the pods that belong with the pod to be placed.

Earlier versions of kube-scheduler had this plugin by default; PodTopologySpread does its work since. No profile has it
unless it is named. A pod with spread constraints of its own is no concern of it.

Summary: the selector of the pods that belong with the pod. Late summary: the most of them on a feasible node, and how
many there are on the feasible nodes of each zone.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flotilla.results import MAX_NODE_SCORE, SKIP, SUCCESS, NodeDomains, Range, Status, Topology
from shared.cluster.columns import ABSENT, NodeColumn
from shared.cluster.interner import Interner
from shared.cluster.labels import Mask
from shared.cluster.nodetable import NodeTable
from shared.cluster.topology import PodCount, merge_counts, pod_count
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Scores
from shared.framework.plugin import PodParts, PreScorePlugin, ScorePlugin, SummaryPlugin, Tracker
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import LabelSelector, Node, Pod
from shared.model.selectors import label_selector_matches
from shared.model.wellknown import BETA_REGION, BETA_ZONE, REGION, ZONE
from shared.plugins.podtopologyspread.owners import controller_of, fellows, kinds_looked_at

ZONE_LABELS = (BETA_ZONE, ZONE)
REGION_LABELS = (BETA_REGION, REGION)
ZONE_SHARE = 2.0 / 3.0
"""What the zone counts for; the node itself counts for the rest."""

SELECTOR = "selector"


@dataclass(frozen=True, slots=True)
class Zone(NodeColumn):
    """The number of a node's zone, which is a region and a zone in it, among all that a table has met."""

    def value(self, table: NodeTable, node: Node) -> int:
        zone = _zone(node.metadata.labels)
        return ABSENT if zone is None else _zones(table).id(zone)


class SelectorSpread(SummaryPlugin, PreScorePlugin, ScorePlugin):
    name = "SelectorSpread"
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        if pod.spec.topology_spread_constraints:
            return None
        owner = controller_of(pod)
        identity = None if owner is None else (owner.api_version, owner.kind, owner.name)
        return pod.namespace, tuple(sorted(pod.metadata.labels.items())), identity

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        return () if state.pod.spec.topology_spread_constraints else kinds_looked_at(state.pod)

    def pre_score(self, state: CycleState) -> Status:
        if state.pod.spec.topology_spread_constraints:
            return SKIP
        state.write(self.name, SELECTOR, fellows(state.pod, state.objects))
        return SUCCESS

    def summarize(self, state: CycleState, table: NodeTable) -> Any:
        selector: LabelSelector | None = state.read(self.name, SELECTOR)
        return None if selector is None else msgspec.to_builtins(selector)

    def merge(self, one: Any, other: Any) -> Any:
        """Shards that know the same objects say the same; while they do not, one of them is right."""
        return max(one, other, key=repr)

    def summarize_feasible(self, state: CycleState, table: NodeTable, feasible: Mask) -> Any:
        column = self._column(state)
        if column is None:
            return None
        zone = table.columns.of_nodes(Zone())[: table.size][feasible]
        pods = table.columns.of_loads(column)[: table.size][feasible]
        names = _zones(table).items
        zoned = zone != ABSENT
        totals = np.bincount(zone[zoned], weights=pods[zoned], minlength=len(names))
        return {
            "most": int(pods.max(initial=0)),
            "zones": {names[number]: int(totals[number]) for number in np.unique(zone[zoned]).tolist()},
        }

    def merge_feasible(self, one: Any, other: Any) -> Any:
        return {"most": max(one["most"], other["most"]), "zones": merge_counts(one["zones"], other["zones"])}

    def score(self, state: CycleState, view: NodeView) -> Scores:
        column, late = self._column(state), state.late.get(self.name)
        zone = view.of_nodes(Zone())
        if column is None or late is None:
            return np.full(len(view), MAX_NODE_SCORE, dtype=np.int64)
        pods = view.of_loads(column)
        in_zones = np.zeros(len(_zones(view.table)) + 1, dtype=np.int64)
        for name, count in late["zones"].items():
            number = _zones(view.table).known(name)
            if number is not None:
                in_zones[number] = count
        in_zone = in_zones[zone] + view.change_of(column)
        of_node = _few(pods, late["most"])
        of_zone = _few(in_zone, max(late["zones"].values(), default=0))
        both = of_node * (1.0 - ZONE_SHARE) + ZONE_SHARE * of_zone
        return np.where(zone == ABSENT, of_node, both).astype(np.int64)

    def topology(self, state: CycleState, table: NodeTable) -> Topology | None:
        return None if self._column(state) is None else Topology((*ZONE_LABELS, *REGION_LABELS), (ZONE_LABELS[1],))

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker | None:
        if summary is None or late is None:
            return None
        return ZoneTracker(pod, summary, late["zones"])

    def _column(self, state: CycleState) -> PodCount | None:
        selector: LabelSelector | None = state.read(self.name, SELECTOR)
        return None if selector is None else pod_count([state.pod.namespace], selector)


class ZoneTracker(Tracker):
    """How the decisions of a round change what the zones are worth."""

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


def _zones(table: NodeTable) -> Interner[str]:
    return table.label_values("the zones of SelectorSpread")
