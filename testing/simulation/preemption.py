"""A full cluster with pods of three priorities, so that most new pods preempt others."""

from collections.abc import Callable

from msgspec.structs import replace

from shared.kube.events_and_conditions import DISRUPTION_TARGET
from shared.messages.binding import Evict
from shared.messages.codec import Message
from shared.model.objects import (
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from testing.builders import pod, selector
from testing.simulation.apiserver import FINISHED
from testing.simulation.drawing import NODES
from testing.simulation.schedule import Schedule
from testing.simulation.world import World

LOWEST, MIDDLE, HIGHEST = 0, 10, 100
TIER = "tier"
TIERS = "xy"
AVAILABLE = 3
"""Pods of a tier that its disruption budget protects."""


class PreemptionWorld(World):
    """`victims`: for every victim, the last preemptor."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.victims: dict[str, str] = {}
        self._names: set[str] = set()
        """Of victims."""
        self._outstanding: dict[str, set[str]] = {}
        self.network.overhears.append(self._overhear)

    # Actions

    def create(self, name: str = "") -> None:
        new, uid = self.next_name()
        priority = self.dice.choices((LOWEST, MIDDLE, HIGHEST), (6, 3, 1))[0]
        built = pod(name or new).uid(uid).priority(priority)
        built = built.request(cpu=self.dice.choice(("500m", "1", "1500m", "2")), memory="100Mi")
        if self.dice.random() < 0.5:
            built = built.label({TIER: self.dice.choice(TIERS)})
        self.server.put_pod(built.build())

    def _recreate(self) -> None:
        """Replace a pod by one of the same name: an evicted one, as a StatefulSet does, or any."""
        there = {each.name for each in self.server.pods.values()}
        missing = self._any_of(self._names - there, str)
        if missing is not None and self.dice.random() < 0.7:
            self.create(missing)
        else:
            super()._recreate()

    def _rush(self) -> None:
        """Create three equal pods of high priority at once."""
        priority, cpu = self.dice.choice((MIDDLE, HIGHEST)), self.dice.choice(("1", "2"))
        for _ in range(3):
            name, uid = self.next_name()
            self.server.put_pod(pod(name).uid(uid).priority(priority).request(cpu=cpu, memory="100Mi").build())

    def _nominate(self) -> None:
        """Set or clear the nomination of a pod that has one."""
        nominated = [p for p in self.server.pods.values() if p.status.nominated_node_name and not p.spec.node_name]
        if (found := self._any_of(nominated, lambda each: each.uid)) is not None:
            where = self.dice.choice(("", "", *NODES))
            self.server.put_pod(replace(found, status=replace(found.status, nominated_node_name=where)))

    def _go(self) -> None:
        if (found := self._any_pod()) is not None:
            self.server.terminate(found.uid)

    def _count(self) -> None:
        """Update the disruption budget of each tier."""
        for tier in TIERS:
            bound = [p for p in self.server.pods.values() if p.spec.node_name and p.metadata.labels.get(TIER) == tier]
            healthy = sum(p.metadata.deletion_timestamp is None for p in bound)
            allowed = min(max(0, healthy - AVAILABLE), self.dice.choice((0, 1, 1, 2)))
            status = PodDisruptionBudgetStatus(disruptions_allowed=allowed)
            spec = PodDisruptionBudgetSpec(selector=selector({TIER: tier}))
            metadata = ObjectMeta(name=tier, namespace="default")
            self.server.put_object(PodDisruptionBudget(metadata=metadata, spec=spec, status=status))

    # What must hold

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return *super().checks(), self._unfair, self._could_preempt, self._nominated

    def _overhear(self, evict: Message) -> None:
        if not isinstance(evict, Evict):
            return
        for victim in evict.victims:
            self.victims[victim.uid] = evict.uid
            self._names.add(victim.name)
        still = {uid for uid in self._outstanding.get(evict.uid, ()) if self._makes_way(uid)}
        if still and self.is_calm:
            self._report(f"{evict.name} preempts again, and {sorted(still)} have not gone yet")
        self._outstanding[evict.uid] = {victim.uid for victim in evict.victims}
        for loser in evict.denominated:
            self._outstanding.pop(loser.uid, None)

    def _makes_way(self, uid: str) -> bool:
        """Whether it still takes room and is a victim."""
        pod = self.server.pods.get(uid)
        if pod is None or pod.status.phase == FINISHED:
            return False
        return any(condition.type == DISRUPTION_TARGET for condition in pod.status.conditions)

    def _unfair(self) -> list[str]:
        """Only victims were deleted."""
        return [f"{uid} was deleted and was no victim" for uid in self.server.evicted - self.victims.keys()]

    def _could_preempt(self) -> list[str]:
        """Pods that would fit on a node without its pods of lower priority."""
        left = [
            f"{each.name} ({each.uid}) could preempt on {where.name}"
            for each in self.server.pods.values()
            if not each.spec.node_name
            for where in self.server.nodes.values()
            if not where.spec.unschedulable and self._would_fit(each, where.name)
        ]
        return left[:3]

    def _would_fit(self, each: Pod, where: str) -> bool:
        on_node = [other for other in self.server.pods.values() if other.spec.node_name == where]
        lower = {other.uid for other in on_node if other.priority < each.priority}
        return bool(lower) and self.server.has_room(self.server.nodes[where], each, without=lower)

    def _nominated(self) -> list[str]:
        """No nomination is left."""
        nominated = {p.uid: p.status.nominated_node_name for p in self.server.pods.values() if not p.spec.node_name}
        wrong = [f"{uid} is still nominated to {where}" for uid, where in nominated.items() if where]
        queue, snapshot = self.leading("queue").core, self.leading("snapshot").core
        if queue is not None and queue.nominated():
            wrong.append(f"the queue still knows of nominations: {queue.nominated()}")
        if snapshot is not None and len(snapshot.cluster.nominator):
            wrong.append(f"the snapshot still has nominations: {[uid for uid, _ in snapshot.cluster.nominator]}")
        return wrong
