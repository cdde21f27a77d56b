"""Small plugins for tests, and frameworks made of them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from flotilla.results import SUCCESS, ApiCall, Permission, PostFilterResult, PreFilterResult, Status, unschedulable
from shared.cluster.nodetable import PODS, NodeTable
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.structs import ProfileConfig
from shared.framework.cyclestate import CycleState
from shared.framework.nodeinfo import NodeInfo
from shared.framework.normalize import ScaleToHighest, Scores
from shared.framework.pernode import PerNodeFilter, PerNodeScore
from shared.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PodParts,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
    SummaryPlugin,
    Verdicts,
)
from shared.framework.profile import Factory, Framework
from shared.framework.view import NodeView
from shared.model.objects import Pod
from shared.plugins.prioritysort import PrioritySort

P = TypeVar("P", bound=Plugin)


def named(kind: type[P], name: str) -> type[P]:
    """The plugin class under another name."""
    return cast(type[P], type(name, (kind,), {"name": name}))


class ReadsNothing(Plugin):
    """Of the pod and of objects beside nodes and pods."""

    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return None

    def reads_objects(self, state: CycleState) -> tuple[()]:
        return ()


class Scripted(
    ReadsNothing,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PostFilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    PermitPlugin,
    PreBindPlugin,
    BindPlugin,
    PostBindPlugin,
):
    """Answers at each point what the test says, and writes into the journal that it was asked."""

    def __init__(self, journal: list[str], answers: Mapping[str, Any]) -> None:
        self._journal = journal
        self._answers = answers

    def _answer(self, point: str, default: Any = SUCCESS) -> Any:
        self._journal.append(f"{self.name}.{point}")
        return self._answers.get(point, default)

    def pre_enqueue(self, pod: Pod) -> Status:
        return cast(Status, self._answer("pre_enqueue"))

    def pre_filter(self, state: CycleState) -> PreFilterResult:
        answer = self._answer("pre_filter", PreFilterResult())
        return PreFilterResult(answer) if isinstance(answer, Status) else cast(PreFilterResult, answer)

    def post_filter(self, state: CycleState, statuses: dict[str, Status]) -> PostFilterResult:
        answer = self._answer("post_filter")
        return PostFilterResult(answer) if isinstance(answer, Status) else cast(PostFilterResult, answer)

    def pre_score(self, state: CycleState) -> Status:
        return cast(Status, self._answer("pre_score"))

    def reserve(self, state: CycleState, node: str) -> Status:
        return cast(Status, self._answer(f"reserve({node})", self._answers.get("reserve", SUCCESS)))

    def unreserve(self, state: CycleState, node: str) -> None:
        self._answer(f"unreserve({node})")

    def permit(self, state: CycleState, node: str) -> Permission:
        answer = self._answer("permit")
        return Permission(answer) if isinstance(answer, Status) else cast(Permission, answer)

    def pre_bind(self, state: CycleState, node: str) -> Status | Sequence[ApiCall]:
        return cast(Status | Sequence[ApiCall], self._answer("pre_bind"))

    def bind(self, state: CycleState, node: str) -> Status | ApiCall:
        return cast(Status | ApiCall, self._answer("bind"))

    def post_bind(self, state: CycleState, node: str) -> None:
        self._answer(f"post_bind({node})")


def scripted(name: str, journal: list[str], **answers: Any) -> Plugin:
    return named(Scripted, name)(journal, answers)


class Uncordoned(ReadsNothing, FilterPlugin):
    """A columnar filter on the node object."""

    name = "Uncordoned"
    filter_reads = Reads.NODE

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        return view.unschedulable.astype(np.int64)

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unschedulable("cordoned")


class FewPods(ReadsNothing, FilterPlugin):
    """A columnar filter on the load."""

    name = "FewPods"
    most: ClassVar[int] = 2

    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        verdicts: Verdicts = (view.used[PODS] >= self.most).astype(np.int64)
        return verdicts

    def explain(self, state: CycleState, verdict: int) -> Status:
        return unschedulable("too many pods")


class AskedFilter(ReadsNothing, PerNodeFilter):
    """Rejects nodes labelled with `reject`, for the reason that the label gives, and notes whom it was asked about."""

    name = "AskedFilter"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def filter_node(self, state: CycleState, node: NodeInfo) -> Status:
        self.asked.append((node.node.name, node.requested["pods"]))
        reason = node.node.metadata.labels.get("reject")
        return SUCCESS if reason is None else unschedulable(reason)


class AskedScore(ReadsNothing, PerNodeScore):
    """Gives what the label `score` says, less the number of pods."""

    name = "AskedScore"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def score_node(self, state: CycleState, node: NodeInfo) -> int:
        self.asked.append((node.node.name, node.requested["pods"]))
        return int(node.node.metadata.labels.get("score", "50")) - len(node.pods)


class NormalizedScore(AskedScore):
    normalizer = ScaleToHighest()


class ZoneFilter(AskedFilter):
    name = "ZoneFilter"

    def filter_node(self, state: CycleState, node: NodeInfo) -> Status:
        zone = node.node.metadata.labels.get("zone", "")
        return unschedulable(f"in the {zone}") if zone == "west" else SUCCESS


class LabelScore(ReadsNothing, PerNodeScore):
    """Reads the node object only."""

    name = "LabelScore"
    score_reads = Reads.NODE

    def score_node(self, state: CycleState, node: NodeInfo) -> int:
        return int(node.node.metadata.labels.get("score", "50"))


class CountNodes(ReadsNothing, SummaryPlugin, ScorePlugin):
    """Scores a node by its pods among all the pods there are."""

    name = "CountNodes"

    def summarize(self, state: CycleState, table: NodeTable) -> Any:
        return {"pods": table.pod_count, "names": sorted(node.name for _, node in table.nodes())}

    def merge(self, one: Any, other: Any) -> Any:
        return {"pods": one["pods"] + other["pods"], "names": sorted(one["names"] + other["names"])}

    def score(self, state: CycleState, view: NodeView) -> Scores:
        total = state.summaries[self.name]["pods"]
        scores: Scores = np.minimum(100 * view.used[PODS] // max(1, total), 100)
        return scores


Points = Mapping[ExtensionPoint, Sequence[str | PluginRef]]


def framework(points: Points, *plugins: Plugin) -> Framework:
    """A framework of these plugins at these points; the queue is sorted by priority where nothing else is said."""
    registry = {plugin.name: _always(plugin) for plugin in plugins}
    registry.setdefault("PrioritySort", lambda _: PrioritySort())
    at: Points = {ExtensionPoint.QUEUE_SORT: ("PrioritySort",), **points}
    refs = {
        point: tuple(ref if isinstance(ref, PluginRef) else PluginRef(ref, 1) for ref in names)
        for point, names in at.items()
    }
    return Framework(ProfileConfig("test", None, refs, {}), registry)


def _always(plugin: Plugin) -> Factory:
    return lambda _: plugin
