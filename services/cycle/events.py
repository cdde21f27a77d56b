"""The events that the cycle's core handles, and the effects that its shell carries out."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from flotilla.results import Status
from services.cycle.extenders import (
    AskAboutVictims,
    AskExtenders,
    AskForExplanation,
    ExtendersAnswered,
    ExtendersExplained,
    VictimsAnswered,
)
from services.cycle.preemption.candidate_search import Preemption
from services.cycle.round.admission import PodInfo
from services.cycle.round.assign import Unfit
from shared.messages.explaining import ExplainNodes, ExplainPod, NodeFindings, ShardExplained
from shared.messages.preemption import Candidates, Preempt
from shared.messages.queue import Batch
from shared.messages.recording import RecordDecisions, Recorded
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Commit, Committed, Heartbeat, OthersChanged
from shared.model.objects import Pod


@dataclass(frozen=True, slots=True)
class Workers:
    """Event: the workers and their shards. Nothing is decided while a shard has no holder, or two.

    `incarnations`: of the workers whose answers name theirs.
    """

    shards: Mapping[str, frozenset[int]]
    shard_count: int
    incarnations: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return sorted(shard for held in self.shards.values() for shard in held) == list(range(self.shard_count))


@dataclass(frozen=True, slots=True)
class ConfirmTerm:
    """Event: make sure that the snapshot accepts this cycle's commits. Answered by TermConfirmed, or by Outdated."""


@dataclass(frozen=True, slots=True)
class ExplanationAsked:
    """Event: a question about a pod. `number`: by which the shell knows the answer."""

    number: int
    request: ExplainPod


@dataclass(frozen=True, slots=True)
class Answered:
    """Effect: answer the question of this number. `seq`: the state that the findings are about.

    `problem`: why there are no findings, if there should be.
    """

    number: int
    request: ExplainPod
    pod: Pod | None
    findings: NodeFindings | None
    problem: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Effect: send this to a worker."""

    worker: str
    message: Propose | Preempt | ExplainNodes


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Effect: send this to the snapshot. `round`: the round whose decisions it has, or 0."""

    message: Commit
    round: int = 0


@dataclass(frozen=True, slots=True)
class SendDeltas:
    """Effect: workers must see the decisions of quiet commits; have the snapshot send the deltas."""


@dataclass(frozen=True, slots=True)
class TermConfirmed:
    """Effect: the snapshot has accepted a commit that was sent after ConfirmTerm."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Effect: the pod is assumed on this node, and will be bound."""

    uid: str
    node: str
    pod: PodInfo | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """Effect: no node is feasible for the pod. `preemption`: what its PostFilter plugins found.

    `number`: of its nomination, if victims are evicted for it.
    """

    uid: str
    unfit: Unfit
    preemption: Preemption | None = None
    number: int = 0
    pod: PodInfo | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """Effect: a plugin failed on the pod, or the pod cannot be read."""

    uid: str
    status: Status
    pod: PodInfo | None = field(default=None, compare=False, repr=False)


def unschedulable(info: PodInfo, unfit: Unfit, found: Preemption | None = None, number: int = 0) -> Unschedulable:
    """Says of this pod what was found about its class."""
    unfit = replace(unfit, message=info.with_claim_names(unfit.message))
    return Unschedulable(info.uid, unfit, found, number, pod=info)


def failed(info: PodInfo, status: Status) -> Failed:
    """Likewise."""
    reasons = tuple(map(info.with_claim_names, status.reasons))
    return Failed(info.uid, msgspec.structs.replace(status, reasons=reasons), pod=info)


@dataclass(frozen=True, slots=True)
class Superseded:
    """Effect: the pod is placed already, on this node; empty if a snapshot of the last release does not say."""

    uid: str
    node: str = ""
    pod: PodInfo | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Hinted:
    """Effect: say in an Event of this pod, which fits nowhere, what would help."""

    uid: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """Effect: an answer of this worker cannot have been right when it was given. `counted`: by the snapshot already."""

    worker: str
    kind: str
    reason: str
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Effect: send this to those who record decisions."""

    message: Recorded


Message = Batch | Proposals | Candidates | ShardExplained | Committed | Heartbeat | OthersChanged | RecordDecisions
FromExtenders = ExtendersAnswered | ExtendersExplained | VictimsAnswered
Event = Message | Workers | ConfirmTerm | ExplanationAsked | FromExtenders | Tick
Outcome = Decided | Unschedulable | Failed | Superseded


@dataclass(frozen=True, slots=True)
class EndTerm:
    """Effect: begin again in a new process, because what this one knows cannot be true."""

    why: str


Effect = (
    Ask
    | AskExtenders
    | AskForExplanation
    | AskAboutVictims
    | Answered
    | SendCommit
    | SendDeltas
    | TermConfirmed
    | EndTerm
    | Hinted
    | Outcome
    | WorkerFault
    | Record
)
