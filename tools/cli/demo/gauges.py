"""How far the demo is, and at what cost."""

import time
from collections import deque

from testing.auditor.service import Auditor
from tools.cli.demo.creating import Creator
from tools.cli.demo.queues import pods_by_place
from tools.cli.demo.screen import Progress
from tools.supervisor.pipeline import Pipeline

ASK_EVERY = 1.0
"""Seconds between looks at the queue and at CPU times."""
RATE_SECONDS = 3.0
"""The rate shown is that of so many last seconds."""


class Gauges:
    """Reads from zero when it is made."""

    def __init__(self, pipeline: Pipeline, auditor: Auditor, creator: Creator, pods: int) -> None:
        self._pipeline = pipeline
        self._auditor = auditor
        self._creator = creator
        self._pods = pods
        self._began = time.monotonic()
        self._created_before = creator.created
        self._cpu_before = pipeline.cpu()
        self._last_cpu = (self._began, self._cpu_before)
        self._cpu_shares: dict[str, float] = {}
        self._queues: dict[str, int] = {}
        self._next_question = self._began
        self._bound: deque[tuple[float, int]] = deque([(self._began, 0)])

    @property
    def bound(self) -> int:
        return self._auditor.counts().bound

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def failure(self) -> BaseException | None:
        """Of the pipeline."""
        failure = self._pipeline.failure
        return failure.exception() if failure.done() else None

    def cpu_seconds(self) -> dict[str, float]:
        """By process, since the beginning."""
        return {name: seconds - self._cpu_before.get(name, 0.0) for name, seconds in self._pipeline.cpu().items()}

    async def look(self) -> None:
        now = time.monotonic()
        self._bound.append((now, self.bound))
        while now - self._bound[0][0] > RATE_SECONDS:
            self._bound.popleft()
        if now >= self._next_question:
            self._next_question = now + ASK_EVERY
            self._measure_cpu(now)
            await self._ask_queue()

    def progress(self) -> Progress:
        (first, before), (last, now) = self._bound[0], self._bound[-1]
        return Progress(
            pods=self._pods,
            created=self._creator.created - self._created_before,
            bound=self.bound,
            seconds=self.seconds,
            rate=(now - before) / max(last - first, 0.001),
            queues=self._queues,
            cpu=self._cpu_shares,
        )

    async def settled(self) -> bool:
        """Whether nothing is assumed or queued any more."""
        await self._ask_queue()
        return self._auditor.counts().assumed == 0 and not any(self._queues.values())

    async def explanation(self) -> str:
        """What holds the pods that are not bound."""
        await self._ask_queue()
        held = ", ".join(f"{count:,} {name}" for name, count in self._queues.items()) or "none"
        unready = await self._pipeline.unready()
        services = ", ".join(f"{name} is not ready ({reason})" for name, reason in unready.items())
        return (
            f"{self.bound:,} of {self._pods:,} are bound; in the queue: {held}; {services or 'all services are ready'}"
        )

    async def _ask_queue(self) -> None:
        answer = await self._pipeline.ask("queue", "/metrics")
        self._queues = pods_by_place(answer.body) if answer is not None else {}

    def _measure_cpu(self, now: float) -> None:
        before, old = self._last_cpu
        current = self._pipeline.cpu()
        if now > before:
            self._cpu_shares = {name: (current[name] - old.get(name, 0.0)) / (now - before) for name in current}
        self._last_cpu = (now, current)
