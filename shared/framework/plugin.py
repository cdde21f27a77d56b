"""The extension points, as classes that a plugin derives from; one plugin may implement several.

Filter and score are columnar: they get a view of many nodes and answer with an array. `signature` names the part of
a pod that a plugin reads; results are cached per signature, so it must tell apart what the plugin would judge apart.
A plugin keeps no state of its own between calls.

There is no AddPod and no RemovePod: a view may suppose that pods are on its nodes, or gone from there, and a kernel
that reads the view takes that into account.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flotilla.events import ANY_EVENT, Registration
from flotilla.results import (
    ApiCall,
    NodeDomains,
    Permission,
    PostFilterResult,
    PreBindSteps,
    PreFilterResult,
    Range,
    Status,
    Topology,
)
from shared.cluster.changes import Rows
from shared.cluster.nodetable import NodeTable
from shared.cluster.volumes import VolumeDecision
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import Normalizer, Scores
from shared.framework.view import NodeView
from shared.model.kinds import ObjectKind
from shared.model.load import PodLoad
from shared.model.objects import Pod, encode_msgpack

ALL_OBJECTS = tuple(ObjectKind)

Mask = NDArray[np.bool_]
Verdicts = NDArray[np.int64]
"""One number a node: nought where the pod fits, else what `explain` turns into a status."""


class Reads(Enum):
    """What of a node a plugin's answer depends on."""

    NODE = "the node object"
    LOAD = "the node object and the pods on it"


class PodParts(Enum):
    """What of a pod a plugin gets to see where it judges a class of pods.

    The template of a pod that is nominated to a node, or whose claims are called after it, has its name and uid, too.
    """

    TEMPLATE = "namespace, labels, controller, deletion, spec and status"
    WHOLE = "everything that is kept of the pod"


class Plugin(ABC):
    """Unless it declares to read less, a plugin reads all of a pod and all objects beside pods and nodes."""

    name: ClassVar[str]
    reads_of_pod: ClassVar[PodParts] = PodParts.WHOLE

    def signature(self, pod: Pod) -> Hashable:
        """The part of the pod that this plugin reads, made of tuple, str, bytes, int, bool and None.

        Without one, each version of each pod is judged by itself. Asked only of plugins that judge classes of pods.
        """
        return encode_msgpack(pod)

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        """The kinds of objects that were looked at for this pod; when one of them changes, they are looked at again.

        Asked after PreFilter and PreScore; only of plugins that judge classes of pods.
        """
        return ALL_OBJECTS

    def events(self) -> Sequence[Registration]:
        """What may help a pod that this plugin has rejected; whatever happens, unless it is overridden.

        With nothing that helps, such a pod is tried again only when it has waited for very long.
        """
        return ANY_EVENT


class PreEnqueuePlugin(Plugin):
    @abstractmethod
    def pre_enqueue(self, pod: Pod) -> Status:
        """Not ok keeps the pod out of the active queue."""


class QueueSortPlugin(Plugin):
    @abstractmethod
    def sort_key(self, pod: Pod, queued_at: float) -> Any:
        """Pods leave the active queue in the order of this key."""


class PreFilterPlugin(Plugin):
    @abstractmethod
    def pre_filter(self, state: CycleState) -> PreFilterResult:
        """Works out what `filter` needs. SKIP spares the filter; a rejection ends the pod's cycle."""


class FilterPlugin(Plugin):
    """`opens`: what it rejects now, the decisions of a round may let in, and its trackers tell."""

    filter_reads: ClassVar[Reads] = Reads.LOAD
    opens: ClassVar[bool] = False

    def cache_key(self, state: CycleState) -> Hashable:
        """Verdicts are computed once for all pods with this key."""
        return self.signature(state.pod)

    @abstractmethod
    def filter(self, state: CycleState, view: NodeView) -> Verdicts:
        """One verdict for every node of the view."""

    def filter_open(self, state: CycleState, view: NodeView) -> Verdicts:
        """As filter, but where only the present state of domains is against a node, it is let through."""
        return self.filter(state, view)

    def filter_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Verdicts:
        """Pods x nodes; with `which`, one verdict a node: the i-th for pod `which[i]`.

        Override where broadcasting beats a loop.
        """
        return _loop(self.filter, states, which, view)

    @abstractmethod
    def explain(self, state: CycleState, verdict: int) -> Status:
        """The status that a verdict other than nought stands for."""


class PostFilterPlugin(Plugin):
    @abstractmethod
    def post_filter(self, state: CycleState, statuses: dict[str, Status]) -> PostFilterResult:
        """No node fits: can something be done about it?"""


class PreScorePlugin(Plugin):
    @abstractmethod
    def pre_score(self, state: CycleState) -> Status:
        """Works out what `score` needs. SKIP spares the score, which then counts nought."""


class ScorePlugin(Plugin):
    """`unranged`: a raw score that stays out of the range over which scores are normalised."""

    score_reads: ClassVar[Reads] = Reads.LOAD
    normalizer: ClassVar[Normalizer | None] = None
    unranged: ClassVar[int | None] = None

    def has_no_say(self, state: CycleState) -> bool:
        """Whether the merged summary shows that this plugin would score every node alike, and so is skipped."""
        return False

    def cache_key(self, state: CycleState) -> Hashable:
        """Raw scores are computed once for all pods with this key."""
        return self.signature(state.pod)

    @abstractmethod
    def score(self, state: CycleState, view: NodeView) -> Scores:
        """One raw score for every node of the view; 0 to 100 where there is no normaliser."""

    def score_all(self, states: Sequence[CycleState], which: Rows | None, view: NodeView) -> Scores:
        """Pods x nodes; with `which`, one raw score a node: the i-th for pod `which[i]`."""
        return _loop(self.score, states, which, view)


def _loop(
    judge: Callable[[CycleState, NodeView], NDArray[np.int64]],
    states: Sequence[CycleState],
    which: Rows | None,
    view: NodeView,
) -> NDArray[np.int64]:
    if which is None:
        return np.stack([judge(state, view) for state in states])
    answers = np.zeros(len(view), dtype=np.int64)
    for pod, state in enumerate(states):
        at = np.flatnonzero(which == pod)
        answers[at] = judge(state, view.take(at))
    return answers


def joined(topologies: Iterable[Topology | None]) -> Topology | None:
    """What all of them speak of."""
    found = [topology for topology in topologies if topology is not None]
    if len(found) < 2:
        return found[0] if found else None
    keys = {key for topology in found for key in topology.keys}
    strata = {key for topology in found for key in topology.strata}
    return Topology(tuple(sorted(keys)), tuple(sorted(strata)))


class Tracker(ABC):
    """What the decisions of a round mean for one class of pods, beyond the nodes that they fill.

    Starts from the merged summary that all shards have judged by. All the decisions of the round are told to it, so it
    can say what filter would say now; `touched` is whether any of them has changed what it says.
    """

    touched: bool = False

    @abstractmethod
    def admits(self, place: NodeDomains) -> bool:
        """Would a pod of the class still be let onto this node? Asked only of nodes that the shard let it onto."""

    def concerns(self, load: PodLoad) -> bool:
        """Whether pods like this, wherever they go, can change what it says; if not, it is not told of them."""
        return True

    @abstractmethod
    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        """A pod of this or another class has been decided."""

    def shift(self, place: NodeDomains, own: int) -> int:
        """By how much a node's score (0 to 100) has changed by now.

        `own`: how many pods of the class the ladder has counted on this very node already.
        """
        return 0

    @abstractmethod
    def summary(self) -> Any:
        """The merged summary, as far as it can be told, if it were computed again now."""


class SummaryPlugin(Plugin):
    """A plugin that needs to know something of nodes outside the shard at hand.

    Each shard computes a summary of its own nodes; merged summaries reach filter and score as
    `state.summaries[name]`. Summaries travel in messages: they are made of dict, list, str, int, float, bool, None.
    """

    def topology(self, state: CycleState, table: NodeTable) -> Topology | None:
        """None if no decision about another pod can matter, but by filling a node."""
        return None

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker | None:
        """For a round in which some pod has a topology, given what all shards have judged by.

        `late`: the merged summary of feasible rows, `scores`: the range of raw scores; None where there is none.
        """
        return None

    @abstractmethod
    def summarize(self, state: CycleState, table: NodeTable) -> Any: ...

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Commutative and associative, so that the number of shards does not matter."""

    def summarize_feasible(self, state: CycleState, table: NodeTable, feasible: Mask) -> Any:
        """A second summary, of the rows that all filters let the pod onto; None where there is no need of it.

        Merged ones reach score as `state.late[name]`; there is none as long as nothing is known.
        """
        return None

    def merge_feasible(self, one: Any, other: Any) -> Any:
        """As `merge`."""
        return one


DECISION = "decision"
"""Where a volume plugin that binds finds the VolumeDecision that was taken for the pod, in its own state."""


class VolumePlugin(Plugin):
    """A plugin that decides which volumes a pod gets along with its node."""

    @abstractmethod
    def volumes_for(self, state: CycleState, table: NodeTable, row: int) -> VolumeDecision | None:
        """For a node that the filter let the pod onto; None where nothing is left to be decided."""


class ReservePlugin(Plugin):
    """`reads_pod`: it needs more than namespace, name and uid."""

    reads_pod: ClassVar[bool] = True

    @abstractmethod
    def reserve(self, state: CycleState, node: str) -> Status: ...

    @abstractmethod
    def unreserve(self, state: CycleState, node: str) -> None:
        """Takes a reservation back. Never fails, and may be called without one."""


class PermitPlugin(Plugin):
    @abstractmethod
    def permit(self, state: CycleState, node: str) -> Permission: ...


class PreBindPlugin(Plugin):
    """`reads_pod`: it needs more than namespace, name and uid."""

    reads_pod: ClassVar[bool] = True

    @abstractmethod
    def pre_bind(self, state: CycleState, node: str) -> Status | Collection[ApiCall] | PreBindSteps:
        """Calls that must all be done, or steps of which the next one depends on what became of those before.

        May be asked again about a pod for which all or some has been done.
        """


class BindPlugin(Plugin):
    """`reads_pod`: it needs more than namespace, name and uid."""

    reads_pod: ClassVar[bool] = True

    @abstractmethod
    def bind(self, state: CycleState, node: str) -> Status | ApiCall:
        """The call that binds the pod; SKIP leaves it to the next bind plugin."""


class PostBindPlugin(Plugin):
    @abstractmethod
    def post_bind(self, state: CycleState, node: str) -> None: ...
