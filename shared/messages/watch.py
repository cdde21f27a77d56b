"""The watcher's stream: what list and watch of the API server return, in order.

One stream for all kinds of objects. `seq` increases by one with each message of a watcher's term; a follower that
misses one asks for a listing. Each kind's part of a listing has a begin and an end mark; a known object that is not
in it is gone.
"""

from enum import StrEnum

import msgspec

from shared.model.base import Count, Seconds
from shared.model.kinds import ObjectKind


class Kind(StrEnum):
    """The watched kinds: pods, nodes, and those of ObjectKind under the same names."""

    POD = "pod"
    NODE = "node"
    NAMESPACE = "namespace"
    SERVICE = "service"
    REPLICA_SET = "replicaset"
    REPLICATION_CONTROLLER = "replicationcontroller"
    STATEFUL_SET = "statefulset"
    PERSISTENT_VOLUME = "persistentvolume"
    PERSISTENT_VOLUME_CLAIM = "persistentvolumeclaim"
    STORAGE_CLASS = "storageclass"
    CSI_NODE = "csinode"
    CSI_DRIVER = "csidriver"
    CSI_STORAGE_CAPACITY = "csistoragecapacity"
    VOLUME_ATTACHMENT = "volumeattachment"
    POD_DISRUPTION_BUDGET = "poddisruptionbudget"
    POD_GROUP = "podgroup"
    COSCHEDULING_POD_GROUP = "coschedulingpodgroup"
    COMPOSITE_POD_GROUP = "compositepodgroup"
    RESOURCE_CLAIM = "resourceclaim"
    RESOURCE_SLICE = "resourceslice"
    DEVICE_CLASS = "deviceclass"

    __hash__ = str.__hash__  # looked up for every change, and an Enum's own is slow


OBJECT_KINDS = {Kind(kind.value): kind for kind in ObjectKind}


class PodChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="pod"):
    """A pod was added or changed, or is gone. Readers decide by the other fields whether to decode `body`, the Pod as
    msgpack (empty if gone).

    `finished`: Succeeded or Failed, so it occupies nothing. `nominated`: its status's nominatedNodeName. `seen_at`:
    when the watcher read it (its Unix time). `problem`: what is unreadable in a pod on a node; `body` has the rest.
    `closes`: what the pod occupies is unknown, so its node gets no further pods.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str = ""
    node: str = ""
    finished: bool = False
    gone: bool = False
    body: msgspec.Raw = msgspec.Raw(b"")
    seen_at: Seconds = 0.0
    nominated: str = ""
    problem: str = ""
    closes: bool = False


class PodOnNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a pod on a node does not share with others. `started`: its status's startTime."""

    uid: str
    name: str
    node: str
    started: str | None = None


class AlikePods(msgspec.Struct, frozen=True, gc=False, tag="alike"):
    """Pods on nodes that were added or changed, and that differ in nothing that readers know but their PodOnNode.

    `body`: what they share, as a Pod in msgpack, without name, uid, node, version and start time; it has no volumes, no
    problem, and is not being deleted. Only sent to readers that say that they read it (`alike`). One that has not said
    anything yet may hear it all the same: to a reader of the last release it is a gap, and it asks for a listing.
    """

    namespace: str
    body: msgspec.Raw
    pods: list[PodOnNode]


class NodeChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="node"):
    """A node was added or changed, or is gone. `body`: the Node as msgpack.

    `problem`: part of the node is unreadable, so it gets no further pods; `body` has the rest.
    """

    name: str
    gone: bool = False
    body: msgspec.Raw = msgspec.Raw(b"")
    problem: str = ""


class ObjectChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="object"):
    """An object of another kind was added or changed, or is gone. `key`: as by key_of. `body`: as msgpack.

    `version`: the resourceVersion of resource claims, which orders name; empty for other kinds.
    """

    kind: ObjectKind
    key: str
    gone: bool = False
    body: msgspec.Raw = msgspec.Raw(b"")
    version: str = ""


class ListingBegins(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="begin"):
    kind: Kind


class ListingEnds(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="end"):
    """`version`: the list's resourceVersion; empty if the API server does not have or does not show the kind."""

    kind: Kind
    version: str = ""


class Unreadable(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="unreadable"):
    """An object that cannot be used at all, and why. A pod with a node closes that node, a node is closed itself.

    Of other kinds, the last readable version no longer counts, except for STILL_COUNTED kinds. `namespace`: of
    pods, and of namespaced objects.
    """

    kind: Kind
    uid: str
    namespace: str
    name: str
    problem: str
    scheduler: str = ""
    node: str = ""

    @property
    def key(self) -> str:
        """The key of its kind: a pod's uid, a node's name, otherwise as by key_of."""
        if self.kind is Kind.POD:
            return self.uid
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


WatchChange = PodChange | AlikePods | NodeChange | ObjectChange | ListingBegins | ListingEnds | Unreadable


class Watched(msgspec.Struct, frozen=True, omit_defaults=True, tag="watched"):
    """Changes of one kind. `version`: up to this resourceVersion all of the kind is shown with them; 0 if unknown."""

    epoch: Count
    seq: Count
    changes: list[WatchChange]
    version: Count = 0


class WatchBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch-beat"):
    """The newest sequence number, so that a follower notices when the last message was lost.

    `kinds`: those that this watcher lists, which may include unknown ones; empty: all known ones. `at`: the
    watcher's Unix time, 0 if unknown.

    `resume`: by kind, the resourceVersion from which a watch goes on after this message, for the next watcher; empty
    while a kind is being listed. `after_epoch`, `after_seq`: this watcher goes on after that message of an earlier one,
    so who has read as far has missed nothing; 0 if it lists everything.
    """

    epoch: Count
    seq: Count
    kinds: list[str] = []
    at: Seconds = 0.0
    resume: dict[str, Count] = {}
    after_epoch: Count = 0
    after_seq: Count = 0


class _Undecoded(msgspec.Struct):
    """A Watched with undecoded changes."""

    epoch: Count
    seq: Count
    changes: list[msgspec.Raw]
    version: Count = 0


class _About(msgspec.Struct):
    type: str = ""
    kind: str = ""


_UNDECODED = msgspec.msgpack.Decoder(_Undecoded)
_ABOUT = msgspec.msgpack.Decoder(_About)
_CHANGE = msgspec.msgpack.Decoder(WatchChange)
_KINDS = frozenset(Kind)


def without_unknown_kinds(raw: bytes | memoryview) -> Watched | None:
    """A message of a later release's watcher without the changes of unknown kinds; None if it is not Watched.

    Raises the decoder's exceptions if anything else is wrong with it.
    """
    if _ABOUT.decode(raw).type != "watched":
        return None
    watched = _UNDECODED.decode(raw)
    known = [change for change in watched.changes if _ABOUT.decode(change).kind in _KINDS | {""}]
    return Watched(watched.epoch, watched.seq, [_CHANGE.decode(change) for change in known], watched.version)


class WatchSeen(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch-seen"):
    """To the watcher: how far a follower has read. `epoch` is the watcher's, 0 if unknown yet.

    `versions`: the highest resourceVersions that it was shown, by kind; only in the first report of an epoch.
    `alike`: it reads AlikePods.
    """

    asker: str
    epoch: Count
    seq: Count
    versions: dict[str, Count] = {}
    alike: bool = False


class Relist(msgspec.Struct, frozen=True, omit_defaults=True, tag="relist"):
    """To the watcher: list everything again, because a follower has missed a message or has just started.

    `versions`: the highest resourceVersions that it was shown, by kind. `kinds`: only these need to be listed; empty:
    all. `alike`: the asker reads AlikePods.
    """

    asker: str
    versions: dict[str, Count] = {}
    kinds: list[str] = []
    alike: bool = False


class ListKind(msgspec.Struct, frozen=True, omit_defaults=True, tag="list-kind"):
    """To the watcher: a page of all objects of a kind, for the asker alone. `following`: of the page before.

    `alike`: the asker reads AlikePods.
    """

    kind: str
    following: str = ""
    alike: bool = False


class KindListed(msgspec.Struct, frozen=True, omit_defaults=True, tag="kind-listed"):
    """A page of all objects of a kind, as they were at `version`, without finished pods.

    `version`: the same in all pages; 0 if the server does not have the kind. `following`: for the next request, empty
    after the last page. `problem`: why there is no page; the kind is to be listed from the beginning, later.
    """

    kind: str
    version: Count = 0
    changes: list[WatchChange] = []
    following: str = ""
    problem: str = ""
