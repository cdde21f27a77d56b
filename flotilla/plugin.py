"""Everything that a plugin imports: the extension points as base classes, and what they are given and return.

A plugin derives from the classes of the points it runs at. Filter and Score are asked about columns of many nodes at
once (`FilterPlugin`, `ScorePlugin`), or about one node at a time (`PerNodeFilter`, `PerNodeScore`).

Flotilla judges *classes* of pods: answers are cached for all pods for which every plugin has the same `signature`. What
a plugin reads it declares (`reads_of_pod`, `signature`, `reads_objects`); undeclared, it counts as everything. Plugins
keep no state of their own between calls: what they work out goes into the state that they are given.

There is no AddPod and no RemovePod: see `NodeView`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from flotilla.events import ANY_EVENT, Action, Hint, Registration, Resource
from flotilla.nodes import (
    ABSENT,
    Coded,
    Index,
    Ints,
    LabelValue,
    Mask,
    NodeColumn,
    NodeInfo,
    NodeView,
    PodColumn,
    TextColumn,
    match_requirement,
)
from flotilla.objects import ClusterObjects, Node, ObjectKind, Pod, PodLoad
from flotilla.results import (
    MAX_NODE_SCORE,
    SKIP,
    SUCCESS,
    ApiAnswer,
    ApiCall,
    Code,
    NodeDomains,
    Pause,
    Permission,
    PostFilterResult,
    PreBindSteps,
    PreFilterResult,
    Range,
    Status,
    Topology,
    error,
    unresolvable,
    unschedulable,
)
from shared.errors import UserError
from shared.model.objects import encode_msgpack

API_VERSION = (1, 1)
"""The major number rises when a plugin may have to change, the minor one when something was added."""

ALL_OBJECTS = tuple(ObjectKind)

Scores = Ints
S = TypeVar("S")
T = TypeVar("T")
F = TypeVar("F")


# State


class PluginError(ValueError):
    """A plugin cannot judge a pod: the pod's attempt fails with this message."""


class StateKey(Generic[T]):
    """A typed key for what a plugin keeps in a state. Make one for each value, as a constant of the module."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"StateKey({self.name!r})"


class _State:
    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._values: dict[StateKey[Any], Any] = {}

    def __setitem__(self, key: StateKey[T], value: T) -> None:
        self._values[key] = value

    def __getitem__(self, key: StateKey[T]) -> T:
        value: T = self._values[key]
        return value

    def get(self, key: StateKey[T]) -> T | None:
        """None if nothing was written, for example because the plugin's PreFilter is disabled."""
        return self._values.get(key)


class ClassState(_State):
    """What plugins have computed for one class of pods; lives as long as the class is cached.

    `pod` stands for the class. `summaries` and `feasible_summaries`: the merged ones, by plugin.
    """

    def __init__(self, pod: Pod, objects: ClusterObjects) -> None:
        super().__init__(pod)
        self.objects = objects
        self.summaries: dict[str, Any] = {}
        self.feasible_summaries: dict[str, Any] = {}


class BindingState(_State):
    """What plugins have computed for one pod on its way from Reserve to PostBind.

    `activated`: uids of pods to retry at once, once this pod has its permits or is bound; plugins add to it.
    """

    def __init__(self, pod: Pod) -> None:
        super().__init__(pod)
        self.activated: set[str] = set()


# Declarations


class Reads(Enum):
    """What of a node a plugin's answer depends on."""

    NODE = "the node object"
    PODS = "the node object and the pods on it"


class PodParts(Enum):
    """What of a pod a plugin is given when it judges a class of pods.

    The template of a pod that is nominated to a node, or whose claims are named after it, includes its name and uid.
    """

    TEMPLATE = "namespace, labels, controller, deletion, spec and status"
    WHOLE = "everything that is kept of the pod"


class Plugin(ABC):
    """`api_version`: the version of this interface that the plugin needs."""

    name: ClassVar[str]
    api_version: ClassVar[tuple[int, int]] = (1, 0)
    reads_of_pod: ClassVar[PodParts] = PodParts.WHOLE

    def signature(self, pod: Pod) -> Hashable:
        """The part of the pod that this plugin reads, made of tuple, str, bytes, int, bool and None.

        By default each version of each pod is a class of its own. Asked only of plugins that judge classes of pods.
        """
        return encode_msgpack(pod)

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        """The kinds of objects that were read for this pod; the class is prepared again when one of them changes.

        Asked after PreFilter and PreScore; only of plugins that judge classes of pods.
        """
        return ALL_OBJECTS

    def events(self) -> Sequence[Registration]:
        """The events that may make a pod schedulable that this plugin rejected; by default any event."""
        return ANY_EVENT


# The extension points, in the order in which a pod meets them


class PreEnqueuePlugin(Plugin):
    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """Any status but success keeps the pod out of the active queue."""

    def pre_enqueue_among(self, pod: Pod, objects: ClusterObjects) -> Status:
        """Likewise, for plugins that also read the cluster's other objects; the queue calls this one."""
        return self.pre_enqueue(pod)


class QueueSortPlugin(Plugin):
    @abstractmethod
    def sort_key(self, pod: Pod, queued_at: float) -> Any:
        """Pods leave the active queue in the order of this key."""


class PreFilterPlugin(Plugin):
    @abstractmethod
    def pre_filter(self, state: ClassState) -> PreFilterResult:
        """Work out what `filter` needs. SKIP omits the filter; a rejection ends the attempt."""


class FilterPlugin(Plugin):
    filter_reads: ClassVar[Reads] = Reads.PODS

    def cache_key(self, state: ClassState) -> Hashable:
        """Nodes are filtered once for all classes with this key."""
        return self.signature(state.pod)

    def passes_all(self, state: ClassState) -> bool:
        """Whether the merged summary shows that no node is rejected; then `filter` is not called."""
        return False

    @abstractmethod
    def filter(self, state: ClassState, nodes: NodeView) -> None:
        """Reject nodes by `nodes.reject(mask, status)`."""


class LazyFilter(FilterPlugin):
    """Asked only about nodes that passed every filter that is not lazy, because it costs much or may fail."""


class PerNodeFilter(LazyFilter):
    """Asked about one node at a time."""

    @abstractmethod
    def filter_node(self, state: ClassState, node: NodeInfo) -> Status: ...

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        rejected: dict[Status, list[int]] = {}
        for i in range(len(nodes)):
            status = self.filter_node(state, nodes.info(i))
            if not status.ok:
                if not status.rejected:
                    raise PluginError(f'running "{self.name}" filter plugin: {status.message or status.code}')
                rejected.setdefault(status, []).append(i)
        for status, at in rejected.items():
            nodes.reject(np.array(at, dtype=np.intp), status)


class BatchFilter(FilterPlugin):
    """A filter that judges several classes in one call, which pays if most of the work is the same for all."""

    @abstractmethod
    def filter_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> None:
        """Masks are classes x nodes; with `which`, the i-th node is judged for class `which[i]` only."""

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        self.filter_batch([state], np.zeros(len(nodes), dtype=np.intp), nodes)


class DomainFilter(FilterPlugin):
    """A filter that rejects nodes for the state of their topology domain, which decisions of a round may change."""

    @abstractmethod
    def filter_with_open_domains(self, state: ClassState, nodes: NodeView) -> None:
        """Reject only nodes that stay rejected however the counts of domains change."""


class PostFilterPlugin(Plugin):
    @abstractmethod
    def post_filter(self, state: ClassState, statuses: dict[str, Status]) -> PostFilterResult:
        """Called if no node is feasible. `statuses`: why, by node."""


class PreScorePlugin(Plugin):
    @abstractmethod
    def pre_score(self, state: ClassState) -> Status:
        """Work out what `score` needs. SKIP omits scoring; the plugin contributes 0."""


class Normalizer(Protocol):
    """Turns raw scores into scores from 0 to 100, given the range of raw scores of all feasible nodes.

    It gets nothing else of the other nodes, because ranges can be merged over shards.
    """

    def __call__(self, raw: Scores, low: int, high: int) -> Scores: ...


@dataclass(frozen=True, slots=True)
class ScaleToHighest:
    """The highest raw score becomes 100, and 0 stays 0; or the other way round if `reversed`."""

    reversed: bool = False

    def __call__(self, raw: Scores, low: int, high: int) -> Scores:
        scaled = raw if high <= 0 else MAX_NODE_SCORE * raw // high
        return MAX_NODE_SCORE - scaled if self.reversed else scaled


class ScorePlugin(Plugin):
    """`unranged`: a raw score that is left out of the range over which scores are normalized.

    `packs`: pods of any class raise the score of the node they go to. A profile with such a plugin is decided class by
    class, as pods that were judged together would not see the nodes that the others fill.
    """

    score_reads: ClassVar[Reads] = Reads.PODS
    normalizer: ClassVar[Normalizer | None] = None
    unranged: ClassVar[int | None] = None
    packs: bool = False

    def scores_alike(self, state: ClassState) -> bool:
        """Whether the merged summary shows that all nodes get the same score; then the plugin counts as skipped."""
        return False

    def cache_key(self, state: ClassState) -> Hashable:
        """Nodes are scored once for all classes with this key."""
        return self.signature(state.pod)

    @abstractmethod
    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        """One raw score a node; 0 to 100 if there is no normalizer."""


class LazyScore(ScorePlugin):
    """Asked only about feasible nodes."""


class PerNodeScore(LazyScore):
    """Asked about one node at a time."""

    @abstractmethod
    def score_node(self, state: ClassState, node: NodeInfo) -> int: ...

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return np.array([self.score_node(state, nodes.info(i)) for i in range(len(nodes))], dtype=np.int64)


class BatchScore(ScorePlugin):
    """A score for several classes in one call."""

    @abstractmethod
    def score_batch(self, states: Sequence[ClassState], which: Index | None, nodes: NodeView) -> Scores:
        """Classes x nodes; with `which`, one raw score a node: the i-th for class `which[i]`."""

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return self.score_batch([state], np.zeros(len(nodes), dtype=np.intp), nodes)


class ReservePlugin(Plugin):
    """`reads_pod`: whether it needs more of the pod than namespace, name and uid."""

    reads_pod: ClassVar[bool] = True

    @abstractmethod
    def reserve(self, state: BindingState, node: str) -> Status: ...

    @abstractmethod
    def unreserve(self, state: BindingState, node: str) -> None:
        """Undo a reservation. Never fails, and may be called without one."""


class PermitPlugin(Plugin):
    @abstractmethod
    def permit(self, state: BindingState, node: str) -> Permission: ...


class PreBindPlugin(Plugin):
    """`reads_pod`: whether it needs more of the pod than namespace, name and uid."""

    reads_pod: ClassVar[bool] = True

    @abstractmethod
    def pre_bind(self, state: BindingState, node: str) -> Status | Collection[ApiCall] | PreBindSteps:
        """Calls that must all succeed, or steps each of which depends on the answers to those before.

        May be called again for a pod for which some or all of it has been done.
        """


class BindPlugin(Plugin):
    """`reads_pod`: whether it needs more of the pod than namespace, name and uid."""

    reads_pod: ClassVar[bool] = True

    @abstractmethod
    def bind(self, state: BindingState, node: str) -> Status | ApiCall:
        """The call that binds the pod; SKIP leaves it to the next bind plugin."""


class PostBindPlugin(Plugin):
    @abstractmethod
    def post_bind(self, state: BindingState, node: str) -> None: ...


# Other shards, and other pods of the same round


class Tracker(ABC):
    """Follows the decisions of a round for one class of pods, beyond the nodes that they fill.

    Starts from the merged summary by which all shards have judged. `touched`: whether any decision so far has changed
    an answer.
    """

    touched: bool = False

    @abstractmethod
    def admits(self, place: NodeDomains) -> bool:
        """Whether a pod of the class may still go to this node, which its shard found feasible."""

    def concerns(self, load: PodLoad) -> bool:
        """Whether pods like this can change an answer, wherever they go; if not, `placed` is not called for them."""
        return True

    @abstractmethod
    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        """A pod of this or another class was decided."""

    def shift(self, place: NodeDomains, own: int) -> int:
        """By how much a node's score (0 to 100) has changed so far.

        `own`: how many pods of the class the shard has already counted on this node.
        """
        return 0

    @abstractmethod
    def summary(self) -> Any:
        """The best prediction of the merged summary, were it computed again now."""


class SummaryPlugin(Plugin, Generic[S, F]):
    """A plugin that needs to know something of nodes in other shards.

    Each shard computes a summary of its own nodes; the merged one is there when filter and score run. Summaries travel
    in messages, so they are made of dict, list, str, int, float, bool and None.
    """

    def summary(self, state: ClassState) -> S | None:
        return state.summaries.get(self.name)

    def feasible_summary(self, state: ClassState) -> F | None:
        """None as long as nothing is known."""
        return state.feasible_summaries.get(self.name)

    @abstractmethod
    def summarize(self, state: ClassState, nodes: NodeView) -> S:
        """`nodes`: all of the shard's."""

    @abstractmethod
    def merge(self, one: S, other: S) -> S:
        """Commutative and associative, so that the number of shards does not matter."""

    def summarize_feasible(self, state: ClassState, nodes: NodeView, feasible: Mask) -> F | None:
        """A second summary, of the nodes that passed all filters; for scores only."""
        return None

    def merge_feasible(self, one: F, other: F) -> F:
        return one

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        """None if decisions about other pods matter only by filling nodes."""
        return None

    def tracker(self, pod: Pod, summary: S | None, feasible: F | None, scores: Range | None) -> Tracker | None:
        """For a round in which some pod has a topology. `scores`: the range of raw scores; None if there is none."""
        return None


# The names that plugins import, by subject
__all__ = ["ALL_OBJECTS", "API_VERSION", "Plugin", "PluginError", "PodParts", "Reads", "UserError"]
__all__ += ["FilterPlugin", "PostFilterPlugin", "PreEnqueuePlugin", "PreFilterPlugin", "QueueSortPlugin"]
__all__ += ["BindPlugin", "PermitPlugin", "PreBindPlugin", "PreScorePlugin", "ReservePlugin", "ScorePlugin"]
__all__ += ["BatchFilter", "BatchScore", "DomainFilter", "PerNodeFilter", "PerNodeScore", "PostBindPlugin"]
__all__ += ["LazyFilter", "LazyScore"]
__all__ += ["NodeDomains", "Normalizer", "Range", "ScaleToHighest", "Scores", "SummaryPlugin", "Topology", "Tracker"]
__all__ += ["BindingState", "ClassState", "ClusterObjects", "Node", "ObjectKind", "Pod", "PodLoad", "StateKey"]
__all__ += ["ABSENT", "Coded", "Index", "Ints", "LabelValue", "Mask", "NodeColumn", "NodeInfo", "NodeView", "PodColumn"]
__all__ += ["ANY_EVENT", "Action", "Hint", "Registration", "Resource", "TextColumn", "match_requirement"]
__all__ += ["MAX_NODE_SCORE", "SKIP", "SUCCESS", "ApiAnswer", "ApiCall", "Code", "Pause", "Permission"]
__all__ += ["PostFilterResult", "PreBindSteps", "PreFilterResult", "Status", "error", "unresolvable", "unschedulable"]
