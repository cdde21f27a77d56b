"""What the snapshot is told, and what it wants done. Effects are to be carried out in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.snapshot.state.ledger import Attempt
from shared.errors import FlotillaError
from shared.messages.binding import Evict, Withdraw
from shared.messages.state import Commit, Committed, Delta, Heartbeat, LedgerEntry, Outdated
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """Event: the watch says that a node is so. `problem`: what of it could not be read, which closes it."""

    node: Node
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeUnreadable:
    """Event: the watch says that a node is there, and nothing of it can be read."""

    name: str
    problem: str


@dataclass(frozen=True, slots=True)
class NodeGone:
    """Event: the watch says that a node is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """Event: the watch says that a pod is so."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodUnreadable:
    """Event: the watch says that a pod is on a node, and what it occupies there cannot be told.

    `pod`: what could be read of it; None if that is nothing.
    """

    uid: str
    key: str
    node: str
    problem: str
    pod: Pod | None = None


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """Event: the watch says that a pod is no more."""

    uid: str


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """Event: the watch says that an object of another kind is so."""

    object: ClusterObject


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """Event: the watch says that an object of another kind is no more."""

    kind: ObjectKind
    key: str


Seen = NodeSeen | NodeUnreadable | NodeGone | PodSeen | PodUnreadable | PodDeleted | ObjectSeen | ObjectGone


@dataclass(frozen=True, slots=True)
class Observed:
    """Event: what the watch says, in order; it makes one delta, or a few where it is very much."""

    events: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class BindingFinished:
    """Event: the API server has bound an assumed pod."""

    uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class BindingFailed:
    """Event: a binder says that an assumed pod is not bound to its node. `rejected` by the plugin, not an error.

    `version`: the one in the binder's order. `sure`: no call that names it can bind the pod any more. `gone`: there is
    no such pod. `holds`: no other binder has the order.
    """

    uid: str
    attempt: int
    reason: str = ""
    plugin: str = ""
    rejected: bool = False
    version: str = ""
    sure: bool = True
    gone: bool = False
    holds: bool = True


@dataclass(frozen=True, slots=True)
class BindingWaits:
    """Event: a binder waits with an assumed pod for so many seconds, and will tell how it ends."""

    uid: str
    attempt: int
    wait: float


@dataclass(frozen=True, slots=True)
class BindingStale:
    """Event: a binder's order names `version`, but the pod, not bound, is at version `found`."""

    uid: str
    attempt: int
    version: str
    found: str


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Event: where the API server says that a pod is; None where it is not bound. `gone`: deleted, or finished.

    `nominated`: to which node, by its status. `version`: the one that is fenced, if that was asked for.
    """

    uid: str
    attempt: int
    node: str | None
    gone: bool = False
    nominated: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Spared:
    """Event: not all pods that were to make way for this one could be told to."""

    uid: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Event: it is time to remind the workers of how far the state is."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Effect: make this durable. `answer` is what a doubled commit of the same round is to be answered."""

    delta: Delta | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    settled: tuple[str, ...] = ()
    answer: Committed | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: tell all workers."""

    message: Delta | Heartbeat


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: answer the cycle service."""

    message: Committed


@dataclass(frozen=True, slots=True)
class RefuseCycle:
    """Effect: tell this cycle that another one is heard."""

    message: Outdated


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Effect: hand the orders of these attempts to the binders."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Effect: a term has begun; these attempts go on with the binders that hold them, and what they hold else ends."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Displace:
    """Effect: have a binder tell pods to make way."""

    message: Evict


@dataclass(frozen=True, slots=True)
class Withhold:
    """Effect: tell the binders that this attempt is to end, if it can."""

    message: Withdraw


@dataclass(frozen=True, slots=True)
class LookUp:
    """Effect: ask the API server where this pod is; the answer is a LookedUp of the same attempt."""

    uid: str
    attempt: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Effect: see to it that no binding that names this version lands any more, unless one has. As for LookUp."""

    uid: str
    attempt: int
    namespace: str
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Forgot:
    """Effect: tell the queue that this pod was assumed, holds no place any more, and why."""

    uid: str
    reason: str
    plugin: str = ""
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class Stale:
    """Effect: the watch has shown a pod of the past, without the node that it is bound to. It was refused."""

    uid: str
    key: str


@dataclass(frozen=True, slots=True)
class Safe:
    """Effect, of the shell's own: what a binder has told by this message is safe; it need not tell it again."""

    binder: str
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Effect: somebody should know of this; the object was left out, and nothing else was touched."""

    error: FlotillaError


@dataclass(frozen=True, slots=True)
class Opened:
    """Effect: this node was closed, and may get pods again."""

    node: str


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """Effect: The proposal was already invalid in the state it was evaluated on; rejected."""

    worker: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Misstated:
    """Effect: A commit said of a pod what is not so; refused. The pod has changed just now, or the cycle is wrong."""

    what: str


Binding = BindingFinished | BindingFailed | BindingWaits | BindingStale


@dataclass(frozen=True, slots=True)
class Heard:
    """Event: what a binder tells at once, in order."""

    words: Sequence[Binding]


Event = Seen | Observed | Binding | Heard | LookedUp | Spared | Commit | Tick | Beat
Asked = LookUp | Fence
Told = RefuseCycle | Forgot | Stale | Safe | Problem | Opened | WorkerFault | Misstated
Effect = Persist | Publish | Reply | Dispatch | Resume | Displace | Withhold | Asked | Told
