"""DynamicResources finds devices for pods that claim some, and prefers nodes that serve early alternatives.

A pod without claims passes everywhere and scores 0.
"""

from collections.abc import Collection, Hashable

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import NodeView, PodColumn
from flotilla.objects import ClusterObjects, ObjectKind, Pod, PodLoad
from flotilla.plugin import (
    BindingState,
    ClassState,
    LazyFilter,
    LazyScore,
    PluginError,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScaleToHighest,
    Scores,
    StateKey,
)
from flotilla.results import (
    SKIP,
    SUCCESS,
    PostFilterResult,
    PreBindSteps,
    PreFilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from shared.cluster.devices import Devices, PlacedDevices
from shared.config.args import DynamicResourcesArgs
from shared.config.feature_gates import DEFAULT_GATES, Feature, FeatureGates
from shared.devices.claim_texts import without_names
from shared.devices.errors import AllocationError
from shared.devices.pod_claims import (
    NOT_AVAILABLE,
    NOTHING_TO_GIVE_BACK,
    extended_resources,
    may_claim,
    own_claims,
    post_filter,
    pre_filter,
)
from shared.errors import InvariantBroken
from shared.model.codec import encode_msgpack
from shared.model.devices import ResourceClaim
from shared.model.kinds import DEVICE_KINDS
from shared.plugins.base import InTreePlugin
from shared.plugins.devices.class_devices import CLASS_DEVICES, PRIVATE_CLAIMS, ClassDevices
from shared.plugins.devices.pre_bind import DEVICES, bind_devices

DEFAULT_BINDING_TIMEOUT = 600.0
"""Seconds that the devices of an allocated claim have to become ready."""
LOOKED_AT = StateKey[bool]("PreFilter has run")


def after_claim(pod: Pod, before: ResourceClaim | None, now: ResourceClaim, objects: ClusterObjects) -> bool:
    """A claim has given its devices back, any claim, or one of the pod's own is new or has another status.

    Nothing helps a pod one of whose claims is missing.
    """
    claims = usable_claims(pod, objects)
    if claims is None:
        return False
    if not helps_users_only(before, now):
        return True
    return any(claim.uid == now.uid for claim in claims) and (before is None or before.status != now.status)


def helps_users_only(before: ResourceClaim | None, now: ResourceClaim) -> bool:
    """Whether no devices are given back, which others may wait for."""
    return before is None or not before.is_allocated or now.is_allocated


def after_own_claims(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself has now got all its claims."""
    return pod.uid == now.uid and usable_claims(now, objects) is not None


def usable_claims(pod: Pod, objects: ClusterObjects) -> list[ResourceClaim] | None:
    """The pod's claims; None if one is missing, is being deleted, or was made for another pod."""
    found = own_claims(pod, objects.devices.claims)
    return None if isinstance(found, str) else found


class _EachPod(PodColumn):
    """Counts pods."""

    def amount(self, pod: PodLoad) -> int:
        return 1


EACH_POD = _EachPod()


class DynamicResources(
    InTreePlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    LazyFilter,
    PostFilterPlugin,
    LazyScore,
    ReservePlugin,
    PreBindPlugin,
):
    """What a node's devices serve depends on claims, not on the pods there; the table notes such changes as load."""

    name = "DynamicResources"
    normalizer = ScaleToHighest()
    reads_pod = False
    registrations = (
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        Registration(Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE, after_claim, helps_users_only),
        Registration(Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, after_own_claims),
        Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        Registration(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
    )

    def __init__(self, args: DynamicResourcesArgs | None = None, gates: FeatureGates = DEFAULT_GATES) -> None:
        self._serves_resources = gates.enabled(Feature.RESOURCES_BY_DEVICES)
        self._takes_alternatives = gates.enabled(Feature.DEVICE_ALTERNATIVES)
        patience = (args or DynamicResourcesArgs()).binding_timeout
        self._binding_timeout = DEFAULT_BINDING_TIMEOUT if patience is None else patience

    def signature(self, pod: Pod) -> Hashable:
        """The cycle adds the content of claims; names of claims made from templates make no difference."""
        extended = extended_resources(pod)
        if not pod.spec.resource_claims and not extended:
            return None
        named = tuple(use.resource_claim_name for use in pod.spec.resource_claims)
        containers = encode_msgpack([pod.spec.init_containers, pod.spec.containers]) if extended else b""
        return pod.namespace, named, containers

    def cache_key(self, state: ClassState) -> Hashable:
        found = state.get(CLASS_DEVICES)
        return None if found is None else (state.pod.uid, found.content)

    def reads_objects(self, state: ClassState) -> Collection[ObjectKind]:
        """Claims that only this pod can have do not change before it is decided."""
        found, pod = state.get(CLASS_DEVICES), state.pod
        if not may_claim(pod):
            return ()
        if _devices_of(state).special_claims_of(pod.uid):
            return DEVICE_KINDS
        if found is None:
            return DEVICE_KINDS if pod.spec.resource_claims else {ObjectKind.DEVICE_CLASS}
        keep = all(found.is_private(claim) and not claim.is_allocated for claim in found.found.own)
        return {ObjectKind.DEVICE_CLASS} if keep else {ObjectKind.DEVICE_CLASS, ObjectKind.RESOURCE_CLAIM}

    def pre_enqueue(self, pod: Pod) -> Status:
        """A pod alone does not tell whether its claims exist."""
        return SUCCESS

    def pre_enqueue_among(self, pod: Pod, objects: ClusterObjects) -> Status:
        """Keeps a pod out until all its claims can be used."""
        if not pod.spec.resource_claims:
            return SUCCESS
        found = own_claims(pod, objects.devices.claims)
        return unresolvable(found) if isinstance(found, str) else SUCCESS

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        state[LOOKED_AT] = True
        pod = state.pod
        if not may_claim(pod):
            return PreFilterResult(SKIP)
        devices = _devices_of(state)
        found = pre_filter(
            pod,
            devices.claims,
            devices.special_claims_of(pod.uid),
            devices.allocator,
            serves_resources=self._serves_resources,
            takes_alternatives=self._takes_alternatives,
        )
        if found is None:
            return PreFilterResult(SKIP)
        if isinstance(found, str):
            own = own_claims(pod, devices.claims)
            keys = [] if isinstance(own, str) else [claim.key for claim in own]
            return PreFilterResult(unresolvable(without_names(found, keys)))
        are_private = state.get(PRIVATE_CLAIMS) is not None
        state[CLASS_DEVICES] = ClassDevices(found, devices, self._binding_timeout, are_private=are_private)
        return PreFilterResult()

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        found = state.get(CLASS_DEVICES)
        if found is None:
            return
        earlier = nodes.change_of(EACH_POD, planned=True).tolist()
        rejected: dict[str, list[int]] = {}
        for i, count in enumerate(earlier):
            try:
                reason = found.reason(nodes.node(i), count)
            except AllocationError as cause:
                if not count:
                    why = without_names(str(cause), [claim.key for claim in found.found.own])
                    raise PluginError(f'running "{self.name}" filter plugin: {why}') from cause
                reason = str(cause)
            if reason is not None:
                rejected.setdefault(reason, []).append(i)
        for reason, at in rejected.items():
            nodes.reject(np.array(at, dtype=np.intp), unresolvable(reason))

    def post_filter(self, state: ClassState, statuses: dict[str, Status]) -> PostFilterResult:
        """`not found` is how kube-scheduler says that an earlier plugin's PreFilter has ended the attempt already."""
        if state.get(LOOKED_AT) is None:
            return PostFilterResult(error("not found"))
        found = state.get(CLASS_DEVICES)
        if found is None:
            return PostFilterResult(unschedulable(NOTHING_TO_GIVE_BACK))
        nodes = [node for node, status in statuses.items() if NOT_AVAILABLE in status.reasons]
        given = post_filter(found.found, found.unavailable_on(nodes))
        deallocate = tuple(claim.key for claim in given.deallocate)
        delete = tuple(claim.key for claim in given.delete)
        return PostFilterResult(unschedulable(given.message), deallocate=deallocate, delete=delete)

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        found = state.get(CLASS_DEVICES)
        if found is None or not found.has_alternatives:
            return np.zeros(len(nodes), dtype=np.int64)
        earlier = nodes.change_of(EACH_POD, planned=True).tolist()
        return np.array([found.score(nodes.node(i), count) for i, count in enumerate(earlier)], dtype=np.int64)

    def has_claims(self, state: ClassState) -> bool:
        return state.get(CLASS_DEVICES) is not None

    def devices_for(self, state: ClassState, node: NodeView, earlier: int) -> PlacedDevices | None:
        """For a node that the filter admitted, as a view of one, on which `earlier` pods of the class are planned."""
        found = state.get(CLASS_DEVICES)
        return None if found is None else found.placed(node.node(0), earlier)

    def one_at_a_time(self, state: ClassState) -> bool:
        """Whether a placement changes what other nodes have for the class."""
        found = state.get(CLASS_DEVICES)
        return found is not None and found.one_at_a_time

    def has_alternatives(self, state: ClassState) -> bool:
        found = state.get(CLASS_DEVICES)
        return found is not None and found.has_alternatives

    def reserve(self, state: BindingState, node: str) -> Status:
        """The decision, which the snapshot committed, reserves the devices."""
        return SUCCESS

    def unreserve(self, state: BindingState, node: str) -> None:
        """Likewise: the snapshot releases them."""

    def pre_bind(self, state: BindingState, node: str) -> Status | PreBindSteps:
        devices = state.get(DEVICES)
        if devices is None or not (devices.decision.claims or devices.decision.special):
            return SKIP
        return bind_devices(state.pod, devices, self._binding_timeout)


def _devices_of(state: ClassState) -> Devices:
    devices = state.objects.devices
    if not isinstance(devices, Devices):
        raise InvariantBroken("only the objects of a table have devices to allocate")
    return devices
