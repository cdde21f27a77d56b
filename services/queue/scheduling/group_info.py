"""What the queue knows of one pod group: its object, its members and their states."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from services.queue.scheduling.queued_gang import QueuedGang
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.messages.queue import MAX_PLACED_ON, MAX_PLACED_ON_CHARACTERS, Gang
from shared.model.objects import GroupApi, GroupRef, Pod, PodGroup

PLUGINS: Mapping[GroupApi, str] = {GroupApi.SCHEDULING: "GangScheduling", GroupApi.COSCHEDULING: "Coscheduling"}
GANG_PLUGINS = frozenset(PLUGINS.values())
"""The plugins that hold members. No cluster event opens these gates: PodGroups releases them."""
GROUP_TIMEOUT = 60.0
"""Seconds until a held pod's owner is notified, if its group names no time-out."""


class MemberState(Enum):
    READY = "ready"
    HELD = "held"
    BLOCKED = "blocked"
    IN_FLIGHT = "in flight"
    PLACED = "placed"

    __hash__ = object.__hash__  # counted at every move, and Enum's own hash is slow


_STATES: Mapping[PodState, MemberState] = {
    PodState.ACTIVE: MemberState.READY,
    PodState.BACKOFF: MemberState.READY,
    PodState.ERROR_BACKOFF: MemberState.READY,
    PodState.UNSCHEDULABLE: MemberState.READY,
    PodState.IN_FLIGHT: MemberState.IN_FLIGHT,
    PodState.BINDING: MemberState.PLACED,
}


class MemberOnNode(NamedTuple):
    name: str
    node: str


@dataclass(slots=True, eq=False)
class GroupInfo:
    ref: GroupRef
    object: PodGroup | None = None
    """None while there is no such object."""
    pods: dict[str, QueuedPodInfo] = field(default_factory=dict)
    """The members that the queue has; others are on nodes."""
    on_nodes: dict[str, MemberOnNode] = field(default_factory=dict)
    """By uid."""
    counts: dict[MemberState, int] = field(default_factory=lambda: dict.fromkeys(MemberState, 0))
    gang: QueuedGang = field(default_factory=QueuedGang)
    """The entry of its ready members, as far as they are popped together."""

    @property
    def minimum(self) -> int:
        return 0 if self.object is None else self.object.least

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def missing(self) -> int:
        """Members still to be placed; if at most one, each goes by itself."""
        return max(self.minimum - self.counts[MemberState.PLACED], 0)

    def is_together(self, pod: Pod) -> bool:
        """Whether the pod has one entry with the group's other ready members."""
        return self.object is not None and (self.missing > 1 or self.decides_for(pod))

    def decides_for(self, pod: Pod) -> bool:
        """Whether the group says where its pod may go or whom it may preempt, even if no other pod depends on it."""
        group = self.object
        if group is None:
            return False
        never = group.never_preempts and pod.spec.preemption_policy != "Never"
        return bool(group.topology) or never or group.priority not in (None, pod.priority)

    def told(self) -> Gang:
        """What the cycle must know of the group; at least one of the pods popped together must be placed."""
        least = max(self.missing, 1)
        if self.object is None:
            return Gang(str(self.ref), least)
        topology = self.object.topology
        placed_on = self._placed_on() if topology else ()
        return Gang(str(self.ref), least, topology, placed_on, self.object.priority, self.object.never_preempts)

    def _placed_on(self) -> tuple[str, ...]:
        nodes = Counter(member.node for member in self.on_nodes.values())
        nodes.update(info.node for info in self.pods.values() if info.state is PodState.BINDING)
        found: list[str] = []
        for node, _ in nodes.most_common():
            if node and sum(map(len, found)) + len(node) <= MAX_PLACED_ON_CHARACTERS:
                found.append(node)
        return tuple(found[:MAX_PLACED_ON])

    @property
    def queue_state(self) -> str:
        """Where the gang is in the queue: the state of its entry, else in-flight or held; nothing if it is in none."""
        if self.gang.state is not None:
            return self.gang.state.value
        if self.counts[MemberState.IN_FLIGHT] and self.missing:
            return PodState.IN_FLIGHT.value
        return MemberState.HELD.value if self.counts[MemberState.HELD] else ""

    @property
    def attempts(self) -> int:
        """Of the gang since it was placed last, or of the member that was tried most often by itself."""
        return max((self.gang.attempts, *(info.attempts for info in self.pods.values())))

    @property
    def can_release(self) -> bool:
        ready, held = self.counts[MemberState.READY], self.counts[MemberState.HELD]
        return self.object is not None and ready + held >= self.missing

    @property
    def timeout(self) -> float:
        return GROUP_TIMEOUT if self.object is None else self.object.timeout or GROUP_TIMEOUT

    @property
    def shortage(self) -> str:
        """Why members are held."""
        if self.object is None:
            return "the pod group does not exist"
        if self.total < self.minimum:
            return f"{self.total} of its pods exist, and at least {self.minimum} are needed"
        blocked = f"{self.counts[MemberState.BLOCKED]} of them are gated"
        return f"{self.missing} more of its pods must be scheduled together, but {blocked}"

    def why_held(self, seconds: float) -> str:
        return f"waiting for pod group {self.ref} for {seconds:.0f} s: {self.shortage}"


def member_state(info: QueuedPodInfo) -> MemberState | None:
    """None if the pod is new or done."""
    if info.state is PodState.GATED:
        return MemberState.HELD if info.gating_plugin in GANG_PLUGINS else MemberState.BLOCKED
    return _STATES.get(info.state)
