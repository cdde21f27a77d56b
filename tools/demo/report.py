"""The demo's final report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testing.auditor.violations import Invariant, Violation

CHECKS = (
    ("every pod is bound exactly once", (Invariant.BOUND_ONCE, Invariant.ALL_BOUND, Invariant.QUEUED_AND_BOUND)),
    ("every node admits its pods: selectors, affinity, taints", (Invariant.CONSTRAINTS,)),
    ("no node exceeds its capacity, no host port is used twice", (Invariant.CAPACITY, Invariant.HOST_PORTS)),
    (
        "the queue and the ledger of assumed pods are empty",
        (Invariant.LEDGER_ENDS, Invariant.PERMIT_ENDS, Invariant.ACCOUNTED_FOR),
    ),
)
SERVERS = ("nats-server", "redis-server", "simulator")
MAX_DETAIL = 300


@dataclass(frozen=True, slots=True)
class Result:
    """`cpu`: seconds by process, from the first pod created until the end."""

    pods: int
    bound: int
    seconds: float
    median: float
    p99: float
    cpu: Mapping[str, float]
    violations: Sequence[Violation]

    @property
    def passed(self) -> bool:
        return self.bound == self.pods and not self.violations


def report(result: Result) -> list[str]:
    rate = result.bound / max(result.seconds, 1e-9)
    return [
        "",
        f"  {result.bound:,} of {result.pods:,} pods bound in {result.seconds:.1f} s: {rate:,.0f} pods/s, "
        f"latency {result.median:.2f} s (median), {result.p99:.2f} s (p99)",
        *_costs(result),
        "",
        *verdicts(result.violations),
    ]


def _costs(result: Result) -> list[str]:
    """CPU per pod: of each kind of service, and of the servers."""
    micros: dict[str, float] = {}
    for name, seconds in result.cpu.items():
        kind = name if name in SERVERS else name.partition("-")[0]
        micros[kind] = micros.get(kind, 0.0) + 1e6 * seconds / max(1, result.bound)
    services = {kind: cost for kind, cost in micros.items() if kind not in SERVERS}
    servers = {kind: cost for kind, cost in micros.items() if kind in SERVERS}
    parts = (("services", services), ("servers", servers))
    return [
        f"  CPU per pod, {title}: {sum(costs.values()):,.0f} µs "
        f"({', '.join(f'{kind} {cost:,.0f}' for kind, cost in costs.items())})"
        for title, costs in parts
        if costs
    ]


def verdicts(violations: Sequence[Violation]) -> list[str]:
    """A line for each check, and an example of each violated one."""
    lines: list[str] = []
    for text, invariants in CHECKS:
        broken = [violation for violation in violations if violation.invariant in invariants]
        lines.append(verdict(text, not broken))
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            lines.append(f"      {str(broken[0]).splitlines()[0][:MAX_DETAIL]}{more}")
    return lines


def verdict(text: str, passed: bool) -> str:
    return f"  {'✓' if passed else '✗'} {text}"
