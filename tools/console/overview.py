"""Figures for the overview: how fast pods are placed, how long they take, and how each process fares."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shared.messages.status import Distribution, ProcessStatus
from tools.console.cluster import ClusterModel
from tools.console.pending import PendingPods
from tools.status import findings, lags, total

WINDOW = 60.0
"""Seconds over which durations and rates of counters are shown."""
QUANTILES = (0.5, 0.9, 0.99)
DURATIONS: Mapping[str, str] = {
    "scheduler_pod_scheduling_sli_duration_seconds": "from the queue to the node",
    "scheduler_scheduling_attempt_duration_seconds": "an attempt",
    "flotilla_worker_answer_duration_seconds": "a worker's answer",
    "flotilla_bind_call_duration_seconds": "a call that binds",
    "flotilla_watch_lag_seconds": "from the API server",
}
"""Histograms of all processes, as they are called on the page."""
COUNTERS: Mapping[str, str] = {
    "flotilla_rounds_total": "rounds",
    "flotilla_commit_decisions_total": "decisions",
    "flotilla_commit_conflicts_total": "conflicts",
    "scheduler_schedule_attempts_total/": "attempts",
    "scheduler_preemption_goroutines_execution_total/": "preemptions",
}


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """`at`: Unix time. `rate`: pods that got a place, a second. `waiting`: pods in the queue."""

    at: float
    rate: float
    waiting: int
    placed: int


def sample(cluster: ClusterModel, pending: PendingPods, placed: int, seconds: float) -> Sample:
    """`placed` pods in that many seconds."""
    rate = max(0, placed) / max(seconds, 1e-3)
    return Sample(round(time.time(), 1), round(rate, 1), sum(pending.counts.values()), len(cluster.pods))


class Services:
    """What the processes say about themselves, and how that has changed within the window."""

    def __init__(self) -> None:
        self.shown: dict[str, Any] = {}
        self._told: deque[tuple[float, list[ProcessStatus]]] = deque()

    def take(self, statuses: list[ProcessStatus], now: float) -> None:
        self._told.append((now, statuses))
        while len(self._told) > 2 and now - self._told[1][0] >= WINDOW:
            self._told.popleft()
        self.shown = self._figures()

    def _figures(self) -> dict[str, Any]:
        (before_at, before), (at, now) = self._told[0], self._told[-1]
        recent = self._told[max(0, len(self._told) - 3)]
        return {
            "processes": list(_processes(recent[1], now)),
            "findings": [[finding.text, finding.wrong] for finding in findings(now)],
            "durations": list(_durations(before, now)),
            "counters": [
                [text, total(now, name), _rate(total(before, name), total(now, name), at - before_at)]
                for name, text in COUNTERS.items()
            ],
        }


def _identity(status: ProcessStatus) -> tuple[str, str, int, float]:
    return status.service, status.name, status.pid, status.started


def _processes(before: Sequence[ProcessStatus], now: Sequence[ProcessStatus]) -> Iterator[dict[str, Any]]:
    """`cpu`: the share of one CPU lately, or None if it is not known yet.

    Of services that share a process, only the first has it and `memory`.
    """
    seen: set[tuple[str, int]] = set()
    earlier = {_identity(each): each for each in before}
    for each, lag in zip(now, lags(now), strict=True):
        first, shared = earlier.get(_identity(each)), (each.host, each.pid) in seen
        seen.add((each.host, each.pid))
        elapsed = 0.0 if first is None else each.now - first.now
        yield {
            "service": each.service,
            "name": each.name,
            "role": each.role,
            "since": each.since,
            "term": each.term,
            "leader": each.leader,
            "host": each.host,
            "pid": each.pid,
            "cpu": None if first is None or elapsed <= 0 or shared else round((each.cpu - first.cpu) / elapsed, 3),
            "memory": None if shared else each.memory,
            "lag": lag,
            "problems": list(each.problems.values()),
        }


def _rate(before: float, now: float, seconds: float) -> float:
    return round(max(0.0, now - before) / seconds, 2) if seconds > 0 else 0.0


def _durations(before: Sequence[ProcessStatus], now: Sequence[ProcessStatus]) -> Iterator[list[Any]]:
    """Name, observations, and quantiles in seconds, of the window; if it has none, since the processes started."""
    earlier = {_identity(each): each for each in before}
    for name, text in DURATIONS.items():
        whole: dict[float, int] = {}
        recent: dict[float, int] = {}
        for each in now:
            distribution = each.distributions.get(name)
            if distribution is None:
                continue
            _add(whole, distribution, None)
            first = earlier.get(_identity(each))
            _add(recent, distribution, None if first is None else first.distributions.get(name))
        shown = recent if any(recent.values()) else whole
        if any(shown.values()):
            yield [text, sum(shown.values()), [_quantile(shown, share) for share in QUANTILES], shown is recent]


def _add(buckets: dict[float, int], now: Distribution, before: Distribution | None) -> None:
    counts = now.counts
    if before is not None and before.bounds == now.bounds:
        counts = tuple(max(0, later - earlier) for later, earlier in zip(now.counts, before.counts, strict=False))
    for bound, count in zip((*now.bounds, float("inf")), counts, strict=False):
        buckets[bound] = buckets.get(bound, 0) + count


def _quantile(buckets: Mapping[float, int], share: float) -> float | None:
    """Interpolated within its bucket, as Prometheus does; beyond the last bound, that bound."""
    left = share * sum(buckets.values())
    lower = 0.0
    for bound, count in sorted(buckets.items()):
        if count and left <= count:
            return lower if bound == float("inf") else lower + (bound - lower) * left / count
        left -= count
        lower = lower if bound == float("inf") else bound
    return lower or None
