"""Small plugins for tests, and frameworks made of them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from flotilla.plugin import (
    BindingState,
    BindPlugin,
    ClassState,
    FilterPlugin,
    NodeInfo,
    NodeView,
    PermitPlugin,
    PerNodeFilter,
    PerNodeScore,
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
    ScaleToHighest,
    ScorePlugin,
    Scores,
    SummaryPlugin,
)
from flotilla.results import SUCCESS, ApiCall, Permission, PostFilterResult, PreFilterResult, Status, unschedulable
from shared.cluster.view import view_of
from shared.config.points import ExtensionPoint, PluginRef
from shared.config.structs import ProfileConfig
from shared.framework.profile import Framework
from shared.model.objects import Pod
from shared.plugins.queueandbind import PrioritySort
from shared.plugins.registry import Factory

P = TypeVar("P", bound=Plugin)


def named(kind: type[P], name: str) -> type[P]:
    """The plugin class under another name."""
    return cast(type[P], type(name, (kind,), {"name": name}))


class ReadsNothing(Plugin):
    """Of the pod and of objects beside nodes and pods."""

    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return None

    def reads_objects(self, state: ClassState) -> tuple[()]:
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

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        answer = self._answer("pre_filter", PreFilterResult())
        return PreFilterResult(answer) if isinstance(answer, Status) else cast(PreFilterResult, answer)

    def post_filter(self, state: ClassState, statuses: dict[str, Status]) -> PostFilterResult:
        answer = self._answer("post_filter")
        return PostFilterResult(answer) if isinstance(answer, Status) else cast(PostFilterResult, answer)

    def pre_score(self, state: ClassState) -> Status:
        return cast(Status, self._answer("pre_score"))

    def reserve(self, state: BindingState, node: str) -> Status:
        return cast(Status, self._answer(f"reserve({node})", self._answers.get("reserve", SUCCESS)))

    def unreserve(self, state: BindingState, node: str) -> None:
        self._answer(f"unreserve({node})")

    def permit(self, state: BindingState, node: str) -> Permission:
        answer = self._answer("permit")
        return Permission(answer) if isinstance(answer, Status) else cast(Permission, answer)

    def pre_bind(self, state: BindingState, node: str) -> Status | Sequence[ApiCall]:
        return cast(Status | Sequence[ApiCall], self._answer("pre_bind"))

    def bind(self, state: BindingState, node: str) -> Status | ApiCall:
        return cast(Status | ApiCall, self._answer("bind"))

    def post_bind(self, state: BindingState, node: str) -> None:
        self._answer(f"post_bind({node})")


def scripted(name: str, journal: list[str], **answers: Any) -> Plugin:
    return named(Scripted, name)(journal, answers)


class Uncordoned(ReadsNothing, FilterPlugin):
    """A columnar filter on the node object."""

    name = "Uncordoned"
    filter_reads = Reads.NODE

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        nodes.reject(nodes.unschedulable, unschedulable("cordoned"))


class FewPods(ReadsNothing, FilterPlugin):
    """A columnar filter on the load."""

    name = "FewPods"
    most: ClassVar[int] = 2

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        nodes.reject(nodes.requested("pods")[0] >= self.most, unschedulable("too many pods"))


class AskedFilter(ReadsNothing, PerNodeFilter):
    """Rejects nodes labelled with `reject`, for the reason that the label gives, and notes whom it was asked about."""

    name = "AskedFilter"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        self.asked.append((node.node.name, node.requested["pods"]))
        reason = node.node.metadata.labels.get("reject")
        return SUCCESS if reason is None else unschedulable(reason)


class AskedScore(ReadsNothing, PerNodeScore):
    """Gives what the label `score` says, less the number of pods."""

    name = "AskedScore"

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def score_node(self, state: ClassState, node: NodeInfo) -> int:
        self.asked.append((node.node.name, node.requested["pods"]))
        return int(node.node.metadata.labels.get("score", "50")) - len(node.pods)


class NormalizedScore(AskedScore):
    normalizer = ScaleToHighest()


class ZoneFilter(AskedFilter):
    name = "ZoneFilter"

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        zone = node.node.metadata.labels.get("zone", "")
        return unschedulable(f"in the {zone}") if zone == "west" else SUCCESS


class LabelScore(ReadsNothing, PerNodeScore):
    """Reads the node object only."""

    name = "LabelScore"
    score_reads = Reads.NODE

    def score_node(self, state: ClassState, node: NodeInfo) -> int:
        return int(node.node.metadata.labels.get("score", "50"))


class CountNodes(ReadsNothing, SummaryPlugin[Any, None], ScorePlugin):
    """Scores a node by its pods among all the pods there are."""

    name = "CountNodes"

    def summarize(self, state: ClassState, nodes: NodeView) -> Any:
        table = view_of(nodes).table
        return {"pods": table.pod_count, "names": sorted(node.name for _, node in table.nodes())}

    def merge(self, one: Any, other: Any) -> Any:
        return {"pods": one["pods"] + other["pods"], "names": sorted(one["names"] + other["names"])}

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        total = state.summaries[self.name]["pods"]
        scores: Scores = np.minimum(100 * nodes.requested("pods")[0] // max(1, total), 100)
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
