"""Extended resources that a device class provides: which class, and which device requests a pod's containers become."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.model.base import ObjectMeta
from shared.model.devices import (
    DEVICE_CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from shared.model.pod import Container, Pod
from shared.model.quantity import UNIT
from shared.model.resources import is_extended_resource

SPECIAL_CLAIM = "<extended-resources>"
"""The name of the special claim until it is created; no claim can have it."""


class RequestMapping(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which device request serves a container's extended resource; several may."""

    container: str
    resource: str
    request: str


class NodeClaim(msgspec.Struct, frozen=True):
    """The special claim as one node needs it."""

    claim: ResourceClaim
    mappings: list[RequestMapping]


class ClassesByResource:
    """Finds the class that provides an extended resource; of two of one name the newer, then the lower class name.

    As in kube-scheduler after its start, a class whose name for extended resources belongs to one before it (in order
    of the classes' names) loses its implicit name as well.
    """

    def __init__(self, classes: Iterable[DeviceClass]) -> None:
        self._classes: dict[str, DeviceClass] = {}
        for each in sorted(classes, key=lambda each: each.name):
            resource = each.spec.extended_resource_name
            if resource is not None:
                other = self._classes.get(resource)
                if other is not None and _created(each) <= _created(other):
                    continue
                self._classes[resource] = each
            self._classes[DEVICE_CLASS_PREFIX + each.name] = each

    def get(self, resource: str) -> DeviceClass | None:
        if not is_extended_resource(resource) and not resource.startswith(DEVICE_CLASS_PREFIX):
            return None
        return self._classes.get(resource)


def _created(of: DeviceClass) -> str:
    return of.metadata.creation_timestamp or ""


def wants_class(requests: Mapping[str, int], classes: ClassesByResource) -> bool:
    """Whether any resource that the pod requests is provided by a class."""
    return any(amount and classes.get(name) is not None for name, amount in requests.items())


def special_claim(pod: Pod, claims: Iterable[ResourceClaim]) -> ResourceClaim:
    """The claim for the pod's extended resources: one left from an earlier attempt, or a new one without requests."""
    left = [claim for claim in claims if _is_left(claim, pod)]
    if left:
        return min(left, key=lambda claim: claim.key)
    metadata = ObjectMeta(
        namespace=pod.namespace,
        name=SPECIAL_CLAIM,
        uid=f"{pod.uid}/{SPECIAL_CLAIM}",
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
    )
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec())


def node_resources(
    requests: Mapping[str, int], allocatable: Mapping[str, int], classes: ClassesByResource
) -> list[str] | None:
    """The requested resources that the node provides by devices.

    None if the node provides a resource in no way. A resource with allocatable amounts is a device plugin's.
    """
    by_devices = []
    for name, amount in requests.items():
        if not amount or not (is_extended_resource(name) or name.startswith(DEVICE_CLASS_PREFIX)):
            continue
        if classes.get(name) is not None and not allocatable.get(name):
            by_devices.append(name)
        elif name not in allocatable:
            return None
    return sorted(by_devices)


def claim_for_node(claim: ResourceClaim, pod: Pod, resources: Iterable[str], classes: ClassesByResource) -> NodeClaim:
    """The special claim with requests for these resources.

    Init containers that end before the others start reuse what containers after them have; what they need beyond that
    is one request, the largest.
    """
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource in resources:
        device_class = classes.get(resource)
        if device_class is not None:
            found, mapped = _requests_for(pod, resource, device_class.name)
            requests += found
            mappings += mapped
    requests.sort(key=lambda request: request.name)
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    return NodeClaim(msgspec.structs.replace(claim, spec=spec), mappings)


def misrequested(
    requests: Sequence[DeviceRequest],
    mappings: Iterable[RequestMapping],
    wanted: Mapping[str, int],
    classes: ClassesByResource,
) -> str:
    """How a special claim's requests differ from what the pod wants, as far as its sums show; empty if they do not."""
    by_name = {each.name: each.exactly for each in requests}
    given: dict[str, dict[str, int]] = {}
    for each in mappings:
        exactly, device_class = by_name.get(each.request), classes.get(each.resource)
        if exactly is None or device_class is None:
            return f"request {each.request} cannot serve {each.resource}"
        if exactly != ExactDeviceRequest(device_class_name=device_class.name, count=exactly.count):
            return f"request {each.request} asks for other devices than those of class {device_class.name}"
        given.setdefault(each.resource, {})[each.request] = exactly.count
    for resource, counts in given.items():
        if sum(counts.values()) > wanted.get(resource, 0):
            return f"{sum(counts.values())} devices serve {wanted.get(resource, 0)} of {resource}"
    if sorted(name for counts in given.values() for name in counts) != sorted(by_name):
        return "each request must serve one resource"
    return ""


def _is_left(claim: ResourceClaim, pod: Pod) -> bool:
    if not claim.is_special:
        return False
    owners = claim.metadata.owner_references
    return any(owner.controller and owner.name == pod.name and owner.uid == pod.uid for owner in owners)


def _requests_for(pod: Pod, resource: str, class_name: str) -> tuple[list[DeviceRequest], list[RequestMapping]]:
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    ends = [index < len(pod.spec.init_containers) and not each.restartable for index, each in enumerate(containers)]
    lasting: list[tuple[str, int] | None] = [None] * len(containers)
    mappings: list[RequestMapping] = []
    for index, container in enumerate(containers):
        amount = _amount(container, resource)
        if amount and not ends[index]:
            lasting[index] = (_request_name(index, container, resource), amount)
            mappings.append(RequestMapping(container.name, resource, _request_name(index, container, resource)))
    largest: tuple[str, int] | None = None
    own: set[str] = set()
    starting: list[RequestMapping] = []
    for index, container in enumerate(containers):
        amount = _amount(container, resource)
        if not amount or not ends[index]:
            continue
        for name, reusable in filter(None, lasting[index:]):
            starting.append(RequestMapping(container.name, resource, name))
            amount -= reusable
            if amount <= 0:
                break
        if amount > 0:
            name = _request_name(index, container, resource)
            own.add(name)
            starting.append(RequestMapping(container.name, resource, name))
            if largest is None or amount > largest[1]:
                largest = (name, amount)
    if largest is not None:
        starting = [
            msgspec.structs.replace(each, request=largest[0]) if each.request in own else each for each in starting
        ]
    wanted = [each for each in (largest, *lasting) if each is not None]
    return [_device_request(name, amount, class_name) for name, amount in wanted], mappings + starting


def _amount(container: Container, resource: str) -> int:
    """Devices that the container requests; fractions count as none, as in kube-scheduler."""
    amount = int(container.resources.requests.get(resource, 0))
    return amount // UNIT if amount % UNIT == 0 else 0


def _request_name(index: int, container: Container, resource: str) -> str:
    """Named by the container's place and that of the resource among all that the container requests."""
    return f"container-{index}-request-{sorted(container.resources.requests).index(resource)}"


def _device_request(name: str, count: int, class_name: str) -> DeviceRequest:
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(device_class_name=class_name, count=count))
