"""What a decision costs, by part, with no wire between the parts: the cores are called directly and timed.

CPU time, not wall time: other load on the machine then matters less.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from services.cycle import core as cycle
from services.inprocess.settings import load_frameworks
from services.snapshot import core as snapshot
from services.worker import core as worker
from shared.messages.codec import copy
from shared.messages.rounds import Proposals
from shared.messages.state import State
from shared.model.objects import Node, Pod, node_from, pod_from

T = TypeVar("T")

ZONES = 10
SHARDS = 2


@dataclass(slots=True)
class Costs:
    """Nanoseconds of CPU by part, over `pods` decisions in `rounds` rounds."""

    pods: int = 0
    rounds: int = 0
    by_part: dict[str, int] = field(default_factory=dict)

    def micros(self, part: str) -> float:
        return self.by_part.get(part, 0) / 1000 / max(1, self.pods)


@dataclass(frozen=True, slots=True)
class Case:
    nodes: int
    classes: int
    round_size: int
    pods: int


def cases(sizes: Iterable[int]) -> Iterator[Case]:
    for nodes in sizes:
        for round_size, pods in ((256, 10_240), (1, 1_000)):
            for classes in (1, 50):
                yield Case(nodes, classes, round_size, pods)


def make_node(i: int) -> Node:
    return node_from(
        {
            "metadata": {
                "name": f"node-{i:06}",
                "labels": {
                    "kubernetes.io/hostname": f"node-{i:06}",
                    "topology.kubernetes.io/zone": f"zone-{i % ZONES}",
                    "topology.kubernetes.io/region": "region-0",
                    "node.kubernetes.io/instance-type": f"type-{i % 5}",
                },
            },
            "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}},
        }
    )


def make_pod(i: int, kind: int, node: str | None = None) -> Pod:
    spec: dict[str, object] = {
        "containers": [
            {
                "name": "c",
                "image": "app:1",
                "resources": {"requests": {"cpu": f"{100 + kind}m", "memory": f"{500 + kind}Mi"}},
            }
        ]
    }
    if node is not None:
        spec["nodeName"] = node
    labels = {"app": f"app-{kind}"}
    return pod_from({"metadata": {"name": f"pod-{i}", "uid": f"uid-{i}", "labels": labels}, "spec": spec})


class Bench:
    """A cluster, and rounds on it with every part's time taken."""

    def __init__(self, nodes: int, round_size: int, bound: int = 0) -> None:
        frameworks = load_frameworks(None)
        self.costs = Costs()
        self.snapshot = snapshot.SnapshotCore(1)
        for i in range(nodes):
            self.snapshot.handle(snapshot.NodeSeen(make_node(i)), 0.0)
        for i in range(bound):
            pod = make_pod(-1 - i, i % 50, f"node-{i % nodes:06}")
            self.snapshot.handle(snapshot.PodSeen(pod), 0.0)
        state = self.snapshot.state()
        self.worker_bytes = 0
        self.workers = {f"w{i}": self._worker(i, frameworks, state) for i in range(SHARDS)}
        self.cycle = cycle.CycleCore(1, frameworks, round_size=round_size)
        self.cycle.handle(cycle.Workers({name: core.shards for name, core in self.workers.items()}), 0.0)
        self.decided = 0

    def _worker(self, i: int, frameworks: dict[str, worker.Framework], state: State) -> worker.WorkerCore:
        before = resident_bytes()
        core = worker.WorkerCore(f"w{i}", frozenset({i}), SHARDS, frameworks)
        core.handle(copy(state) if len(state.nodes) <= 20_000 else state, 0.0)
        self.worker_bytes = max(self.worker_bytes, resident_bytes() - before)
        return core

    def run(self, pods: list[Pod]) -> None:
        """Decides all of them."""
        size = self.cycle.round_size
        for start in range(0, len(pods), size):
            effects = self._timed("cycle", lambda s=start: self.cycle.handle(cycle.Batch(pods[s : s + size]), 0.0))  # type: ignore[misc]
            while effects:
                effects = self._carry_out(effects)
        self.costs.pods += len(pods)

    def _timed(self, part: str, call: Callable[[], T]) -> T:
        start = time.thread_time_ns()
        result = call()
        taken = time.thread_time_ns() - start
        self.costs.by_part[part] = self.costs.by_part.get(part, 0) + taken
        return result

    def _carry_out(self, effects: list[cycle.Effect]) -> list[cycle.Effect]:
        following: list[cycle.Effect] = []
        for effect in effects:
            match effect:
                case cycle.Ask(worker=name, message=propose):
                    self.costs.rounds += name == "w0"
                    for answer in self._timed("evaluate", lambda n=name, p=propose: self.workers[n].handle(p, 0.0)):  # type: ignore[misc]
                        if isinstance(answer, worker.Answer) and isinstance(answer.message, Proposals):
                            following += self._timed("cycle", lambda m=answer.message: self.cycle.handle(m, 0.0))  # type: ignore[misc]
                case cycle.Write(message=commit):
                    following += self._commit(commit)
                case cycle.Decided():
                    self.decided += 1
                case other:
                    raise RuntimeError(f"a benchmark's pod was not decided: {other}")
        return following

    def _commit(self, commit: cycle.Commit) -> list[cycle.Effect]:
        following: list[cycle.Effect] = []
        for effect in self._timed("snapshot", lambda: self.snapshot.handle(commit, 0.0)):
            match effect:
                case snapshot.Publish(delta=delta):
                    for core in self.workers.values():
                        self._timed("apply", lambda c=core: c.handle(delta, 0.0))  # type: ignore[misc]
                case snapshot.Reply(message=committed):
                    following += self._timed("cycle", lambda m=committed: self.cycle.handle(m, 0.0))  # type: ignore[misc]
                case _:
                    pass  # persisting and binding are not measured here
        return following


def measure(case: Case) -> Bench:
    """Costs in a steady state: every class has been seen before."""
    bench = Bench(case.nodes, case.round_size)
    bench.run([make_pod(10_000_000 + i, i % case.classes) for i in range(max(case.classes, min(case.round_size, 256)))])
    bench.costs = Costs()
    bench.run([make_pod(i, i % case.classes) for i in range(case.pods)])
    return bench


def resident_bytes() -> int:
    """Memory of this process now."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096
    except OSError:
        return 0


def encoded_size(message: object) -> int:
    return len(msgspec.msgpack.encode(message))
