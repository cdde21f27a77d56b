"""The status line of flotilla up: pods that wait, pods bound, pods a second, and what is not ready."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.supervisor.pipeline import Pipeline

INTERVAL = 1.0
"""Seconds between two looks."""
RATE_SPAN = 5
"""Looks over which pods a second are averaged."""
PENDING, BOUND = "scheduler_pending_pods", "scheduler_pod_scheduling_attempts_count"
QUERY = f"/metrics?name[]={PENDING}&name[]={BOUND}"
SAMPLE = re.compile(r'^(\w+)(?:\{queue="(\w+)"\})? ([\d.e+]+)$', re.MULTILINE)
QUEUE = "queue"


async def show_status(pipeline: "Pipeline") -> None:
    """Runs until it is cancelled."""
    from tools.supervisor.pipeline import by_reason

    rates = Rates()
    while True:
        answer = await pipeline.ask(QUEUE, QUERY) if pipeline.pid(QUEUE) else None
        counts = counts_in("" if answer is None else answer.body)
        unready = by_reason(await pipeline.unready())
        waiting = "; ".join(f"waiting for {names}: {reason}" for names, reason in unready)
        pods = described(counts, rates.add(time.monotonic(), counts.get(BOUND, 0.0))) if counts else ""
        pipeline.status(" | ".join(filter(None, (pods, waiting))))
        await asyncio.sleep(INTERVAL)


def counts_in(metrics: str) -> dict[str, float]:
    """Pending pods by queue, and those bound; empty before the queue leads."""
    return {label or name: float(value) for name, label, value in SAMPLE.findall(metrics)}


def described(counts: Mapping[str, float], rate: float) -> str:
    pending = {queue: number for queue, number in counts.items() if queue != BOUND and number}
    by_queue = ", ".join(f"{number:,.0f} {queue}" for queue, number in pending.items())
    waiting = f"{sum(pending.values()):,.0f} pending{f' ({by_queue})' if by_queue else ''}"
    return f"pods: {waiting}, {counts.get(BOUND, 0.0):,.0f} bound, {rate:,.0f} pods/s"


class Rates:
    """Pods a second over the last looks. A counter that falls belongs to a restarted queue, and begins again."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float]] = deque(maxlen=RATE_SPAN + 1)

    def add(self, at: float, bound: float) -> float:
        if self._looks and bound < self._looks[-1][1]:
            self._looks.clear()
        self._looks.append((at, bound))
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else 0.0
