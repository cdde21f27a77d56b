"""DynamicResources finds devices for pods that claim some; so far it can only tell whether a pod claims any.

A pod without claims passes everywhere and scores 0. One with claims is rejected with a reason: it must not go to a node
whose devices were not checked.
"""

from collections.abc import Hashable

import numpy as np

from flotilla.events import Action, Registration, Resource
from flotilla.nodes import NodeView
from flotilla.objects import ClusterObjects, Pod
from flotilla.plugin import (
    BindingState,
    ClassState,
    FilterPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Reads,
    ReservePlugin,
    ScorePlugin,
    Scores,
    StateKey,
)
from flotilla.results import (
    SKIP,
    SUCCESS,
    PostFilterResult,
    PreFilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from shared.model.devices import ResourceClaim
from shared.plugins.base import InTreePlugin

NOT_SUPPORTED = "resource claims (dynamic resource allocation) are not supported yet"
LOOKED_AT = StateKey[bool]("PreFilter has run")


def after_claim(pod: Pod, before: ResourceClaim | None, now: ResourceClaim, objects: ClusterObjects) -> bool:
    """A claim has given its devices back, any claim, or one of the pod's own is new or has another status.

    Nothing helps a pod one of whose claims is missing.
    """
    claims = usable_claims(pod, objects)
    if claims is None:
        return False
    if before is not None and before.is_allocated and not now.is_allocated:
        return True
    return any(claim.uid == now.uid for claim in claims) and (before is None or before.status != now.status)


def after_own_claims(pod: Pod, before: Pod, now: Pod, objects: ClusterObjects) -> bool:
    """The pod itself has now got all its claims."""
    return pod.uid == now.uid and usable_claims(now, objects) is not None


def usable_claims(pod: Pod, objects: ClusterObjects) -> list[ResourceClaim] | None:
    """The pod's claims; None if one is missing, is being deleted, or was made for another pod."""
    found: list[ResourceClaim] = []
    for use in pod.spec.resource_claims:
        named, name = use.resource_claim_name is not None, use.resource_claim_name
        if not named:
            statuses = [status for status in pod.status.resource_claim_statuses if status.name == use.name]
            if not statuses or use.resource_claim_template_name is None:
                return None
            name = statuses[0].resource_claim_name
            if name is None:  # none was needed
                continue
        claim = objects.devices.claims.get(f"{pod.namespace}/{name}")
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return None
        if not named and claim.owner_uid != pod.uid:
            return None
        found.append(claim)
    return found


class DynamicResources(
    InTreePlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
):
    name = "DynamicResources"
    filter_reads = Reads.NODE
    score_reads = Reads.NODE
    reads_pod = False
    registrations = (
        Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE),
        Registration(Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE, after_claim),
        Registration(Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, after_own_claims),
        Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        Registration(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
    )

    def signature(self, pod: Pod) -> Hashable:
        return bool(pod.spec.resource_claims)

    def pre_enqueue(self, pod: Pod) -> Status:
        """Pods with claims are tried as well: the attempt tells the owner what is wrong."""
        return SUCCESS

    def pre_filter(self, state: ClassState) -> PreFilterResult:
        state[LOOKED_AT] = True
        return PreFilterResult(unresolvable(NOT_SUPPORTED) if state.pod.spec.resource_claims else SKIP)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        """PreFilter has decided."""

    def post_filter(self, state: ClassState, statuses: dict[str, Status]) -> PostFilterResult:
        """`not found` is how kube-scheduler says that an earlier plugin's PreFilter has ended the attempt already."""
        if state.get(LOOKED_AT) is None:
            return PostFilterResult(error("not found"))
        return PostFilterResult(unschedulable("no new claims to deallocate"))

    def score(self, state: ClassState, nodes: NodeView) -> Scores:
        return np.zeros(len(nodes), dtype=np.int64)

    def reserve(self, state: BindingState, node: str) -> Status:
        return SUCCESS

    def unreserve(self, state: BindingState, node: str) -> None:
        """Nothing was reserved."""

    def pre_bind(self, state: BindingState, node: str) -> Status:
        return SUCCESS
