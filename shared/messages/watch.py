"""From the watcher to whoever follows the cluster: what the API server's list and watch say, in order.

One stream for all kinds of objects. `seq` rises by one with each message of a watcher's term; whoever misses one asks
for a listing. A listing begins and ends with a mark for its kind; what is known to somebody and not in it is gone.
"""

from enum import StrEnum

import msgspec

from shared.model.kinds import ObjectKind


class Kind(StrEnum):
    """Of what is watched: pods, nodes, and the kinds of ObjectKind under the same names."""

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
    RESOURCE_CLAIM = "resourceclaim"
    RESOURCE_SLICE = "resourceslice"
    DEVICE_CLASS = "deviceclass"

    __hash__ = str.__hash__  # looked up for every change, and an Enum's own is slow


OBJECT_KINDS = {Kind(kind.value): kind for kind in ObjectKind}


class PodChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="pod"):
    """A pod is so, or is gone. The first fields tell who needs to read `body`, the Pod as msgpack (empty if gone).

    `finished`: Succeeded or Failed, so it holds no place any more. `nominated`: the node that its status promises it.
    `seen_at`: when the watcher read it (Unix time, by its clock); for readers of the last release.

    `problem`: what could not be read of a pod on a node; `body` holds the rest. `closes`: what the pod occupies cannot
    be told, so its node must get no further pod.
    """

    uid: str
    namespace: str
    name: str
    scheduler: str = ""
    node: str = ""
    finished: bool = False
    gone: bool = False
    body: msgspec.Raw = msgspec.Raw(b"")
    seen_at: float = 0.0
    nominated: str = ""
    problem: str = ""
    closes: bool = False


class NodeChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="node"):
    """A node is so, or is gone. `body`: the Node as msgpack.

    `problem`: a part of the node could not be read, so it must get no further pod; `body` holds the rest.
    """

    name: str
    gone: bool = False
    body: msgspec.Raw = msgspec.Raw(b"")
    problem: str = ""


class ObjectChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="object"):
    """An object of another kind is so, or is gone. `key`: as key_of tells it. `body`: the object as msgpack."""

    kind: ObjectKind
    key: str
    gone: bool = False
    body: msgspec.Raw = msgspec.Raw(b"")


class ListingBegins(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="begin"):
    kind: Kind


class ListingEnds(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="end"):
    """`version`: the resourceVersion of the list; empty where the API server has none, or does not show the kind."""

    kind: Kind
    version: str = ""


class Unreadable(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="unreadable"):
    """An object of which nothing can be used, and why. A pod with a node closes that node, a node is closed itself.

    Of other kinds, what was known before counts no more, except of STILL_COUNTED kinds.
    `namespace`: of pods, and of objects that are in one.
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
        """By which its kind is known: a pod's uid, a node's name, otherwise as key_of tells it."""
        if self.kind is Kind.POD:
            return self.uid
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


WatchChange = PodChange | NodeChange | ObjectChange | ListingBegins | ListingEnds | Unreadable


class Watched(msgspec.Struct, frozen=True, omit_defaults=True, tag="watched"):
    epoch: int
    seq: int
    changes: list[WatchChange]


class WatchBeat(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch-beat"):
    """The newest sequence number there is, so that the loss of the last message shows as well.

    `kinds`: those that this watcher lists, which may be others than are known here. None named: all that are known.
    `at`: the watcher's Unix time, 0 if it does not say.
    """

    epoch: int
    seq: int
    kinds: list[str] = []
    at: float = 0.0


class _Told(msgspec.Struct):
    """A Watched, with its changes unread."""

    type: str
    epoch: int
    seq: int
    changes: list[msgspec.Raw]


class _About(msgspec.Struct):
    kind: str = ""


_TOLD = msgspec.msgpack.Decoder(_Told)
_ABOUT = msgspec.msgpack.Decoder(_About)
_CHANGE = msgspec.msgpack.Decoder(WatchChange)
_KINDS = frozenset(Kind)


def without_unknown_kinds(raw: bytes | memoryview) -> Watched | None:
    """What a watcher of a later release says, but for kinds that are not known here; None where it is no Watched.

    Raises what the decoder raises where something else is wrong with it.
    """
    told = _TOLD.decode(raw)
    if told.type != "watched":
        return None
    known = [change for change in told.changes if _ABOUT.decode(change).kind in _KINDS | {""}]
    return Watched(told.epoch, told.seq, [_CHANGE.decode(change) for change in known])


class WatchSeen(msgspec.Struct, frozen=True, omit_defaults=True, tag="watch-seen"):
    """To the watcher: so far has somebody come who follows it. `epoch` is the watcher's, 0 if it was not heard yet."""

    asker: str
    epoch: int
    seq: int


class Relist(msgspec.Struct, frozen=True, omit_defaults=True, tag="relist"):
    """To the watcher: list everything anew; somebody has missed something, or has just come."""

    asker: str
