"""Between cycle, snapshot, workers and binders: decisions, and changes of the cluster's state."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from shared.cluster.devices import DeviceDecision
from shared.cluster.volumes import VolumeDecision
from shared.messages.preemption import Victim
from shared.model.base import Count, Integer, Seconds, SignedSeconds
from shared.model.load import PodLoad
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod

EPOCH_SHIFT = 36
"""A snapshot's sequence numbers begin at its epoch times 2^36, so they exceed those of every earlier leader: no result
that was judged on an earlier leader's state looks current, and no two attempts share a number.
"""


class Loads:
    """The loads of one message: each is listed once, and pods refer to it by index. Identical objects share one."""

    def __init__(self, items: Iterable[PodLoad] = ()) -> None:
        """`items` have their indices already."""
        self.items: list[PodLoad] = list(items)
        self._numbers: dict[int, int] = {}

    def number(self, load: PodLoad) -> int:
        number = self._numbers.get(id(load))
        if number is None:
            number = self._numbers[id(load)] = len(self.items)
            self.items.append(load)
        return number


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod and the node that it is assigned to, unchanged from the decision to the bind call.

    `version`: the pod's resourceVersion at the decision, which is the bind call's precondition; if empty, the
    binder looks it up and asks for a new order. `pod` is included where the profile's binding plugins read it.
    """

    uid: str
    namespace: str
    name: str
    profile: str
    node: str
    version: str = ""
    pod: Pod | None = None
    volumes: VolumeDecision | None = None
    devices: DeviceDecision | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Assigned(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of messages that embed an assignment, with short access to its fields."""

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
    """A pod is assigned to a node. `load` is an index into the commit's loads; `seen` the state that it was judged on.

    Decisions of one `gang` are all applied or all refused. `worker` proposed it. `asks`: the requests that must be
    free, where the pod's status makes its load differ from its requests. `own_volumes`: the content of its volume
    claims, which no other pod uses, if it was judged by that.
    """

    load: Count
    seen: Count
    gang: str = ""
    worker: str = ""
    asks: dict[str, Count] | None = None
    own_volumes: bytes = b""


class Nominate(Assigned, frozen=True, omit_defaults=True):
    """A pod is nominated to a node, and its victims are to be evicted. Fields as in a decision.

    `narrowed`: an extender reduced the victims, so they may not make enough room. `never`: the pod's
    preemptionPolicy forbids victims. Nominations of one `gang` are all applied or all refused, and may have victims on
    any node; `priority`: that of the gang.
    """

    load: Count
    seen: Count
    victims: list[Victim] = []
    worker: str = ""
    asks: dict[str, Count] | None = None
    narrowed: bool = False
    never: bool = False
    gang: str = ""
    priority: Integer | None = None


FaultKind = Literal["", "capacity", "ports", "volumes", "node", "sequence", "victims", "devices"]
"""What a decision violates although the state has not changed since it was evaluated: its worker is wrong, or lies."""


class Commit(msgspec.Struct, frozen=True, omit_defaults=True, tag="commit"):
    """The decisions of one round, or the result of a search for victims. `number` only rises within an epoch.

    `denominated`: uids of pods that lose their nomination. `cycle`: the sender's incarnation; the snapshot accepts
    one per epoch. Empty from a release that does not send it. `quiet`: no worker is asked to have seen it yet, so its
    delta can wait.
    """

    epoch: Count
    number: Count = msgspec.field(name="round")
    loads: list[PodLoad]
    decisions: list[Decision]
    nominations: list[Nominate] = []
    denominated: list[str] = []
    cycle: str = ""
    quiet: bool = False


class NeedDeltas(msgspec.Struct, frozen=True, omit_defaults=True, tag="need-deltas"):
    """From the cycle: workers are asked to have seen its quiet commits. Send their deltas now."""

    epoch: Count


class Conflict(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A decision or nomination that was refused because the state changed after its evaluation.

    `placed`: the pod already has a place, on `node`; `gone`: it is deleted, or has finished; otherwise it is to be
    decided again. `fault`: the state had not changed, the evaluation was wrong.
    """

    uid: str
    reason: str
    placed: bool = False
    fault: FaultKind = ""
    node: str = ""
    gone: bool = False


class Committed(msgspec.Struct, frozen=True, omit_defaults=True, tag="committed"):
    """Reply to a commit: all decisions except the conflicts are applied, as of `seq`. `cycle`: as in the commit.

    `others`: the last change that was no decision, nor a mere change of labels or start times of placed pods;
    `relabelled`: the last mere change of labels. None from a release that does not tell.
    """

    epoch: Count
    number: Count = msgspec.field(name="round")
    seq: Count
    conflicts: list[Conflict]
    cycle: str = ""
    others: Count | None = None
    relabelled: Count | None = None


class OthersChanged(msgspec.Struct, frozen=True, omit_defaults=True, tag="others-changed"):
    """To the cycle: what is not a decision has changed the state, as of `seq`; the first such change after a commit."""

    epoch: Count
    seq: Count


class Outdated(msgspec.Struct, frozen=True, omit_defaults=True, tag="outdated"):
    """Reply to a refused commit of this `epoch` and `cycle`: another cycle has committed in epoch `newest`.

    If the cycle still leads, it begins a term above that one. `number`: of the commit, if a later one of the same cycle
    was accepted.
    """

    epoch: Count
    cycle: str
    newest: Count
    number: Count = msgspec.field(default=0, name="round")


class NodeUpserted(msgspec.Struct, frozen=True, omit_defaults=True, tag="node"):
    node: Node


class NodeRemoved(msgspec.Struct, frozen=True, omit_defaults=True, tag="node-removed"):
    name: str


class PodPlaced(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="pod"):
    """A pod has a place on a node, assumed or bound. `load` is an index into the message's loads.

    `key`: `namespace/name`. `started`: when it began to run (Unix time), if known.
    """

    uid: str
    node: str
    load: Count
    key: str = ""
    started: Seconds | None = None


class PodGone(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="pod-gone"):
    uid: str


class PodNominated(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="nominated"):
    """A pod without a place has a nomination to a node. `load` is an index into the message's loads."""

    uid: str
    node: str
    load: Count
    key: str = ""


class NominationGone(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="nomination-gone"):
    uid: str


class SharedHostnames(msgspec.Struct, frozen=True, omit_defaults=True, tag="shared-hostnames"):
    """All values of the hostname label that more than one node has, sorted."""

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
    """The state after `seq` is the state after `seq - 1` with these changes applied in order."""

    epoch: Count
    seq: Count
    changes: list[Change]
    loads: list[PodLoad] = []


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="heartbeat"):
    """The newest sequence number, so that a worker notices when the last delta was lost.

    `at`: the snapshot's Unix time, 0 if unknown. `api_ahead`: seconds by which the API server's clock is ahead of
    it, None while unknown. `after_epoch`, `after_seq`: this state is that of this number of an earlier term, so workers
    that have it go on with the next delta; 0 if the state has to be loaded.
    """

    epoch: Count
    seq: Count
    at: Seconds = 0.0
    api_ahead: SignedSeconds | None = None
    after_epoch: Count = 0
    after_seq: Count = 0


class PodOnNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pod on a node; fields as in PodPlaced."""

    load: Count
    key: str = ""
    started: Seconds | None = None


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A node and the pods on it, by uid."""

    node: Node
    pods: dict[str, PodOnNode] = {}


class State(msgspec.Struct, frozen=True, omit_defaults=True, tag="state"):
    """What a worker loads when it starts or has missed a delta: all nodes of some shards as of `seq`.

    The other fields concern the whole cluster.
    """

    epoch: Count
    seq: Count
    nodes: list[NodeState]
    loads: list[PodLoad]
    objects: list[ClusterObject] = []
    nominations: list[PodNominated] = []
    shared_hostnames: list[str] = []


class BindingOrder(Assigned, frozen=True, omit_defaults=True, gc=False):
    """To a binder: bind this assumed pod.

    Outcomes repeat `attempt`, so that a late outcome of an earlier attempt does no harm. `window`: seconds from
    arrival after which the binder abandons the attempt.
    """

    epoch: Count
    attempt: Count
    window: Seconds


class LedgerEntry(Assigned, frozen=True, omit_defaults=True, gc=False):
    """An assumed pod that the watch has not yet shown on its node. Written before any binder gets the order.

    `attempt` is the sequence number of the commit, so no two attempts share one. All orders of the attempt name the
    assignment's version. `deadline` and `assumed_at` (Unix time) are for people only. `window`: seconds from the
    writing of the entry to its deadline, by whichever clock. `bound`: written when a term ends; an entry of one that
    broke off may be of a bound pod all the same.

    `held`: the attempt is over and counts on no node; its devices are not free yet. The uid names pod and attempt then.
    """

    attempt: Count
    load: PodLoad
    epoch: Count
    number: Count = msgspec.field(name="round")
    deadline: Seconds
    window: Seconds
    bound: bool = False
    assumed_at: Seconds = 0.0
    held: bool = False

    def hold(self) -> "LedgerEntry":
        """The entry that keeps the devices of this attempt once the pod's own entry has ended."""
        assignment = msgspec.structs.replace(self.assignment, uid=held_uid(self.uid, self.attempt))
        return msgspec.structs.replace(self, assignment=assignment, held=True)


def held_uid(uid: str, attempt: int) -> str:
    """Releases that do not know held entries take it for the uid of a pod that is gone."""
    return f"{uid}#{attempt}"


def pod_uid_of(uid: str) -> str:
    """The pod's uid, of an entry that is held or not."""
    return uid.partition("#")[0]
