"""The pending pods as the watch shows them: a commit that describes a pod otherwise is rejected.

Most pods are one of many alike. So only the parts of a pod that its load comes from are compared, as bytes, and the
load is computed once for all pods that share them.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from shared.bounded import BoundedDict
from shared.devices.pod_claims import ClaimName, claim_names
from shared.errors import FlotillaError, InvariantBroken
from shared.messages.state import Decision, Nominate
from shared.messages.watch import PodChange
from shared.model.load import PodLoad, is_read_by_others, load_of
from shared.model.objects import (
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    Volume,
    dec_hook,
    encode_msgpack,
)
from shared.model.resources import filter_requests

MAX_GONE = 1 << 14
"""Pods that are remembered as gone: far more than a cycle holds."""
NOTHING = msgspec.Raw(b"")
MAX_UNUSED = 1 << 8
"""Shapes that are kept although no pod has them: where pods come one by one, the next one has one of them."""
MAX_UNUSED_BYTES = 1 << 20
"""Of their parts, all together."""
OTHER_REQUESTS = "it requests something else"


class _Spec(msgspec.Struct, rename="camel", gc=False):
    """The fields that requests, ports, terms, claims and priority come from."""

    scheduler_name: msgspec.Raw = NOTHING
    priority: msgspec.Raw = NOTHING
    preemption_policy: msgspec.Raw = NOTHING
    containers: msgspec.Raw = NOTHING
    init_containers: msgspec.Raw = NOTHING
    affinity: msgspec.Raw = NOTHING
    overhead: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    host_network: msgspec.Raw = NOTHING
    resource_claims: msgspec.Raw = NOTHING
    volumes: list[Volume] = []

    def parts(self) -> list[bytes]:
        parts = [*map(bytes, msgspec.structs.astuple(self)[:-1])]
        # Each pod has a volume with its service account's token, under a name of its own, which other pods ignore.
        if self.volumes:
            parts += [encode_msgpack(volume) for volume in self.volumes if is_read_by_others(volume)]
        return parts


class _Status(msgspec.Struct, gc=False):
    """Conditions are left out: they change, and count only for pods that are being deleted."""

    containers: msgspec.Raw = msgspec.field(default=NOTHING, name="containerStatuses")
    init_containers: msgspec.Raw = msgspec.field(default=NOTHING, name="initContainerStatuses")
    resources: msgspec.Raw = NOTHING
    allocated: msgspec.Raw = msgspec.field(default=NOTHING, name="allocatedResources")
    claims: list[PodResourceClaimStatus] = msgspec.field(default_factory=list, name="resourceClaimStatuses")


class _Body(msgspec.Struct, gc=False):
    """Labels are left out: those of one StatefulSet's pods differ, and a commit may be of before a change of them."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_BODY = msgspec.msgpack.Decoder(_Body, dec_hook=dec_hook)
_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)


class _Shape(msgspec.Struct, gc=False):
    """Of pods with the same parts. `requests`: what must be free for them. `never`: their preemptionPolicy."""

    parts: bytes
    load: PodLoad
    requests: Mapping[str, int]
    scheduler: str
    never: bool
    pods: int = 0


class PendingPods:
    def __init__(self) -> None:
        self._pods: dict[str, _Shape] = {}
        self._shapes: dict[bytes, _Shape] = {}
        self._unused: OrderedDict[bytes, None] = OrderedDict()
        """The parts of shapes that no pod has, the one that was left first first."""
        self._unused_bytes = 0
        self._claims: dict[str, list[ClaimName]] = {}
        """Of pods that have any."""
        self._differences: dict[tuple[int, int], str] = {}
        """Of loads of the present commit, by load and shape."""
        self._gone: BoundedDict[str, None] = BoundedDict(MAX_GONE)
        """Pods that were pending, and were deleted or have finished."""

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def shapes(self) -> int:
        return len(self._shapes)

    def upsert(self, change: PodChange) -> None:
        """A pod that cannot be read is not known."""
        try:
            body = _BODY.decode(change.body)
            shape = self._shape_of(change, body)
            claims = _claims_of(change, body) if bytes(body.spec.resource_claims) else []
        except (msgspec.MsgspecError, FlotillaError, ValueError):
            self.remove(change.uid)
            return
        if claims:
            self._claims[change.uid] = claims
        else:
            self._claims.pop(change.uid, None)
        self._gone.pop(change.uid, None)
        before = self._pods.get(change.uid)
        if shape is not before:
            if not shape.pods:
                del self._unused[shape.parts]
                self._unused_bytes -= len(shape.parts)
            shape.pods += 1
            self._pods[change.uid] = shape
            if before is not None:
                self._drop(before)

    def remove(self, uid: str) -> None:
        self._claims.pop(uid, None)
        shape = self._pods.pop(uid, None)
        if shape is not None:
            self._drop(shape)

    def forget(self, uid: str) -> None:
        """The pod is deleted, or has finished."""
        if uid in self._pods:
            self._gone[uid] = None
        self.remove(uid)

    def is_gone(self, uid: str) -> bool:
        """Whether the pod was pending and is no more; False if that was long ago, or before the present term."""
        return uid in self._gone

    def begin_commit(self) -> None:
        self._differences.clear()

    def requests(self, uid: str) -> Mapping[str, int] | None:
        """What must be free for a known pod; None for others."""
        shape = self._pods.get(uid)
        return None if shape is None else shape.requests

    def claims(self, uid: str) -> Sequence[ClaimName] | None:
        """The resource claims of a known pod, in the order of its specification; None for others."""
        return self._claims.get(uid, ()) if uid in self._pods else None

    def difference(self, wanted: Decision | Nominate, load: PodLoad) -> str | None:
        """What a commit describes otherwise than the watch; empty if nothing, None if it does not know the pod."""
        shape = self._pods.get(wanted.uid)
        if shape is None:
            return None
        by = (id(load), id(shape))
        found = self._differences.get(by)
        if found is None:
            found = self._differences[by] = _difference(load, shape.load)
        if found:
            return found
        if wanted.profile != shape.scheduler:
            return f"its scheduler is {shape.scheduler}"
        if (load.requests if wanted.asks is None else wanted.asks) != shape.requests:
            return OTHER_REQUESTS
        if isinstance(wanted, Nominate) and shape.never and not wanted.never:
            return "its preemptionPolicy is Never"
        return ""

    def validate(self) -> None:
        counted: dict[bytes, int] = {}
        for shape in self._pods.values():
            counted[shape.parts] = counted.get(shape.parts, 0) + 1
        counted |= dict.fromkeys(self._unused, 0)
        if counted != {parts: shape.pods for parts, shape in self._shapes.items()} or len(self._unused) > MAX_UNUSED:
            raise InvariantBroken("the pods of each shape are miscounted")
        if self._unused_bytes != sum(map(len, self._unused)):
            raise InvariantBroken("the bytes of shapes that no pod has are miscounted")

    def _shape_of(self, change: PodChange, body: _Body) -> _Shape:
        status, spec = body.status, body.spec
        names_claims = bool(spec.volumes) and any(volume.ephemeral is not None for volume in spec.volumes)
        parts = b"\0".join(
            (
                change.namespace.encode(),
                change.name.encode() if names_claims else b"",
                *spec.parts(),
                bytes(status.containers),
                bytes(status.init_containers),
                bytes(status.resources),
                bytes(status.allocated),
            )
        )
        shape = self._shapes.get(parts)
        if shape is None:
            pod = _POD.decode(change.body)
            never = pod.spec.preemption_policy == "Never"
            shape = _Shape(parts, load_of(pod), filter_requests(pod), pod.spec.scheduler_name, never)
            self._shapes[parts] = shape
            self._keep_unused(shape)
        return shape

    def _drop(self, shape: _Shape) -> None:
        shape.pods -= 1
        if not shape.pods:
            self._keep_unused(shape)

    def _keep_unused(self, shape: _Shape) -> None:
        self._unused[shape.parts] = None
        self._unused_bytes += len(shape.parts)
        while len(self._unused) > MAX_UNUSED or (self._unused_bytes > MAX_UNUSED_BYTES and len(self._unused) > 1):
            parts, _ = self._unused.popitem(last=False)
            self._unused_bytes -= len(parts)
            del self._shapes[parts]


def _claims_of(change: PodChange, body: _Body) -> list[ClaimName]:
    uses = msgspec.msgpack.decode(body.spec.resource_claims, type=list[PodResourceClaim])
    return claim_names(change.namespace, uses, body.status.claims)


def _difference(said: PodLoad, known: PodLoad) -> str:
    """Labels and deletion may change any time, and do not invalidate a decision. Nor does the group: it is not a part
    of the shape, and counts only for pods on nodes, as the watch shows them.
    """
    if said == known:
        return ""
    if said.priority != known.priority:
        return f"its priority is {known.priority}"
    if said.requests != known.requests:
        return OTHER_REQUESTS
    changed = msgspec.structs.replace(
        said, labels=known.labels, terminating=known.terminating, preempted=known.preempted, group=known.group
    )
    return "" if changed == known else "it has other ports, volumes or affinity"
