"""For whoever looks into a Flotilla that runs: what waits in the queue and for what, and what the snapshot holds.

Everything is asked for in pages. The first answer names a listing; whoever names it in turn gets the next page of the
same list, though the pods may have moved meanwhile.
"""

import msgspec

MOST_PODS = 500
"""Of the queue, in one answer."""
MOST_NODES = 200
MOST_PODS_OF_NODES = 5000
"""In one answer: a page of nodes ends early once it names so many."""
MOST_ENTRIES = 1000
"""Of the ledger, in one answer."""
MOST_DIFFERENCES = 1000
LONGEST_TEXT = 1024
"""Of a pod's last message where many pods are listed; one that is asked for alone has all of it."""


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When (Unix time) a pod came to a place, and why."""

    at: float
    place: str
    why: str


class DescribedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """All times are Unix times.

    `since`, `why`: when it came to its place, and what sent it there. `plugins`: those that rejected it last. `gate`:
    the plugin that keeps it out, `-` where one broke down. `awaits`: the cluster events, by kube-scheduler's labels,
    of which any may help. `rests_until`: before that it is not tried, whatever happens. `deadline`: whoever has it
    now, cycle or a binder, has it until then. `node`: where it is being bound. `message`, `said_at`: what its last
    failed attempt came to. `story`: only where the pod was asked for by its name.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str
    place: str
    since: float
    first_seen: float
    queued_at: float
    why: str = ""
    priority: int = 0
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    plugins: tuple[str, ...] = ()
    gate: str = ""
    awaits: tuple[str, ...] = ()
    rests_until: float | None = None
    deadline: float | None = None
    node: str = ""
    message: str = ""
    said_at: float | None = None
    nominated: str = ""
    story: tuple[Move, ...] = ()


class ListQueue(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-queue"):
    """To the queue: pods in queue order, from number `after` on; of these places, and this namespace and name.

    What is empty does not restrict. `listing`: that of an earlier answer; then the rest is passed over.
    """

    listing: str = ""
    after: int = 0
    limit: int = MOST_PODS
    places: tuple[str, ...] = ()
    namespace: str = ""
    name: str = ""


class QueueListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="queue-listed"):
    """`listing` is empty where the one that was asked for is not remembered any more.

    `counts`: the pods of the whole queue by place. `total`: the pods of the listing; it ends where `next` is nought.
    Pods that have left the queue since are left out.
    """

    listing: str
    now: float
    counts: dict[str, int]
    total: int
    pods: list[DescribedPod]
    next: int = 0


class ListCache(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-cache"):
    """To the snapshot: its nodes by name, from number `after` on."""

    listing: str = ""
    after: int = 0
    limit: int = MOST_NODES


class CachedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`assumed`: decided, and not yet seen on the node."""

    uid: str
    key: str
    assumed: bool = False


class CachedNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Amounts in scheduler units: cpu in thousandths, everything else in whole units.

    `known`: false where only pods speak of it. `pods` may be less than `pod_count`, where there are very many.
    `closed`: why it gets no further pod; empty if it may.
    """

    name: str
    known: bool
    allocatable: dict[str, int]
    requested: dict[str, int]
    pod_count: int
    pods: list[CachedPod] = []
    nominated: list[CachedPod] = []
    closed: str = ""


class CacheListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="cache-listed"):
    """As QueueListed."""

    listing: str
    epoch: int
    seq: int
    counts: dict[str, int]
    total: int
    nodes: list[CachedNode]
    next: int = 0


class ListLedger(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-ledger"):
    """To the snapshot: the pods that are assumed and not yet seen on their nodes, those next due first."""

    listing: str = ""
    after: int = 0
    limit: int = MOST_ENTRIES


class AssumedPod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`age`: seconds since it was decided, where that is known. `due_in`: until it is looked up; `bound`: told so."""

    uid: str
    key: str
    node: str
    profile: str
    attempt: int
    due_in: float
    age: float | None = None
    bound: bool = False


class LedgerListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="ledger-listed"):
    """As QueueListed."""

    listing: str
    total: int
    pods: list[AssumedPod]
    next: int = 0


class CompareCache(msgspec.Struct, frozen=True, omit_defaults=True, tag="compare-cache"):
    """To the snapshot: hold the cache against what the API server lists. Takes as long as two listings may."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`kind`: node or pod. `name`: a node's, or a pod's namespace and name, with its `uid`.

    `what`: missing (listed and not cached), redundant (cached and not listed), or elsewhere (on other nodes).
    """

    kind: str
    what: str
    name: str
    uid: str = ""
    listed_on: str = ""
    cached_on: str = ""


class CacheCompared(msgspec.Struct, frozen=True, omit_defaults=True, tag="cache-compared"):
    """Differences that lasted from one look to the next; at most so many, `more` are not named.

    `nodes`, `pods`: how many are listed, pods on nodes; `waiting`: unfinished pods on none, of any scheduler.
    `failure`: why it could not be compared.
    """

    nodes: int = 0
    pods: int = 0
    waiting: int = 0
    differences: list[Difference] = []
    more: int = 0
    failure: str = ""
