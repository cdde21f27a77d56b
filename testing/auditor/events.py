"""What the auditor is told. Times are Unix times, as those in the ledger are."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.messages.binding import BindingOutcome
from shared.messages.queue import QueueContents
from shared.messages.state import LedgerEntry
from shared.messages.watch import Kind
from shared.model.objects import Node, Pod


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The watch says that a pod is so."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodGone:
    """The watch says that a pod is no more."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """These pods there are, all at one moment, and no other. `unreadable`: uids of those that cannot be used."""

    pods: Sequence[Pod]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The watch says that a node is so."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    """The watch says that a node is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class NodesListed:
    """These nodes there are, all at one moment, and no other. `unreadable`: names of those that cannot be used."""

    nodes: Sequence[Node]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The watch brings an object that cannot be used: a pod by its uid, a node by its name."""

    kind: Kind
    id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A watch has ended; what happens from now on is heard of later, or only as its result."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Resumed:
    """A watch goes on where it had ended: nothing was missed."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """All that stood in the ledger at some moment since `asked_at`."""

    entries: Sequence[LedgerEntry]
    asked_at: float


@dataclass(frozen=True, slots=True)
class QueueRead:
    """All that the queue held at some moment since `asked_at`."""

    contents: QueueContents
    asked_at: float


@dataclass(frozen=True, slots=True)
class LedgerSilent:
    """The ledger could not be read."""


@dataclass(frozen=True, slots=True)
class QueueSilent:
    """The queue did not answer."""


@dataclass(frozen=True, slots=True)
class BindingsHeard:
    """What a binder told the snapshot."""

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
    | Lost
    | Resumed
    | LedgerRead
    | QueueRead
    | LedgerSilent
    | QueueSilent
    | BindingsHeard
    | Tick
)
