"""The events that the snapshot's core handles, and the effects that its shell carries out in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.snapshot.state.ledger import AttemptKey
from shared.errors import FlotillaError
from shared.messages.binding import Evict, Withdraw
from shared.messages.state import Commit, Committed, Delta, Heartbeat, LedgerEntry, Outdated
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod

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
    """Event: an object of another kind, new or changed."""

    object: ClusterObject


@dataclass(frozen=True, slots=True)
class ObjectGone:
    kind: ObjectKind
    key: str


WatchEvent = NodeSeen | NodeUnreadable | NodeGone | PodSeen | PodUnreadable | PodDeleted | ObjectSeen | ObjectGone


@dataclass(frozen=True, slots=True)
class WatchEvents:
    """Event: several at once, in order; they make one delta, or a few if they are very many."""

    events: Sequence[WatchEvent]


# Events of binders and look-ups


@dataclass(frozen=True, slots=True)
class BindingFinished:
    """Event: the API server has bound an assumed pod."""

    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class BindingFailed:
    """Event: a binder reports that it does not bind an assumed pod. `rejected` by the plugin: not an error.

    `version`: in the binder's order. `sure`: no call that names it can bind the pod any more. `gone`: there is no such
    pod. `sole`: no other binder has the order.
    """

    uid: str
    attempt: int
    reason: str = ""
    plugin: str = ""
    rejected: bool = False
    version: str = ""
    sure: bool = True
    gone: bool = False
    sole: bool = True


@dataclass(frozen=True, slots=True)
class BindingWaits:
    """Event: a binder waits with an assumed pod for at most this many seconds."""

    uid: str
    attempt: int
    wait: float


@dataclass(frozen=True, slots=True)
class BindingStale:
    """Event: a binder's order names `version`, but the pod, not bound, has version `found`."""

    uid: str
    attempt: int
    version: str
    found: str


BindingReport = BindingFinished | BindingFailed | BindingWaits | BindingStale


@dataclass(frozen=True, slots=True)
class BindingReports:
    """Event: several at once, in order."""

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
class EvictionFailed:
    """Event: not all victims of this preemptor were evicted."""

    uid: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Event: a heartbeat for the workers is due."""


# Effects


@dataclass(frozen=True, slots=True)
class Persist:
    """Effect: make this durable. `answer`: to a repeated commit of the same round. `settled`: left the ledger."""

    delta: Delta | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    settled: tuple[str, ...] = ()
    answer: Committed | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: send this to all workers."""

    message: Delta | Heartbeat


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: answer the cycle. `durable`: only once everything before this is written."""

    message: Committed
    durable: bool = False


@dataclass(frozen=True, slots=True)
class RefuseCycle:
    """Effect: tell this cycle that the snapshot accepts the commits of another."""

    message: Outdated


@dataclass(frozen=True, slots=True)
class DispatchOrders:
    """Effect: give the orders of these attempts to binders."""

    attempts: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class RecallAttempts:
    """Effect: a term has begun; these attempts stay with the binders that hold them, and binders end all others."""

    attempts: tuple[AttemptKey, ...]


@dataclass(frozen=True, slots=True)
class EvictVictims:
    """Effect: send this to a binder."""

    message: Evict


@dataclass(frozen=True, slots=True)
class WithdrawAttempt:
    """Effect: send this to all binders."""

    message: Withdraw


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
class PodForgotten:
    """Effect: tell the queue that this pod is not assumed any more, and why."""

    uid: str
    reason: str
    plugin: str = ""
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class PodStale:
    """Effect: the watch has shown an old version of a pod, without the node that it is bound to. It was ignored."""

    uid: str
    key: str


@dataclass(frozen=True, slots=True)
class AcknowledgeBinder:
    """Effect, of the shell itself: what this report of a binder changed is durable."""

    binder: str
    epoch: int
    number: int


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


Event = WatchEvent | WatchEvents | BindingReport | BindingReports | LookedUp | EvictionFailed | Commit | Tick | Beat
ToBinders = DispatchOrders | RecallAttempts | EvictVictims | WithdrawAttempt | AcknowledgeBinder
ToLog = PodStale | Problem | NodeOpened | WorkerFault | CommitFault
Effect = Persist | Publish | Reply | RefuseCycle | ToBinders | Fence | PodForgotten | ToLog
