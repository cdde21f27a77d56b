"""Device claims that the queue knows and the snapshot does not yet.

PreEnqueue lets a pod out once its claims exist. If the queue went by claims that workers do not know, they would reject
the pod because a claim is missing, and that would be the Event its owner reads.
"""

from services.queue.scheduling.in_flight_events import Position
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.devices.pod_claims import claim_names
from shared.plugins.dynamicresources import DynamicResources

MAX_CLAIMS = 1 << 14
"""Claims that are remembered; pods do not wait for further ones."""


class ClaimsAhead:
    def __init__(self) -> None:
        self._created_at: dict[str, Position] = {}
        """By `namespace/name`."""
        self._absorbed: Position = (0, 0)
        self._gated: dict[str, None] = {}
        """By uid, the pods that have been gated since the last ones were let go."""

    def add(self, claim: str, at: Position) -> None:
        """The watch has shown a new claim at this position."""
        if at > self._absorbed and len(self._created_at) < MAX_CLAIMS:
            self._created_at[claim] = at

    def remove(self, claim: str) -> None:
        """It has been deleted."""
        self._created_at.pop(claim, None)

    def absorb(self, position: Position) -> list[str]:
        """The snapshot has applied all changes up to there. Returns the pods to be queued again, by uid.

        If a watcher of an earlier term leads again, what later ones told is never applied.
        """
        falls_back, self._absorbed = position[0] < self._absorbed[0], position
        before = len(self._created_at)
        ahead = {} if falls_back else {claim: at for claim, at in self._created_at.items() if at > position}
        self._created_at = ahead
        if ahead and len(ahead) == before:
            return []
        gated, self._gated = list(self._gated), {}
        return gated

    def gate(self, info: QueuedPodInfo) -> str | None:
        """The plugin that gates a pod which names one of them."""
        if not self._created_at or not info.pod.spec.resource_claims:
            return None
        if all(plugin.name != DynamicResources.name for plugin in info.framework.pre_enqueue):
            return None
        pod = info.pod
        names = claim_names(pod.namespace, pod.spec.resource_claims, pod.status.resource_claim_statuses)
        for name in names:
            if name.key in self._created_at:
                info.gate_reason = f'the snapshot has not applied ResourceClaim "{name.key}" yet'
                self._gated[info.uid] = None
                return DynamicResources.name
        return None
