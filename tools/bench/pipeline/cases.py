"""The cases, their nodes and pods, and the figures of a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.errors import UserError
from testing.inprocess.workloads import CPU, CPU_OF_NODE, MOST_PODS_OF_NODE, WORKLOADS, Object, node

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

    workload: str = "plain"

    def make_nodes(self) -> Iterator[Object]:
        return (node(i) for i in range(self.nodes))

    def make_pods(self) -> Iterator[Object]:
        """Pods of all classes in turn."""
        workload = WORKLOADS[self.workload]
        return (workload.pod(i, self.classes) for i in range(self.pods))

    def make_objects(self) -> Iterator[tuple[str, Object]]:
        """Objects that must exist before the pods, as (path, object)."""
        for plural, obj in WORKLOADS[self.workload].objects(self.pods, self.classes):
            namespace = obj["metadata"].get("namespace")
            group = "/apis/apps/v1" if plural == "replicasets" else "/api/v1"
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
    room = case.nodes * min(MOST_PODS_OF_NODE, CPU_OF_NODE // (CPU + case.classes - 1))
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
