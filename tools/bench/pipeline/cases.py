"""What is measured: the cases, and the nodes and pods that they are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.errors import UserError
from testing.inprocess.workloads import CPU, CPU_OF_NODE, MOST_PODS_OF_NODE, WORKLOADS, Object, node

FEWEST_ROUNDS = 4
"""The first one or two pass before the clock starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A round size of 1 is strict. Without API calls the binder says at once that a pod is bound."""

    api_calls: bool
    round_size: int
    classes: int
    nodes: int
    pods: int

    workload: str = "plain"

    def make_nodes(self) -> Iterator[Object]:
        return (node(i) for i in range(self.nodes))

    def make_pods(self) -> Iterator[Object]:
        """Of all classes in turn."""
        workload = WORKLOADS[self.workload]
        return (workload.pod(i, self.classes) for i in range(self.pods))

    def make_objects(self) -> Iterator[tuple[str, Object]]:
        """What has to exist before pods, as (path, object)."""
        for plural, obj in WORKLOADS[self.workload].objects(self.pods, self.classes):
            namespace = obj["metadata"].get("namespace")
            group = "/apis/apps/v1" if plural == "replicasets" else "/api/v1"
            yield f"{group}/{f'namespaces/{namespace}/' if namespace else ''}{plural}", obj


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run. `decided` in all; `pods`: while the clock ran; `cpu`: seconds by process in this time.

    `seconds` ends with the last decision, `bound_seconds` with the last pod bound; none without API calls.
    """

    decided: int
    pods: int
    seconds: float
    bound_seconds: float | None
    cpu: Mapping[str, float]
    asks: float
    """To all workers, a pod."""

    @property
    def rate(self) -> float:
        """Decisions a second."""
        return self.pods / max(self.seconds, 1e-9)

    @property
    def bound_rate(self) -> float | None:
        return None if self.bound_seconds is None else self.pods / max(self.bound_seconds, 1e-9)

    def micros(self, *kinds: str) -> float:
        """Microseconds of CPU a pod, of all processes of these kinds."""
        seconds = sum(self.cpu[name] for name in self.cpu if name.partition("-")[0] in kinds)
        return 1e6 * seconds / max(1, self.pods)


def check(case: Case) -> None:
    """UserError where not all pods would have room, or hardly any is left when the clock starts."""
    room = case.nodes * min(MOST_PODS_OF_NODE, CPU_OF_NODE // (CPU + case.classes - 1))
    flag = "--strict-pods" if case.round_size == 1 else "--pods"
    if case.pods > room:
        raise UserError(
            f"{flag}: takes at most {room} pods of {case.classes} classes on {case.nodes} nodes, not {case.pods}"
        )
    least = max(FEWEST_ROUNDS * case.round_size, 2 * case.classes)
    if case.pods < least:
        raise UserError(
            f"{flag}: takes at least {least} pods of {case.classes} classes in rounds of {case.round_size}, "
            f"not {case.pods}"
        )
