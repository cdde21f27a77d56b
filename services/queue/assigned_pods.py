"""The pods on nodes, reduced to what queueing hints and events need.

Equal parts are kept once: labels, the spec without node and volumes, and the status's resources and claims. Of pods
that are alike in all of them one is decoded. Annotations, owners, times and the rest of the status are dropped: hints
do not get them, and changes of them are no event.
"""

from collections.abc import Iterator
from sys import intern

import msgspec
from msgspec.structs import astuple, replace

from services.queue.scheduling.assigned_pod import (
    NO_LABELS,
    NO_SPEC,
    NO_STATUS,
    NO_VOLUMES,
    AssignedPod,
    DecodedParts,
)
from shared.bounded import BoundedDict
from shared.messages.watch import AlikePods, PodChange, Unreadable
from shared.model.assigned_parts import AlikeKey, AssignedBody, decode_assigned
from shared.model.objects import ContainerStatus, PodSpec, PodStatus, dec_hook, group_of, pod_from_msgpack
from shared.plugins.volumes.own_claims import volume_claims

MAX_PARTS = 1 << 14
"""Different parts of one sort that are shared."""

_RESIZE = "PodResizePending"
"""The condition that affects a pod's requests."""
_LABELS = msgspec.msgpack.Decoder(dict[str, str])
_SPEC = msgspec.msgpack.Decoder(PodSpec, dec_hook=dec_hook)


class AssignedPods:
    def __init__(self) -> None:
        self._pods: dict[str, AssignedPod] = {}
        self._decoded: BoundedDict[AlikeKey | bytes, DecodedParts] = BoundedDict(MAX_PARTS)
        """Without pods that have volumes, as the claims of most are their own. By body where that is shared."""
        self._labels: BoundedDict[bytes, dict[str, str]] = BoundedDict(MAX_PARTS)
        self._specs: BoundedDict[bytes, PodSpec] = BoundedDict(MAX_PARTS)
        self._statuses: BoundedDict[tuple[bytes, ...], PodStatus] = BoundedDict(MAX_PARTS)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def update(self, change: PodChange | Unreadable) -> tuple[AssignedPod | None, AssignedPod] | None:
        """The pod before, if known, and now; None if it is unchanged. Of an unreadable pod only the node counts."""
        before, now = self._pods.get(change.uid), None
        if isinstance(change, PodChange):
            try:
                now = self._decode(change)
            except msgspec.DecodeError:
                now = None
        if now is None:
            now = before or AssignedPod(
                change.uid, change.name, intern(change.node), DecodedParts(intern(change.namespace))
            )
        if now.is_same(before):
            return None
        self._pods[change.uid] = now
        return before, now

    def update_alike(self, alike: AlikePods) -> Iterator[tuple[AssignedPod | None, AssignedPod]]:
        """As `update`, of those that are new or changed."""
        pods, body = self._pods, bytes(alike.body)
        try:
            parts = self._decoded.obtain(body, lambda: self._decode_parts(alike.body, intern(alike.namespace)))
        except msgspec.DecodeError:
            parts = None
        for uid, name, node, _ in map(astuple, alike.pods):
            before = pods.get(uid)
            if parts is not None:
                now = AssignedPod(uid, name, intern(node), parts)
            else:
                now = before or AssignedPod(uid, name, intern(node), DecodedParts(intern(alike.namespace)))
            if before is None or not now.is_same(before):
                pods[uid] = now
                yield before, now

    def delete(self, uid: str) -> AssignedPod | None:
        """The pod, if it was known."""
        return self._pods.pop(uid, None)

    def _decode(self, change: PodChange) -> AssignedPod:
        namespace, node = intern(change.namespace), intern(change.node)
        body = decode_assigned(change.body)
        key = body.key(namespace, node)
        parts = self._decoded.get(key)
        if parts is None:
            parts = self._parts_of(body, change.body, namespace, change.uid, change.name)
            if not parts.volumes:
                self._decoded[key] = parts
        return AssignedPod(change.uid, change.name, node, parts)

    def _decode_parts(self, raw: msgspec.Raw, namespace: str) -> DecodedParts:
        return self._parts_of(decode_assigned(raw), raw, namespace)

    def _parts_of(
        self, body: AssignedBody, raw: msgspec.Raw, namespace: str, uid: str = "", name: str = ""
    ) -> DecodedParts:
        raw_labels, (raw_spec, volumes) = bytes(body.metadata.labels), body.split_spec()
        labels = self._labels.obtain(raw_labels, lambda: _LABELS.decode(raw_labels)) if raw_labels else NO_LABELS
        spec = self._specs.obtain(raw_spec, lambda: _SPEC.decode(raw_spec)) if raw_spec else NO_SPEC
        status = NO_STATUS
        if raw_status := body.status.parts():
            status = self._statuses.obtain(raw_status, lambda: _relevant(pod_from_msgpack(raw).status))
        parts = DecodedParts(namespace, labels, spec, volumes or NO_VOLUMES, status)
        pod = AssignedPod(uid, name, "", parts).pod()
        return replace(parts, group=group_of(pod), claims=volume_claims(pod))


def _relevant(status: PodStatus) -> PodStatus:
    def granted(statuses: list[ContainerStatus]) -> list[ContainerStatus]:
        return [each for each in statuses if each.resources is not None or each.allocated_resources]

    return PodStatus(
        conditions=[condition for condition in status.conditions if condition.type == _RESIZE],
        container_statuses=granted(status.container_statuses),
        init_container_statuses=granted(status.init_container_statuses),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
        resource_claim_statuses=status.resource_claim_statuses,
    )
