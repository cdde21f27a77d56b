"""Between cycle, snapshot, workers and binders: decisions, and how the cluster's state changes."""

from typing import Literal

import msgspec

from shared.cluster.volumes import VolumeDecision
from shared.messages.preemption import Victim
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod

EPOCH_SHIFT = 36
"""A snapshot's sequence numbers begin at its epoch times 2^36: all of them are greater than any of an earlier leader.
So nothing judged on an earlier leader's state passes for new, and no two attempts share a number."""


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod and the node that it is to run on, from the decision to the call that binds it.

    `version`: the pod's metadata.resourceVersion. A decision has it from the queue; the Binding names it as its
    precondition; empty: the binder looks it up and asks for a new order. `pod` comes along where the profile's binding
    plugins read it.
    """

    uid: str
    namespace: str
    name: str
    profile: str
    node: str
    version: str = ""
    pod: Pod | None = None
    volumes: VolumeDecision | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Assigned(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What embeds an assignment says in short whose and where it is."""

    assignment: Assignment

    @property
    def uid(self) -> str:
        return self.assignment.uid

    @property
    def key(self) -> str:
        return self.assignment.key

    @property
    def node(self) -> str:
        return self.assignment.node

    @property
    def profile(self) -> str:
        return self.assignment.profile

    @property
    def version(self) -> str:
        return self.assignment.version


class Decision(Assigned, frozen=True, omit_defaults=True, gc=False):
    """A pod is assigned to a node. `load` is an index into the commit's loads; `seen` is what the evaluation had seen.

    Decisions of one `gang` stand or fall together. `worker` proposed it. `asks`: the requests that must be free, where
    the pod's status makes its load another.
    """

    load: int
    seen: int
    gang: str = ""
    worker: str = ""
    asks: dict[str, int] | None = None


class Nominate(Assigned, frozen=True, omit_defaults=True):
    """A pod is nominated to a node, and its victims are to be evicted. Fields are as in a decision.

    `narrowed`: an extender chose among the victims, and need not make enough room. `never`: the pod's preemptionPolicy
    does not allow for victims.
    """

    load: int
    seen: int
    victims: list[Victim] = []
    worker: str = ""
    asks: dict[str, int] | None = None
    narrowed: bool = False
    never: bool = False


FaultKind = Literal["", "capacity", "ports", "volumes", "node", "sequence", "victims"]
"""What a decision violates that was so already when it was evaluated: its worker is wrong, or lies."""


class Commit(msgspec.Struct, frozen=True, omit_defaults=True, tag="commit"):
    """The decisions of one round, or what a search came to. `round` only ever rises within an epoch.

    `denominated`: uids of pods that are to lose the nomination they have. `cycle`: the incarnation of the sender; of
    two in one epoch the snapshot hears one. Empty from a release that has none.
    """

    epoch: int
    round: int
    loads: list[PodLoad]
    decisions: list[Decision]
    nominations: list[Nominate] = []
    denominated: list[str] = []
    cycle: str = ""


class Conflict(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A decision or nomination that was not taken, because of what happened after the evaluation.

    `placed` tells that the pod holds a place already; otherwise it is to be decided anew. With a `fault`, nothing has
    happened since: the evaluation was wrong.
    """

    uid: str
    reason: str
    placed: bool = False
    fault: FaultKind = ""


class Committed(msgspec.Struct, frozen=True, omit_defaults=True, tag="committed"):
    """The answer to a commit: all its decisions but the conflicts stand, as of `seq`. `cycle`: as in the commit."""

    epoch: int
    round: int
    seq: int
    conflicts: list[Conflict]
    cycle: str = ""


class Outdated(msgspec.Struct, frozen=True, omit_defaults=True, tag="outdated"):
    """The answer to a commit that is refused, of this `epoch` and `cycle`: another cycle has committed in `newest`.

    The cycle is to begin a term above that one, if it still may lead.
    """

    epoch: int
    cycle: str
    newest: int


class NodeUpserted(msgspec.Struct, frozen=True, omit_defaults=True, tag="node"):
    node: Node


class NodeRemoved(msgspec.Struct, frozen=True, omit_defaults=True, tag="node-removed"):
    name: str


class PodPlaced(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="pod"):
    """A pod holds a place on a node, assumed or bound. `load` is an index into the message's loads.

    `key`: `namespace/name`. `started`: when it began to run (Unix time), if that is known.
    """

    uid: str
    node: str
    load: int
    key: str = ""
    started: float | None = None


class PodGone(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="pod-gone"):
    uid: str


class PodNominated(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="nominated"):
    """A pod without a place is to have room on a node. `load` is an index into the message's loads."""

    uid: str
    node: str
    load: int
    key: str = ""


class NominationGone(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="nomination-gone"):
    uid: str


class SharedHostnames(msgspec.Struct, frozen=True, omit_defaults=True, tag="shared-hostnames"):
    """The values of the hostname label that several nodes of the cluster have: all of them, sorted."""

    values: list[str]


class ObjectUpserted(msgspec.Struct, frozen=True, omit_defaults=True, tag="object"):
    object: ClusterObject


class ObjectRemoved(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="object-removed"):
    kind: ObjectKind
    key: str


Change = (
    NodeUpserted
    | NodeRemoved
    | PodPlaced
    | PodGone
    | PodNominated
    | NominationGone
    | SharedHostnames
    | ObjectUpserted
    | ObjectRemoved
)


class Delta(msgspec.Struct, frozen=True, omit_defaults=True, tag="delta"):
    """The state after `seq` is the state after `seq - 1` with these changes, in order."""

    epoch: int
    seq: int
    changes: list[Change]
    loads: list[PodLoad] = []


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="heartbeat"):
    """The newest sequence number there is, so that the loss of the last delta shows as well.

    `at`: the snapshot's Unix time, 0 if it does not say. `api_ahead`: seconds by which the API server's clock is ahead
    of that, None while it is unknown.
    """

    epoch: int
    seq: int
    at: float = 0.0
    api_ahead: float | None = None


class PodState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod on a node, as PodPlaced tells of it."""

    load: int
    key: str = ""
    started: float | None = None


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node and the pods on it, by uid."""

    node: Node
    pods: dict[str, PodState] = {}


class State(msgspec.Struct, frozen=True, omit_defaults=True, tag="state"):
    """What a worker loads when it starts or has missed something: all nodes of some shards as of `seq`.

    The rest is that of the whole cluster.
    """

    epoch: int
    seq: int
    nodes: list[NodeState]
    loads: list[PodLoad]
    objects: list[ClusterObject] = []
    nominations: list[PodNominated] = []
    shared_hostnames: list[str] = []


class BindingOrder(Assigned, frozen=True, omit_defaults=True, gc=False):
    """To a binder: bind this pod, which is assumed: the ledger has it.

    Outcomes name the same `attempt`, so that a late one of an earlier attempt does no harm. `window`: seconds from the
    order's arrival after which the binder abandons the attempt.
    """

    epoch: int
    attempt: int
    window: float


class LedgerEntry(Assigned, frozen=True, omit_defaults=True, gc=False):
    """An assumed pod that the watch has not shown on its node. Written before any binder is asked to bind it.

    `attempt` is the sequence number of the commit, so no two attempts share one. The version of the assignment is the
    one that the orders of this attempt name. `deadline` and `assumed_at` (Unix time) are for people only. `window`:
    seconds from the writing of this deadline to it, whatever clocks say.
    """

    attempt: int
    load: PodLoad
    epoch: int
    round: int
    deadline: float
    window: float
    bound: bool = False
    assumed_at: float = 0.0
