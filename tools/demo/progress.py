"""The progress of the demo, and its final report."""

import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testing.auditor.service import Auditor
from testing.auditor.violations import Invariant, Violation
from tools.api_objects import ObjectWriter
from tools.supervisor.pipeline import Pipeline

POLL_INTERVAL = 1.0
"""Seconds between polls of the queue and of CPU times."""
RATE_WINDOW = 3.0
"""Seconds over which the displayed rate is averaged."""
BAR = 40
CELLS_PER_LINE = 4
PLACES = ("active", "backoff", "unschedulable", "gated", "in flight", "binding")
_SAMPLE = re.compile(
    r'^(?:scheduler_pending_pods\{queue|flotilla_queue_pods\{place)="(?P<place>[^"]+)"\} (?P<count>\S+)$', re.MULTILINE
)
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
class Progress:
    """`rate`: recent bindings a second. `cpu`: current share of one CPU by process."""

    pods: int
    created: int
    bound: int
    seconds: float
    rate: float
    queues: Mapping[str, int] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)

    def block(self) -> list[str]:
        """Several lines, for a terminal."""
        bar = "█" * round(BAR * self.bound / max(1, self.pods))
        lines = [
            f"  {bar:░<{BAR}}  {self.bound:,} of {self.pods:,} bound",
            "",
            f"  created  {self.created:,}",
            f"  rate     {self.rate:,.0f} pods/s   after {self.seconds:.0f} s",
            f"  queue    {self._queues()}",
        ]
        width = max(map(len, self.cpu), default=0)
        cells = [f"{name:<{width}} {100 * share:>4.0f} %" for name, share in self.cpu.items()]
        rows = ["    ".join(cells[begin : begin + CELLS_PER_LINE]) for begin in range(0, len(cells), CELLS_PER_LINE)]
        return lines + [f"  {'' if i else 'CPU':<7}  {row}" for i, row in enumerate(rows)]

    def line(self) -> str:
        return (
            f"{self.seconds:5.1f} s  created {self.created:>7,}  bound {self.bound:>7,}  "
            f"{self.rate:>6,.0f}/s  CPU {100 * sum(self.cpu.values()):>3.0f} %  queue: {self._queues()}"
        )

    def _queues(self) -> str:
        return "  ".join(f"{name} {count:,}" for name, count in self.queues.items()) or "empty"


class Gauges:
    """Measures progress and CPU times from its creation on."""

    def __init__(self, pipeline: Pipeline, auditor: Auditor, writer: ObjectWriter, pods: int) -> None:
        self._pipeline = pipeline
        self._auditor = auditor
        self._writer = writer
        self._pods = pods
        self._began = time.monotonic()
        self._created_before = writer.created
        self._cpu_before = pipeline.cpu()
        self._last_cpu = (self._began, self._cpu_before)
        self._cpu_shares: dict[str, float] = {}
        self._queues: dict[str, int] = {}
        self._next_poll = self._began
        self._bound: deque[tuple[float, int]] = deque([(self._began, 0)])

    @property
    def bound(self) -> int:
        return self._auditor.counts().bound

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def failure(self) -> BaseException | None:
        """The failure of the pipeline, if any."""
        failure = self._pipeline.failure
        return failure.exception() if failure.done() else None

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds by process since the beginning."""
        return {name: seconds - self._cpu_before.get(name, 0.0) for name, seconds in self._pipeline.cpu().items()}

    async def poll(self) -> None:
        now = time.monotonic()
        self._bound.append((now, self.bound))
        while now - self._bound[0][0] > RATE_WINDOW:
            self._bound.popleft()
        if now >= self._next_poll:
            self._next_poll = now + POLL_INTERVAL
            before, old = self._last_cpu
            current = self._pipeline.cpu()
            if now > before:
                self._cpu_shares = {name: (current[name] - old.get(name, 0.0)) / (now - before) for name in current}
            self._last_cpu = (now, current)
            self._queues = await queued_pods(self._pipeline)

    def progress(self) -> Progress:
        (first, before), (last, now) = self._bound[0], self._bound[-1]
        return Progress(
            pods=self._pods,
            created=self._writer.created - self._created_before,
            bound=self.bound,
            seconds=self.seconds,
            rate=(now - before) / max(last - first, 0.001),
            queues=self._queues,
            cpu=self._cpu_shares,
        )

    async def idle(self) -> bool:
        """Whether no pod is assumed or queued."""
        self._queues = await queued_pods(self._pipeline)
        return self._auditor.counts().assumed == 0 and not any(self._queues.values())

    async def explanation(self) -> str:
        """Why pods are not bound yet."""
        self._queues = await queued_pods(self._pipeline)
        queued = ", ".join(f"{count:,} {name}" for name, count in self._queues.items()) or "empty"
        unready = await self._pipeline.unready()
        services = ", ".join(f"{name} is not ready ({reason})" for name, reason in unready.items())
        return f"{self.bound:,} of {self._pods:,} bound; queue: {queued}; {services or 'all services are ready'}"


async def queued_pods(pipeline: Pipeline) -> dict[str, int]:
    """The queue's non-empty places and their pods; nothing if the queue does not answer."""
    answer = await pipeline.ask("queue", "/metrics")
    return {} if answer is None else pods_by_place(answer.body)


def pods_by_place(exposition: str) -> dict[str, int]:
    """The queue's non-empty places and their pods, from its metrics."""
    found = {
        m["place"].replace("_", " ").replace("-", " "): int(float(m["count"])) for m in _SAMPLE.finditer(exposition)
    }
    return {place: found[place] for place in PLACES if found.get(place)}


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
