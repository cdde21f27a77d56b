"""Random clusters and pods, bad luck for messages, and an auditor who checks every decision when it is made."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from services.cycle import events as cycle
from services.snapshot import events as snapshot
from shared.framework.profile import Framework
from shared.messages.binding import Evict, Evicted
from shared.messages.evaluation import Ties
from shared.messages.preemption import Candidates, Preempt
from shared.messages.queue import Gang
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Commit, Committed, Conflict, Delta, Heartbeat, LedgerEntry, PodPlaced, State
from shared.model.affinity import is_tolerated
from shared.model.load import PodLoad, load_of
from shared.model.objects import Node, Pod
from shared.model.resources import allocatable
from shared.plugins.single_node import CORDON as UNSCHEDULABLE
from shared.plugins.single_node import conflict
from shared.store.schema import Persist
from testing.builders import NodeBuilder, PodBuilder, expr, node, pod
from testing.inprocess.pipeline import Fate, Outcome, Pipeline, bound, reliable
from tests.rounds.support import FRAMEWORKS, apply_change

GPU = "example.com/gpu"
LOSSY = (Propose, Proposals, Commit, Committed, Delta, Heartbeat, State, Preempt, Candidates, Evict, Evicted)
DELAYS = (0.0, 0.001, 0.02, 0.2, 1.5)
MAX_BAD_LUCK_IN_A_ROW = 3


class BadLuck:
    """Loses, doubles, delays and reorders messages; never more than a few losses of one kind in a row."""

    def __init__(self, seed: int, rate: float) -> None:
        self._dice = random.Random(seed)
        self._rate = rate
        self._in_a_row: Counter[type] = Counter()
        self.over = False

    def __call__(self, message: object) -> Sequence[float]:
        kind = type(message)
        if self.over or not isinstance(message, LOSSY) or self._dice.random() >= self._rate:
            self._in_a_row[kind] = 0
            return (0.0,)
        mishap = self._dice.choice(("lost", "late", "doubled"))
        if mishap == "lost" and self._in_a_row[kind] < MAX_BAD_LUCK_IN_A_ROW:
            self._in_a_row[kind] += 1
            return ()
        return tuple(self._dice.choice(DELAYS) for _ in range(2 if mishap == "doubled" else 1))


class Audited(Pipeline):
    """A pipeline whose every decision is checked against the state it was made in, in the plainest way."""

    def __init__(
        self,
        *,
        shards: int,
        round_size: int,
        fate: Fate = reliable,
        ties: Ties | None = None,
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
    ) -> None:
        self.told: list[Outcome] = []
        self.nodes: dict[str, Node] = {}
        self.placed: dict[str, tuple[str, PodLoad]] = {}
        self.submitted: dict[str, Pod] = {}
        self.decisions: list[tuple[str, str]] = []
        self.conflicts: list[Conflict] = []
        self.nominated: set[str] = set()
        super().__init__(frameworks, shards=shards, round_size=round_size, fate=fate, ties=ties)

    def submit(self, pods: Sequence[Pod], seq: int = 0, gang: Gang | None = None) -> None:
        self.submitted |= {each.uid: each for each in pods}
        super().submit(pods, seq, gang)

    def step(self) -> bool:
        went_on = super().step()
        self.cycle.validate()
        self.snapshot.validate()
        return went_on

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def _carry_out_cycle(self, effects: Iterable[cycle.Effect]) -> None:
        effects = list(effects)
        self.told += [effect for effect in effects if isinstance(effect, Outcome)]
        self.nominated |= {
            each.uid
            for effect in effects
            if isinstance(effect, cycle.SendCommit)
            for each in effect.message.nominations
        }
        super()._carry_out_cycle(effects)

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect]) -> None:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, Persist):
                if effect.answer is not None:
                    self.conflicts += effect.answer.conflicts
                if effect.delta is not None:
                    self._apply(effect.delta, {entry.uid: entry for entry in effect.ledger})
        super()._carry_out_snapshot(effects)

    def _apply(self, delta: Delta, decided: Mapping[str, LedgerEntry]) -> None:
        for change in delta.changes:
            if isinstance(change, PodPlaced) and change.uid in decided:
                assert change.uid not in self.placed, "decided while it holds a place"
                assert decided[change.uid].node == change.node
                self._check(self.submitted[change.uid], self.nodes[change.node])
                self.decisions.append((change.uid, change.node))
            apply_change(self.nodes, self.placed, change, delta.loads)

    def _check(self, wanted: Pod, where: Node) -> None:
        loads = [load for name, load in self.placed.values() if name == where.name]
        why = violations(wanted, where, loads)
        assert not why, f"{wanted.key} on {where.name}: {', '.join(why)}"


def violations(wanted: Pod, where: Node, there: Sequence[PodLoad]) -> list[str]:
    """What speaks against a pod on a node with these pods: the rules of the world that is generated here."""
    has, used = allocatable(where), Counter[str]()
    for load in there:
        used.update(load.requests)
    wants = load_of(wanted)
    short = [
        f"{name} is short"
        for name, amount in wants.requests.items()
        if amount and amount > has.get(name, 0) - used[name]
    ]
    if len(there) + 1 > has.get("pods", 0):
        short.append("too many pods")
    taken = [port for load in there for port in load.ports]
    if any(conflict(mine, port) for mine in wants.ports for port in taken):
        short.append("a port is taken")
    tolerations = wanted.spec.tolerations
    hard = [taint for taint in where.spec.taints if taint.effect in ("NoSchedule", "NoExecute")]
    if not all(is_tolerated(taint, tolerations) for taint in hard):
        short.append("a taint")
    if where.spec.unschedulable and not is_tolerated(UNSCHEDULABLE, tolerations):
        short.append("cordoned")
    labels = where.metadata.labels
    if any(labels.get(key) != value for key, value in wanted.spec.node_selector.items()):
        short.append("the selector")
    return short


# Things to be in the world


class World:
    """A source of nodes and pods: the same seed, the same world."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._kinds = [self._kind() for _ in range(self.dice.randint(1, 6))]
        self._pods = 0

    def a_node(self, name: str) -> Node:
        roll = self.dice
        made = node(name).capacity(
            cpu=roll.choice([1, 2, 4, 8]), memory=roll.choice(["2Gi", "8Gi"]), pods=roll.choice([3, 10, 110])
        )
        made = made.label(disk=roll.choice(["ssd", "hdd"]), zone=roll.choice("xyz"))
        return self._oddities(made).build()

    def _oddities(self, made: NodeBuilder) -> NodeBuilder:
        odd = self.dice.random()
        if odd < 0.1:
            return made.taint("dedicated", "batch")
        if odd < 0.15:
            return made.unschedulable()
        if odd < 0.3:
            soft = made.taint("slow", effect="PreferNoSchedule")
            return soft if odd < 0.22 else soft.taint("noisy", effect="PreferNoSchedule")
        return made.capacity({GPU: 2}) if odd < 0.45 else made

    def nodes(self, count: int) -> list[Node]:
        return [self.a_node(f"n{i:02}") for i in range(count)]

    def _kind(self) -> PodBuilder:
        roll = self.dice
        made = pod("kind").request(cpu=roll.choice(["50m", "300m", "1", "3"]), memory=roll.choice(["64Mi", "1Gi"]))
        made = made.label(app=f"app{roll.randrange(3)}").priority(roll.choice([0, 0, 5, 10]))
        for key, values in (("disk", ["ssd", "hdd"]), ("zone", ["x", "y"])):
            if roll.random() < 0.3:
                made = made.prefer_node(roll.choice([1, 30, 100]), expr(key, "In", roll.choice(values)))
        odd = roll.random()
        if odd < 0.15:
            return made.host_port(roll.choice([80, 443]))
        if odd < 0.3:
            return made.node_selector(disk=roll.choice(["ssd", "hdd", "tape"]))
        if odd < 0.4:
            return made.tolerate("dedicated", "batch", "NoSchedule")
        if odd < 0.5:
            return made.request({GPU: 1})
        return made.request(cpu=64) if odd < 0.55 else made

    def pods(self, count: int, *, of_one_class: bool = False) -> list[Pod]:
        """In queue order: by priority."""
        made: list[Pod] = []
        for _ in range(count):
            kind = self._kinds[0] if of_one_class else self.dice.choice(self._kinds)
            self._pods += 1
            name = f"p{self._pods:03}"
            made.append(replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=name)).build())
        return sorted(made, key=lambda each: -each.priority)

    def event(self, run: Audited) -> None:
        """Something that happens in the cluster without our doing."""
        roll = self.dice
        names = sorted(run.nodes)
        settled = sorted(set(run.placed) - set(run.snapshot.ledger))
        happening = roll.choice(("bound by others", "deleted", "added", "updated", "removed", "restart", "heartbeat"))
        if happening == "bound by others" and names:
            run.observe(snapshot.PodSeen(bound(self.pods(1)[0], roll.choice(names))))
        elif happening == "deleted" and settled:
            run.observe(snapshot.PodDeleted(roll.choice(settled)))
        elif happening == "added":
            run.observe(snapshot.NodeSeen(self.a_node(f"m{roll.randrange(1000):03}")))
        elif happening == "updated" and names:
            run.observe(snapshot.NodeSeen(self.a_node(roll.choice(names))))
        elif happening == "removed" and len(names) > 1:
            run.observe(snapshot.NodeGone(roll.choice(names)))
        elif happening == "heartbeat":
            run.observe(snapshot.Beat())
        elif happening == "restart":
            run.restart_worker(roll.choice(sorted(run.workers)))
