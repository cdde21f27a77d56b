"""The CPU cost of a decision by part: the cores are called directly, without a wire, and timed.

CPU time depends less on other load than wall time. Every node is considered for every pod.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from services.cycle import events as cycle
from services.cycle.core import CycleCore
from services.cycle.queue_client import MIN_PODS
from services.snapshot import events as snapshot
from services.snapshot.core import SnapshotCore
from services.worker import events as worker
from services.worker.core import WorkerCore
from shared.errors import InvariantBroken
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.codec import copy
from shared.messages.rounds import Proposals
from shared.messages.state import Assignment, Commit, Delta, NeedDeltas, OthersChanged
from shared.model.objects import ObjectKind, ObjectMeta, Pod, PodSpec, decode_node, decode_pod, object_from
from testing.inprocess.batches import batch_of
from testing.inprocess.workloads import CLAIM_TEMPLATES, WORKLOADS, Object, node

T = TypeVar("T")

SHARDS = 2
MAX_WARMING_UP = 256
PARTS = ("evaluate", "apply", "cycle", "snapshot")
"""Evaluation in the workers, applying deltas in the workers, the cycle, the snapshot's commit."""


@dataclass(frozen=True, slots=True)
class Case:
    """Round size 1 is strict mode."""

    nodes: int
    classes: int
    round_size: int
    pods: int
    workload: str = "plain"


@dataclass(slots=True)
class Costs:
    """Nanoseconds of CPU by part, both workers together."""

    pods: int = 0
    asks: int = 0
    by_part: dict[str, int] = field(default_factory=dict)

    def micros(self, part: str) -> float:
        """Microseconds per pod."""
        return self.by_part.get(part, 0) / 1000 / max(1, self.pods)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The cost of loading a cluster: decode it, feed the snapshot, load both workers."""

    nodes: int
    pods: int
    seconds: float
    peak_bytes: int


def cases(sizes: Iterable[int], pods: int, workloads: Iterable[str]) -> Iterator[Case]:
    """Workloads with constraints between pods have few enough classes that every pod fits."""
    for workload in workloads:
        for nodes in sizes:
            for classes in (1, 50) if workload == "plain" else (5,):
                yield Case(nodes, classes, 256, pods, workload)
                yield Case(nodes, classes, 1, max(1, pods // 8), workload)


def measure(case: Case) -> tuple[Costs, int]:
    """Steady-state costs, with every class seen before; and the memory of one worker."""
    bench = Bench(case)
    before = resident_bytes()
    bench.start_workers()
    warm_up = max(case.classes, min(case.round_size, MAX_WARMING_UP))
    pods = [decode_pod(msgspec.json.encode(bench.workload.pod(i, case.classes))) for i in range(warm_up + case.pods)]
    bench.run(pods[:warm_up])
    worker_bytes = (resident_bytes() - before) // SHARDS
    bench.costs = Costs()
    bench.run(pods[warm_up:])
    return bench.costs, worker_bytes


def measure_load(nodes: int, pods: int) -> Loaded:
    """From the API server's JSON to workers that can evaluate pods."""
    start = time.process_time()
    bench = Bench(Case(nodes, 50, 256, 0))
    for i in range(pods):
        bench.snapshot.handle(snapshot.PodSeen(_placed(bench.workload.pod(i, 50), i % nodes)), 0.0)
    bench.start_workers()
    placed = sum(core.table.pod_count for core in bench.workers.values())
    if placed != pods:
        raise InvariantBroken(f"the workers have {placed} of {pods} pods")
    return Loaded(nodes, pods, time.process_time() - start, peak_bytes())


class Bench:
    """A cluster, and rounds on it with the CPU time of each part."""

    def __init__(self, case: Case) -> None:
        self.costs = Costs()
        self.workers: dict[str, WorkerCore] = {}
        self.snapshot = SnapshotCore(1)
        self._decided = 0
        self._placed: list[Assignment] = []
        """Decided by the last batch, if pods churn."""
        self.workload = WORKLOADS[case.workload]
        self._frameworks: Mapping[str, Framework] = load_frameworks(None)
        self.cycle = CycleCore(1, self._frameworks, round_size=case.round_size)
        for i in range(case.nodes):
            self.snapshot.handle(snapshot.NodeSeen(decode_node(msgspec.json.encode(node(i)))), 0.0)
        for plural, obj in self.workload.objects(case.pods + MAX_WARMING_UP, case.classes):
            if plural == CLAIM_TEMPLATES:
                continue  # its claims are made below
            self.snapshot.handle(snapshot.ObjectSeen(object_from(ObjectKind(plural.removesuffix("s")), obj)), 0.0)
        for kind, obj in self.workload.of_devices(case.nodes, case.pods + MAX_WARMING_UP):
            self.snapshot.handle(snapshot.ObjectSeen(object_from(ObjectKind(kind), obj)), 0.0)

    def start_workers(self) -> None:
        for i in range(SHARDS):
            name = f"worker-{i}"
            self.workers[name] = WorkerCore(name, frozenset({i}), SHARDS, self._frameworks)
            self.workers[name].handle(copy(self.snapshot.state()), 0.0)
        self.cycle.handle(cycle.Workers({name: core.shards for name, core in self.workers.items()}, SHARDS), 0.0)

    def run(self, pods: list[Pod]) -> None:
        """Decide all pods, in batches of one round, or as many as the cycle pulls for a smaller one."""
        self._decided = 0
        size = max(self.cycle.round_size, MIN_PODS)
        for start in range(0, len(pods), size):
            batch = batch_of(pods[start : start + size], objects=self.snapshot.cluster.objects.current)
            effects = self._timed("cycle", partial(self.cycle.handle, batch, 0.0))
            leaving, self._placed = self._placed, []
            while effects:
                effects = self._carry_out(effects)
            if self.workload.churns:
                self._end(leaving)
        self.costs.pods += len(pods)
        if self._decided != len(pods):
            raise InvariantBroken(f"{self._decided} of {len(pods)} pods of the benchmark were decided")

    def _timed(self, part: str, call: Callable[[], T]) -> T:
        start = time.thread_time_ns()
        result = call()
        self.costs.by_part[part] = self.costs.by_part.get(part, 0) + time.thread_time_ns() - start
        return result

    def _carry_out(self, effects: list[cycle.Effect]) -> list[cycle.Effect]:
        following: list[cycle.Effect] = []
        for effect in effects:
            match effect:
                case cycle.Ask(worker=name, message=propose):
                    self.costs.asks += 1
                    for answer in self._timed("evaluate", partial(self.workers[name].handle, propose, 0.0)):
                        if isinstance(answer, worker.Answer) and isinstance(answer.message, Proposals):
                            following += self._timed("cycle", partial(self.cycle.handle, answer.message, 0.0))
                case cycle.SendCommit(message=commit):
                    following += self._commit(commit)
                case cycle.SendDeltas():
                    following += self._tell_snapshot(NeedDeltas(self.cycle.epoch))
                case cycle.Decided():
                    self._decided += 1
                case other:
                    raise InvariantBroken(f"a benchmark's pod was not decided: {other}")
        return following

    def _commit(self, commit: Commit) -> list[cycle.Effect]:
        """Persistence and binding are not measured."""
        self._placed += [decision.assignment for decision in commit.decisions]
        return self._tell_snapshot(commit)

    def _end(self, pods: Sequence[Assignment]) -> None:
        """The watch shows that these are bound and their claims allocated, and then that both are gone."""
        claims = self.snapshot.cluster.objects.devices.claims
        bound: list[snapshot.WatchEvent] = []
        gone: list[snapshot.WatchEvent] = []
        for of in pods:
            pod = ObjectMeta(name=of.name, namespace=of.namespace, uid=of.uid)
            bound.append(snapshot.PodSeen(Pod(metadata=pod, spec=PodSpec(node_name=of.node))))
            gone.append(snapshot.PodDeleted(of.uid))
            for each in of.devices.claims if of.devices is not None else ():
                bound.append(snapshot.ObjectSeen(msgspec.structs.replace(claims[each.key], promised=False)))
                gone.append(snapshot.ObjectGone(ObjectKind.RESOURCE_CLAIM, each.key))
        self._tell_snapshot(snapshot.WatchEvents(bound))
        self._tell_snapshot(snapshot.WatchEvents(gone))

    def _tell_snapshot(self, event: snapshot.Event) -> list[cycle.Effect]:
        following: list[cycle.Effect] = []
        for effect in self._timed("snapshot", partial(self.snapshot.handle, event, 0.0)):
            if isinstance(effect, Delta):
                for core in self.workers.values():
                    self._timed("apply", partial(core.handle, effect, 0.0))
            elif isinstance(effect, snapshot.Reply):
                following += self._timed("cycle", partial(self.cycle.handle, effect.message, 0.0))
            elif isinstance(effect, OthersChanged):
                following += self._timed("cycle", partial(self.cycle.handle, effect, 0.0))
        return following


def _placed(pod: Object, on: int) -> Pod:
    """A bound pod, as the watch shows it."""
    pod["spec"]["nodeName"] = node(on)["metadata"]["name"]
    return decode_pod(msgspec.json.encode(pod))


def resident_bytes() -> int:
    """Current memory of this process; 0 if unknown."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


def peak_bytes() -> int:
    """Peak memory of this process; 0 if unknown."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
