"""Device claims that the queue knows and the snapshot does not yet.

PreEnqueue lets a pod out once its claims exist. If the queue went by claims that workers do not know, they would reject
the pod because a claim is missing, and that would be the Event its owner reads.
"""

from services.queue.scheduling.in_flight_events import Position
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.devices.pod_claims import claim_names
from shared.plugins.dynamicresources import DynamicResources


class ClaimsAhead:
    def __init__(self) -> None:
        self._created_at: dict[str, Position] = {}
        """By `namespace/name`, in order of positions."""
        self._absorbed: Position = (0, 0)

    def add(self, claim: str, at: Position) -> None:
        """The watch has shown a new claim at this position."""
        self._created_at.pop(claim, None)
        if at > self._absorbed:
            self._created_at[claim] = at

    def absorb(self, position: Position) -> None:
        """The snapshot has applied all changes up to there."""
        self._absorbed = position
        while self._created_at:
            claim, at = next(iter(self._created_at.items()))
            if at > position:
                return
            del self._created_at[claim]

    def gate(self, info: QueuedPodInfo) -> str | None:
        """The plugin that gates a pod which names one of them. Its event, deferred until then, opens the gate."""
        if not self._created_at or not info.pod.spec.resource_claims:
            return None
        if all(plugin.name != DynamicResources.name for plugin in info.framework.pre_enqueue):
            return None
        pod = info.pod
        names = claim_names(pod.namespace, pod.spec.resource_claims, pod.status.resource_claim_statuses)
        for name in names:
            if name.key in self._created_at:
                info.gate_reason = f'ResourceClaim "{name.key}" is new'
                return DynamicResources.name
        return None
