"""The cases, their nodes and pods, and the table of results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from shared.errors import UserError
from testing.inprocess.device_workloads import devices_per_node
from testing.inprocess.workloads import (
    CPU,
    CPU_OF_NODE,
    MAX_PODS_OF_NODE,
    PREEMPTING_GANGS,
    PREEMPTION,
    WORKLOADS,
    Object,
    Workload,
    node,
)
from tools.bench.pipeline.confirming import CONFIRM_AFTER
from tools.cli.processes import MIB

PLURALS = {"deviceclass": "deviceclasses", "resourceslice": "resourceslices"}
GROUPS = {
    "replicasets": "/apis/apps/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "podgroups": "/apis/scheduling.k8s.io/v1alpha2",
    **dict.fromkeys((*PLURALS.values(), "resourceclaimtemplates"), "/apis/resource.k8s.io/v1"),
}
"""Of kinds that are not of the core."""
KINDS = {**WORKLOADS, PREEMPTION.name: PREEMPTION, PREEMPTING_GANGS.name: PREEMPTING_GANGS}
PLAIN = "plain"
MIN_ROUNDS = 4
"""The first one or two end before the clock starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Round size 1 is strict mode. Without API calls the binder reports success at once."""

    api_calls: bool
    round_size: int
    classes: int
    nodes: int
    pods: int
    workload: str = PLAIN

    def make_nodes(self) -> Iterator[Object]:
        return (node(i) for i in range(self.nodes))

    def make_fillers(self) -> Iterator[Object]:
        """Pods that are on the nodes already."""
        return KINDS[self.workload].fillers(self.nodes)

    @property
    def preempts(self) -> bool:
        return KINDS[self.workload].preempts

    def make_pods(self) -> Iterator[Object]:
        """Pods of all classes in turn."""
        workload = KINDS[self.workload]
        return (workload.pod(i, self.classes) for i in range(self.pods))

    def make_objects(self) -> Iterator[tuple[str, Object]]:
        """Objects that must exist before the pods, as (path, object)."""
        return objects_of(KINDS[self.workload], self.nodes, self.pods, self.classes)


def objects_of(workload: Workload, nodes: int, pods: int, classes: int) -> Iterator[tuple[str, Object]]:
    """What must exist before this number of pods, as (path, object)."""
    of_nodes = ((PLURALS[kind], obj) for kind, obj in workload.of_nodes(nodes))
    for plural, obj in (*of_nodes, *workload.objects(pods, classes)):
        namespace = obj["metadata"].get("namespace")
        group = GROUPS.get(plural, "/api/v1")
        yield f"{group}/{f'namespaces/{namespace}/' if namespace else ''}{plural}", obj


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run. `decided`: in total; `pods`: decided while the clock ran; `cpu`: seconds by process in that time.

    `seconds` ends with the last decision, `bound_seconds` with the last pod bound (None without API calls).
    """

    decided: int
    pods: int
    seconds: float
    bound_seconds: float | None
    cpu: Mapping[str, float]
    asks: float
    """Requests to all workers per pod."""
    loading: float
    """Seconds from the first object created until the queue has all pods and the cycle is ready."""
    loading_cpu: Mapping[str, float]
    """CPU seconds by process until then."""
    early_rate: float | None
    """Decisions per second until the first ones were confirmed; None if none was while the clock ran."""
    own_cpu: float
    """CPU seconds of the benchmark itself while the clock ran."""
    memory: Mapping[str, int]
    """Bytes by process, the most that each held."""
    total_memory: int
    """Bytes, the most that all processes held at the same moment."""

    @property
    def rate(self) -> float:
        """Decisions per second."""
        return self.pods / max(self.seconds, 1e-9)

    @property
    def bound_rate(self) -> float | None:
        return None if self.bound_seconds is None else self.pods / max(self.bound_seconds, 1e-9)

    def micros(self, *kinds: str) -> float:
        """Microseconds of CPU per pod, of all processes of these kinds."""
        seconds = sum(self.cpu[name] for name in self.cpu if name.partition("-")[0] in kinds)
        return 1e6 * seconds / max(1, self.pods)


def check(case: Case) -> None:
    """UserError if not all pods fit, or too few would be left when the clock starts."""
    if case.preempts:
        _check_preemption(case)
        return
    devices = KINDS[case.workload].devices
    most = devices_per_node(devices) if devices else MAX_PODS_OF_NODE
    room = case.nodes * min(most, CPU_OF_NODE // (CPU + case.classes - 1))
    flag = "--strict-pods" if case.round_size == 1 else "--pods"
    if case.pods > room:
        raise UserError(
            f"{flag}: must be at most {room} for {case.classes} classes on {case.nodes} nodes, not {case.pods}"
        )
    least = max(MIN_ROUNDS * case.round_size, 2 * case.classes)
    if case.pods < least:
        raise UserError(
            f"{flag}: must be at least {least} for {case.classes} classes in rounds of {case.round_size}, "
            f"not {case.pods}"
        )


def _check_preemption(case: Case) -> None:
    """UserError without API calls, which evict the victims, or with more pods than nodes."""
    if not case.api_calls:
        raise UserError("--modes: preemption needs API calls (`with`), which evict the victims")
    if case.pods > case.nodes:
        flag = "--strict-pods" if case.round_size == 1 else "--pods"
        raise UserError(f"{flag}: must be at most {case.nodes}, as many as nodes, not {case.pods}")
    gang = KINDS[case.workload].gang
    if gang and case.pods % gang:
        flag = "--strict-pods" if case.round_size == 1 else "--pods"
        raise UserError(f"{flag}: must be a multiple of {gang}, the size of the gangs, not {case.pods}")


PROCESSES = {
    **{name: name for name in ("watcher", "queue", "snapshot", "cycle")},
    "worker": "workers",
    "binder": "binder",
    "core": "core",
    "pair": "pairs",
    "whole": "whole",
    "nats": "nats",
    "redis": "redis",
}
"""Titles of the columns, by kind of process."""
COLUMNS = (
    ("workload", -13),
    ("calls", 5),
    ("round", 6),
    ("classes", 7),
    ("pods", 6),
    ("seconds", 7),
    ("decided/s", 9),
    ("bound/s", 7),
    *((title, max(5, len(title))) for title in PROCESSES.values()),
    ("total", 5),
    ("simulator", 9),
    ("asks/pod", 8),
)


def heading() -> str:
    return _line([title for title, _ in COLUMNS])


def row(case: Case, run: Figures) -> str:
    costs = [run.micros(kind) for kind in PROCESSES]
    return _line(
        [
            case.workload,
            "yes" if case.api_calls else "no",
            "strict" if case.round_size == 1 else str(case.round_size),
            str(case.classes),
            f"{run.pods}",
            f"{run.seconds:.2f}",
            f"{run.rate:.0f}",
            "-" if run.bound_rate is None else f"{run.bound_rate:.0f}",
            *(f"{cost:.0f}" for cost in (*costs, sum(costs), run.micros("simulator"))),
            f"{run.asks:.3f}",
        ]
    )


def notes(run: Figures) -> Iterator[str]:
    """Below the row: how long loading took, CPU seconds and memory of each process, and what binding in bulk cost."""
    spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in run.loading_cpu.items())
    yield f"  loaded in {run.loading:.0f} s; CPU s: {spent}"
    held = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in run.memory.items())
    yield f"  MB, at most: {held}; all at once {run.total_memory / MIB:,.0f}"
    if run.early_rate is not None:
        yield (
            f"  until the first decisions were confirmed, after {CONFIRM_AFTER:g} s: {run.early_rate:.0f} decided/s; "
            f"the benchmark itself: {1e6 * run.own_cpu / run.pods:.0f} µs of CPU per pod"
        )


def spread(runs: Sequence[Figures]) -> str:
    """Minimum, median and maximum of several runs of one case."""
    rates = _three([run.rate for run in runs])
    totals = _three([run.micros(*PROCESSES) for run in runs])
    bound = [run.bound_rate for run in runs if run.bound_rate is not None]
    also = f", {_three(bound)} bound/s" if bound else ""
    return f"  min / median / max of {len(runs)}: {rates} decided/s{also}, {totals} µs in total"


def _three(values: Sequence[float]) -> str:
    return f"{min(values):.0f} / {median(values):.0f} / {max(values):.0f}"


def _line(cells: Sequence[str]) -> str:
    return " ".join(
        f"{cell:>{width}}" if width > 0 else f"{cell:<{-width}}"
        for cell, (_, width) in zip(cells, COLUMNS, strict=True)
    )
