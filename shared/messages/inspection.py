"""For commands that inspect a running pipeline: what the queue, the snapshot and Redis hold.

All lists come in pages. The first answer names its listing; a request with that name gets the next page of the same
list, even if pods have moved meanwhile.
"""

import msgspec

from shared.messages.binding import EvictedPod
from shared.messages.evaluation import Ties
from shared.messages.limits import HALF_A_MESSAGE
from shared.model.base import Count, Integer, Seconds, SignedSeconds

MAX_PODS = 500
"""Pods of the queue in one answer."""
MAX_GROUPS = 200
"""Pod groups in one answer."""
MAX_MEMBERS = 1024
"""Members of a pod group that is asked for by name."""
MAX_PLACED = 10_000
"""Members of a pod group that have nodes, in one answer."""
MAX_NODES = 200
"""Nodes in one answer."""
MAX_UNREADABLE = 100
"""Unreadable pods in one answer."""
MAX_PODS_OF_NODES = 5000
"""In one answer: a page of nodes ends early at this many pods."""
MAX_ENTRIES = 1000
"""Ledger entries in one answer."""
MAX_WAITING = 10_000
"""Pending pods in one comparison."""
MAX_DIFFERENCES = 1000
"""Differences in one answer."""
LONGEST_TEXT = 1024
"""Characters of a pod's last message in a list; a pod that is asked for alone has all of it."""
MAX_BODIES_BYTES = HALF_A_MESSAGE
"""Bytes of pods' bodies in one answer: a page of the queue ends early at this size."""


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When (Unix time) and why a pod entered a state."""

    at: Seconds
    state: str = msgspec.field(name="place")
    why: str


class DescribedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All times are Unix times.

    `since`, `why`: when and why it entered its state. `plugins`: those that rejected it last. `gate`: the plugin
    that gates it, `-` if one failed; `gate_reason`: what it says. `requeue_events`: cluster events that may requeue it,
    by kube-scheduler's labels. `deadline`: by when cycle or binder must have reported on it. `node`: where it is being
    bound. `message`, `failed_at`: result of its last failed attempt.
    `history`, its last transitions, `claims`, what its claims of devices lack, and `created`, as the API server wrote
    it, are sent only for a pod that was asked for by name. `body`: the newest version of the pod as msgpack, if
    ListQueue asks for bodies. `gang`: namespace and name of the pod group with whose other members it is one entry of
    the queue, or that holds it. `violates`: of a nominated pod that was asked for by name, the PodDisruptionBudgets, by
    namespace and name, that did not allow what was evicted for it last.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    state: str = msgspec.field(name="place")
    since: Seconds
    first_seen: Seconds
    queued_at: Seconds
    why: str = ""
    priority: Integer = 0
    attempts: Count = 0
    rejections: Count = 0
    errors: Count = 0
    plugins: tuple[str, ...] = ()
    gate: str = ""
    gate_reason: str = ""
    requeue_events: tuple[str, ...] = msgspec.field(default=(), name="awaits")
    backoff_until: Seconds | None = msgspec.field(default=None, name="rests_until")
    deadline: Seconds | None = None
    node: str = ""
    message: str = ""
    failed_at: Seconds | None = msgspec.field(default=None, name="said_at")
    nominated: str = ""
    history: tuple[Move, ...] = msgspec.field(default=(), name="story")
    claims: tuple[str, ...] = ()
    body: bytes = b""
    created: str | None = None
    gang: str = ""
    violates: tuple[str, ...] = ()


class ListQueue(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-queue"):
    """To the queue: pods in queue order, from number `after` on, with these states, namespace and name.

    Empty fields do not restrict. `listing`: the name in an earlier answer; then the other filters are ignored.
    `bodies`: with the pods themselves; pages are shorter then.
    """

    listing: str = ""
    after: Count = 0
    limit: Count = MAX_PODS
    states: tuple[str, ...] = msgspec.field(default=(), name="places")
    namespace: str = ""
    name: str = ""
    bodies: bool = False


class PodLeft(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that left the queue, as the queue remembers it. `created`: as the API server wrote it."""

    uid: str
    created: str | None
    attempts: Count
    history: tuple[Move, ...]


class QueueListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="queue-listed"):
    """`listing` is empty if the requested one has expired.

    `counts`: pods of the whole queue by state. `total`: pods of the listing; it ends when `next` is zero. Pods that
    have left the queue since are omitted. `schedulers`: the profiles' names. `foreign`: the schedulerName of a pod that
    was asked for by name, is pending, and has no profile here. `unreadable`: on the first page, pods that are pending
    and cannot be read, up to a limit, and why; by uid. `left`: how a pod that was asked for by name, and is not in the
    queue any more, went through it.
    """

    listing: str
    now: Seconds
    counts: dict[str, Count]
    total: Count
    pods: list[DescribedPod]
    next: Count = 0
    schedulers: list[str] = []
    foreign: str = ""
    unreadable: dict[str, str] = {}
    left: PodLeft | None = None


class ListEvictions(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-evictions"):
    """To the queue: the evictions of which it was told within these seconds; 0: all that it remembers."""

    since: Seconds = 0.0


class RecordedPreemption(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`at`: the Unix time at which a binder reported it. `priority`: the preemptor's, None if it had left by then.

    `failure`: why not all of its victims were told to go; `victims` are those that were. `gang`: its gang, if they were
    evicted for one.
    """

    at: Seconds
    uid: str
    namespace: str
    name: str
    node: str
    priority: Integer | None = None
    victims: tuple[EvictedPod, ...] = ()
    failure: str = ""
    gang: str = ""


class EvictionsListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="evictions-listed"):
    """Newest first. `began`: the Unix time at which this queue began; it knows of none before.

    `dropped`: how many it has forgotten since, because there were too many, or they were too old.
    """

    now: Seconds
    began: Seconds
    preemptions: list[RecordedPreemption]
    dropped: Count = 0


class ListGroups(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-groups"):
    """To the queue: pod groups by name, from number `after` on. Empty fields do not restrict. `name`: also of a
    composite group, for the pod groups below it.

    `bodies`: with their objects and the members that have nodes.
    """

    listing: str = ""
    after: Count = 0
    limit: Count = MAX_GROUPS
    namespace: str = ""
    name: str = ""
    bodies: bool = False


class GroupMember(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`state`: in its group. `why`: what gates it, or why its last attempt failed."""

    name: str
    state: str
    why: str = ""


class DescribedComposite(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A composite pod group above a pod group: it needs `minimum` of its `groups`. `complete`: those of which enough
    pods exist; `placed`: those that count as placed. `queue`, `body`: as of a DescribedGroup.
    """

    name: str
    minimum: Count
    groups: Count
    complete: Count = 0
    placed: Count = 0
    queue: str = ""
    body: bytes = b""


class DescribedGroup(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`exists`: there is an object that says how many pods it needs. `counts`: members by state in the group.

    `held_since`: when (Unix time) the first of the held members was. `why`: why members are held, or why their last
    attempt failed. `missing`: names of pods that do not exist, as far as the others' names tell. `members` are sent
    only for groups that were asked for by name, a limited number. Only if asked for: `body`, the group as msgpack, and
    `placed`, the names of members that have nodes, by uid, a limited number. `queue`: the state of the gang's entry in
    the queue, as of a pod; `backoff_until`: when its back-off ends, if it backs off. `nominated`: members for which
    nodes are reserved until their victims are gone; `never_preempts`: it has none, by its policy or that of a member.
    `above`: the composite groups that it is in, from the root down. Pods that name it and do not count: `finished`,
    names of some that have finished, and `foreign`, how many name a scheduler without a profile here, by its name.
    `unreadable`: why the object does not count, though there is one.
    """

    api: str
    namespace: str
    name: str
    exists: bool
    minimum: Count
    counts: dict[str, Count]
    held_since: Seconds | None = None
    attempts: Count = 0
    why: str = ""
    missing: tuple[str, ...] = ()
    members: tuple[GroupMember, ...] = ()
    body: bytes = b""
    placed: dict[str, str] = {}
    queue: str = ""
    backoff_until: Seconds | None = None
    nominated: Count = 0
    never_preempts: bool = False
    above: tuple[DescribedComposite, ...] = ()
    finished: tuple[str, ...] = ()
    foreign: dict[str, Count] = {}
    unreadable: str = ""


class GroupsListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="groups-listed"):
    """Fields as in QueueListed."""

    listing: str
    now: Seconds
    total: Count
    groups: list[DescribedGroup]
    next: Count = 0


class ListCache(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-cache"):
    """To the snapshot: its nodes by name, from number `after` on."""

    listing: str = ""
    after: Count = 0
    limit: Count = MAX_NODES


class CachedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`assumed`: decided, and not yet seen on the node."""

    uid: str
    key: str
    assumed: bool = False


class CachedNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Amounts in scheduler units: cpu in thousandths, everything else in whole units.

    `known`: false if only pods refer to it. `pods` may be shorter than `pod_count` when there are very many.
    `closed`: why it gets no further pods; empty if it may.
    """

    name: str
    known: bool
    allocatable: dict[str, Count]
    requested: dict[str, Count]
    pod_count: Count
    pods: list[CachedPod] = []
    nominated: list[CachedPod] = []
    closed: str = ""


class CacheListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="cache-listed"):
    """Fields as in QueueListed."""

    listing: str
    epoch: Count
    seq: Count
    counts: dict[str, Count]
    total: Count
    nodes: list[CachedNode]
    next: Count = 0


class ListLedger(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-ledger"):
    """To the snapshot: the assumed pods, earliest deadline first."""

    listing: str = ""
    after: Count = 0
    limit: Count = MAX_ENTRIES


class AssumedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`age`: seconds since the decision, if known. `due_in`: seconds until it is looked up. `bound`: a binder reported
    it bound.
    """

    uid: str
    key: str
    node: str
    profile: str
    attempt: Count
    due_in: SignedSeconds
    age: SignedSeconds | None = None
    bound: bool = False


class LedgerListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="ledger-listed"):
    """Fields as in QueueListed."""

    listing: str
    total: Count
    pods: list[AssumedPod]
    next: Count = 0


class FindPod(msgspec.Struct, frozen=True, omit_defaults=True, tag="find-pod"):
    """To the snapshot: on which node is the pod of this name? It looks at every pod."""

    namespace: str
    name: str


class PodFound(msgspec.Struct, frozen=True, omit_defaults=True, tag="pod-found"):
    """`node`: empty if no node has such a pod. `assumed`: decided, and not yet seen on the node."""

    uid: str = ""
    node: str = ""
    assumed: bool = False


class MeasureNodes(msgspec.Struct, frozen=True, omit_defaults=True, tag="measure-nodes"):
    """To the snapshot: how large are nodes, and how much do they have free? It looks at every node."""


class NodesMeasured(msgspec.Struct, frozen=True, omit_defaults=True, tag="nodes-measured"):
    """The largest amounts of any one node, by resource: allocatable, and free. In scheduler units."""

    nodes: Count = 0
    largest: dict[str, Count] = {}
    freest: dict[str, Count] = {}


class CompareCache(msgspec.Struct, frozen=True, omit_defaults=True, tag="compare-cache"):
    """To the snapshot: compare the cache with the API server's lists. Takes as long as two listings."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`kind`: node, pod, or pending (a pod that the queue should have). `name`: of a pod with its namespace.

    `what`: missing (listed, not held), redundant (held, not listed), or elsewhere (on another node).
    """

    kind: str
    what: str
    name: str
    uid: str = ""
    listed_on: str = ""
    cached_on: str = ""


class WaitingPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod that the API server lists without a node, neither finished nor being deleted. `key`: `namespace/name`."""

    uid: str
    key: str
    scheduler: str


class CacheCompared(msgspec.Struct, frozen=True, omit_defaults=True, tag="cache-compared"):
    """Differences found in two comparisons in a row, up to a limit; `more` are not listed.

    `nodes`, `pods`: numbers of listed nodes, and pods on nodes; `waiting`: unfinished pods without a node, of any
    scheduler. `failure`: why the comparison failed. `waiting_pods`: those that are not being deleted, up to a limit;
    `waiting_more` are not listed.
    """

    nodes: Count = 0
    pods: Count = 0
    waiting: Count = 0
    differences: list[Difference] = []
    more: Count = 0
    failure: str = ""
    waiting_pods: list[WaitingPod] = []
    waiting_more: Count = 0


class ListPodsOn(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-pods-on"):
    """To the snapshot: the unfinished pods on this node, in full, as the API server lists them now.

    Without a node: a page of the pods on all nodes, from `after` on, which is the `next` of the page before.
    """

    node: str = ""
    after: str = ""


class PodsOn(msgspec.Struct, frozen=True, omit_defaults=True, tag="pods-on"):
    """`bodies`: the pods as msgpack, like those of the queue. `problem`: why they cannot be listed.

    `next`: where the next page begins; empty after the last one.
    """

    bodies: list[bytes] = []
    problem: str = ""
    next: str = ""


class ReadState(msgspec.Struct, frozen=True, omit_defaults=True, tag="read-state"):
    """To any worker: what Redis holds of the state, from this key and position in it on; empty: from the beginning."""

    key: str = ""
    position: str = ""


class StateRead(msgspec.Struct, frozen=True, omit_defaults=True, tag="state-read"):
    """A part of the state, as it is in Redis. `values`: by key without the prefix, the fields with their values.

    It was read while the state's sequence number was between `seq` and `until`. A field may come twice, and one that
    changes meanwhile in either version: all parts, with the deltas since the first part's `seq`, are the whole state.
    `key` and `position`: where to continue; empty after the last part. `problem`: why nothing can be read now.
    """

    epoch: Count = 0
    seq: Count = 0
    until: Count = 0
    shard_count: Count = 0
    values: dict[str, dict[str, bytes]] = {}
    key: str = ""
    position: str = ""
    problem: str = ""


class ReadConfiguration(msgspec.Struct, frozen=True, omit_defaults=True, tag="read-configuration"):
    """To any worker: what does it decide by?"""


class ConfigurationRead(msgspec.Struct, frozen=True, omit_defaults=True, tag="configuration-read"):
    """What a worker decides by. `config`: the KubeSchedulerConfiguration as JSON, without secrets; empty: the defaults.

    `feature_gates`: as the setting of that name. `ties`: how the cycle breaks ties.
    """

    config: str = ""
    feature_gates: str = ""
    shard_count: Count = 0
    ties: Ties | None = None
