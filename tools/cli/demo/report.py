"""What the demo says in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testing.auditor.violations import Invariant, Violation
from tools.cli.demo.screen import table

CHECKS = (
    ("every pod is bound, and once", (Invariant.BOUND_ONCE, Invariant.ALL_BOUND, Invariant.QUEUED_AND_BOUND)),
    ("every pod is on a node that admits it", (Invariant.CONSTRAINTS,)),
    ("no node holds more than its allocatable", (Invariant.CAPACITY,)),
    ("no host port of a node is taken twice", (Invariant.HOST_PORTS,)),
    ("the ledger of assumed pods is empty", (Invariant.LEDGER_ENDS, Invariant.PERMIT_ENDS)),
    ("the queue is empty, and nothing is unaccounted for", (Invariant.ACCOUNTED_FOR,)),
)
SERVERS = ("nats-server", "redis-server", "simulator")
MICROS = 1e6
LONGEST_DETAIL = 300


@dataclass(frozen=True, slots=True)
class Result:
    """`cpu`: seconds by process, from the first pod created until the end."""

    pods: int
    bound: int
    seconds: float
    rate: float
    median: float
    p99: float
    cpu: Mapping[str, float]
    violations: Sequence[Violation]

    @property
    def held(self) -> bool:
        return self.bound == self.pods and not self.violations


def report(result: Result) -> list[str]:
    figures = [
        ("pods bound", f"{result.bound:,} of {result.pods:,}"),
        ("time", f"{result.seconds:.1f} s"),
        ("rate", f"{result.rate:,.0f} pods/s"),
        ("created to bound, median", f"{result.median:.2f} s"),
        ("created to bound, 99 %", f"{result.p99:.2f} s"),
    ]
    return ["", *table(figures), "", *_costs(result), "", *verdicts(result.violations)]


def _costs(result: Result) -> list[str]:
    pods = max(1, result.bound)
    services = {name: seconds for name, seconds in result.cpu.items() if name not in SERVERS}
    servers = {name: result.cpu[name] for name in SERVERS if name in result.cpu}
    rows = [(name, _micros(seconds, pods)) for name, seconds in services.items()]
    rows.append(("all services", _micros(sum(services.values()), pods)))
    rows += [(name, _micros(seconds, pods)) for name, seconds in servers.items()]
    rows.append(("everything", _micros(sum(result.cpu.values()), pods)))
    return ["  CPU a pod", *(f"  {line}" for line in table(rows))]


def _micros(seconds: float, pods: int) -> str:
    return f"{MICROS * seconds / pods:,.0f} µs"


def verdicts(violations: Sequence[Violation]) -> list[str]:
    lines: list[str] = []
    for text, invariants in CHECKS:
        broken = [violation for violation in violations if violation.invariant in invariants]
        lines.append(f"  {'✗' if broken else '✓'} {text}")
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            lines.append(f"      {str(broken[0]).splitlines()[0][:LONGEST_DETAIL]}{more}")
    return lines
