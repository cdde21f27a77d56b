"""Answers `AskStatus`: what this process is, how it fares, and a small part of its metrics. Nothing is sent unasked."""

import os
import platform
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from itertools import pairwise

import psutil

from shared.bus import Envelope
from shared.bus.subjects import STATUS_ANSWERS, STATUS_ASK
from shared.messages.status import LEADER, STANDBY, AskStatus, Distribution, ProcessStatus
from shared.runtime.context import Context, Leads, StandsBy
from shared.telemetry.metrics import Metrics

MAX_PENDING = 16
"""Questions that may wait; further ones are dropped."""
MAX_TEXT = 1024
"""Characters of a reason why the process is not ready."""
MAX_VALUES = 256
"""Values in one answer."""
VALUES: Mapping[str, str] = {
    "flotilla_watch_events_total": "",
    "flotilla_watch_unreadable_total": "",
    "scheduler_pending_pods": "queue",
    "flotilla_queue_pods": "place",
    "scheduler_schedule_attempts_total": "result",
    "scheduler_unschedulable_pods": "plugin",
    "scheduler_pod_scheduling_attempts_count": "",
    "scheduler_cache_size": "type",
    "flotilla_commit_decisions_total": "",
    "flotilla_commit_conflicts_total": "",
    "flotilla_closed_nodes": "",
    "flotilla_orders_waiting": "",
    "flotilla_rounds_total": "",
    "flotilla_cycle_pods": "",
    "flotilla_workers": "",
    "flotilla_worker_faults_total": "",
    "flotilla_worker_nodes": "",
    "flotilla_worker_shards": "",
    "flotilla_worker_reloads_total": "",
    "flotilla_binder_held": "",
    "flotilla_bind_calls_total": "result",
    "flotilla_events_dropped_total": "",
    "flotilla_events_failed_total": "",
    "scheduler_preemption_goroutines_execution_total": "result",
    "flotilla_queue_refused_total": "",
    "flotilla_cycle_refused_total": "",
    "flotilla_worker_refused_total": "",
    "flotilla_binder_refused_total": "",
    "flotilla_bus_refused_total": "reason",
    "flotilla_bus_dropped_total": "",
    "flotilla_bus_overflown_total": "",
    "flotilla_bus_forbidden_total": "",
    "flotilla_core_failures_total": "",
    "rest_client_requests_total": "code",
}
"""Counters and gauges in an answer, and the label by which each is split; empty: summed."""
DISTRIBUTIONS = (
    "flotilla_watch_lag_seconds",
    "scheduler_pod_scheduling_sli_duration_seconds",
    "scheduler_scheduling_attempt_duration_seconds",
    "flotilla_worker_answer_duration_seconds",
    "flotilla_bind_call_duration_seconds",
)
_HISTOGRAM_SAMPLES = tuple(f"{name}_{part}" for name in DISTRIBUTIONS for part in ("bucket", "sum"))


class StatusReporter:
    """`started`: when the process started, in Unix time."""

    def __init__(self, context: Context, started: float) -> None:
        self._context = context
        self._started = started
        self._process = psutil.Process()

    async def listen(self) -> None:
        """Answer from now on, whichever pipeline asks: the command line shows processes that meet by mistake."""
        await self._context.bus.subscribe(STATUS_ASK, AskStatus, self._on_asked, most_pending=MAX_PENDING, ours=False)

    def _on_asked(self, asked: AskStatus, envelope: Envelope) -> None:
        self._context.bus.post(STATUS_ANSWERS, self.status(asked.id))

    def status(self, id: str) -> ProcessStatus:
        context, reported = self._context, self._context.reported
        role, since, term, leader = "", 0.0, 0, ""
        match context.health.leadership:
            case Leads(term=term, since=since):
                role = LEADER
            case StandsBy(leader=leader, since=since):
                role = STANDBY
        return ProcessStatus(
            id=id,
            service=context.service,
            name=context.name,
            pid=os.getpid(),
            host=platform.node(),
            version=_version(),
            started=self._started,
            now=context.wall(),
            cpu=time.process_time(),
            memory=self._process.memory_info().rss,
            url=context.http_url,
            pipeline=context.bus.pipeline.id,
            role=role,
            since=since,
            term=term,
            leader=leader,
            problems={key: why[:MAX_TEXT] for key, why in context.health.checks().items() if why},
            positions={what: number() for what, number in reported.positions.items()},
            hears=tuple(sorted(reported.peers())),
            values=values_of(context.metrics),
            distributions=distributions_of(context.metrics),
            expected_workers=context.settings.expected_workers,
        )


@cache
def _version() -> str:
    return version("flotilla")


def values_of(metrics: Metrics) -> dict[str, float]:
    """The counters and gauges of VALUES that this process has; without those that are zero by label."""
    found: dict[str, float] = defaultdict(float)
    for metric in metrics.registry.restricted_registry(VALUES).collect():
        for sample in metric.samples:
            label = VALUES[sample.name]
            if not label:
                found[sample.name] += sample.value
            elif sample.value:
                found[f"{sample.name}/{sample.labels.get(label, '')}"] += sample.value
    return dict(list(found.items())[:MAX_VALUES])


def distributions_of(metrics: Metrics) -> dict[str, Distribution]:
    """The histograms of DISTRIBUTIONS that this process has, each summed over its labels."""
    cumulative: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    totals: dict[str, float] = defaultdict(float)
    for metric in metrics.registry.restricted_registry(_HISTOGRAM_SAMPLES).collect():
        for sample in metric.samples:
            if sample.name.endswith("_sum"):
                totals[metric.name] += sample.value
            else:
                cumulative[metric.name][float(sample.labels["le"])] += sample.value
    found = {}
    for name, buckets in cumulative.items():
        bounds = sorted(buckets)
        sums = [0, *(int(buckets[bound]) for bound in bounds)]
        counts = tuple(upper - lower for lower, upper in pairwise(sums))
        found[name] = Distribution(tuple(bounds[:-1]), counts, totals[name])
    return found
