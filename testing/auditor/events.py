"""Events of the auditor's core. Times are Unix times, like those in the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.messages.binding import BindingOutcome
from shared.messages.queue import QueueContents
from shared.messages.state import LedgerEntry
from shared.messages.watch import Kind
from shared.model.objects import Node, Pod


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The watch shows a pod."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The watch shows that a pod was deleted."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """All pods, as of one moment. `unreadable`: uids of pods that cannot be decoded."""

    pods: Sequence[Pod]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The watch shows a node."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The watch shows that a node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """All nodes, as of one moment. `unreadable`: names of nodes that cannot be decoded."""

    nodes: Sequence[Node]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The watch shows an object that cannot be decoded: `id` is a pod's uid or a node's name."""

    kind: Kind
    id: str


@dataclass(frozen=True, slots=True)
class WatchLost:
    """A watch has ended: changes from now on are seen later, or not at all."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class WatchResumed:
    """A watch has resumed where it ended: nothing was missed."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """The whole ledger, at some moment since `asked_at`."""

    entries: Sequence[LedgerEntry]
    asked_at: float


@dataclass(frozen=True, slots=True)
class QueueRead:
    """The queue's contents, at some moment since `asked_at`."""

    contents: QueueContents
    asked_at: float


@dataclass(frozen=True, slots=True)
class LedgerUnavailable:
    """The ledger could not be read."""


@dataclass(frozen=True, slots=True)
class QueueUnavailable:
    """The queue did not answer."""


@dataclass(frozen=True, slots=True)
class BindingsReported:
    """A binder has reported outcomes to the snapshot."""

    outcomes: Sequence[BindingOutcome]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    PodSeen
    | PodGone
    | PodsListed
    | NodeSeen
    | NodeGone
    | NodesListed
    | Unreadable
    | WatchLost
    | WatchResumed
    | LedgerRead
    | QueueRead
    | LedgerUnavailable
    | QueueUnavailable
    | BindingsReported
    | Tick
)
