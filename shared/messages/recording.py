"""From the cycle to recorders: what it decides, and on which states of the cluster. Sent only while a recorder asks.

A decision is a function of the pods in their order, the state that each worker judged them on, the configuration and
the seed. Recorders take the states from the snapshot's deltas; what else it takes is here.
"""

from typing import Literal

import msgspec

from shared.cluster.devices import PlacedDevices
from shared.cluster.volumes import VolumeDecision
from shared.messages.evaluation import Ties
from shared.messages.queue import Gang, GangGroup, QueuedPod
from shared.model.base import Count, Integer, Seconds


class RecordDecisions(msgspec.Struct, frozen=True, omit_defaults=True, tag="record-decisions"):
    """A recorder asks the cycle to send its decisions for a time. `recording`: a new one gets a DeciderShown,
    and all pods again.
    """

    recording: str
    seconds: Seconds


class FromCycle(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of what a cycle sends. `number`: consecutive for one `cycle`, which is its incarnation."""

    epoch: Count
    cycle: str
    number: Count


class DeciderShown(FromCycle, frozen=True, omit_defaults=True, tag="decider"):
    """How the cycle decides, for a `recording` that is new to it, or whose recorder had not asked in time.

    `config`: the configuration file as JSON, without secrets.
    """

    version: str
    round_size: Count
    ties: Ties
    config: str = ""
    feature_gates: str = ""
    recording: str = ""


class RecordedPod(msgspec.Struct, frozen=True, array_like=True, gc=False):
    uid: str
    queued: QueuedPod


class PodsShown(FromCycle, frozen=True, omit_defaults=True, tag="recorded-pods"):
    """Pods that the next messages name by uid."""

    pods: list[RecordedPod]


class WorkerShards(msgspec.Struct, frozen=True, array_like=True, gc=False):
    worker: str
    shards: list[Count]


class ClassDecided(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A class of a round or a search. `seqs`: the state that each worker judged it on, in the order of the workers.

    `unfit`: why no node is feasible. `incomparable`: why the decision does not follow from the states alone.
    For a search, `potential`: on how many nodes preemption might help, as workers were told; `alone`: pods of the class
    matter to each other only by the nodes that they take.
    """

    class_id: str
    seqs: list[Count] = []
    unfit: str = ""
    incomparable: str = ""
    potential: Count = 0
    alone: bool = False


class PodDecided(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was decided about a pod. `of`: an index into the classes. Deferred pods are decided again in a later round.

    `node` and `score`: where it was placed, or nominated to; `victims`: the uids of the pods that it preempts there.
    """

    uid: str
    of: Count
    verdict: Literal["placed", "nominated", "unfit", "failed", "deferred"]
    node: str = ""
    score: Integer = 0
    reason: str = ""
    victims: list[str] = []
    volumes: VolumeDecision | None = None
    devices: PlacedDevices | None = None


class GangStep(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A round that is a step of a gang. `members`: of the gang, which needs `least` of them. `first`: none is decided
    before this step. `outcome`: of the gang, after its last step. The first step has the `pods` of all members, in
    order, and the `gang` as it was decided; recordings of earlier releases have neither. If it has `gone`, nothing was
    committed: it was decided as if these pods were gone, and as if those `unreserved` were nominated nowhere.
    """

    key: str
    least: Count
    members: Count
    first: bool = False
    outcome: Literal["", "placed", "unfit", "failed"] = ""
    pods: list[str] = []
    gang: Gang | None = None
    gone: list[str] = []
    unreserved: list[str] = []


class RoundDecided(FromCycle, frozen=True, omit_defaults=True, tag="round-decided"):
    """Pods in queue order. `round`: its number, by which nodes are sampled."""

    round: Count
    workers: list[WorkerShards]
    classes: list[ClassDecided]
    pods: list[PodDecided]
    gang: GangStep | None = None


class GangSearched(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A search for victims of a gang: what it was about, as in a GangAsk, and the uids of all victims.

    `groups`, `placed_in`: of a tree of groups, and where their members are, as in a GangCase. `stage`: likewise.
    """

    key: str
    least: Count
    priority: Integer = 0
    keys: list[str] = []
    within: tuple[str, ...] = ()
    victims: list[str] = []
    groups: tuple[GangGroup, ...] = ()
    placed_in: dict[Count, tuple[str, ...]] = {}
    stage: Count = 0


class SearchDecided(FromCycle, frozen=True, omit_defaults=True, tag="search-decided"):
    """A search for preemption candidates. `search`: its number, by which nodes are sampled. `gang`: it was for one."""

    search: Count
    workers: list[WorkerShards]
    classes: list[ClassDecided]
    pods: list[PodDecided]
    gang: GangSearched | None = None


class CommitAnswered(FromCycle, frozen=True, omit_defaults=True, tag="commit-answered"):
    """What the snapshot made of a round's placements or a search's nominations: as of `seq`, all but `conflicts` (why,
    by uid) are applied. `round`: 0 for a search.
    """

    round: Count
    seq: Count
    conflicts: dict[str, str] = {}


Recorded = DeciderShown | PodsShown | RoundDecided | SearchDecided | CommitAnswered
