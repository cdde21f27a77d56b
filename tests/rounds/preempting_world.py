"""A full cluster in which pods of higher priority arrive, and an auditor of who makes way for whom."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping

from services.snapshot import events as snapshot
from shared.cluster.eviction_units import priority_of
from shared.messages.binding import BindingOrders, Evict
from shared.messages.evaluation import Ties
from shared.messages.state import Delta, LedgerEntry, NominationGone, PodNominated, PodPlaced
from shared.model.load import PodLoad, load_of
from shared.model.objects import Node, Pod
from testing.builders import node, pod
from testing.inprocess.pipeline import Fate, bound, reliable
from tests.rounds.queue_pipeline import QueuePipeline
from tests.rounds.support import FRAMEWORKS
from tests.rounds.world import Audited, violations

GRACE = 1.0
BEAT = 0.25


class Preempting(Audited, QueuePipeline):
    """Checks whenever something is decided, when that is made durable.

    - Room that is kept for a nominated pod goes to no other of at most its priority.
    - Victims are of lower priority than whom they make way for, and on its node.
    - No pod preempts again while its earlier victims are still there.

    `hold_bindings`: orders to bind stay where they are.
    """

    def __init__(
        self, *, shards: int, round_size: int, fate: Fate = reliable, ties: Ties | None = None, grace: float = GRACE
    ) -> None:
        self.promised: dict[str, tuple[str, PodLoad]] = {}
        self.evictions: list[Evict] = []
        self.hold_bindings = False
        self.asked_to_go: dict[str, set[str]] = {}
        super().__init__(shards=shards, round_size=round_size, fate=fate, ties=ties, frameworks=FRAMEWORKS)
        self._grace = grace

    @property
    def victims(self) -> list[str]:
        return sorted({victim.uid for evict in self.evictions for victim in evict.victims})

    def run_with_beats(self, seconds: float) -> None:
        """For a wire that loses the last delta, too."""
        beaten = self.now
        end = self.now + seconds
        while self.now < end and self.step():
            if self.now - beaten >= BEAT:
                beaten = self.now
                self.observe(snapshot.Beat())

    def _apply(self, delta: Delta, decided: Mapping[str, LedgerEntry]) -> None:
        for change in delta.changes:
            if isinstance(change, PodNominated):
                self.promised[change.uid] = (change.node, delta.loads[change.load])
            elif isinstance(change, NominationGone):
                self.promised.pop(change.uid, None)
                self.asked_to_go.pop(change.uid, None)
            elif isinstance(change, PodPlaced):
                assert change.uid not in self.promised, "it has a place, and room is kept for it"
        super()._apply(delta, decided)

    def _check(self, wanted: Pod, where: Node) -> None:
        super()._check(wanted, where)
        groups = self.snapshot.cluster.objects.pod_groups
        promised = [load for name, load in self.promised.values() if name == where.name]
        own = priority_of(load_of(wanted), groups)
        kept = [load for load in promised if priority_of(load, groups) >= own]
        there = [load for name, load in self.placed.values() if name == where.name]
        why = violations(wanted, where, [*there, *kept])
        assert not why, f"{wanted.key} takes room on {where.name} that is kept for others: {', '.join(why)}"

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect]) -> None:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, Evict):
                self._audit(effect)
        super()._carry_out_snapshot(effects)

    def _bind_all(self, orders: BindingOrders) -> None:
        if not self.hold_bindings:
            super()._bind_all(orders)

    def _audit(self, evict: Evict) -> None:
        preemptor = self.submitted[evict.uid]
        for victim in evict.victims:
            where, load = self.placed[victim.uid]
            assert where == evict.node
            assert priority_of(load, self.snapshot.cluster.objects.pod_groups) < preemptor.priority
        going = {
            uid for uid in self.asked_to_go.get(evict.uid, ()) if uid in self.placed and self.placed[uid][1].terminating
        }
        assert not going, f"{preemptor.key} preempts again while {going} have not gone yet"
        self.asked_to_go[evict.uid] = {victim.uid for victim in evict.victims}
        self.evictions.append(evict)


class Full:
    """A cluster without room for anything of a whole cpu, by seed."""

    def __init__(self, seed: int, nodes: int = 8) -> None:
        dice = random.Random(seed)
        self.nodes = [node(f"n{i}").capacity(cpu=4, memory="64Gi", pods=110).build() for i in range(nodes)]
        self.low: list[Pod] = []
        for where in self.nodes:
            left = 8
            while left:
                halves = min(left, dice.choice([1, 2, 2, 3]))
                left -= halves
                name = f"low{len(self.low):03}"
                made = pod(name).request(cpu=f"{500 * halves}m").priority(dice.randrange(4))
                made = made.started(f"2024-01-{1 + len(self.low) % 28:02}T00:00:00Z")
                self.low.append(bound(made.build(), where.name))
        kinds = [(dice.choice(["1", "1500m", "2"]), dice.choice([5, 5, 10])) for _ in range(3)]
        self.high: list[Pod] = []
        for i in range(nodes):
            cpu, priority = dice.choice(kinds)
            self.high.append(pod(f"high{i:02}").request(cpu=cpu).priority(priority).build())
        self.high.sort(key=lambda each: -each.priority)

    def into(self, run: Preempting) -> None:
        run.add_nodes(self.nodes)
        run.add_pods(self.low)
        run.settle()


def where_they_are(run: Preempting, pods: Iterable[Pod]) -> dict[str, str]:
    return {each.name: run.placed[each.uid][0] for each in pods if each.uid in run.placed}


def load_of_nodes(run: Preempting) -> Counter[str]:
    """Thousandths of a cpu that are taken, by node."""
    taken: Counter[str] = Counter()
    for name, load in run.placed.values():
        taken[name] += load.requests["cpu"]
    return taken
