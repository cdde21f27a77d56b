"""DynamicResources, slowly: for each pod and node, devices are looked for in the cluster as it is, without caches.

The search on one node is the product's own, which golden cases hold; what is tested is all that is built around it.
"""

from collections.abc import Sequence
from typing import Any

from flotilla.results import Status, error, unresolvable
from shared.cluster.devices import DeviceDecision, Devices, changes_of_claims, decision_of
from shared.devices import pod_claims
from shared.devices.errors import AllocationError
from shared.devices.pod_claims import PodClaims, own_claims
from shared.model.objects import Node, Pod
from shared.plugins.devices.class_devices import ClassDevices
from shared.plugins.dynamicresources import DEFAULT_BINDING_TIMEOUT
from tests.scalar.cluster import Cluster, NodeInfo
from tests.scalar.plugins import Cycle, Plugin, Rejected, Skip, to_highest


class DynamicResources(Plugin):
    """For claims; devices that serve extended resources are left out."""

    name = "DynamicResources"
    unprepared = "not found"

    def pre_filter(self, cycle: Cycle) -> set[str] | None:
        cycle.prepared.add(self.name)  # kube-scheduler writes an empty state, though it skips Filter
        devices = fresh(cycle.cluster)
        found = pod_claims.pre_filter(cycle.pod, devices.claims, (), devices.allocator)
        if found is None:
            raise Skip
        if isinstance(found, str):
            raise Rejected(unresolvable(found))
        cycle.state[self.name] = found
        return None

    def judge(self, cycle: Cycle, info: NodeInfo) -> Status | None:
        try:
            reason = of_class(cycle).reason(info.node, 0)
        except AllocationError as cause:
            return error(str(cause))
        return None if reason is None else unresolvable(reason)

    def scores(self, cycle: Cycle, feasible: Sequence[NodeInfo]) -> list[int]:
        if self.name not in cycle.state:
            return [0 for _ in feasible]
        return to_highest([of_class(cycle).score(info.node, 0) for info in feasible])


def fresh(cluster: Cluster) -> Devices:
    known = cluster.objects.devices
    return Devices(known.claims, known.slices, known.classes)


def of_class(cycle: Cycle) -> ClassDevices:
    found: PodClaims = cycle.state[DynamicResources.name]
    return ClassDevices(found, fresh(cycle.cluster), DEFAULT_BINDING_TIMEOUT)


def gate(cluster: Cluster, pod: Pod) -> dict[str, Any] | None:
    """What PreEnqueue answers."""
    found = own_claims(pod, cluster.objects.devices.claims) if pod.spec.resource_claims else []
    if not isinstance(found, str):
        return None
    return {"plugin": DynamicResources.name, "code": unresolvable("").code.value, "reasons": [found]}


def decide(cycle: Cycle, node: Node) -> DeviceDecision | None:
    found: PodClaims | None = cycle.state.get(DynamicResources.name)
    placed = None if found is None else of_class(cycle).placed(node, 0)
    if found is None or placed is None:
        return None
    return decision_of(placed, [(claim.key, claim.uid) for claim in found.own], cycle.pod.uid)


def assume(cluster: Cluster, pod: Pod, decision: DeviceDecision) -> None:
    """The claims are allocated, but the API server does not show it yet."""
    for (_, key), change in changes_of_claims(pod.namespace, pod.name, pod.uid, decision):
        cluster.replace(change.over(cluster.objects.devices.claims[key]))


def given_back(cycle: Cycle, statuses: dict[str, Status]) -> pod_claims.GiveBack:
    """What PostFilter answers. `statuses`: of the nodes that rejected the pod."""
    found: PodClaims | None = cycle.state.get(DynamicResources.name)
    devices = fresh(cycle.cluster)
    unavailable: set[int] = set()
    for name, status in statuses.items():
        if found is not None and pod_claims.NOT_AVAILABLE in status.reasons:
            classes = ClassDevices(found, devices, DEFAULT_BINDING_TIMEOUT)
            classes.reason(cycle.cluster.nodes[name], 0)
            unavailable |= classes.unavailable_on([name])
    return pod_claims.post_filter(found, unavailable)
