"""How nodes serve the claims of one class of pods: what PreFilter has found, and the answers for single nodes."""

from collections.abc import Sequence

from flotilla.objects import Node
from flotilla.plugin import StateKey
from shared.cluster.devices import Devices, PlacedDevices, SpecialClaim
from shared.devices.allocator import Allocator, Step
from shared.devices.errors import AllocationError
from shared.devices.extended import node_resources
from shared.devices.pod_claims import (
    NOT_AVAILABLE,
    PodClaims,
    Requested,
    content_key,
    requested,
    unavailable_claims,
)
from shared.devices.pools import DeviceNode
from shared.devices.results import score
from shared.model.devices import ResourceClaim
from shared.model.resources import allocatable


class ClassDevices:
    """`content`: equal for classes whose claims nodes serve alike.

    `one_at_a_time`: a placement changes what other nodes have for the class, so a round decides one pod of it.
    """

    def __init__(
        self, found: PodClaims, devices: Devices, binding_timeout: float, *, are_private: bool = False
    ) -> None:
        """`are_private`: no other pod names one of the claims, and each pod of the class has its own."""
        self.found = found
        self._are_private = are_private
        self.content = content_key(found)
        self._devices = devices
        self._binding_timeout = binding_timeout
        self._requested: dict[tuple[str, ...] | None, Requested] = {}
        self._unavailable: dict[str, tuple[int, ...]] = {}
        allocated = [claim for claim in found.claims if claim.status.allocation is not None]
        self._has_allocated = bool(allocated)
        self._score_of_allocated = score(allocated, ())
        self.has_alternatives = any(
            request.first_available for claim in found.claims for request in claim.spec.devices.requests
        )

    @property
    def _allocator(self) -> Allocator:
        return self._devices.allocator

    def is_private(self, claim: ResourceClaim) -> bool:
        """Whether no other pod has this claim, which is one of the pod's own."""
        return self._are_private or claim.owner_uid == self.found.pod.uid

    @property
    def one_at_a_time(self) -> bool:
        found = self.found
        if any(claim.status.allocation is None and not self.is_private(claim) for claim in found.own):
            return True  # other pods may name the same claim
        by_resource = self._allocator.by_resource
        provided = sorted(name for name, amount in found.requests.items() if amount and by_resource.get(name))
        wanted = self._requested_by(tuple(provided))
        return bool(wanted.claims) and self._allocator.reach_over_nodes(wanted.claims)

    def reason(self, node: Node, earlier: int) -> str | None:
        """Why the node cannot serve one more pod of the class; raises AllocationError if the attempt is to end.

        `earlier`: how many pods of the class the node serves already, though the state does not show them.
        """
        wanted = self._wanted(node)
        if wanted.reason is not None or not wanted.checked:
            return wanted.reason
        on = DeviceNode(node.name, node.metadata.labels)
        if wanted.claims:
            step = self._allocator.step(on, wanted.claims, earlier)
            if isinstance(step, str):
                return step
        if not self._has_allocated:
            return None
        unavailable = unavailable_claims(self.found, on, self._binding_timeout, self._devices.time)
        self._unavailable[node.name] = unavailable
        return NOT_AVAILABLE if unavailable else None

    def score(self, node: Node, earlier: int) -> int:
        """How early the alternatives are in their lists that a pod of the class gets."""
        wanted = self._wanted(node)
        if not wanted.claims:
            return 0
        step = self._step(node, wanted, earlier)
        return 0 if step is None else step.score + self._score_of_allocated

    def placed(self, node: Node, earlier: int) -> PlacedDevices | None:
        """What a pod of the class gets on the node; None if it needs nothing there."""
        wanted = self._wanted(node)
        step = self._step(node, wanted, earlier) if wanted.claims else None
        if not self.found.own and step is None:
            return None
        allocations = []
        if step is not None:
            on = DeviceNode(node.name, node.metadata.labels)
            allocations = self._allocator.allocations(on, wanted.claims, step)
        new = iter(allocations)
        of_own = [next(new) if claim.status.allocation is None else None for claim in self.found.own]
        if wanted.special is None or step is None:
            return PlacedDevices(of_own)
        special = SpecialClaim(list(wanted.special.spec.devices.requests), list(wanted.mappings), next(new))
        return PlacedDevices(of_own, special)

    def unavailable_on(self, nodes: Sequence[str]) -> set[int]:
        """The indices of claims that these nodes cannot use."""
        return {index for node in nodes for index in self._unavailable.get(node, ())}

    def _step(self, node: Node, wanted: Requested, earlier: int) -> Step | None:
        try:
            step = self._allocator.step(DeviceNode(node.name, node.metadata.labels), wanted.claims, earlier)
        except AllocationError:
            return None
        return None if isinstance(step, str) else step

    def _wanted(self, node: Node) -> Requested:
        if self.found.special is None:
            return self._requested_by(())
        by_devices = node_resources(self.found.requests, allocatable(node), self._allocator.by_resource)
        return self._requested_by(None if by_devices is None else tuple(by_devices))

    def _requested_by(self, by_devices: tuple[str, ...] | None) -> Requested:
        known = self._requested.get(by_devices)
        if known is None:
            known = self._requested[by_devices] = requested(self.found, by_devices, self._allocator.by_resource)
        return known


PRIVATE_CLAIMS = StateKey[bool]("no other pod names the claims")
CLASS_DEVICES = StateKey[ClassDevices]("claims, and how nodes serve them")
