"""Random histories of a correct scheduler have no violations; one wrong step is reported."""

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.messages.watch import Kind
from testing.auditor.core import Listed, WatchLost
from testing.auditor.violations import Invariant
from testing.builders import NodeBuilder, PodBuilder, node, pod
from tests.auditor.support import LAG, PATIENCE, Audit, entry, invariants, renewed, versioned

NODES = 3
CPU = 4
LABELS = ("red", "blue")


@dataclass
class World:
    """A cluster, and a scheduler that knows it without delay. `audit` sees nodes later, when they are sent."""

    audit: Audit
    nodes: dict[str, NodeBuilder] = field(default_factory=dict)
    pods: dict[str, PodBuilder] = field(default_factory=dict)
    unsent: list[NodeBuilder] = field(default_factory=list)
    assumed: dict[str, str] = field(default_factory=dict)
    version: int = 0
    created: int = 0
    pods_lost: bool = False
    nodes_lost: bool = False

    def step(self, rng: Random) -> None:
        steps = [self.create, self.assume, self.bind, self.finish, self.delete, self.relabel, self.send, self.pass_time]
        steps += [
            *3 * [self.create, self.assume, self.bind],
            self.look,
            self.break_pods,
            self.break_nodes,
            self.restore,
        ]
        rng.choice(steps)(rng)

    # What happens

    def create(self, rng: Random) -> None:
        self.created += 1
        made = pod(f"p{self.created % 4}").uid(f"uid-{self.created}").request(cpu=rng.randint(0, 3))
        if rng.random() < 0.5:
            made = made.node_selector(color=rng.choice(LABELS))
        if rng.random() < 0.5:
            made = made.host_port(rng.randint(80, 81))
        self.change(made)

    def assume(self, rng: Random) -> None:
        waiting = [uid for uid, made in self.pods.items() if not made.spec.node_name and uid not in self.assumed]
        places = [(uid, name) for uid in waiting for name in self.nodes if self.fits(self.pods[uid], name)]
        if places:
            uid, name = rng.choice(places)
            self.assumed[uid] = name

    def bind(self, rng: Random) -> None:
        if self.assumed:
            uid = rng.choice(sorted(self.assumed))
            name = self.assumed.pop(uid)
            self.change(self.pods[uid].on(name))

    def finish(self, rng: Random) -> None:
        running = sorted(uid for uid, made in self.pods.items() if made.spec.node_name)
        if running:
            self.change(self.pods[rng.choice(running)].phase("Succeeded"))

    def delete(self, rng: Random) -> None:
        if self.pods:
            uid = rng.choice(sorted(self.pods))
            made = self.pods.pop(uid)
            self.assumed.pop(uid, None)
            if not self.pods_lost:
                self.audit.lose(made)

    def relabel(self, rng: Random) -> None:
        name = rng.choice([f"n{number}" for number in range(NODES)])
        self.version += 1
        color, cpu = rng.choice(LABELS), rng.randint(CPU - 2, CPU + 2)
        self.nodes[name] = renewed(node(name).label(color=color).capacity(cpu=cpu), self.version)
        self.unsent.append(self.nodes[name])
        if not self.nodes_lost and rng.random() < 0.5:
            self.send(rng)

    def send(self, rng: Random) -> None:
        if not self.nodes_lost:
            self.audit.see(*self.unsent)
            self.unsent.clear()

    def pass_time(self, rng: Random) -> None:
        """Bindings under way are reported within the lag."""
        self.send(rng)
        for uid in sorted(self.assumed):
            self.change(self.pods[uid].on(self.assumed.pop(uid)))
        self.audit.wait(rng.choice([0.1, LAG - 1, LAG + 1, PATIENCE]))

    def look(self, rng: Random) -> None:
        waiting = [made for uid, made in self.pods.items() if not made.spec.node_name and uid not in self.assumed]
        self.audit.queue(active=waiting, binding=[self.pods[uid] for uid in self.assumed])
        self.audit.ledger(*(entry(self.pods[uid], name) for uid, name in self.assumed.items()))

    def break_pods(self, rng: Random) -> None:
        self.pods_lost = True
        self.audit.tell(WatchLost(Kind.POD))

    def break_nodes(self, rng: Random) -> None:
        self.nodes_lost = True
        self.audit.tell(WatchLost(Kind.NODE))

    def restore(self, rng: Random) -> None:
        if self.nodes_lost:
            self.nodes_lost = False
            self.unsent.clear()
            self.audit.tell(Listed(Kind.NODE, [made.build() for made in self.nodes.values()]))
        if self.pods_lost:
            self.pods_lost = False
            self.audit.tell(Listed(Kind.POD, [made.build() for made in self.pods.values()]))

    # Inside

    def change(self, made: PodBuilder) -> None:
        self.version += 1
        made = versioned(made, self.version)
        self.pods[made.metadata.uid] = made
        if not self.pods_lost:
            self.audit.see(made)

    def on(self, name: str) -> list[PodBuilder]:
        bound = [p for p in self.pods.values() if p.spec.node_name == name and p.status.phase != "Succeeded"]
        return bound + [self.pods[uid] for uid, where in self.assumed.items() if where == name]

    def fits(self, made: PodBuilder, name: str) -> bool:
        there, target = self.on(name), self.nodes[name]
        if made.spec.node_selector.items() - target.metadata.labels.items():
            return False
        if ports(made) & {port for other in there for port in ports(other)}:
            return False
        return not cpu(made) or cpu(made) + sum(map(cpu, there)) <= int(target.status.allocatable["cpu"].value)


def cpu(made: PodBuilder) -> int:
    return made.spec.containers[0].resources.requests["cpu"].value


def ports(made: PodBuilder) -> set[int]:
    return {port.host_port for port in made.spec.containers[0].ports}


def run(rng: Random) -> World:
    world = World(Audit())
    for number in range(NODES):
        made = node(f"n{number}").label(color=LABELS[number % 2]).capacity(cpu=CPU)
        world.nodes[f"n{number}"] = made
    world.audit.see(*world.nodes.values())
    for _ in range(rng.randint(10, 80)):
        world.step(rng)
    world.restore(rng)
    world.pass_time(rng)
    world.look(rng)
    world.audit.settle()
    return world


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_a_correct_history_has_no_violations(seed: int) -> None:
    world = run(Random(seed))
    assert world.audit.broken == []
    assert world.audit.finish(unbound=lambda record: True) == [] or world.audit.core.counts().waiting


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["twice", "crowd", "misplace", "drop", "keep", "invent"]))
def test_one_wrong_step_is_reported(seed: int, fault: str) -> None:
    world = run(Random(seed))
    audit = world.audit
    audit.wait(PATIENCE)
    victim = pod("victim").request(cpu=CPU)
    audit.see(versioned(victim, world.version + 1))
    match fault:
        case "twice":
            audit.see(versioned(victim.on("n0"), world.version + 2), versioned(victim.on("n1"), world.version + 3))
            expected = Invariant.BOUND_ONCE
        case "crowd":
            audit.see(versioned(pod("rival").request(cpu=CPU), 1), versioned(pod("rival").request(cpu=CPU).on("n0"), 2))
            audit.see(versioned(victim.on("n0"), world.version + 2))
            expected = Invariant.CAPACITY
        case "misplace":
            selective = pod("selective").node_selector(color="green")
            audit.bind(selective, "n0")
            expected = Invariant.CONSTRAINTS
        case "drop":
            for _ in range(2):
                audit.queue(active=waiting(world))
                audit.wait(PATIENCE)
            expected = Invariant.ACCOUNTED_FOR
        case "keep":
            audit.see(versioned(victim.on("n0"), world.version + 2))
            for _ in range(2):
                audit.wait(PATIENCE)
                audit.queue(active=[*waiting(world), victim])
            expected = Invariant.QUEUED_AND_BOUND
        case _:
            for _ in range(2):
                audit.queue(active=[*waiting(world), victim], backoff=[pod("ghost")])
                audit.wait(PATIENCE)
            expected = Invariant.ACCOUNTED_FOR
    assert expected in invariants(audit.settle())


def waiting(world: World) -> list[PodBuilder]:
    return [made for made in world.pods.values() if not made.spec.node_name]
