"""A snapshot that knows devices and resource claims, and decisions about them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from services.snapshot.events import (
    Effect,
    ObjectSeen,
    WorkerFault,
)
from shared.cluster.devices import ClaimAllocation, DeviceDecision
from shared.model.codec import convert
from shared.model.devices import AllocationResult, ResourceClaim
from shared.model.objects import ClusterObject, ObjectKind, Pod, object_from
from testing.builders import node, pod
from tests.rounds.support import SnapshotLog, commit, reassigned

CLAIM = ObjectKind.RESOURCE_CLAIM
P, Q = (pod(name).request(cpu="1").resource_claim("r", f"{name}-r").build() for name in "pq")
POOL = {"name": "n", "generation": 1, "resourceSliceCount": 1}
GPU = object_from(
    ObjectKind.DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
)


def a_slice(*names: str, **spec: Any) -> ClusterObject:
    fields = {"driver": "d", "pool": POOL, "nodeName": "n", "devices": [{"name": name} for name in names], **spec}
    return object_from(ObjectKind.RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": fields})


def a_claim(name: str, *, count: int = 1, uid: str | None = None, **rest: Any) -> ClusterObject:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    metadata = {"name": name, "namespace": "default", "uid": uid or f"{name}-uid"}
    return object_from(CLAIM, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}, **rest})


def allocation(*names: str, node_name: str = "n", request: str = "r") -> AllocationResult:
    results = [{"request": request, "driver": "d", "pool": "n", "device": name} for name in names]
    fields = [{"key": "metadata.name", "operator": "In", "values": [node_name]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return convert(AllocationResult, {"devices": {"results": results}, "nodeSelector": selector})


def gives(claim: str, *names: str, **rest: Any) -> DeviceDecision:
    return DeviceDecision([ClaimAllocation(f"default/{claim}", f"{claim}-uid", allocation(*names, **rest))])


def a_log(*objects: ClusterObject) -> SnapshotLog:
    log = SnapshotLog(*(node(name).capacity(cpu=8, memory="8Gi").build() for name in ("n", "m")))
    for each in (GPU, a_slice("g0", "g1"), *objects):
        log.handle(ObjectSeen(each))
    return log


def decided(
    log: SnapshotLog, number: int, *decisions: tuple[Pod, DeviceDecision], seen: int | None = None, on: str = "n"
) -> list[Effect]:
    seen = log.core.seq if seen is None else seen
    plain = commit(number, *((each, on, seen) for each, _ in decisions))
    with_devices = [
        reassigned(each, devices=devices) for each, (_, devices) in zip(plain.decisions, decisions, strict=True)
    ]
    return log.handle(msgspec.structs.replace(plain, decisions=with_devices))


def known(log: SnapshotLog) -> dict[str, ResourceClaim]:
    return {each.key: each for each in log.core.state().objects if isinstance(each, ResourceClaim)}


def faults(effects: Sequence[Effect]) -> list[str]:
    return [each.kind for each in effects if isinstance(each, WorkerFault)]
