"""Pods as the queue hands them out, as the cycle holds them, and as the watch shows them after preemption."""

from collections.abc import Iterable, Mapping

import msgspec

from services.cycle.round.admission import PodInfo, Template
from shared.cluster.objects import ClusterObjects
from shared.framework.profile import Framework
from shared.messages.queue import Batch, Gang, QueuedClaims, QueuedPod, QueuedVolumes
from shared.model.load import PodLoad, load_of
from shared.model.objects import Pod, PodCondition, encode_msgpack, pod_from_msgpack
from shared.plugins.devices.queued_claims import ClaimUsers, queued_claims
from shared.plugins.volumes.own_claims import ClaimsOnNodes, queued_volumes


def queued_pod(
    pod: Pod, gang: Gang | None = None, claims: QueuedClaims | None = None, volumes: QueuedVolumes | None = None
) -> QueuedPod:
    return QueuedPod(msgspec.Raw(encode_msgpack(pod)), 1, 0.0, 0.0, gang, claims, volumes)


def batch_of(
    pods: Iterable[Pod],
    seq: int = 0,
    gangs: Mapping[str, Gang] | None = None,
    objects: ClusterObjects | None = None,
    users: ClaimUsers | None = None,
    on_nodes: ClaimsOnNodes | None = None,
) -> Batch:
    """`seq`: the pods must not be judged on an older state. `gangs`: by uid. `objects`: with the pods' claims, `users`:
    all pending pods that name any, and `on_nodes`: those that placed pods use.
    """
    pods = list(pods)
    if objects is None:
        return Batch(1, 1, [queued_pod(pod, (gangs or {}).get(pod.uid)) for pod in pods], seq)
    if users is None:
        users = ClaimUsers()
        for pod in pods:
            users.add(pod)
    on_nodes = on_nodes or ClaimsOnNodes()
    queued = [
        queued_pod(
            pod,
            (gangs or {}).get(pod.uid),
            queued_claims(pod, objects.devices, users),
            queued_volumes(pod, objects, users.volumes, on_nodes),
        )
        for pod in pods
    ]
    return Batch(1, 1, queued, seq)


def pods_in(batch: Batch) -> list[Pod]:
    return [pod_from_msgpack(queued.pod) for queued in batch.pods]


def pod_info(
    pod: Pod, class_id: str, *, load: PodLoad | None = None, gang: Gang | None = None, size: int | None = None
) -> PodInfo:
    """The pod as the cycle holds it. `size`: the bytes that it takes in a commit."""
    template = Template(
        class_id,
        load_of(pod) if load is None else load,
        pod.spec.scheduler_name,
        pod.priority,
        never_preempts=pod.spec.preemption_policy == "Never",
        goes_along=size is not None,
    )
    body = msgspec.Raw(encode_msgpack(pod) if size is None else bytes(size))
    meta = pod.metadata
    info = PodInfo(pod.uid, pod.namespace, pod.name, meta.resource_version, body, template, class_id, gang, _pod=pod)
    info.nominated_node = pod.status.nominated_node_name
    return info


def class_of(framework: Framework, pod: Pod) -> str:
    """The class that the cycle finds for a pod of this profile, if no extender judges it."""
    return framework.class_of_pod(framework.class_of_template(pod), pod)


def nominated(pod: Pod, node: str) -> Pod:
    """The pod with this nominated node; an empty name clears it."""
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))


def terminating(pod: Pod, now: str) -> Pod:
    """The pod while it terminates as a victim of preemption."""
    preempted = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    status = msgspec.structs.replace(pod.status, conditions=[*pod.status.conditions, preempted])
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=now)
    return msgspec.structs.replace(pod, metadata=metadata, status=status)
