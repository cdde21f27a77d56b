"""The events that the snapshot's core handles, and the effects that its shell carries out in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern

import msgspec

from services.snapshot.state.ledger import AttemptKey
from shared.errors import FlotillaError
from shared.messages.binding import BindingOutcome, Evict, Evicted, Withdraw
from shared.messages.queue import ForgottenPod, Received
from shared.messages.state import (
    Commit,
    Committed,
    Delta,
    Heartbeat,
    LedgerEntry,
    NeedDeltas,
    OthersChanged,
    Outdated,
)
from shared.messages.watch import PodOnNode
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod
from shared.model.pod import unix_time
from shared.store.schema import Persist

# Events of the watch


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """Event: a node, new or changed. `problem`: what of it could not be read, which closes it."""

    node: Node
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeUnreadable:
    """Event: a node of which nothing can be read."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """Event: a pod, new or changed."""

    pod: Pod


class AssignedPodSeen(msgspec.Struct, frozen=True, gc=False):
    """Event: a pod on a node, new or changed, as far as it counts there. Fields as in PodPlaced."""

    uid: str
    key: str
    node: str
    load: PodLoad
    started: float | None = None


class AlikePodsSeen(msgspec.Struct, frozen=True, gc=False):
    """Event: pods on nodes of one namespace, new or changed, which have the same load."""

    namespace: str
    load: PodLoad
    pods: Sequence[PodOnNode]

    def singly(self) -> Iterator[AssignedPodSeen]:
        """The same, as one event for each pod."""
        for pod in self.pods:
            key, started = f"{self.namespace}/{pod.name}", unix_time(pod.started)
            yield AssignedPodSeen(pod.uid, key, intern(pod.node), self.load, started)


@dataclass(frozen=True, slots=True)
class PodUnreadable:
    """Event: a pod on a node, of which it is unknown what it uses there. `pod`: what could be read of it, if any."""

    uid: str
    key: str
    node: str
    problem: str
    pod: Pod | None = None


@dataclass(frozen=True, slots=True)
class PodDeleted:
    uid: str


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """Event: an object of another kind, new or changed. `version`: as in ObjectChange."""

    object: ClusterObject
    version: str = ""


@dataclass(frozen=True, slots=True)
class ObjectGone:
    kind: ObjectKind
    key: str


WatchEvent = (
    AlikePodsSeen
    | AssignedPodSeen
    | NodeSeen
    | NodeUnreadable
    | NodeGone
    | PodSeen
    | PodUnreadable
    | PodDeleted
    | ObjectSeen
    | ObjectGone
)


@dataclass(frozen=True, slots=True)
class WatchEvents:
    """Event: several at once, in order; they make one delta, or a few if they are very many."""

    events: Sequence[WatchEvent]


# Events of binders and look-ups


@dataclass(frozen=True, slots=True)
class BindingReport:
    """Event: a binder's outcome of an attempt. `sure`: no call that names its version can bind the pod any more.

    `sole`: no other binder has the order.
    """

    outcome: BindingOutcome
    sure: bool = True
    sole: bool = True


@dataclass(frozen=True, slots=True)
class BindingReports:
    """Event: the outcomes of one message of a binder, in order."""

    reports: Sequence[BindingReport]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Event: the node of a pod by the API server; None if it is not bound. `gone`: deleted or finished.

    `nominated`: the node in its status. `version`: the one that is fenced, if that was asked for.
    """

    uid: str
    attempt: int
    node: str | None
    gone: bool = False
    nominated: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ClaimsFenced:
    """Event: the claims of a held entry have these versions by now; empty for those that are gone."""

    uid: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Event: a heartbeat for the workers is due."""


# Effects


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: answer the cycle. `durable`: only once everything before this is written."""

    message: Committed
    durable: bool = False


@dataclass(frozen=True, slots=True)
class DispatchOrders:
    """Effect: give the orders of these attempts to binders."""

    attempts: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class RecallAttempts:
    """Effect: a term has begun; these attempts stay with the binders that hold them, and binders end all others."""

    attempts: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class Fence:
    """Effect: give the pod another version than this one unless it has one, so that no call that names it can succeed.

    LookedUp answers it. Empty `version`: the one that the pod has now.
    """

    uid: str
    attempt: int
    namespace: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class FenceClaims:
    """Effect: give each claim of the attempt another version, so that no binder allocates it for the attempt any more.

    ClaimsFenced answers it.
    """

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class PodStale:
    """Effect: the watch has shown an old version of a pod, without the node that it is bound to. It was ignored."""

    uid: str
    key: str


@dataclass(frozen=True, slots=True)
class AcknowledgeBinder:
    """Effect, of the shell itself: what a binder's message of this epoch and number changed is durable."""

    epoch: int
    number: int
    respond: Callable[[Received], object]


@dataclass(frozen=True, slots=True)
class Problem:
    """Effect: log an error. The object was left out, and nothing else was touched."""

    error: FlotillaError


@dataclass(frozen=True, slots=True)
class NodeOpened:
    """Effect: this node was closed, and may get pods again."""

    node: str


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """Effect: a worker's proposal was already invalid in the state that it evaluated; it was rejected."""

    worker: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommitFault:
    """Effect: a commit described a pod wrongly; it was rejected. The pod has just changed, or the cycle is wrong."""

    what: str


FromCycle = Commit | NeedDeltas
FromBinders = BindingReport | BindingReports | Evicted
Event = WatchEvent | WatchEvents | FromBinders | LookedUp | ClaimsFenced | FromCycle | Tick | Beat
ToBinders = DispatchOrders | RecallAttempts | Evict | Withdraw | AcknowledgeBinder
ToLog = PodStale | Problem | NodeOpened | WorkerFault | CommitFault
ToCycle = Reply | Outdated | OthersChanged
Effect = Persist | Delta | Heartbeat | ToCycle | ToBinders | Fence | FenceClaims | ForgottenPod | ToLog
"""Messages are sent: deltas and heartbeats to workers, Withdraw to all binders, Evict to one of them, ForgottenPod to
the queue.
"""
