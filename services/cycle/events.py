"""What the cycle is told, and what it wants done."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flotilla.results import Status
from services.cycle.extending import AskExtenders, ExtendersAnswered
from services.cycle.narrowing import AskAboutVictims, VictimsAnswered
from services.cycle.preempting import Preemption
from services.cycle.walk import Unfit
from shared.messages.preemption import Candidates, Preempt
from shared.messages.queue import Gang
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Commit, Committed, Heartbeat
from shared.model.objects import Pod


@dataclass(frozen=True, slots=True)
class Batch:
    """Event: pods to decide, in queue order. Whether a pod is to be scheduled at all is the queue's to know.

    `seq`: they are not to be judged on an older state than this. `gangs`: by uid, of those that are to be placed
    together; the pods of a gang follow each other.
    """

    pods: list[Pod]
    seq: int = 0
    gangs: Mapping[str, Gang] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workers:
    """Event: who holds which shards now. Nothing is decided while not every shard is held, and by one worker only.

    `incarnations`: of the workers whose answers tell theirs.
    """

    shards: Mapping[str, frozenset[int]]
    shard_count: int
    incarnations: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return sorted(shard for held in self.shards.values() for shard in held) == list(range(self.shard_count))


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Effect: send this to a worker."""

    worker: str
    message: Propose | Preempt


@dataclass(frozen=True, slots=True)
class Write:
    """Effect: send this to the snapshot. `round`: that whose decisions it has; 0 if it is of none."""

    message: Commit
    round: int = 0


@dataclass(frozen=True, slots=True)
class Decided:
    """Effect: this pod is assumed to be on this node, and on its way to be bound."""

    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Effect: no node is feasible for this pod. `preemption`: what was found that could be done about it.

    `number`: that of its nomination, if others are made to leave for it.
    """

    uid: str
    unfit: Unfit
    preemption: Preemption | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """Effect: a plugin failed on this pod, or the pod cannot be read."""

    uid: str
    status: Status


@dataclass(frozen=True, slots=True)
class Superseded:
    """Effect: this pod holds a place already; there is nothing to decide."""

    uid: str


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """Effect: an answer of this worker cannot have been right when it was given. `counted`: by the snapshot already."""

    worker: str
    kind: str
    reason: str
    counted: bool = False


Event = Batch | Workers | Proposals | Candidates | Committed | Heartbeat | ExtendersAnswered | VictimsAnswered | Tick
Effect = Ask | AskExtenders | AskAboutVictims | Write | Decided | Unschedulable | Failed | Superseded | WorkerFault
