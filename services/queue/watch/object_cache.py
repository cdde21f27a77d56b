"""Pods that are on nodes, as far as pods that wait for a place may profit from what happens to them.

There may be half a million of them in a process, so what they have in common is kept once: labels, the spec but for
node and volumes, and the resources and claims that the status tells of. Nothing is kept of annotations, owners and
times, nor of the rest of the status: hints are not shown it, and a change of it is no event.
"""

from collections.abc import Callable, Hashable
from sys import intern
from typing import Generic, TypeVar

import msgspec

from shared.messages.watch import PodChange, Unreadable
from shared.model.objects import (
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Volume,
    dec_hook,
    encode_msgpack,
)

T = TypeVar("T")

MOST_PARTS = 1 << 14
"""Different parts of a kind that are remembered; what comes after that many is shared only with what comes later."""

_NONE = msgspec.Raw(b"")


class _Labels(msgspec.Struct, frozen=True, gc=False):
    labels: msgspec.Raw = _NONE


class _Resources(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Of a status: what its pod's requests are made of, and its claims."""

    conditions: msgspec.Raw = _NONE
    container_statuses: msgspec.Raw = _NONE
    init_container_statuses: msgspec.Raw = _NONE
    resources: msgspec.Raw = _NONE
    allocated_resources: msgspec.Raw = _NONE
    resource_claim_statuses: msgspec.Raw = _NONE


class _Body(msgspec.Struct, frozen=True, gc=False):
    metadata: _Labels = _Labels()
    spec: msgspec.Raw = _NONE
    status: _Resources = _Resources()


class _Volumes(msgspec.Struct, frozen=True, gc=False):
    volumes: msgspec.Raw = _NONE


_NO_LABELS: dict[str, str] = {}
_NO_VOLUMES: list[Volume] = []
_NO_SPEC = PodSpec()
_NO_STATUS = PodStatus()


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """Equal parts of several are mostly one object, so comparing them costs little."""

    namespace: str
    name: str
    node: str
    labels: dict[str, str] = _NO_LABELS
    spec: PodSpec = _NO_SPEC
    volumes: list[Volume] = _NO_VOLUMES
    status: PodStatus = _NO_STATUS

    def pod(self, uid: str) -> Pod:
        return Pod(
            metadata=ObjectMeta(name=self.name, namespace=self.namespace, uid=uid, labels=self.labels),
            spec=msgspec.structs.replace(self.spec, node_name=self.node, volumes=self.volumes),
            status=self.status,
        )


_BODY = msgspec.msgpack.Decoder(_Body)
_VOLUMES_IN = msgspec.msgpack.Decoder(_Volumes)
_LABELS = msgspec.msgpack.Decoder(dict[str, str])
_SPEC = msgspec.msgpack.Decoder(PodSpec, dec_hook=dec_hook)
_VOLUMES = msgspec.msgpack.Decoder(list[Volume], dec_hook=dec_hook)
_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)

_RESIZE = "PodResizePending"
"""The condition that has a say in what a pod requests."""


class AssignedPods:
    def __init__(self) -> None:
        self._pods: dict[str, _Kept] = {}
        self._labels: _Shared[dict[str, str]] = _Shared()
        self._specs: _Shared[PodSpec] = _Shared()
        self._statuses: _Shared[PodStatus] = _Shared()

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def see(self, change: PodChange | Unreadable) -> tuple[Pod | None, Pod] | None:
        """As it was known, if it was, and as it is; None if that is the same.

        Of one that cannot be read it is known that it is there, and on which node.
        """
        before, now = self._pods.get(change.uid), self._read(change)
        if now is None:
            if before is not None:
                return None
            now = _Kept(intern(change.namespace), change.name, intern(change.node))
        if now == before:
            return None
        self._pods[change.uid] = now
        return None if before is None else before.pod(change.uid), now.pod(change.uid)

    def drop(self, uid: str) -> Pod | None:
        """As it was known, if it was."""
        kept = self._pods.pop(uid, None)
        return None if kept is None else kept.pod(uid)

    # Inside

    def _read(self, change: PodChange | Unreadable) -> _Kept | None:
        if isinstance(change, Unreadable):
            return None
        try:
            return self._decoded(change)
        except msgspec.DecodeError:
            return None

    def _decoded(self, change: PodChange) -> _Kept:
        body = _BODY.decode(change.body)
        labels, spec = bytes(body.metadata.labels), bytes(body.spec)
        volumes = bytes(_VOLUMES_IN.decode(spec).volumes) if spec else b""
        return _Kept(
            intern(change.namespace),
            change.name,
            intern(change.node),
            self._labels.one(labels, lambda: _LABELS.decode(labels)) if labels else _NO_LABELS,
            self._specs.one(_but_for(spec, change.node, volumes), lambda: _spec(spec)) if spec else _NO_SPEC,
            _telling(volumes) if volumes else _NO_VOLUMES,
            self._status(body.status, change),
        )

    def _status(self, told: _Resources, change: PodChange) -> PodStatus:
        conditions = bytes(told.conditions)
        key = (
            conditions if _RESIZE.encode() in conditions else b"",
            bytes(told.container_statuses),
            bytes(told.init_container_statuses),
            bytes(told.resources),
            bytes(told.allocated_resources),
            bytes(told.resource_claim_statuses),
        )
        return self._statuses.one(key, lambda: _resources(_POD.decode(change.body).status)) if any(key) else _NO_STATUS


class _Shared(Generic[T]):
    """Parts of pods by what they are made from."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, T] = {}

    def one(self, key: Hashable, make: Callable[[], T]) -> T:
        part = self._parts.get(key)
        if part is None:
            part = make()
            if len(self._parts) >= MOST_PARTS:
                self._parts.clear()
            self._parts[key] = part
        return part


_NODE_NAME = encode_msgpack("nodeName")


def _but_for(spec: bytes, node: str, volumes: bytes) -> bytes:
    """Pods of one template differ in node and in volumes, and in no other part of their specs."""
    return spec.replace(_NODE_NAME + encode_msgpack(node), b"", 1).replace(volumes, b"", 1)


def _spec(raw: bytes) -> PodSpec:
    return msgspec.structs.replace(_SPEC.decode(raw), node_name="", volumes=_NO_VOLUMES)


def _telling(raw: bytes) -> list[Volume]:
    """Those that matter to others. Most have no more than a name here, and that is another one for each pod."""
    volumes = [volume for volume in _VOLUMES.decode(raw) if volume != Volume(name=volume.name)]
    return volumes or _NO_VOLUMES


def _granting(statuses: list[ContainerStatus]) -> list[ContainerStatus]:
    """Those that say what a container was granted."""
    return [status for status in statuses if status.resources is not None or status.allocated_resources]


def _resources(status: PodStatus) -> PodStatus:
    return PodStatus(
        conditions=[condition for condition in status.conditions if condition.type == _RESIZE],
        container_statuses=_granting(status.container_statuses),
        init_container_statuses=_granting(status.init_container_statuses),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
        resource_claim_statuses=status.resource_claim_statuses,
    )
