"""Fits objects into messages. A large object loses what no follower reads, never what it occupies."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import force_setattr, replace

from shared.model.assigned_parts import READ_CONDITIONS
from shared.model.clusterobjects import ClusterObject
from shared.model.devices import ResourceClaim, ResourceClaimSpec
from shared.model.load import is_read_by_others
from shared.model.objects import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    Node,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Volume,
    encode_msgpack,
)
from shared.model.resources import pod_requests
from shared.model.wellknown import PREFER_AVOID_PODS

MAX_BODY_BYTES = 512 << 10
"""An object's body in a message; 250 times that of an ordinary pod."""
MAX_BYTES_OF_LABELS = MAX_BODY_BYTES // 2
"""Of an object that is too large even without what no follower reads."""
_NO_ANNOTATIONS: dict[str, str] = {}
_NOTHING: list[object] = []


class TooLarge(ValueError):
    def __init__(self, size: int) -> None:
        super().__init__(f"what a scheduler reads of it takes {size} bytes, more than {MAX_BODY_BYTES}")


def body_of(obj: object) -> msgspec.Raw:
    """The object as msgpack; raises TooLarge."""
    raw = encode_msgpack(obj)
    if len(raw) > MAX_BODY_BYTES:
        raise TooLarge(len(raw))
    return msgspec.Raw(raw)


def has_source(volume: Volume) -> bool:
    """Whether it has a source that scheduling does not ignore."""
    return volume != Volume(name=volume.name)


def drop_unread(pod: Pod) -> None:
    """Takes from a pod on a node, in place, what no follower reads: most of these pods differ in nothing else."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    force_setattr(metadata, "annotations", _NO_ANNOTATIONS)
    force_setattr(metadata, "owner_references", _NOTHING)
    force_setattr(metadata, "creation_timestamp", None)
    if spec.volumes:
        force_setattr(spec, "volumes", [volume for volume in spec.volumes if has_source(volume)])
    if status.conditions:
        conditions = [condition for condition in status.conditions if condition.type in READ_CONDITIONS]
        force_setattr(status, "conditions", conditions)
    for field in ("container_statuses", "init_container_statuses"):
        if statuses := getattr(status, field):
            granted = [each for each in statuses if each.resources is not None or each.allocated_resources]
            force_setattr(status, field, granted)


def placed_body(pod: Pod) -> tuple[msgspec.Raw, str]:
    """The body of a bound pod, and what is missing from it; empty if the body holds everything that followers read."""
    try:
        return body_of(pod), ""
    except TooLarge as cause:
        reduced = load_outline(pod)
        problem = str(cause)
    with suppress(TooLarge):
        return body_of(reduced), ""
    reduced = replace(reduced, metadata=_with_few_labels(reduced.metadata))
    with suppress(TooLarge):
        return body_of(reduced), problem
    return body_of(replace(reduced, spec=replace(reduced.spec, affinity=None, volumes=[]))), problem


def load_outline(pod: Pod) -> Pod:
    """A pod that occupies the same and means the same to other pods, and holds nothing else.

    Its containers are merged into one, so scores that assume a default for containers without requests assume it once.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    affinity = spec.affinity
    if affinity is not None:
        affinity = Affinity(pod_affinity=affinity.pod_affinity, pod_anti_affinity=affinity.pod_anti_affinity)
    sidecars = [container for container in spec.init_containers if container.restartable]
    ports = dict.fromkeys(
        (port.host_ip, port.protocol or "TCP", port.host_port)
        for container in (*sidecars, *spec.containers)
        for port in container.ports
        if port.host_port > 0
    )
    one = Container(
        resources=ResourceRequirements(requests=pod_requests(pod, use_status=True)),
        ports=[ContainerPort(host_ip=ip, protocol=protocol, host_port=port) for ip, protocol, port in ports],
    )
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            labels=meta.labels,
            deletion_timestamp=meta.deletion_timestamp,
            resource_version=meta.resource_version,
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
            containers=[one],
            affinity=affinity,
            volumes=[volume for volume in spec.volumes if is_read_by_others(volume)],
            resource_claims=spec.resource_claims,
            scheduling_group=spec.scheduling_group,
        ),
        status=PodStatus(
            phase=status.phase,
            start_time=status.start_time,
            conditions=[condition for condition in status.conditions if condition.type == "DisruptionTarget"],
            resource_claim_statuses=status.resource_claim_statuses,
        ),
    )


def node_body(node: Node) -> tuple[msgspec.Raw, str]:
    """The body of a node, and what is missing from it that decisions depend on.

    A large node loses annotations that no follower reads, then its smallest images, which only affect scores.
    """
    try:
        return body_of(node), ""
    except TooLarge as cause:
        problem = str(cause)
    annotations = {name: text for name, text in node.metadata.annotations.items() if name == PREFER_AVOID_PODS}
    node = replace(node, metadata=replace(node.metadata, annotations=annotations, owner_references=[]))
    rest = replace(node, status=replace(node.status, images=[]))
    room = MAX_BODY_BYTES - len(encode_msgpack(rest))
    if room >= 0:
        return body_of(replace(node, status=replace(node.status, images=_largest(node.status.images, room)))), ""
    bare = ObjectMeta(name=node.name, uid=node.metadata.uid, labels=node.metadata.labels)
    return body_of(Node(metadata=_with_few_labels(bare))), problem


def object_body(obj: ClusterObject) -> msgspec.Raw:
    """The body of any other object; raises TooLarge.

    An allocated claim loses parameters for drivers, which are read only when it is allocated. Without it, its devices
    would count as free.
    """
    try:
        return body_of(obj)
    except TooLarge:
        if not isinstance(obj, ResourceClaim) or obj.status.allocation is None:
            raise
    allocation = replace(obj.status.allocation, devices=replace(obj.status.allocation.devices, config=[]))
    spec, status = replace(obj.spec.devices, config=[]), replace(obj.status, allocation=allocation)
    obj = replace(obj, spec=ResourceClaimSpec(devices=spec), status=status)
    with suppress(TooLarge):
        return body_of(obj)
    return body_of(replace(obj, spec=ResourceClaimSpec()))


def _with_few_labels(metadata: ObjectMeta) -> ObjectMeta:
    """Keeps the shortest labels: they say which domains a node is in, and which pods a pod on it excludes."""
    kept: dict[str, str] = {}
    room = MAX_BYTES_OF_LABELS
    for name, value in sorted(metadata.labels.items(), key=lambda label: len(label[0]) + len(label[1])):
        room -= len(encode_msgpack((name, value)))
        if room < 0:
            break
        kept[name] = value
    return replace(metadata, labels=kept)


def _largest(images: Sequence[ContainerImage], room: int) -> list[ContainerImage]:
    """The largest images that fit, in their original order."""
    kept: set[int] = set()
    room -= 16  # the field's name and the number of its items
    for number in sorted(range(len(images)), key=lambda number: -images[number].size_bytes):
        room -= len(encode_msgpack(images[number]))
        if room < 0:
            break
        kept.add(number)
    return [image for number, image in enumerate(images) if number in kept]
