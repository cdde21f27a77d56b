"""What the queue knows of one pod group: its object, its members and their states."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from services.queue.scheduling.composite_info import NOTHING, CompositeInfo, Progress
from services.queue.scheduling.gang_plugins import GANG_PLUGINS
from services.queue.scheduling.nominator import PREEMPTION
from services.queue.scheduling.queued_gang import QueuedGang
from services.queue.scheduling.queued_pod_info import PodState, QueuedPodInfo
from shared.messages.queue import MAX_PLACED_ON, MAX_PLACED_ON_CHARACTERS, Gang
from shared.model.objects import GroupRef, Pod, PodGroup, TopologyConstraint

GROUP_TIMEOUT = 60.0
"""Seconds until a held pod's owner is notified, if its group names no time-out."""


class MemberState(Enum):
    READY = "ready"
    HELD = "held"
    BLOCKED = "blocked"
    PREEMPTING = "preempting"
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
    """None while there is no such object, or it cannot be read."""
    unreadable: str = ""
    """Why it cannot be read."""
    pods: dict[str, QueuedPodInfo] = field(default_factory=dict)
    """The members that the queue has; others are on nodes."""
    on_nodes: dict[str, MemberOnNode] = field(default_factory=dict)
    """By uid."""
    counts: dict[MemberState, int] = field(default_factory=lambda: dict.fromkeys(MemberState, 0))
    gang: QueuedGang = field(default_factory=QueuedGang)
    """The entry of its ready members, as far as they are popped together."""
    parent: CompositeInfo | None = None
    above: tuple[CompositeInfo, ...] = ()
    """The composite groups that it is in, from the root down; empty if there is a `problem` with them."""
    problem: str = ""
    invalid: tuple[CompositeInfo, ...] = ()
    """The composite groups that it names as its tree, and that can be none; nothing but other objects mends that."""
    shown: Progress = NOTHING
    """What its parent counts it as."""

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

    @property
    def progress(self) -> Progress:
        """What its composite group counts. Without a minimum, one placed pod is enough."""
        if self.object is None or self.problem:
            return NOTHING
        least, counts = max(self.minimum, 1), self.counts
        placed = counts[MemberState.PLACED]
        able = placed + counts[MemberState.READY] + counts[MemberState.HELD]
        return Progress(self.total >= least, able >= least, placed >= least)

    @property
    def unit(self) -> CompositeInfo | None:
        """The widest of the composite groups above it whose groups must be placed together; None if there is none."""
        return next((each for each in self.above if each.missing > 1), None)

    @property
    def waits_for(self) -> CompositeInfo | None:
        """A composite group above it that lacks one group, which is another one and goes first; None if none does."""
        for number, each in enumerate(self.above):
            if each.missing > 1:
                return None
            child = self.above[number + 1] if number + 1 < len(self.above) else self
            if each.missing and child.shown.placed:
                return each
        return None

    @property
    def entry(self) -> QueuedGang:
        """The entry of its ready members as things stand."""
        unit = self.unit
        return self.gang if unit is None else unit.gang

    @property
    def priority(self) -> int | None:
        """Of all its pods: that of the root. None if each has its own."""
        if self.above:
            root = self.above[0].object
            return None if root is None else root.priority
        return None if self.object is None else self.object.priority

    @property
    def never_preempts(self) -> bool:
        if self.above:
            root = self.above[0].object
            return root is not None and root.never_preempts
        return self.object is not None and self.object.never_preempts

    @property
    def topology(self) -> tuple[TopologyConstraint, ...]:
        return () if self.object is None else self.object.topology

    @property
    def levels(self) -> tuple[TopologyConstraint, ...]:
        """All that constrain its pods: its own, and those of the groups above it."""
        return (*self.topology, *(level for each in self.above for level in each.topology))

    @property
    def goes_together(self) -> bool:
        """Whether several of its members, or groups above it, are placed together or not at all."""
        return self.missing > 1 or self.unit is not None

    def is_together(self, pod: Pod) -> bool:
        """Whether the pod has one entry with the group's other ready members."""
        if self.object is None or self.problem:
            return False
        return self.goes_together or self.decides_for(pod)

    def decides_for(self, pod: Pod) -> bool:
        """Whether the group says where its pod may go or whom it may preempt, even if no other pod depends on it."""
        if self.object is None:
            return False
        never = self.never_preempts and pod.spec.preemption_policy != "Never"
        return bool(self.levels) or never or self.priority not in (None, pod.priority)

    @property
    def evicts_nobody(self) -> bool:
        """Whether no other pods are evicted for its members, by its own policy or by that of a pending one."""
        return self.never_preempts or any(info.pod.spec.preemption_policy == "Never" for info in self.pods.values())

    def told(self) -> Gang:
        """What the cycle must know of the group; at least one of the pods popped together must be placed."""
        least, topology = max(self.missing, 1), self.topology
        placed_on = named_nodes(self.nodes()) if topology else ()
        return Gang(str(self.ref), least, topology, placed_on, self.priority, self.never_preempts)

    def nodes(self) -> Counter[str]:
        """How many members are on each node."""
        nodes = Counter(member.node for member in self.on_nodes.values())
        nodes.update(info.node for info in self.pods.values() if info.state is PodState.BINDING)
        return nodes

    @property
    def queue_state(self) -> str:
        """Where the gang is in the queue: the state of its entry, else in-flight or held; nothing if it is in none."""
        if (state := self.entry.state) is not None:
            return state.value
        if self.counts[MemberState.IN_FLIGHT] and self.missing:
            return PodState.IN_FLIGHT.value
        return MemberState.HELD.value if self.counts[MemberState.HELD] else ""

    @property
    def attempts(self) -> int:
        """Of the gang since it was placed last, or of the member that was tried most often by itself."""
        return max((self.entry.attempts, *(info.attempts for info in self.pods.values())))

    @property
    def can_release(self) -> bool:
        ready, held = self.counts[MemberState.READY], self.counts[MemberState.HELD]
        if self.object is None or self.problem:
            return False
        if self.above and (self.waits_for is not None or not all(each.shown.can_start for each in self.above)):
            return False
        return ready + held >= self.missing

    @property
    def timeout(self) -> float:
        return GROUP_TIMEOUT if self.object is None else self.object.timeout or GROUP_TIMEOUT

    @property
    def shortage(self) -> str:
        """Why members are held."""
        if self.object is None:
            return (
                f"the pod group cannot be read: {self.unreadable}"
                if self.unreadable
                else "the pod group does not exist"
            )
        if self.problem:
            return self.problem
        if self.total < self.minimum:
            return f"{self.total} of its pods exist, and at least {self.minimum} are needed"
        short = self.waits_for or next((each for each in self.above if not each.shown.can_start), None)
        if short is not None:
            return short.shortage
        together = f"{self.missing} more of its pods must be scheduled together"
        if preempting := self.counts[MemberState.PREEMPTING]:
            return f"{together}, once the victims of {preempting} of them are evicted"
        return f"{together}, but {self.counts[MemberState.BLOCKED]} of them are gated"

    def why_held(self, seconds: float) -> str:
        return f"waiting for pod group {self.ref} for {seconds:.0f} s: {self.shortage}"


def named_nodes(nodes: Counter[str]) -> tuple[str, ...]:
    """Those with the most members, as far as a Gang names them."""
    found: list[str] = []
    for node, _ in nodes.most_common():
        if node and sum(map(len, found)) + len(node) <= MAX_PLACED_ON_CHARACTERS:
            found.append(node)
    return tuple(found[:MAX_PLACED_ON])


def member_state(info: QueuedPodInfo) -> MemberState | None:
    """None if the pod is new or done."""
    if info.state is PodState.GATED:
        if info.gating_plugin == PREEMPTION:
            return MemberState.PREEMPTING
        return MemberState.HELD if info.gating_plugin in GANG_PLUGINS else MemberState.BLOCKED
    return _STATES.get(info.state)
